"""Engines as CUDA graphs, without a GPU: a CPU records what is launched while one is captured, and
does it again when it is replayed. Kernels run in Triton's interpreter.

Unlike a GPU, which only notes what is captured, the fake does it as well.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

import operant
from operant.models import PPO
from operant.training.callbacks import Callback

ROLLOUT = 5 * 2


# Fake CUDA graphs ----------------------------------------------------------------------------
class Recorder(TorchDispatchMode):
    """Calls `on_launch` with the name of each operation or kernel, and what does it once more."""

    def __init__(self, on_launch: Callable[[str, Callable[[], None]], None]) -> None:
        super().__init__()
        self.on_launch = on_launch

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        found = func(*args, **kwargs)

        def again() -> None:
            for old, new in zip(_tensors(found), _tensors(func(*args, **kwargs)), strict=True):
                if old.data_ptr() != new.data_ptr():  # not a view, nor what was changed in place
                    old.copy_(new)

        self.on_launch(str(func), again)
        return found

    def kernel(self, name: str, launch: Callable[[], None]) -> None:
        """A kernel that is not PyTorch's; its own operations on tensors are not recorded."""

        def hidden() -> None:
            with _disable_current_modes():
                launch()

        hidden()
        self.on_launch(name, hidden)


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, Tensor)]


