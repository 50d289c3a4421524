"""The ``cuda`` backend on a GPU: equal to ``reference`` to the bit, close to ``cpu``, in CUDA
graphs and on streams, seen by other libraries, and without copies to the host."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, MultiDiscrete

import operant
from operant.buffers.advantages import discounted_returns, gae
from operant.lang import abs, normal, randint, sin, to_float, where

from .gpu_batches import (
    assert_same,
    assert_same_state,
    random_actions,
    run_both,
)

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
]
MODES = ("NextStep", "SameStep", "Disabled")
CLASSIC = (
    "CartPole-v1",
    "MountainCar-v0",
    "MountainCarContinuous-v0",
    "Pendulum-v1",
    "Acrobot-v1",
)
N = 10_000


class Levers(operant.Env):
    """All kinds of fields, draws in the step, a mask, parameters that meet each other."""

    class Params(NamedTuple):
        low: float = 0.5
        high: float = 2.0

    class State(NamedTuple):
        place: int
        energy: float
        locked: bool

    observation_space = Box(-1e6, 1e6, (3, 3), np.float32)
    action_space = MultiDiscrete([4, 2], start=[-2, 0])
    max_episode_steps = 7
    random_numbers = 6

    def reset(random, params):
        energy = normal(random[0], random[5]) * params.low
        return Levers.State(randint(random[1], 9), energy, random[2] < 0.1)

    def step(state, action, random, params):
        place = (state.place + where(state.locked, 0, action[0])) % 9
        energy = state.energy + sin(random[4]) - params.low
        over = (params.low < params.high) & (place == 0) & (abs(energy) > params.low)
        after = Levers.State(place, energy, (random[0] < 0.3) ^ (action[1] == 1))
        return after, energy / params.high - 0.25 * to_float(action[1]), over

    def observe(state, params):
        x = to_float(state.place)
        energy = state.energy
        lock = where(state.locked, 1.0, 0.0)
        return (x, energy, lock, x * energy, x / 7.0, params.low, 1.0, x % 4.0, x - energy)

    def action_mask(state):
        return [True, state.place < 8, state.place > 2, True, ~state.locked, state.energy > 0.0]


ENVS = (*CLASSIC, Levers)


def make(env: Any, num_envs: int = N, mode: str = "NextStep", **options: Any) -> Any:
    options = {"backend": "cuda", "max_episode_steps": 7, "autoreset_mode": mode, **options}
    return operant.make(env, num_envs, **options)


def to_gpu(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(array).to("cuda")


# Against the other backends ---------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("env_class", ENVS)
def test_equal_to_the_reference(env_class: Any, mode: str) -> None:
    env, reference = make(env_class, mode=mode), make(env_class, mode=mode, backend="reference")
    assert_same(env.reset(seed=2**40 + 3)[0], reference.reset(seed=2**40 + 3)[0])
    assert run_both(env, reference, random_actions(env, 20)) >= N
    assert_same_state(env, reference)


@pytest.mark.parametrize("num_envs", [1, 7, 33, 32_769, 70_001])
@pytest.mark.parametrize("mode", MODES)
def test_sizes_of_batches(num_envs: int, mode: str) -> None:
    """Beyond 32768 blocks are larger, and leave out resets that nobody needs."""
    env, reference = (make(Levers, num_envs, mode, backend=name) for name in ("cuda", "reference"))
    seeds = np.arange(num_envs) if num_envs < 1000 else 5
    assert_same(env.reset(seed=seeds)[0], reference.reset(seed=seeds)[0])
    run_both(env, reference, random_actions(env, 10))
    assert_same_state(env, reference)


def test_large_batches_where_hardly_anybody_finishes() -> None:
    env, reference = (
        make("CartPole-v1", 70_001, "SameStep", backend=name, max_episode_steps=500)
        for name in ("cuda", "reference")
    )
    assert_same(env.reset(seed=1)[0], reference.reset(seed=1)[0])
    assert 0 < run_both(env, reference, random_actions(env, 12)) < 12_000
    assert_same_state(env, reference)


@pytest.mark.parametrize("env_class", ENVS)
def test_close_to_the_cpu(env_class: Any) -> None:
    """Resets to the bit; each step from the same state to 1e-5 of the column's largest number."""
    env, cpu = make(env_class), make(env_class, backend="cpu")
    assert_same(env.reset(seed=3)[0], cpu.reset(seed=3)[0])
    for row in random_actions(env, 20):
        cpu.set_state(env.get_state())
        found, wanted = env.step(to_gpu(row)), cpu.step(row)
        for a, b in zip(found[:2], wanted[:2], strict=True):
            size = np.abs(b).max(axis=0)
            assert (np.abs(a.cpu().numpy() - b) <= 1e-5 * np.maximum(size, 1.0)).all()
        assert_same(found[3], wanted[3], "truncated")
        # a number close to a limit may be on either side of it
        assert (found[2].cpu().numpy() != wanted[2]).sum() <= N // 5000


