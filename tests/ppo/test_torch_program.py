"""PPO with environments on the GPU, in Triton's interpreter, against PPO on the CPU."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

import operant
from operant.lang import to_float
from operant.models import PPO
from operant.training.callbacks import Callback
from operant.training.guard import NonFiniteError

pytestmark = [
    pytest.mark.usefixtures("interpreter"),
    pytest.mark.filterwarnings("ignore:(invalid value|overflow) encountered:RuntimeWarning"),
]
ENVS, STEPS = 10, 6
ROLLOUT = ENVS * STEPS


def ppo_on(backend: str, env: Any = "CartPole-v1", envs: int = ENVS, **options: Any) -> PPO:
    batch = operant.make(
        env, envs, backend=backend, autoreset_mode="SameStep", copy=False, max_episode_steps=3
    )
    given = {"num_steps": STEPS, "epochs": 2, "minibatches": 1, "seed": 5, "engine": "eager"}
    return PPO(batch, device="cpu", **{**given, **options})


class Watch(Callback):
    def __init__(self) -> None:
        self.metrics: list[dict[str, float]] = []
        self.episodes: list[tuple[np.ndarray, ...]] = []

    def on_update(self, ppo: PPO, metrics: dict[str, float]) -> None:
        self.metrics.append(dict(metrics))

    def on_episodes(self, ppo: PPO, episodes: Any) -> None:
        names = ("env_index", "step", "returns", "lengths", "truncated")
        self.episodes.append(tuple(getattr(episodes, name) for name in names))


def weights(ppo: PPO) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in ppo.policy.parameters()])


CLOCKS = ("seconds", "sps", "collect_seconds", "advantages_seconds", "update_seconds")


@pytest.mark.parametrize(
    ("env", "options"),
    [
        ("CartPole-v1", {"normalize_obs": True, "normalize_reward": True, "value_clip": 0.2}),
        ("Pendulum-v1", {"entropy_coef": 0.01, "clip": 0.05, "clip_schedule": "linear"}),
    ],
)
def test_the_same_training_as_on_the_cpu(env: str, options: dict[str, Any]) -> None:
    gpu, host = ppo_on("cuda", env, **options), ppo_on("cpu", env, **options)
    assert gpu.engine.name == host.engine.name == "eager"
    watches = Watch(), Watch()
    for ppo, watch in zip((gpu, host), watches, strict=True):
        ppo.learn(2 * ROLLOUT, watch)
    for ours, theirs in zip(watches[0].metrics, watches[1].metrics, strict=True):
        for name in set(ours) - set(CLOCKS):
            assert ours[name] == pytest.approx(theirs[name], rel=2e-3, abs=2e-5), name
    for ours, theirs in zip(watches[0].episodes, watches[1].episodes, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4)
    torch.testing.assert_close(weights(gpu), weights(host), rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(gpu.recent, host.recent, rtol=1e-4)
    assert all(seconds > 0 for seconds in gpu.timings)


def test_the_rollout_is_that_of_the_cpu_engine() -> None:
    gpu, host = ppo_on("cuda"), ppo_on("reference")
    for ppo in (gpu, host):
        ppo.engine.collect(0, 0)
        ppo.engine.advantages()
    for name in ("obs", "action", "reward", "terminated", "truncated"):
        assert np.array_equal(getattr(gpu.engine.buffer, name), getattr(host.engine.buffer, name))
    for name in ("log_prob", "value", "last_value", "final_value", "advantage", "target"):
        ours, theirs = (getattr(ppo.engine.buffer, name) for ppo in (gpu, host))
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def test_a_target_kl_ends_the_update_and_freezes_everything() -> None:
    # In the first epoch the policy is still the one that collected.
    one, whole = ppo_on("cuda", epochs=2), ppo_on("cuda", epochs=4, target_kl=1e-9)
    for ppo in (one, whole):
        ppo.learn(ROLLOUT)
    assert torch.equal(weights(one), weights(whole))
    assert torch.equal(one.optimizer.exp_avg, whole.optimizer.exp_avg)
    assert one.optimizer.count == whole.optimizer.count == 2
    far = ppo_on("cuda", epochs=4, target_kl=1e9)
    watch = Watch()
    far.learn(ROLLOUT, watch)
    assert watch.metrics[0]["epochs"] == 4
    assert far.optimizer.count == 4


def test_minibatches_of_different_sizes() -> None:
    ppo = ppo_on("cuda", minibatches=5)
    ppo.learn(ROLLOUT)
    assert ppo.optimizer.count == 10
    seen = torch.cat([ppo.engine.program.orders[0]]).sort().values
    assert torch.equal(seen, torch.arange(ROLLOUT, dtype=torch.int32))


@pytest.mark.parametrize("backend", ["cuda", "cpu"])
def test_save_and_go_on_anywhere(tmp_path: Any, backend: str) -> None:
    options = {"normalize_obs": True, "normalize_reward": True}
    whole, half = ppo_on("cuda", **options), ppo_on("cuda", **options)
    whole.learn(2 * ROLLOUT)
    half.learn(ROLLOUT)
    half.config = half.config.replaced({"run.total_steps": 2 * ROLLOUT})
    half.save(tmp_path)
    batch = operant.make(
        "CartPole-v1",
        ENVS,
        backend=backend,
        autoreset_mode="SameStep",
        copy=False,
        max_episode_steps=3,
    )
    loaded = PPO.load(tmp_path, batch, device="cpu", backend=backend)
    loaded.engine.collect(1, STEPS)
    half.engine.collect(1, STEPS)
    assert np.array_equal(loaded.engine.buffer.action, half.engine.buffer.action)
    assert np.array_equal(loaded.engine.buffer.reward, half.engine.buffer.reward)


def test_bad_numbers_are_found_and_undone() -> None:
    class Spoil(Callback):
        def on_rollout(self, ppo: PPO, buffer: Any) -> None:
            buffer.advantage.fill_(0)

        def on_update(self, ppo: PPO, metrics: dict[str, float]) -> None:
            with torch.no_grad():
                ppo.policy.critic_head.bias.fill_(float("inf"))

    ppo = ppo_on("cuda")
    with pytest.raises(NonFiniteError, match=r"iteration 1: the value of environment 0"):
        ppo.learn(3 * ROLLOUT, Spoil())
    assert ppo.optimizer.count == 2


def trained(ppo: PPO) -> list[torch.Tensor]:
    """Copies of what an iteration changes."""
    adam = ppo.optimizer
    tensors = [*ppo.policy.state_dict().values(), adam.exp_avg, adam.exp_avg_sq]
    return [tensor.detach().clone() for tensor in tensors]


class SpoilReward(Callback):
    """The second rollout has a reward that is none, found when it was trained on."""

    def __init__(self, change: Any) -> None:
        self.change = change

    def on_update(self, ppo: PPO, metrics: dict[str, float]) -> None:
        self.change(ppo)
        self.before, self.count = trained(ppo), ppo.optimizer.count

    def on_rollout(self, ppo: PPO, buffer: Any) -> None:
        if ppo.iteration == 1:
            buffer.reward[1, 2] = float("nan")


def add_to_parameters(ppo: PPO) -> None:
    with torch.no_grad():
        for parameter in ppo.policy.parameters():
            parameter += 0.125


def move_parameters(ppo: PPO) -> None:
    """The same, in other memory."""
    for parameter in ppo.policy.parameters():
        parameter.data = parameter.data + 0.125


@pytest.mark.parametrize("change", [add_to_parameters, move_parameters])
@pytest.mark.parametrize(
    ("backend", "engine"),
    [("cuda", "eager"), ("cuda", "fused"), ("cpu", "eager"), ("cpu", "fused")],
)
def test_the_guard_puts_everything_back(backend: str, engine: str, change: Any) -> None:
    options = {"normalize_obs": True, "normalize_reward": True, "epochs": 1, "minibatches": 2}
    ppo = ppo_on(backend, engine=engine, precision="fp32", hidden=(8,), **options)
    assert ppo.engine.name == engine
    spoil = SpoilReward(change)
    # On the GPU, the fused engine looks at the rollout when a figure was not finite.
    what = "reward of environment 2" if (backend, engine) == ("cuda", "fused") else "loss"
    with pytest.raises(NonFiniteError, match=f"iteration 1: the {what}"):
        ppo.learn(3 * ROLLOUT, spoil)
    assert ppo.optimizer.count == spoil.count == 2
    for found, good in zip(trained(ppo), spoil.before, strict=True):
        assert torch.equal(found, good)
    ppo.env.reset(seed=1)
    ppo.learn(2 * ROLLOUT)  # it goes on from there
    assert all(tensor.isfinite().all() for tensor in trained(ppo))


def test_nothing_is_copied_without_the_guard() -> None:
    ppo = ppo_on("cuda", nan_guard=False)
    ppo.learn(2 * ROLLOUT)
    assert ppo.engine.backup.copies == []


@pytest.mark.parametrize("engine", ["eager", "fused"])
def test_what_was_handed_out_is_not_overwritten(engine: str) -> None:
    ppo = ppo_on("cuda", "Pendulum-v1", engine=engine, precision="fp32", hidden=(8,))
    handed: list[tuple[np.ndarray, ...]] = []
    figures: list[dict[str, float]] = []
    copies = []
    for iteration in range(2):
        episodes = ppo.engine.collect(iteration, STEPS * iteration)
        ppo.engine.advantages()
        figures.append(ppo.engine.update(iteration, 1e-2, 0.2))
        handed.append(episodes.last(100))
        copies.append((dict(figures[-1]), *(array.copy() for array in handed[-1])))
    for found, arrays, (numbers, *kept) in zip(figures, handed, copies, strict=True):
        assert found == numbers
        for array, copy in zip(arrays, kept, strict=True):
            assert np.array_equal(array, copy)
    assert figures[0] != figures[1]
    assert [len(array) for array in handed[0]] == [20, 20]  # a limit of 3 steps, twice


def test_an_iteration_that_was_broken_off() -> None:
    class Break(Callback):
        def on_rollout(self, ppo: PPO, buffer: Any) -> None:
            raise KeyboardInterrupt

    ppo, whole = ppo_on("cuda"), ppo_on("cuda")
    state = ppo.env.get_state()
    with pytest.raises(KeyboardInterrupt):
        ppo.learn(ROLLOUT, Break())
    ppo.env.set_state(state)
    for trainer in (ppo, whole):
        trainer.learn(ROLLOUT)
    assert torch.equal(weights(ppo), weights(whole))


class Modes(Callback):
    def __init__(self) -> None:
        self.seen: list[bool] = []

    def on_rollout(self, ppo: PPO, buffer: Any) -> None:
        self.seen.append(ppo.policy.training)

    def on_update(self, ppo: PPO, metrics: dict[str, float]) -> None:
        self.seen.append(ppo.policy.training)


@pytest.mark.parametrize(
    ("backend", "engine"),
    [("cuda", "eager"), ("cuda", "fused"), ("cpu", "eager"), ("cpu", "fused")],
)
def test_callbacks_see_the_mode_of_the_part_that_ran(backend: str, engine: str) -> None:
    ppo, modes = ppo_on(backend, engine=engine, precision="fp32", hidden=(8,)), Modes()
    assert ppo.engine.name == engine
    ppo.learn(2 * ROLLOUT, modes)
    assert modes.seen == [False, True, False, True]


@pytest.mark.parametrize("name", ["Doors", "Switches", "Arm"])
def test_every_kind_of_space(tasks: dict[str, type[operant.Env]], name: str) -> None:
    gpu, host = (ppo_on(backend, tasks[name], epochs=1) for backend in ("cuda", "reference"))
    for ppo in (gpu, host):
        ppo.learn(ROLLOUT)
    assert np.array_equal(gpu.engine.buffer.obs, host.engine.buffer.obs)
    assert np.array_equal(gpu.engine.buffer.action, host.engine.buffer.action)
    torch.testing.assert_close(weights(gpu), weights(host), rtol=1e-3, atol=1e-5)


class Gates(operant.Env):
    """Which of five gates are open depends on the state."""

    class State(NamedTuple):
        x: float

    observation_space = Box(0.0, 1.0, (1,))
    action_space = Discrete(5)

    def reset(random: Any) -> Any:
        return Gates.State(random[0])

    def step(state: Any, action: Any, random: Any) -> Any:
        return Gates.State(random[1]), to_float(action), random[2] > 0.9

    def observe(state: Any) -> Any:
        return (state.x,)

    def action_mask(state: Any) -> Any:
        return tuple((state.x < 0.2 * k + 0.3) & (state.x > 0.2 * k - 0.3) for k in range(5))


def test_keys_are_those_of_the_iteration_that_runs() -> None:
    """Those of the next are computed ahead, but another may follow: one again, or one resumed."""
    from operant.ppo.kernels.cpu.shuffle import shuffle_keys

    ppo = ppo_on("cuda")
    ppo.learn(ROLLOUT)
    for iteration in (1, 2, 2, 64, 63):  # keys are computed in blocks of 64
        ppo.engine.collect(iteration, STEPS)
        ppo.engine.advantages()
        ppo.engine.update(iteration, 1e-3, 0.2)
        wanted = shuffle_keys(5, iteration, 2).view(np.int64)
        assert ppo.engine.memory.keys.gpu.tolist() == wanted.tolist()


def test_masks_reach_the_gpu() -> None:
    gpu, host = ppo_on("cuda", Gates), ppo_on("cpu", Gates)
    for ppo in (gpu, host):
        ppo.learn(ROLLOUT)
    mask = gpu.engine.buffer.action_mask[:STEPS]
    assert 0 < mask.float().mean() < 1
    assert mask.gather(-1, gpu.engine.buffer.action.unsqueeze(-1)).all()
    assert np.array_equal(gpu.engine.buffer.action, host.engine.buffer.action)
    assert np.array_equal(mask, host.engine.buffer.action_mask)
    torch.testing.assert_close(weights(gpu), weights(host), rtol=1e-3, atol=1e-5)


def test_the_graph_engine_needs_a_gpu() -> None:
    ppo = ppo_on("cuda", engine="graph")
    assert ppo.engine.name == "eager"
    assert ppo.engine_reason == (
        "the graph engine cannot do this job: it needs a GPU, and the policy is on cpu"
    )


def test_a_compiler_or_a_driver_that_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    from operant.ppo.engines.fused_gpu_program import FusedProgram
    from operant.toolchain.nvrtc import CompileError

    def refused(*_: Any) -> None:
        raise CompileError("the driver does not load it\nand more")

    monkeypatch.setattr(FusedProgram, "__init__", refused)
    ppo = ppo_on("cuda", engine="fused")
    assert ppo.engine.name == "eager"
    assert ppo.engine_reason == (
        "the fused engine cannot do this job: the driver does not load it; "
        "nor can the graph engine: it needs a GPU, and the policy is on cpu"
    )


# Kernels -------------------------------------------------------------------------------------
@pytest.mark.parametrize("size", [1, 3, 4, 6])
@pytest.mark.parametrize("seed", [0, 0x9234567890ABCDEF])
def test_the_policys_numbers_are_those_of_the_cpu(size: int, seed: int) -> None:
    from operant.ppo.kernels.triton.noise import fill_uniforms_triton
    from operant.training.noise import fill_uniforms

    ours, theirs = torch.empty(3, 37, size), np.empty((3, 37, size), np.float32)
    for first in (0, 2**33 + 7):
        fill_uniforms_triton(ours, seed, torch.tensor([first]))
        fill_uniforms(theirs, seed, first)
        assert np.array_equal(ours.numpy(), theirs)


@pytest.mark.parametrize("count", [1, 2, 7, 64, 1000, 4097])
def test_orders_are_those_of_the_cpu(count: int) -> None:
    from operant.ppo.kernels.cpu.shuffle import bits_for, shuffle_keys, shuffled_index
    from operant.ppo.kernels.triton.order import fill_orders

    keys = shuffle_keys(11, 3, 2)
    out = torch.empty(2, count, dtype=torch.int32)
    fill_orders(out, torch.from_numpy(keys.view(np.int64)))
    for epoch in range(2):
        wanted = [shuffled_index(k, count, bits_for(count), keys[epoch]) for k in range(count)]
        assert out[epoch].tolist() == wanted
        assert sorted(wanted) == list(range(count))


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 1.0])
@pytest.mark.parametrize("most", [1, 5, 100])
@pytest.mark.parametrize(("chunk", "block"), [(4, 64), (1024, 32), (1024, 1 << 13)])
def test_the_last_episodes(
    monkeypatch: pytest.MonkeyPatch, chunk: int, block: int, share: float, most: int
) -> None:
    from operant.ppo.kernels.triton import episodes

    monkeypatch.setattr(episodes, "CHUNK", chunk)
    monkeypatch.setattr(episodes, "MOST", block)
    random = np.random.default_rng(most)
    ended = random.random((9, 130)) < share
    cut = random.random(ended.shape) < 0.5
    report = random.standard_normal((*ended.shape, 4)).astype(np.float32)
    lengths = random.integers(1, 500, ended.shape).astype(np.int32)
    report[..., 1] = lengths.view(np.float32)
    out = torch.full((1 + 2 * most,), -1.0, dtype=torch.float64)
    flags = (torch.from_numpy(ended & ~cut), torch.from_numpy(ended & cut))
    episodes.last_episodes(*flags, torch.from_numpy(report), most, out)
    count = min(most, int(ended.sum()))
    assert out[0] == ended.sum()
    assert out[1 : 1 + count].tolist() == report[..., 0][ended][::-1][:count].tolist()
    assert out[1 + most : 1 + most + count].tolist() == lengths[ended][::-1][:count].tolist()
