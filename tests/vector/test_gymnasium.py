"""A batch is a Gymnasium `VectorEnv`: Gymnasium makes it, wraps it and learns from it."""

from __future__ import annotations

import gc
import threading
from collections import deque
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.wrappers import vector as wrappers

import operant

BACKENDS = ("reference", "cpu")
ID = "operant:operant/CartPole-v1"
N = 8
BUILT_IN = operant.envs.env_ids()


def made_by_operant(**options: Any) -> VectorEnv[Any, Any, Any]:
    return operant.make("CartPole-v1", N, **options)


def made_by_gymnasium(**options: Any) -> VectorEnv[Any, Any, Any]:
    return gymnasium.make_vec(ID, num_envs=N, **options)


MAKERS = [made_by_operant, made_by_gymnasium]


def action_stream(steps: int, num_envs: int = N) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 2, (steps, num_envs))


# Making -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", MAKERS)
def test_it_is_a_vector_env(make: Any) -> None:
    env = make()
    assert isinstance(env, VectorEnv)
    assert isinstance(env, operant.VecEnv)
    assert env.unwrapped is env
    assert env.num_envs == N
    assert env.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    assert env.metadata["render_modes"] == ["rgb_array"]
    assert env.metadata["render_fps"] == 50
    assert env.single_action_space == gymnasium.spaces.Discrete(2)
    assert env.action_space == gymnasium.spaces.MultiDiscrete([2] * N)
    assert env.observation_space.shape == (N, 4)
    obs, info = env.reset(seed=1)
    assert env.observation_space.contains(obs)
    assert info == {}


@pytest.mark.parametrize("env_id", [name for name in BUILT_IN if name in gymnasium.registry])
def test_spaces_are_those_of_gymnasium(env_id: str) -> None:
    ours = gymnasium.make_vec(f"operant/{env_id}", num_envs=3)
    theirs = gymnasium.make_vec(env_id, num_envs=3, vectorization_mode="sync")
    assert ours.single_observation_space == theirs.single_observation_space
    assert ours.single_action_space == theirs.single_action_space
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    assert ours.unwrapped.max_episode_steps == gymnasium.spec(env_id).max_episode_steps
    our_spec = gymnasium.spec(f"operant/{env_id}")
    assert our_spec.max_episode_steps == gymnasium.spec(env_id).max_episode_steps
    assert our_spec.reward_threshold == gymnasium.spec(env_id).reward_threshold
    theirs.close()


def test_make_vec_passes_the_options_on() -> None:
    env = gymnasium.make_vec(
        ID,
        num_envs=N,
        gravity=1.5,
        backend="reference",
        autoreset_mode=AutoresetMode.SAME_STEP,
        seed=3,
        max_episode_steps=7,
    )
    assert env.rules.params.gravity == 1.5
    assert env.backend == "reference"
    assert env.autoreset_mode is AutoresetMode.SAME_STEP
    assert env.max_episode_steps == 7
    twin = operant.make("CartPole-v1", N, backend="reference", gravity=1.5, seed=3)
    assert env.reset()[0].tobytes() == twin.reset()[0].tobytes()
    for actions in action_stream(3):
        assert env.step(actions)[0].tobytes() == twin.step(actions)[0].tobytes()


def test_the_spec_of_a_batch_makes_it_again() -> None:
    env = gymnasium.make_vec(ID, num_envs=N, gravity=1.5, max_episode_steps=7)
    assert env.spec is not None
    assert env.spec.id == "operant/CartPole-v1"
    assert "CartPole-v1" in repr(env)
    again = gymnasium.make_vec(env.spec)
    assert again.num_envs == N
    assert again.rules.params.gravity == 1.5
    assert again.max_episode_steps == 7

    spec = gymnasium.spec("operant/CartPole-v1")
    spec.max_episode_steps = 9
    try:
        assert gymnasium.make_vec(spec).max_episode_steps == 9
    finally:
        spec.max_episode_steps = 500
    assert gymnasium.make_vec(ID).max_episode_steps == 500