@pytest.mark.parametrize("env_class", ["Acrobot-v1", Levers])
def test_the_same_seed_twice_and_another(env_class: Any) -> None:
    batches = [make(env_class, mode="SameStep") for _ in range(3)]
    actions = to_gpu(random_actions(batches[0], 20))
    for batch, seed in zip(batches, (1, 1, 2), strict=True):
        batch.reset(seed=seed)
        for row in actions:
            batch.step(row)
    assert_same_state(batches[0], batches[1])
    assert not torch.equal(batches[0].buffers["obs"], batches[2].buffers["obs"])


@pytest.mark.parametrize("mode", MODES)
def test_many_steps_are_as_many_single_ones(mode: str) -> None:
    many, single = make(Levers, mode=mode), make(Levers, mode=mode)
    many.reset(seed=1)
    single.reset(seed=1)
    actions = to_gpu(random_actions(many, 20))
    *stacked, info = many.step_many(actions)
    for k, row in enumerate(actions):
        *results, wanted = single.step(row)
        assert all(torch.equal(a[k], b) for a, b in zip(stacked, results, strict=True))
        ended = wanted["_episode"]
        assert torch.equal(info["_episode"][k], ended)
        for key in ("r", "l"):
            assert torch.equal(info["episode"][key][k], wanted["episode"][key])
        if mode == "SameStep":
            assert torch.equal(info["final_obs"][k][ended], wanted["final_obs"][ended])
    assert_same_state(many, single)
    assert torch.equal(many.action_masks(), single.action_masks())


@pytest.fixture
def large() -> Iterator[None]:
    """For a test that takes much of the GPU: what PyTorch keeps of it, other processes lack."""
    yield
    gc.collect()
    torch.cuda.empty_cache()


@pytest.mark.usefixtures("large")
def test_results_of_more_numbers_than_32_bits_count() -> None:
    """2**22 environments, 128 steps: the places of observations need 64 bits."""
    free, _ = torch.cuda.mem_get_info()
    if free < 60 * 2**30:
        pytest.skip("needs 60 GiB")
    many, single = (make("CartPole-v1", 2**22, "SameStep") for _ in range(2))
    many.reset(seed=1)
    single.reset(seed=1)
    actions = torch.randint(0, 2, (128, 2**22), device="cuda", dtype=torch.int32)
    *stacked, info = many.step_many(actions)
    for k, row in enumerate(actions):
        *results, wanted = single.step(row)
        assert all(torch.equal(a[k], b) for a, b in zip(stacked, results, strict=True)), k
        assert torch.equal(info["episode"]["r"][k], wanted["episode"]["r"]), k


def test_more_than_fits_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    make(Levers)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (2**20, 2**37))
    for name in ("memory_reserved", "memory_allocated"):
        monkeypatch.setattr(torch.cuda, name, lambda device: 0)
    with pytest.raises(MemoryError, match=r"cuda:0 has 0\.0 of 128 GiB left: about [67],\d+ env"):
        make(Levers)


def test_a_gpu_that_is_not_there() -> None:
    with pytest.raises(ValueError, match="no backend 'cuda:64'"):
        make(Levers, backend="cuda:64")


def test_auto_takes_the_gpu() -> None:
    env = operant.make("CartPole-v1", 8)
    assert (env.backend, env.device.type) == ("cuda", "cuda")
    assert "auto" in env.backend_reason