@contextmanager
def recording(
    on_launch: Callable[[str, Callable[[], None]], None], monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Tell `on_launch` of all that runs within."""
    from triton.runtime import interpreter

    recorder = Recorder(on_launch)
    launch = interpreter.GridExecutor.__call__

    def seen(executor: Any, *args: Any, **kwargs: Any) -> None:
        recorder.kernel(executor.fn.__name__, lambda: launch(executor, *args, **kwargs))

    with monkeypatch.context() as patch:
        patch.setattr(interpreter.GridExecutor, "__call__", seen)
        with recorder:
            yield


class FakeGraph:
    """Stands for `torch.cuda.CUDAGraph`."""

    def __init__(self) -> None:
        self.launches: list[Callable[[], None]] = []
        self.replays = 0

    @torch.no_grad()
    def replay(self) -> None:
        self.replays += 1
        for again in self.launches:
            again()


def fake_cuda_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `torch.cuda` capture on a CPU."""

    @contextmanager
    def graph(graph: FakeGraph, **_: Any) -> Iterator[None]:
        with recording(lambda _, again: graph.launches.append(again), monkeypatch):
            yield

    stream = SimpleNamespace(wait_stream=lambda other: None)
    fakes: dict[str, Any] = {
        "CUDAGraph": FakeGraph,
        "graph": graph,
        "Stream": lambda device: stream,
        "current_stream": lambda device: stream,
        "stream": lambda stream: nullcontext(),
        "synchronize": lambda device: None,
        "graph_pool_handle": lambda: None,
        "get_rng_state": lambda device: torch.get_rng_state(),
        "set_rng_state": lambda state, device: torch.set_rng_state(state),
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)


# Executors -----------------------------------------------------------------------------------
@pytest.fixture
def graphs(interpreter: None, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_cuda_graphs(monkeypatch)


def fake_program() -> Any:
    """All that an executor knows of a program."""
    policy = nn.Linear(2, 1)
    adam = SimpleNamespace(exp_avg=torch.ones(3), exp_avg_sq=torch.ones(3))
    notes: list[str] = []
    seen = torch.ones(5)
    memory = SimpleNamespace(
        device=torch.device("cpu"),
        on_device=nullcontext,
        job=SimpleNamespace(policy=policy, optimizer=adam),
        carry=torch.ones(4),
        env=SimpleNamespace(memory=lambda: [seen]),
        rates=SimpleNamespace(host=np.zeros(2)),
        addresses=SimpleNamespace(note=lambda: notes.append("addresses")),
        notes=notes,
    )
    return SimpleNamespace(memory=memory, precision="tf32")


def test_direct_prepares_then_launches_in_the_programs_precision(graphs: None) -> None:
    from operant.ppo.engines.executors import DirectExecutor
    from operant.ppo.engines.gpu_program import Part

    done: list[str] = []
    part = Part(
        "some",
        lambda: done.append(torch.get_float32_matmul_precision()),
        lambda: done.append("prepare"),
    )
    executor, before = DirectExecutor(fake_program()), torch.get_float32_matmul_precision()
    executor.connect([part])
    assert done == []
    executor.run(part)
    assert done == ["prepare", "high"]
    assert torch.get_float32_matmul_precision() == before


def test_capturing_changes_nothing_and_replaying_does(graphs: None) -> None:
    from operant.ppo.engines.captured_graph import GraphExecutor
    from operant.ppo.engines.figures import trained_tensors
    from operant.ppo.engines.gpu_program import Part

    program, done, collecting = fake_program(), [], []
    memory = program.memory
    memory.job.policy.train(False)
    changed = [*trained_tensors(memory.job), memory.carry, *memory.env.memory()]

    def launch() -> None:
        collecting.append(gc.isenabled())
        torch.rand(2)
        with torch.no_grad():
            for tensor in changed:
                tensor.add_(1)

    def prepare() -> None:
        done.append("prepare")
        memory.job.policy.train(True)

    before, random = [tensor.clone() for tensor in changed], torch.get_rng_state()
    part, executor = Part("some", launch, prepare), GraphExecutor(program)
    executor.connect([part])
    assert collecting == [True, True, False]  # run twice, then captured
    assert gc.isenabled()
    assert memory.notes == ["addresses"]
    assert all(torch.equal(a, b) for a, b in zip(changed, before, strict=True))
    assert torch.equal(torch.get_rng_state(), random)
    assert not memory.job.policy.training
    done.clear()
    executor.run(part)
    assert done == ["prepare"]
    assert all(torch.equal(a, b + 1) for a, b in zip(changed, before, strict=True))
    assert len(collecting) == 3  # replayed, not launched


def test_a_capture_that_fails_says_why_and_is_tried_again(graphs: None) -> None:
    from operant.ppo.engines.captured_graph import CannotCaptureError, GraphExecutor
    from operant.ppo.engines.gpu_program import Part

    program, broken = fake_program(), [True]
    tensor = program.memory.carry

    def launch() -> None:
        tensor.mul_(3)
        if broken:
            raise RuntimeError("no such thing\nand more")

    part, executor = Part("some", launch), GraphExecutor(program)
    for attempt in (lambda: executor.connect([part]), lambda: executor.run(part)):
        with pytest.raises(CannotCaptureError, match=r"^cannot capture the policy: no such thing$"):
            attempt()
        assert torch.equal(tensor, torch.ones(4))
    broken.clear()
    executor.run(part)
    assert torch.equal(tensor, torch.full((4,), 3.0))


def test_it_compiles_once_and_before_it_captures(graphs: None) -> None:
    from operant.ppo.engines.captured_graph import GraphExecutor
    from operant.ppo.engines.gpu_program import Part

    for works in (True, False):
        program, done = fake_program(), []

        def compile_with(warm_up: Callable[[], None], done: Any = done, works: Any = works) -> bool:
            done.append("compile")
            warm_up()
            return bool(works)

        def launch(done: Any = done) -> None:
            done.append("launch")

        part, executor = Part("some", launch), GraphExecutor(program, compile_with)
        executor.connect([part])
        assert executor.compiled == works
        warm = [] if works else ["launch"] * 2
        assert done == ["compile", "launch", "launch", *warm, "launch"]
        executor.connect([part])  # with other tensors
        assert done[4 + len(warm) :] == [*warm, "launch"]


# Whole engines -------------------------------------------------------------------------------
def made(kind: str, policy: nn.Module | None = None, **options: Any) -> PPO:
    """A trainer with an engine that is captured or not, whatever would be chosen here."""
    from operant.ppo.engines import gpu_builders

    batch = operant.make(
        "CartPole-v1", 5, backend="cuda", autoreset_mode="SameStep", max_episode_steps=3
    )
    given = {"num_steps": 2, "epochs": 2, "minibatches": 2, "seed": 3, "precision": "fp32"}
    if policy is None:
        given |= {"normalize_obs": True, "hidden": (8,)}
    given |= {"normalize_reward": True, "target_kl": 1e-5}
    ppo = PPO(batch, device="cpu", engine="eager", policy=policy, **{**given, **options})
    make: dict[str, Callable[[Any], Any]] = {
        "eager": gpu_builders.eager_engine,
        "graph": gpu_builders.graph_engine,
        "fused": lambda job: gpu_builders.fused_engine(job, captured=False),
        "fused captured": lambda job: gpu_builders.fused_engine(job, captured=True),
    }
    ppo.engine = make[kind](ppo.engine.job)  # type: ignore[attr-defined]
    return ppo


def weights(ppo: PPO) -> Tensor:
    return torch.cat([p.detach().flatten() for p in ppo.policy.parameters()])


class Moves(Callback):
    """Gives the policy other tensors, once."""

    watches_only = True  # which is not true

    def on_update(self, ppo: PPO, metrics: dict[str, float]) -> None:
        if ppo.iteration == 1:
            for parameter in ppo.policy.parameters():
                parameter.data = parameter.data + 0.01


@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize(("one", "other"), [("eager", "graph"), ("fused", "fused captured")])
def test_replaying_is_running(graphs: None, one: str, other: str, moved: bool) -> None:
    direct, captured = made(one), made(other)
    for ppo in (direct, captured):
        before = weights(ppo)
        ppo.learn(3 * ROLLOUT, [Moves()] if moved else [], progress=False)
        assert not torch.equal(weights(ppo), before)
    assert torch.equal(weights(direct), weights(captured))
    assert direct.optimizer.count == captured.optimizer.count
    ours, theirs = (ppo.env.get_state() for ppo in (direct, captured))
    for name in set(theirs) - {"start", "episode_start"}:  # by the clock
        assert np.array_equal(ours[name], theirs[name]), name


def test_each_iteration_replays_each_part_once(
    graphs: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_graphs: list[FakeGraph] = []

    def new() -> FakeGraph:
        made_graphs.append(FakeGraph())
        return made_graphs[-1]

    monkeypatch.setattr(torch.cuda, "CUDAGraph", new)
    made("graph").learn(3 * ROLLOUT, progress=False)
    assert [graph.replays for graph in made_graphs] == [3, 3, 3]
    made_graphs.clear()
    made("fused captured").learn(3 * ROLLOUT, progress=False)
    assert [graph.replays for graph in made_graphs] == [1, 3, 3, 3]  # two followed directly


def test_the_policys_functions_are_compiled(graphs: None, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []

    def fake(function: Any, dynamic: bool, options: Any) -> Any:
        assert dynamic is False
        assert options is None

        def called(*given: Any) -> Any:
            compiled.append(function.__name__)
            return function(*given)

        return called

    monkeypatch.setattr(torch, "compile", fake)
    ppo, plain = made("graph", compile="on"), made("graph", compile="off")
    assert set(compiled) == {"act", "value", "loss", "apply"}
    assert ppo.engine.compiled  # type: ignore[attr-defined]
    assert not plain.engine.compiled  # type: ignore[attr-defined]
    for trainer in (ppo, plain):
        trainer.learn(2 * ROLLOUT, progress=False)
    assert torch.equal(weights(ppo), weights(plain))


def test_a_compiler_that_fails_is_done_without(
    graphs: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fake(function: Any, dynamic: bool, options: Any) -> Any:
        def called(*given: Any) -> Any:
            raise TypeError("I do not know this.\nAt all.")

        return called

    monkeypatch.setattr(torch, "compile", fake)
    with caplog.at_level("INFO", "operant.compile"):
        ppo = made("graph", compile="on")
    assert caplog.messages == [
        "torch.compile cannot do this policy (I do not know this); without it"
    ]
    assert not ppo.engine.compiled  # type: ignore[attr-defined]
    plain = made("graph", compile="off")
    for trainer in (ppo, plain):
        trainer.learn(2 * ROLLOUT, progress=False)
    assert torch.equal(weights(ppo), weights(plain))


def test_an_engine_is_freed_when_nobody_holds_it(graphs: None) -> None:
    """Without the garbage collector: what it holds is most of a GPU's memory."""
    for kind in ("eager", "graph", "fused", "fused captured"):
        ppo = made(kind, epochs=1, minibatches=1).learn(ROLLOUT, progress=False)
        inner = getattr(ppo.engine, "engine", ppo.engine)
        held = [weakref.ref(inner), weakref.ref(inner.memory), weakref.ref(inner.executor)]
        gc.collect()
        gc.disable()
        try:
            del ppo, inner
            assert [ref() for ref in held] == [None] * 3, kind
        finally:
            gc.enable()