def test_the_spec_may_be_set() -> None:
    env = made_by_operant(backend="reference")
    assert env.spec is None
    env.spec = gymnasium.spec("operant/CartPole-v1")
    assert env.spec.id == "operant/CartPole-v1"


@pytest.mark.parametrize("mode", ["sync", "vector_entry_point"])
def test_every_vectorization_mode_gives_the_same_numbers(mode: str) -> None:
    env = gymnasium.make_vec(ID, num_envs=3, vectorization_mode=mode)
    batch = operant.make("CartPole-v1", 3)
    seeds = [5, 6, 7]  # what Gymnasium's SyncVectorEnv makes of 5
    assert env.reset(seed=seeds)[0].tobytes() == batch.reset(seed=seeds)[0].tobytes()
    for actions in action_stream(60, 3):
        for a, b in zip(env.step(actions)[:4], batch.step(actions)[:4], strict=True):
            np.testing.assert_array_equal(a, b)
    env.close()


# Wrappers ---------------------------------------------------------------------------------------


def doubled(env: Any) -> Any:
    return wrappers.TransformReward(env, lambda reward: reward * 2)


INSIDE = [
    (),
    (doubled,),
    (wrappers.NormalizeReward,),
    (wrappers.NormalizeObservation,),
    (wrappers.NormalizeObservation, doubled),
]
OUTSIDE = [
    (),
    (doubled, wrappers.NormalizeReward),
    (wrappers.NormalizeObservation, doubled),
]
NEXT_STEP_ONLY = {wrappers.NormalizeObservation}  # so says Gymnasium
NESTINGS = [
    (mode, inside, outside)
    for mode in (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP)
    for inside in INSIDE
    for outside in OUTSIDE
    if mode == AutoresetMode.NEXT_STEP or not NEXT_STEP_ONLY & {*inside, *outside}
]


def statistics_wrapper(env: Any) -> wrappers.RecordEpisodeStatistics:
    while not isinstance(env, wrappers.RecordEpisodeStatistics):
        env = env.env
    return env


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize(("mode", "inside", "outside"), NESTINGS)
def test_record_episode_statistics(make: Any, mode: Any, inside: Any, outside: Any) -> None:
    """The wrapper and the batch report the same episodes, and not both at once."""
    options = {"autoreset_mode": mode, "max_episode_steps": 30}
    env, plain = make(**options), make(**options)
    for wrapper in inside:
        env = wrapper(env)
    env = wrappers.RecordEpisodeStatistics(env, buffer_length=1000)
    for wrapper in outside:
        env = wrapper(env)
    scale = 2.0 if doubled in inside else 1.0
    exact = wrappers.NormalizeReward not in inside
    env.reset(seed=1)
    plain.reset(seed=1)
    returns: list[float] = []
    lengths: list[int] = []
    for actions in action_stream(200):
        *_, info = env.step(actions)
        *_, expected = plain.step(actions)
        assert ("episode" in info) == ("episode" in expected)
        if not expected:
            assert info == {}
            continue
        done = expected["_episode"]
        np.testing.assert_array_equal(info["_episode"], done)
        np.testing.assert_array_equal(info["episode"]["l"], expected["episode"]["l"])
        if exact:
            np.testing.assert_array_equal(info["episode"]["r"], expected["episode"]["r"] * scale)
        returns += expected["episode"]["r"][done].tolist()
        lengths += expected["episode"]["l"][done].tolist()
        if mode == AutoresetMode.SAME_STEP:
            np.testing.assert_array_equal(info["_final_obs"], done)
            assert "episode" not in info["final_info"]
    recorded = statistics_wrapper(env)
    assert recorded.episode_count == len(lengths) > 40
    assert list(recorded.length_queue) == lengths
    if exact:
        assert list(recorded.return_queue) == [value * scale for value in returns]