# Graphs and streams -----------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("env_class", ["CartPole-v1", Levers])
def test_a_captured_step_replayed_is_a_step(env_class: Any, mode: str) -> None:
    env, eager = make(env_class, mode=mode), make(env_class, mode=mode)
    rows = to_gpu(random_actions(env, 20))
    for batch in (env, eager):
        batch.reset(seed=5)
        batch.step(rows[0])  # compiles
    actions = rows[0].clone()
    before = env.get_state()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        obs, reward, terminated, truncated, info = env.step(actions)
        report = {key: info["episode"][key] for key in ("r", "l")}  # put together when looked at
    torch.cuda.synchronize()
    for name, array in env.get_state().items():  # captured, not run
        assert_same(array, before[name], name)
    for row in rows[1:]:
        actions.copy_(row)
        graph.replay()
        wanted = eager.step(row)
        found = (obs, reward, terminated, truncated, info["_episode"])
        for a, b in zip(found, (*wanted[:4], wanted[4]["_episode"]), strict=True):
            assert torch.equal(a, b)
        for key, tensor in report.items():
            assert torch.equal(tensor, wanted[4]["episode"][key])
        if mode == "SameStep":
            ended = wanted[4]["_episode"]
            assert torch.equal(info["final_obs"][ended], wanted[4]["final_obs"][ended])
    assert_same_state(env, eager)


def test_a_step_and_a_reset_in_one_graph() -> None:
    """Mode Disabled with a mask that never leaves the GPU."""
    env, eager = make("CartPole-v1", mode="Disabled"), make("CartPole-v1", mode="Disabled")
    rows = to_gpu(random_actions(env, 20))

    def step(batch: Any, actions: torch.Tensor) -> torch.Tensor:
        _, _, terminated, truncated, _ = batch.step(actions)
        return batch.reset(options={"reset_mask": terminated | truncated})[0]

    for batch in (env, eager):
        batch.reset(seed=5)
        step(batch, rows[0])
    actions = rows[0].clone()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        obs = step(env, actions)
    for row in rows[1:]:
        actions.copy_(row)
        graph.replay()
        assert torch.equal(obs, step(eager, row))
    assert_same_state(env, eager)


def test_steps_run_on_the_callers_stream() -> None:
    """The actions arrive late, on a side stream: a step on another one would not see them."""
    env, twin = make("CartPole-v1"), make("CartPole-v1")
    row = to_gpu(random_actions(env, 1)[0])
    for batch in (env, twin):
        batch.reset(seed=5)
        batch.step(row)
    actions = torch.zeros_like(row)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)  # about 0.1 s
        actions.copy_(1 - row)
        env.step(actions)
        obs = env.step_many(torch.stack([actions, row]))[0].clone()
    stream.synchronize()
    for given in (1 - row, 1 - row, row):
        wanted = twin.step(given)
    assert torch.equal(obs[-1], wanted[0])
    assert_same_state(env, twin)


# Other libraries --------------------------------------------------------------------------------


def assert_seen(env: Any, wrap: Callable[[torch.Tensor], tuple[int, Any]]) -> None:
    """`wrap` gives the address and the numbers of a tensor in another library."""
    for row in random_actions(env, 3):
        env.step(to_gpu(row))
        torch.cuda.synchronize()
        for name, tensor in env.buffers.items():
            address, array = wrap(tensor)
            assert address == tensor.data_ptr(), name
            assert_same(array, tensor, name)


def watched() -> Any:
    env = make(Levers, 1000, "SameStep", max_episode_steps=2)
    env.reset(seed=0)
    return env


@pytest.mark.filterwarnings("ignore")
def test_cupy_sees_the_same_memory() -> None:
    cupy = pytest.importorskip("cupy")

    def wrap(tensor: torch.Tensor) -> tuple[int, Any]:
        array = cupy.from_dlpack(tensor)
        return array.data.ptr, cupy.asnumpy(array)

    env = watched()
    assert_seen(env, wrap)
    env.buffers["obs"].fill_(0.5)
    obs = cupy.from_dlpack(env.buffers["obs"])
    obs[:] = 0.25  # and the other way round
    cupy.cuda.runtime.deviceSynchronize()
    assert (env.buffers["obs"] == 0.25).all()


@pytest.mark.filterwarnings("ignore")
def test_jax_sees_the_same_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    jax = pytest.importorskip("jax")
    try:
        jax.devices("gpu")
    except RuntimeError:
        pytest.skip("JAX has no GPU")

    def wrap(tensor: torch.Tensor) -> tuple[int, Any]:
        array = jax.dlpack.from_dlpack(tensor)
        return array.unsafe_buffer_pointer(), np.asarray(array)

    wide = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    try:
        assert_seen(watched(), wrap)
    finally:
        jax.config.update("jax_enable_x64", wide)


