"""Training where the arrays of a vector environment are: beside the engine in main memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode

from operant.models import PPO
from operant.ppo.engines.choose import choose_engine
from operant.ppo.engines.eager_device import DeviceEagerEngine
from operant.training.guard import NonFiniteError
from operant.vector.vector_batch import VectorBatch

from .tensor_envs import TensorWalk

MODES = list(AutoresetMode)


class Capsule:
    """An array of another library: all that is known of it is DLPack."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor

    def __dlpack__(self, **options: Any) -> Any:
        return self._tensor.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._tensor.__dlpack_device__()

    def __array_namespace__(self) -> Any:
        return Library

    dtype = property(lambda self: self._tensor.dtype)
    device = property(lambda self: self._tensor.device)


class Library:
    """Its namespace."""

    @staticmethod
    def from_dlpack(values: Any) -> Capsule:
        return Capsule(torch.utils.dlpack.from_dlpack(values))


class CapsuleWalk(TensorWalk):
    """Takes and gives nothing else."""

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        obs, info = super().reset(seed=seed, options=options)
        return Capsule(obs), info

    def step(self, actions: Any) -> Any:
        assert isinstance(actions, Capsule)
        obs, *results, info = super().step(actions._tensor)
        info = {name: Capsule(value) for name, value in info.items()}
        return Capsule(obs), *map(Capsule, results), info


def made(env: Any, device: str = "cpu", **options: Any) -> PPO:
    return PPO(
        VectorBatch(env),
        num_steps=16,
        minibatches=2,
        epochs=2,
        hidden=[8],
        engine="eager",
        device=device,
        seed=1,
        **options,
    )


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_it_learns_what_the_engine_in_main_memory_learns(
    mode: AutoresetMode, normalize: bool
) -> None:
    options = {"normalize_obs": normalize, "normalize_reward": normalize}
    host, there = (made(TensorWalk(6, mode=mode), **options) for _ in range(2))
    there.engine = DeviceEagerEngine(there.engine.job)
    for ppo in (host, there):
        ppo.learn(3 * 6 * 16)
    assert host.episodes == there.episodes > 20
    assert list(host.recent) == list(there.recent)
    for name, tensor in host.policy.state_dict().items():
        torch.testing.assert_close(tensor, there.policy.state_dict()[name], rtol=1e-4, atol=1e-5)
    assert there.buffer.truncated.any()
    host.env.reset(seed=1)  # what was made while training can be changed afterwards
    host.env._env._x.zero_()  # type: ignore[attr-defined]
    np.testing.assert_allclose(
        there.engine.state()["return_carry"], host.engine.state()["return_carry"], rtol=1e-5
    )


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_bonuses_are_those_of_the_engine_in_main_memory(mode: AutoresetMode, apart: bool) -> None:
    options = {"intrinsic.separate_value": apart, "intrinsic.random_steps": 0}
    bonuses = {"intrinsic": ["rnd", "icm", "count"], **options}
    host, there = (made(TensorWalk(6, mode=mode), **bonuses) for _ in range(2))
    there.engine = DeviceEagerEngine(there.engine.job)
    states = []
    for ppo in (host, there):
        ppo.learn(3 * 6 * 16)
        states.append(ppo.add_ons.state()["add_on_intrinsic"] | ppo.policy.state_dict())
    assert host.episodes == there.episodes > 20
    for name, array in states[0].items():
        if "count" not in name or "visits" in name:  # hashes of numbers that are rounded
            np.testing.assert_allclose(array, states[1][name], rtol=1e-3, atol=1e-4, err_msg=name)


def test_arrays_that_are_known_by_dlpack_alone() -> None:
    plain, capsules = made(TensorWalk(6)), made(CapsuleWalk(6))
    for ppo in (plain, capsules):
        ppo.engine = DeviceEagerEngine(ppo.engine.job)
        ppo.learn(2 * 6 * 16)
    for one, other in zip(plain.policy.parameters(), capsules.policy.parameters(), strict=True):
        assert one.equal(other)


def test_its_state_and_the_guard() -> None:
    ppo = made(TensorWalk(6), normalize_reward=True)
    engine = DeviceEagerEngine(ppo.engine.job)
    engine.collect(0, 0)
    engine.advantages()
    state = engine.state()
    assert state["return_carry"].any()
    other = DeviceEagerEngine(ppo.engine.job)
    other.set_state(state)
    np.testing.assert_array_equal(other.state()["return_carry"], state["return_carry"])
    inside: Any = ppo.env._env  # type: ignore[attr-defined]
    inside._x[2] = torch.nan
    with pytest.raises(NonFiniteError, match="observation of environment 2"):
        engine.collect(0, 0)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("mode", MODES)
def test_on_a_gpu(mode: AutoresetMode) -> None:
    batch = VectorBatch(TensorWalk(64, "cuda", mode))
    assert batch.device == torch.device("cuda", 0)
    host = made(TensorWalk(64, mode=mode))
    ppo = made(TensorWalk(64, "cuda", mode), "cuda")
    assert isinstance(choose_engine(ppo.engine.job).engine, DeviceEagerEngine)
    assert ppo.buffer.obs.device.type == "cuda"
    ppo.engine.collect(0, 0)
    host.engine.collect(0, 0)
    for name in ("obs", "reward", "terminated", "truncated"):
        one, other = getattr(ppo.buffer, name).cpu(), getattr(host.buffer, name)
        torch.testing.assert_close(one.float(), other.float(), rtol=1e-4, atol=1e-4)
    ppo.learn(2 * 64 * 16)