def test_record_episode_statistics_under_another_key_leaves_ours_in_place() -> None:
    env = wrappers.RecordEpisodeStatistics(made_by_operant(), stats_key="mine")
    env.reset(seed=1)
    episodes = 0
    for actions in action_stream(60):
        *_, info = env.step(actions)
        if info:
            episodes += 1
            np.testing.assert_array_equal(info["mine"]["r"], info["episode"]["r"])
            np.testing.assert_array_equal(info["mine"]["l"], info["episode"]["l"])
    assert episodes


def test_reports_come_back_when_the_wrapper_is_gone() -> None:
    env = made_by_operant(max_episode_steps=3)
    wrapped = wrappers.RecordEpisodeStatistics(env)
    wrapped.reset(seed=1)
    for actions in action_stream(3):
        *_, info = env.step(actions)
    assert "episode" not in info
    env.reset(seed=1)
    for actions in action_stream(3):
        *_, info = env.step(actions)
    assert info["_episode"].all()


class Indirect(gymnasium.vector.VectorWrapper):  # type: ignore[type-arg]
    """Resets by way of a function of its own."""

    def reset(self, **options: Any) -> Any:
        return self.begin_again(options)

    def begin_again(self, options: dict[str, Any]) -> Any:
        return self.env.reset(**options)


def test_a_wrapper_in_between_with_ways_of_its_own() -> None:
    env = wrappers.RecordEpisodeStatistics(Indirect(made_by_operant(max_episode_steps=3)))
    env.reset(seed=1)
    for actions in action_stream(3):
        *_, info = env.step(actions)
    assert info["_episode"].all()
    assert (info["episode"]["l"] == 3).all()


class Trainer:
    """Has a ``self`` and calls reset: must not be taken for a wrapper."""

    _stats_key = "episode"

    def __init__(self, env: Any) -> None:
        self.env = env
        self.unwrapped = env

    def reset(self) -> None:
        self.env.reset(seed=1)


def test_a_caller_that_looks_like_the_wrapper_is_none() -> None:
    env = made_by_operant(max_episode_steps=3)
    Trainer(env).reset()
    for actions in action_stream(3):
        *_, info = env.step(actions)
    assert info["_episode"].all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_partial_resets_through_the_statistics_wrapper(backend: str) -> None:
    env = wrappers.RecordEpisodeStatistics(
        made_by_operant(backend=backend, autoreset_mode="Disabled", max_episode_steps=30)
    )
    env.reset(seed=1)
    plain = made_by_operant(backend=backend, autoreset_mode="Disabled", max_episode_steps=30)
    plain.reset(seed=1)
    episodes = 0
    for actions in action_stream(100):
        _, _, terminated, truncated, info = env.step(actions)
        *_, expected = plain.step(actions)
        finished = terminated | truncated
        if finished.any():
            episodes += int(finished.sum())
            np.testing.assert_array_equal(info["episode"]["r"], expected["episode"]["r"])
            np.testing.assert_array_equal(info["episode"]["l"], expected["episode"]["l"])
            env.reset(options={"reset_mask": finished})
            plain.reset(options={"reset_mask": finished})
    assert episodes > 20


