"""Vector environments of Gymnasium's API as batches, beside plain loops over single ones."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import batch_space

from operant.backends.foreign.errors import ForeignEnvError
from operant.models import PPO
from operant.spaces.batches import flatten
from operant.spaces.rows import ObsLayout
from operant.vector.batch import Ends, StepMemory, is_batch
from operant.vector.vector_batch import VectorBatch

N, STEPS = 4, 80
MODES = list(AutoresetMode)


class Walk(gymnasium.Env[Any, Any]):
    """Goes left or right by luck and by choice; a mask forbids the way back, and both choices
    where it has ended. Ends at the edges, and is cut after 9 steps. Actions are a Dict."""

    def __init__(self) -> None:
        self.observation_space = spaces.Dict(
            {
                "place": spaces.Box(-9, 9, (2,), np.float32),
                "pair": spaces.Tuple((spaces.Discrete(3), spaces.MultiBinary(2))),
            }
        )
        self.action_space = spaces.Dict(
            {"way": spaces.Discrete(2), "far": spaces.Box(0, 1, (1,), np.float32)}
        )

    def _seen(self) -> Any:
        last = np.array([self._x > 0, self._x < 0], np.int8)
        return {
            "place": np.array([self._x, self._t], np.float32),
            "pair": (np.int64(self._t % 3), last),
        }

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._t, self._x = 0, float(self.np_random.normal())
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        assert action["far"].shape == (1,)
        self._t += 1
        way = 2 * int(action["way"]) - 1 + float(action["far"][0])
        self._x += 0.4 * way + 0.3 * float(self.np_random.normal())
        return self._seen(), self._x, abs(self._x) > 2, self._t == 9, {}


class Masked(gymnasium.Env[Any, Any]):
    """Has actions 0 to 2, of which each step forbids one, and all when it ends."""

    observation_space = spaces.Box(0, 9, (1,), np.float32)
    action_space = spaces.Discrete(3)
    leaf = False

    def __init__(self, leaf: bool = False) -> None:
        self.leaf = leaf
        if leaf:
            self.observation_space = spaces.Dict(  # type: ignore[assignment]
                {"observation": Masked.observation_space, "action_mask": spaces.MultiBinary(3)}
            )

    def _seen(self, over: bool = False) -> tuple[Any, dict[str, Any]]:
        mask = np.array([not over and self._t % 3 != k for k in range(3)], np.int8)
        obs = np.array([self._t], np.float32)
        if self.leaf:
            return {"observation": obs, "action_mask": mask}, {}
        return obs, {"action_mask": mask}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._t = int(self.np_random.integers(3))
        return self._seen()

    def step(self, action: Any) -> Any:
        assert self._t % 3 != action, "a forbidden action"
        self._t += 1
        obs, info = self._seen(self._t > 6)
        return obs, 1.0, self._t > 6, False, info


MAKERS: dict[str, Callable[[], gymnasium.Env[Any, Any]]] = {
    "CartPole": partial(gymnasium.make, "CartPole-v1", max_episode_steps=20),
    "Pendulum": partial(gymnasium.make, "Pendulum-v1", max_episode_steps=15),
    "Blackjack": partial(gymnasium.make, "Blackjack-v1"),
    "FrozenLake": partial(gymnasium.make, "FrozenLake-v1"),
    "Walk": Walk,
}


def memory(batch: Any) -> StepMemory:
    rows = ObsLayout.of(batch.single_observation_space).memory(batch.num_envs)
    flags = np.zeros((2, batch.num_envs), np.bool_)
    return StepMemory(rows, np.zeros(batch.num_envs, np.float32), *flags)


class Loop:
    """One environment alone, which begins again when an episode ends."""

    def __init__(self, make: Callable[[], Any], seed: int) -> None:
        self.env = make()
        self.layout = ObsLayout.of(self.env.observation_space)
        self.obs = self._row(self.env.reset(seed=seed)[0])
        self.total, self.length = 0.0, 0

    def _row(self, obs: Any) -> np.ndarray:
        row: np.ndarray = flatten(self.layout, [obs])[0]
        return row

    def step(self, action: Any) -> tuple[Any, ...]:
        obs, reward, terminated, truncated, _ = self.env.step(action)
        self.total, self.length = self.total + float(reward), self.length + 1
        end = None
        if terminated or truncated:
            cut = truncated and not terminated
            end = (np.float32(self.total), self.length, cut, self._row(obs))
            obs, self.total, self.length = self.env.reset()[0], 0.0, 0
        self.obs = self._row(obs)
        return float(reward), terminated, truncated, end


def ended_row(ends: Ends | None, i: int) -> Any:
    if ends is None or i not in ends.env_index:
        return None
    k = int(np.flatnonzero(ends.env_index == i)[0])
    assert ends.final_obs is not None
    return ends.returns[k], ends.lengths[k], ends.truncated[k], ends.final_obs[i]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", MAKERS)
def test_whole_episodes_are_those_of_a_plain_loop(name: str, mode: AutoresetMode) -> None:
    make = MAKERS[name]
    batch = VectorBatch(SyncVectorEnv([make] * N, autoreset_mode=mode))
    check_episodes(batch, make)


def check_episodes(batch: VectorBatch, make: Callable[[], Any]) -> None:
    """Step a batch and single environments beside each other."""
    assert is_batch(batch)
    batch.reset(seed=7)
    loops, out = [Loop(make, 7 + i) for i in range(N)], memory(batch)
    batch.write_obs(out.obs)
    space, layout = batch.single_action_space, ObsLayout.of(batch.single_action_space)
    space.seed(3)
    ended = rested = 0
    for _ in range(STEPS):
        samples = [space.sample() for _ in range(N)]
        live = batch.live_rows()
        live = np.ones(N, np.bool_) if live is None else live
        for i in np.flatnonzero(live):
            np.testing.assert_array_equal(out.obs[i], loops[i].obs)
        ends = batch.write_step(flatten(layout, samples), out)
        for i, loop in enumerate(loops):
            if not live[i]:  # the reset of a vector environment in NEXT_STEP mode
                rested += 1
                assert (out.reward[i], out.terminated[i], out.truncated[i]) == (0, False, False)
                assert ended_row(ends, i) is None
                continue
            reward, terminated, truncated, end = loop.step(samples[i])
            assert out.reward[i] == np.float32(reward)
            assert (out.terminated[i], out.truncated[i]) == (terminated, truncated)
            found = ended_row(ends, i)
            assert (found is None) == (end is None)
            if end is not None and found is not None:
                ended += 1
                assert found[:3] == end[:3]
                np.testing.assert_array_equal(found[3], end[3])
    assert ended > 4
    assert (rested > 4) == (batch.live_rows() is not None)
    batch.close()


def test_worker_processes_of_gymnasium() -> None:
    make = MAKERS["CartPole"]
    check_episodes(VectorBatch(AsyncVectorEnv([make] * N)), make)


def test_wrappers_are_part_of_it() -> None:
    make = MAKERS["Pendulum"]
    env: Any = SyncVectorEnv([make] * N)
    env = gymnasium.wrappers.vector.RecordEpisodeStatistics(env)
    env = gymnasium.wrappers.vector.RescaleObservation(env, np.float32(-1), np.float32(1))
    scaled = partial(_rescaled, make)
    batch = VectorBatch(env)
    check_episodes(batch, scaled)
    with pytest.raises(ValueError, match="RescaleObservation is around it"):
        batch.for_evaluation(1)


def _rescaled(make: Callable[[], Any]) -> Any:
    return gymnasium.wrappers.RescaleObservation(make(), np.float32(-1), np.float32(1))


def test_an_environments_own_vector_entry_point() -> None:
    batch = VectorBatch(gymnasium.make_vec("CartPole-v1", 3))
    assert (batch.name, batch.describe().max_episode_steps) == ("CartPole-v1", 500)
    batch.reset(seed=1)
    out, lengths, played = memory(batch), np.zeros(3, int), 0
    for _ in range(60):
        lengths += batch.live_rows()
        ends = batch.write_step(np.ones(3, np.int64), out)
        if ends is not None:
            played += len(ends.lengths)
            np.testing.assert_array_equal(ends.lengths, lengths[ends.env_index])
            np.testing.assert_array_equal(ends.returns, ends.lengths)
            assert (abs(ends.final_obs[ends.env_index, 2]) > 0.2).all()
            lengths[ends.env_index] = 0
    assert played > 9
    playing = batch.for_evaluation(2, 30)
    assert playing.describe().max_episode_steps == 30
    playing.close()


def test_atari_by_its_own_vector_environment() -> None:
    atari = pytest.importorskip("ale_py.vector_env")
    made = partial(
        atari.AtariVectorEnv, "pong", 2, num_threads=1, max_num_frames_per_episode=40, noop_max=1
    )
    cut = {}
    for mode in (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP):
        batch = VectorBatch(made(autoreset_mode=mode))
        batch.reset(seed=0)
        out = memory(batch)
        for t in range(12):
            ends = batch.write_step(np.full(2, 2), out)
            if ends is not None:
                cut[mode] = t, ends.lengths.tolist(), ends.truncated.tolist(), ends.final_obs.copy()
                break
        batch.close()
    one, other = cut.values()
    assert one[:3] == other[:3]
    assert one[2] == [True, True]
    np.testing.assert_array_equal(one[3], other[3])
    with pytest.raises(ValueError, match="make it without batch_size"):
        VectorBatch(made(batch_size=1))


@pytest.mark.parametrize("leaf", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_masks(mode: AutoresetMode, leaf: bool) -> None:
    batch = VectorBatch(SyncVectorEnv([partial(Masked, leaf)] * N, autoreset_mode=mode))
    assert (batch.mask_size, batch.single_observation_space) == (3, Masked.observation_space)
    batch.reset(seed=0)
    out, ended = memory(batch), 0
    batch.write_obs(out.obs)
    for _ in range(30):
        masks, live = batch.action_masks(), batch.live_rows()
        live = np.ones(N, np.bool_) if live is None else live
        assert masks[~live].all()
        np.testing.assert_array_equal(
            masks[live], out.obs[live].astype(int) % 3 != np.arange(3)[None]
        )
        ends = batch.write_step(masks.argmax(1), out)
        ended += 0 if ends is None else len(ends.lengths)
    assert ended > N
    shown = VectorBatch(SyncVectorEnv([partial(Masked, True)]), mask_in_obs=True)
    assert shown.mask_size == 3
    assert "action_mask" in shown.single_observation_space.spaces  # type: ignore[attr-defined]


class Odd(VectorEnv[Any, Any, Any]):
    """Two rows of zeros, with something wrong about them."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}

    def __init__(self, how: str) -> None:
        self.how, self.num_envs = how, 2
        self.single_observation_space: Any = spaces.Box(-1, 1, (3,), np.float32)
        if how.startswith("choice"):
            self.single_observation_space = spaces.MultiDiscrete([2, 2, 2])
        self.single_action_space = spaces.Discrete(2)
        self.observation_space = batch_space(self.single_observation_space, 2)
        self.action_space = batch_space(self.single_action_space, 2)
        if how == "mode":
            self.metadata = {}

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return np.zeros((2, 3), self.single_observation_space.dtype), {}

    def step(self, actions: Any) -> Any:
        obs, reward = np.zeros((2, 4 if self.how == "shape" else 3), np.float32), np.zeros(2)
        obs[1, 2] = np.nan if self.how == "unseen" else 0
        if self.how.startswith("choice"):
            obs = obs.astype(np.int64)
            last = np.full((2, 3), 2) if self.how == "choice at last" else obs
            obs[1, 1] = 0 if last is not obs else 2
            info = {"final_obs": last, "_final_obs": np.ones(2, np.bool_)}
            return obs, reward, np.array([False, last is not obs]), np.zeros(2, np.bool_), info
        reward[1] = np.nan if self.how == "nan" else 0
        flags = np.zeros(3 if self.how == "flags" else 2, np.bool_)
        return obs, reward, np.full(2, self.how == "final"), flags, {}


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        (
            "shape",
            r"vector environment Odd gave observations that its space does not have: .*shape",
        ),
        ("nan", r"vector environment Odd gave a reward that is NaN in row 1"),
        ("unseen", r"gave an observation that is NaN at \[2\], in row 1"),
        ("choice", r"that is 2 at \[1\], which is not in its space MultiDiscrete.*, in row 1"),
        ("choice at last", r"that is 2 at \[0\], which is not in its space .*, in row 1"),
        ("flags", r"gave truncated of shape \(3,\) for 2 environments"),
        ("final", r'gave no info\["final_obs"\] for an episode that ended'),
    ],
)
def test_what_does_not_fit_is_said(how: str, sentence: str) -> None:
    batch = VectorBatch(Odd(how))
    with pytest.raises(ValueError, match=r"call reset\(\) first"):
        batch.write_step(np.zeros(2, np.int64), memory(batch))
    batch.reset(seed=0)
    with pytest.raises(ForeignEnvError, match=sentence):
        batch.write_step(np.zeros(2, np.int64), memory(batch))
    with pytest.raises(TypeError, match="must be integers"):
        batch.write_step(np.zeros(2), memory(batch))


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="does not say when it begins new episodes"):
        VectorBatch(Odd("mode"))
    with pytest.raises(TypeError, match=r"lambda: MyEnv"):
        VectorBatch(Masked())  # type: ignore[arg-type]
    batch = VectorBatch(Odd("not"))
    with pytest.raises(ValueError, match="pass a function that makes one environment"):
        batch.for_evaluation(1)
    with pytest.raises(ValueError, match="whose state only it knows"):
        batch.get_state()
    batch.close()
    batch.close()
    with pytest.raises(ValueError, match="closed"):
        batch.reset()


@pytest.mark.parametrize("mode", MODES)
def test_training_on_it(mode: AutoresetMode) -> None:
    env = SyncVectorEnv([MAKERS["CartPole"]] * N, autoreset_mode=mode)
    ppo = PPO(VectorBatch(env), num_steps=16, minibatches=2, epochs=1, hidden=[8], device="cpu")
    ppo.learn(N * 16 * 2)
    assert ppo.steps == 128
    resting = "rest at times" in ppo.engine_reason
    assert resting == (mode == AutoresetMode.NEXT_STEP)
    done = ppo.buffer.arrays["terminated"] | ppo.buffer.arrays["truncated"]
    assert done.any()
    if resting:
        np.testing.assert_array_equal(ppo.buffer.arrays["live"][1:], ~done[:-1])