# The host ---------------------------------------------------------------------------------------


def act(policy: Any, obs: torch.Tensor) -> torch.Tensor:
    """Actions drawn from the logits."""
    logits = policy(obs)
    return (logits - torch.empty_like(logits).exponential_().log()).argmax(-1)


def events_of(work: Callable[[], None]) -> list[str]:
    """Names of what the GPU did."""
    from torch.profiler import ProfilerActivity, profile

    torch.cuda.synchronize()
    both = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    with profile(activities=both, acc_events=True) as profiler:  # else it warns, once a process
        work()
        torch.cuda.synchronize()
    return [event.name for event in profiler.events()]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_a_loop_of_ones_own_copies_nothing_to_the_host(mode: str) -> None:
    env = make("CartPole-v1", 4096, mode)
    policy = torch.nn.Linear(4, 2, device="cuda")
    total = torch.zeros(4096, device="cuda")

    def loop(steps: int) -> None:
        obs = env.buffers["obs"]
        for _ in range(steps):
            obs, reward, _, _, info = env.step(act(policy, obs))
            total.add_(reward).add_(info["episode"]["r"] * info["_episode"])

    env.reset(seed=0)
    with torch.no_grad():
        loop(3)
        if not any("DtoH" in name for name in events_of(lambda: print(total[0].item()))):
            pytest.skip("the profiler does not see copies here")
        names = events_of(lambda: loop(50))
    assert names.count("step") == 50
    assert [name for name in names if "Memcpy DtoH" in name] == []
    assert [name for name in names if "Memcpy HtoD" in name] == []


@pytest.mark.filterwarnings("ignore::UserWarning")  # that this mode is a prototype
@pytest.mark.parametrize("mode", MODES)
def test_nothing_waits_for_the_gpu(mode: str) -> None:
    env = make(Levers, 4096, mode)
    env.reset(seed=0)
    rows = to_gpu(random_actions(env, 5))
    env.step(rows[0])
    env.step_many(rows)
    mask = torch.ones(4096, dtype=torch.bool, device="cuda")
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for row in rows:
            env.step(row)
            env.action_masks()
        env.step_many(rows)
        env.reset()
        env.reset(options={"reset_mask": mask})
        with pytest.raises(RuntimeError, match="synchroniz"):
            env.check_actions()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    env.check_actions()


def test_bad_actions_are_noticed() -> None:
    env = make("CartPole-v1", 100)
    env.reset(seed=0)
    actions = torch.zeros(100, dtype=torch.int64, device="cuda")
    env.step(actions)
    env.check_actions()
    actions[57] = 2
    env.step(actions)
    with pytest.raises(ValueError, match="out of range"):
        env.check_actions()
    env.check_actions()


# Along time -------------------------------------------------------------------------------------


@pytest.mark.parametrize("envs", [1, 33, 4097, 200_000])
def test_scans_are_equal_to_numpy(envs: int) -> None:
    from operant.buffers.triton_scans import discounted_triton, gae_triton

    random = np.random.default_rng(0)
    reward, value, final = random.normal(size=(3, 20, envs)).astype(np.float32)
    terminated, truncated = random.random((2, 20, envs)) < 0.1
    last = random.normal(size=envs).astype(np.float32)
    arrays = (reward, value, terminated, truncated, final, last)
    out = (torch.empty(20, envs, device="cuda"), torch.empty(20, envs, device="cuda"))
    gae_triton(*[to_gpu(x) for x in arrays], 0.99, 0.95, out)
    wanted = gae(*arrays, 0.99, 0.95)
    assert_same(out[0], wanted[0], "advantage")
    assert_same(out[1], wanted[1], "target")
    carry = to_gpu(last.copy())
    flags = to_gpu(terminated), to_gpu(truncated)
    discounted_triton(to_gpu(reward), *flags, carry, 0.99, out[0])
    sums = last.copy()
    assert_same(out[0], discounted_returns(reward, terminated | truncated, sums, 0.99), "returns")
    assert_same(carry, sums, "carry")