@pytest.mark.parametrize("make", MAKERS)
def test_normalize_observation(make: Any) -> None:
    env, plain = wrappers.NormalizeObservation(make()), make()
    seen = [plain.reset(seed=1)[0]]
    env.reset(seed=1)
    for actions in action_stream(300):
        obs, *_ = env.step(actions)
        seen.append(plain.step(actions)[0])
    raw = np.concatenate(seen).astype(np.float64)
    np.testing.assert_allclose(env.obs_rms.mean, raw.mean(axis=0), atol=1e-3)
    np.testing.assert_allclose(env.obs_rms.var, raw.var(axis=0), rtol=1e-2, atol=1e-4)
    expected = (seen[-1] - raw.mean(axis=0)) / np.sqrt(raw.var(axis=0))
    np.testing.assert_allclose(obs, expected, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("copy", [True, False])
def test_normalize_reward(copy: bool) -> None:
    """The same numbers as around Gymnasium's own kind of vector environment."""
    ours = wrappers.NormalizeReward(made_by_operant(copy=copy), gamma=0.9)
    theirs = wrappers.NormalizeReward(
        gymnasium.make_vec(ID, num_envs=N, vectorization_mode="sync"), gamma=0.9
    )
    seeds = list(range(N))
    ours.reset(seed=seeds)  # type: ignore[arg-type]
    theirs.reset(seed=seeds)  # type: ignore[arg-type]
    for actions in action_stream(100):
        np.testing.assert_allclose(ours.step(actions)[1], theirs.step(actions)[1], rtol=1e-6)
    theirs.close()


def test_transform_wrappers() -> None:
    env = wrappers.TransformReward(made_by_operant(), lambda reward: 10 * reward)
    env = wrappers.TransformObservation(env, lambda obs: obs + 1)
    plain = made_by_operant()
    np.testing.assert_array_equal(env.reset(seed=1)[0], plain.reset(seed=1)[0] + 1)
    for actions in action_stream(60):
        results, expected = env.step(actions), plain.step(actions)
        np.testing.assert_array_equal(results[0], expected[0] + 1)
        np.testing.assert_array_equal(results[1], expected[1] * 10)
        np.testing.assert_array_equal(results[2], expected[2])


def test_clip_action() -> None:
    env = wrappers.ClipAction(operant.make("MountainCarContinuous-v0", N, seed=1))
    plain = operant.make("MountainCarContinuous-v0", N, seed=1)
    env.reset()
    plain.reset()
    rng = np.random.default_rng(0)
    for _ in range(30):
        actions = rng.normal(0.0, 3.0, (N, 1)).astype(np.float32)
        results = env.step(actions)
        expected = plain.step(np.clip(actions, -1.0, 1.0))
        for a, b in zip(results[:4], expected[:4], strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_numpy_to_torch(mode: str) -> None:
    pytest.importorskip("array_api_compat")  # needed by gymnasium's wrapper
    env = wrappers.NumpyToTorch(made_by_operant(autoreset_mode=mode))
    plain = made_by_operant(autoreset_mode=mode)
    obs, _ = env.reset(seed=1)
    assert isinstance(obs, torch.Tensor)
    assert obs.tolist() == plain.reset(seed=1)[0].tolist()
    episodes = 0
    for actions in action_stream(60):
        results, expected = env.step(torch.from_numpy(actions)), plain.step(actions)
        for tensor, array in zip(results[:4], expected[:4], strict=True):
            assert isinstance(tensor, torch.Tensor)
            assert tensor.tolist() == array.tolist()
        assert set(results[4]) == set(expected[4])
        if expected[4]:
            episodes += 1
            assert isinstance(results[4]["episode"]["r"], torch.Tensor)
            assert results[4]["episode"]["r"].tolist() == expected[4]["episode"]["r"].tolist()
    assert episodes > 5


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
@pytest.mark.parametrize("recorded", [False, True])
def test_dict_info_to_list(mode: str, recorded: bool) -> None:
    env: Any = made_by_operant(autoreset_mode=mode)
    env = wrappers.RecordEpisodeStatistics(env) if recorded else env
    env = wrappers.DictInfoToList(env)
    plain = made_by_operant(autoreset_mode=mode)
    _, infos = env.reset(seed=1)
    plain.reset(seed=1)
    assert infos == [{}] * N
    episodes = 0
    for actions in action_stream(60):
        *_, infos = env.step(actions)
        *_, expected = plain.step(actions)
        assert len(infos) == N
        for i, info in enumerate(infos):
            if not expected or not expected["_episode"][i]:
                assert info == {}
                continue
            episodes += 1
            assert info["episode"]["r"] == expected["episode"]["r"][i]
            assert info["episode"]["l"] == expected["episode"]["l"][i]
            if mode == "SameStep":
                np.testing.assert_array_equal(info["final_obs"], expected["final_obs"][i])
    assert episodes > 10


@pytest.mark.parametrize("make", MAKERS)
def test_a_ppo_loop_as_people_write_it(make: Any) -> None:
    """After CleanRL's ppo.py: torch policy, storage by step, returns printed from ``infos``."""
    torch.manual_seed(0)
    envs = wrappers.RecordEpisodeStatistics(make())
    assert isinstance(envs.single_action_space, gymnasium.spaces.Discrete)
    agent = torch.nn.Linear(int(np.prod(envs.single_observation_space.shape)), 2)
    steps = 200
    obs = torch.zeros((steps, envs.num_envs, *envs.single_observation_space.shape))
    rewards, dones = torch.zeros((steps, envs.num_envs)), torch.zeros((steps, envs.num_envs))
    returns: deque[float] = deque()
    next_obs = torch.Tensor(envs.reset(seed=1)[0])
    next_done = torch.zeros(envs.num_envs)
    for step in range(steps):
        obs[step], dones[step] = next_obs, next_done
        with torch.no_grad():
            action = torch.distributions.Categorical(logits=agent(next_obs)).sample()
        next_array, reward, terminations, truncations, infos = envs.step(action.cpu().numpy())
        next_obs = torch.Tensor(next_array)
        next_done = torch.Tensor(np.logical_or(terminations, truncations))
        rewards[step] = torch.tensor(reward).view(-1)
        if "episode" in infos:
            returns.extend(infos["episode"]["r"][infos["_episode"]])
    envs.close()

    # In NEXT_STEP mode the step after a done is the reset: reward 0, and nothing else is.
    assert ((rewards == 0) == (dones == 1)).all()
    assert len(returns) == int(dones.sum() + next_done.sum()) > 20
    running = 0.0
    for k in range(envs.num_envs):
        last = np.flatnonzero(dones[:, k].numpy())
        begin = last[-1] if len(last) else 0
        running += 0.0 if next_done[k] else float(rewards[begin:, k].sum())
    assert sum(returns) + running == float(rewards.sum())
    assert float(obs[1:].std()) > 0


# One environment --------------------------------------------------------------------------------


# Said of Gymnasium's own CartPole and Pendulum too; the spaces are the same.
@pytest.mark.filterwarnings("ignore:.*A Box observation space m..imum value is:UserWarning")
@pytest.mark.filterwarnings("ignore:.*For Box action spaces, we recommend:UserWarning")
@pytest.mark.parametrize("env_id", BUILT_IN)
def test_check_env(env_id: str) -> None:
    env = gymnasium.make(f"operant/{env_id}", render_mode="rgb_array")
    check_env(env.unwrapped)
    env.close()


@pytest.mark.parametrize("backend", BACKENDS)
def test_gymnasium_make(backend: str) -> None:
    """Environment 0 of a batch, with Gymnasium's time limit and statistics around it."""
    env: Any = gymnasium.make(ID, backend=backend, max_episode_steps=15, gravity=5.0)
    env = gymnasium.wrappers.RecordEpisodeStatistics(env)
    batch = operant.make("CartPole-v1", 1, backend=backend, max_episode_steps=15, gravity=5.0)
    obs, info = env.reset(seed=4)
    assert info == {}
    assert obs.tobytes() == batch.reset(seed=4)[0][0].tobytes()
    rng = np.random.default_rng(0)
    episodes, reasons = 0, set()
    for _ in range(200):
        action = int(rng.random() < 0.8)
        obs, reward, terminated, truncated, info = env.step(action)
        *arrays, expected = batch.step(np.array([action]))
        assert env.observation_space.contains(obs)
        assert (type(reward), type(terminated), type(truncated)) == (float, bool, bool)
        assert obs.tobytes() == arrays[0][0].tobytes()
        assert (reward, terminated, truncated) == tuple(a[0] for a in arrays[1:])
        if terminated or truncated:
            episodes += 1
            reasons.add((terminated, truncated))
            assert info["episode"]["r"] == expected["episode"]["r"][0]
            assert info["episode"]["l"] == expected["episode"]["l"][0]
            obs, _ = env.reset()
            assert obs.tobytes() == batch.step(np.array([0]))[0][0].tobytes()
    assert episodes > 10
    assert reasons >= {(True, False), (False, True)}
    env.close()


def test_a_single_environment_refuses_to_go_on_after_the_end() -> None:
    env = gymnasium.make("operant/CartPole-v1").unwrapped
    env.reset(seed=1)
    while not env.step(1)[2]:
        pass
    with pytest.raises(ValueError, match="has finished"):
        env.step(1)
    env.reset()
    env.step(1)
    with pytest.raises(ValueError, match="action 2"):
        env.step(2)
    with pytest.raises(TypeError, match="must be integers"):
        env.step(0.5)
    env.close()
    with pytest.raises(ValueError, match="closed"):
        env.step(1)


# Pictures, closing ------------------------------------------------------------------------------


def test_render() -> None:
    env = made_by_gymnasium(render_mode="rgb_array")
    assert env.render_mode == "rgb_array"
    env.reset(seed=1)
    frames = env.render()
    assert frames is not None
    assert len(frames) == N
    for frame in frames:
        assert (frame.shape, frame.dtype) == ((400, 600, 3), np.uint8)
    for _ in range(15):
        env.step(np.ones(N, np.int64))
    later = env.render()
    assert later is not None
    assert (frames[0] != later[0]).any()
    np.testing.assert_array_equal(later[3], env.render_one(3))

    silent = made_by_operant()
    silent.reset(seed=1)
    with pytest.warns(UserWarning, match="no picture without a render mode; write operant.make"):
        assert silent.render() is None
    one = gymnasium.make("operant/Pendulum-v1")
    one.reset(seed=1)
    with pytest.warns(UserWarning, match="no picture without a render mode"):
        assert one.unwrapped.render() is None

    single = gymnasium.make("operant/Pendulum-v1", render_mode="rgb_array")
    single.reset(seed=1)
    assert single.render().shape == (500, 500, 3)


def new_threads(before: set[threading.Thread]) -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t not in before and t.name == "operant"]


def assert_ended(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join(timeout=300)
    assert not any(thread.is_alive() for thread in threads)


@pytest.mark.parametrize("how", ["close", "wrapper", "forgotten"])
def test_threads_end(how: str) -> None:
    before = set(threading.enumerate())
    env: Any = operant.make("CartPole-v1", 1000, backend="cpu", workers=4)
    threads = new_threads(before)
    assert len(threads) == 3
    if how == "wrapper":
        env = wrappers.RecordEpisodeStatistics(env)
    env.reset(seed=1)
    for _ in range(3):
        results = env.step(np.zeros(1000, np.int64))
    assert all(thread.is_alive() for thread in threads)
    if how == "forgotten":
        del env
        gc.collect()
    else:
        env.close()
        env.close()
        assert env.unwrapped.closed
    assert_ended(threads)
    assert results[0].shape == (1000, 4)


def test_one_worker_and_the_reference_backend_start_no_threads() -> None:
    before = set(threading.enumerate())
    envs = [
        operant.make("CartPole-v1", 1000, backend="cpu"),
        operant.make("CartPole-v1", 1000, backend="reference", workers=4),
        operant.make("CartPole-v1", 64, backend="cpu", workers=4),
    ]
    for env in envs:
        env.reset(seed=1)
        env.step(np.zeros(env.num_envs, np.int64))
    assert new_threads(before) == []
    assert envs[1].workers == 1
