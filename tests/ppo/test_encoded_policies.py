"""PPO on images, on Dict observations and with Dict actions, through environments of Gymnasium's
API: it learns, it is saved, and the engine is the right one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from operant.models import (
    PPO,
    GridEncoder,
    Joint,
    JointActorCritic,
    NatureCNN,
    SmallCNN,
    TreeNormalizer,
    policy_for,
)
from operant.ppo.engines.eager import IMAGE_SLICE, SLICE, slice_for
from operant.ppo.engines.fused_scope import why_not_fused
from operant.training.config import PolicyConfig
from operant.training.network import new_network
from operant.vector.foreign_batch import ForeignBatch


class Bright(gymnasium.Env[Any, Any]):
    """Say in which quarter of a picture the bright pixel is; the others are noise. Worth 1 a step,
    8 steps an episode."""

    observation_space = spaces.Box(0, 255, (10, 10, 1), np.uint8)
    action_space = spaces.Discrete(4)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._step = 0
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        y, x = self._where
        right = int(action) == 2 * (y >= 5) + (x >= 5)
        self._step += 1
        return self._seen(), float(right), False, self._step == 8, {}

    def _seen(self) -> np.ndarray:
        picture = self.np_random.integers(0, 60, (10, 10, 1), np.uint8)
        self._where = self.np_random.integers(0, 10, 2)
        picture[tuple(self._where)] = 255
        return picture


class Controls(gymnasium.Env[Any, Any]):
    """Copy what is seen: the goal as a button, the flags as lamps, the place, divided by 100, as
    the arm. Worth up to 2 a step, 4 steps an episode."""

    observation_space = spaces.Dict(
        {
            "at": spaces.Box(-100, 100, (2,), np.float64),
            "flags": spaces.MultiBinary(2),
            "goal": spaces.Discrete(3, start=1),
        }
    )
    action_space = spaces.Dict(
        {
            "arm": spaces.Tuple([spaces.Box(-2, 2, (2,), np.float64)]),
            "button": spaces.Discrete(3, start=1),
            "lamps": spaces.MultiBinary(2),
        }
    )

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._step = 0
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        seen = self._shown
        reward = float(action["button"] == seen["goal"])
        reward += float((action["lamps"] == seen["flags"]).mean())
        reward -= float(np.abs(action["arm"][0] - seen["at"] / 100).mean())
        self._step += 1
        return self._seen(), reward, False, self._step == 4, {}

    def _seen(self) -> dict[str, Any]:
        self._shown = {
            "at": self.np_random.uniform(-100, 100, 2),
            "flags": self.np_random.integers(0, 2, 2).astype(np.int8),
            "goal": self.np_random.integers(1, 4),
        }
        return self._shown


def trainer(env: type[gymnasium.Env[Any, Any]], **options: Any) -> PPO:
    defaults = {"num_steps": 32, "minibatches": 2, "epochs": 4, "gamma": 0.0, "seed": 1}
    batch = ForeignBatch(env, 32, backend="serial")
    return PPO(batch, **{**defaults, "device": "cpu", **options})


@pytest.mark.usefixtures("unseen_test")
def test_a_picture_is_learned() -> None:
    ppo = trainer(Bright, learning_rate=3e-3, total_steps=10240, hidden=())
    assert isinstance(ppo.policy.encode, SmallCNN)
    assert ppo.policy.obs_normalizer is None
    assert ppo.buffer.obs.dtype == torch.uint8
    ppo.learn(progress=False)
    assert ppo.mean_return > 7.2  # of 8; by chance 2


@pytest.mark.usefixtures("unseen_test")
def test_dict_observations_and_actions_are_learned(tmp_path: Path) -> None:
    ppo = trainer(Controls, learning_rate=4e-3, total_steps=20480, log_std=-0.5)
    assert isinstance(ppo.policy, JointActorCritic)
    assert isinstance(ppo.policy.obs_normalizer, TreeNormalizer)
    ppo.learn(progress=False)
    assert ppo.mean_return > 5.0  # of 8; by chance 0.6
    assert ppo.policy.obs_normalizer.normalizers[0].count == ppo.steps
    env = Controls()
    obs, _ = env.reset(seed=0)
    for deterministic in (True, False):
        action = ppo.predict(obs, deterministic=deterministic)
        assert env.action_space.contains(action)
    assert action["lamps"].dtype == np.int8
    many = ppo.predict({key: np.stack([leaf] * 3) for key, leaf in obs.items()})
    assert many["arm"][0].shape == (3, 2)
    assert many["button"].shape == (3,)
    with pytest.warns(UserWarning, match="when this is resumed, the environments begin new"):
        saved = ppo.save(tmp_path)
    again = PPO.load(saved, env=ForeignBatch(Controls, 32, backend="serial"))
    for name, tensor in again.policy.state_dict().items():
        assert torch.equal(tensor, ppo.policy.state_dict()[name]), name
    np.testing.assert_array_equal(again.predict(obs)["arm"][0], ppo.predict(obs)["arm"][0])


def test_slices_over_threads_give_the_same_weights() -> None:
    found = []
    for threads in (1, 2):
        ppo = trainer(Bright, num_steps=24, total_steps=768, threads=threads)
        assert ppo.engine.threads == threads
        ppo.learn(progress=False)  # minibatches of 384 samples: two slices
        found.append(torch.cat([p.detach().flatten() for p in ppo.policy.parameters()]))
    assert torch.equal(*found)


def test_networks_with_convolutions_take_smaller_slices() -> None:
    choice = spaces.Discrete(2)
    assert slice_for(policy_for(Bright.observation_space, choice)) == IMAGE_SLICE
    assert slice_for(policy_for(spaces.Box(-1, 1, (3,)), choice)) == SLICE


@pytest.mark.parametrize(
    ("env", "image", "text"),
    [
        (Bright, "auto", "not what SmallCNN makes of observations"),
        (Bright, "impala", "not what ImpalaCNN makes of observations"),
        (Controls, "auto", "it knows observations of one array, not Dict and Tuple"),
    ],
)
def test_the_fused_engine_says_why_not(env: Any, image: str, text: str) -> None:
    ppo = trainer(env, engine="eager", image=image)
    assert ppo.engine_name == "eager"
    assert text in str(why_not_fused(ppo.engine.job))


def test_the_options_of_a_configuration() -> None:
    picture, choice = spaces.Box(0, 255, (40, 40, 3), np.uint8), spaces.Discrete(2)
    made = {
        image: new_network(PolicyConfig(image=image), picture, choice)
        for image in ("auto", "grid", "flat")
    }
    assert type(made["auto"].encode) is NatureCNN
    assert made["auto"].obs_normalizer is None
    assert type(made["grid"].encode) is GridEncoder
    assert made["flat"].obs_normalizer is not None
    assert made["flat"].actor[0].in_features == 4800
    first = new_network(PolicyConfig(image="small", channels="first"), picture, choice)
    assert first.encode.pixels.shape == (40, 40, 3)  # type: ignore[attr-defined]
    many = new_network(PolicyConfig(embedding=5), spaces.Discrete(4000), choice)
    assert many.actor[0].in_features == 5
    for name, value in (("image", "natur"), ("channels", "middle"), ("embedding", 0)):
        with pytest.raises(ValueError, match=f"policy.{name} must be"):
            PolicyConfig(**{name: value})


def test_integers_arrive_in_the_dtype_of_the_space() -> None:
    class Levels(Bright):
        action_space = spaces.Box(3, 6, (1,), np.uint8)  # type: ignore[assignment]

        def step(self, action: Any) -> Any:
            assert self.action_space.contains(action)
            return super().step(action[0] - 3)

    ppo = trainer(Levels, total_steps=1024)
    ppo.learn(progress=False)
    assert not isinstance(ppo.distribution, Joint)
    obs, _ = Levels().reset(seed=0)
    assert Levels.action_space.contains(ppo.predict(obs))
