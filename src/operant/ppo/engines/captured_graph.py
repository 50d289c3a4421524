"""Parts of a program as one CUDA graph each.

Kernels of a `torch.nn.Module` are small, and a host cannot launch them as fast as a GPU runs them.
So each part of an iteration is run on a side stream first (by functions that `torch.compile` made,
where that pays), captured with every launch in it, and from then on replayed in one call.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch

from operant.ppo.engines.figures import trained_tensors
from operant.ppo.engines.gpu_program import GpuProgram, Part, matmul_precision


class CannotCaptureError(Exception):
    """A job cannot be captured; the message ends a sentence that begins with "it"."""


class GraphExecutor:
    """See `Executor`. Captures when it is connected.

    Args:
        program: whose parts it launches.
        compile_with: called once, before the first capture, with what runs all parts and leaves no
            trace; whether that compiled something. See `compile_functions`.

    Raises:
        CannotCaptureError: from `connect` or `run`: the policy does something that a graph cannot
            hold.
    """

    fixed_addresses = True

    def __init__(
        self,
        program: GpuProgram,
        compile_with: Callable[[Callable[[], None]], bool] | None = None,
    ) -> None:
        self._program, self._device = program, program.memory.device
        self._compile_with = compile_with
        self._parts: Sequence[Part] = ()
        self._graphs: dict[Part, torch.cuda.CUDAGraph] = {}
        self.compiled = False

    def connect(self, parts: Sequence[Part]) -> None:
        """See `Executor`."""
        self._parts = parts
        compile_with, self._compile_with = self._compile_with, None
        if compile_with is not None:
            self.compiled = compile_with(self._warm_up_without_trace)
        self._capture()

    def run(self, part: Part) -> None:
        """See `Executor`."""
        if not self._graphs:  # the last capture was broken off
            self._capture()
        with self._program.memory.on_device():
            self._graphs[part].replay()
        part.prepare()  # for those who look at the policy, while the GPU works

    def _capture(self) -> None:
        """Record the parts; what they change is put back."""
        memory = self._program.memory
        self._graphs = {}
        graphs: dict[Part, torch.cuda.CUDAGraph] = {}
        stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        try:
            with memory.on_device(), state_preserved(self._program):
                if not self.compiled:
                    self._warm_up()
                pool = torch.cuda.graph_pool_handle()
                for part in self._parts:
                    part.prepare()
                    graph = torch.cuda.CUDAGraph()
                    with no_garbage_collection(), torch.cuda.graph(graph, pool=pool, stream=stream):
                        part.launch()
                    graphs[part] = graph
            self._graphs = graphs
            memory.addresses.note()  # running it may have made buffers
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            torch.cuda.synchronize(self._device)
            raise CannotCaptureError(f"cannot capture the policy: {first_line(error)}") from error

    def _warm_up(self) -> None:
        """Run every part twice on a side stream: what is allocated or compiled once is then."""
        stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(stream):
            for _ in range(2):
                for part in self._parts:
                    part.prepare()
                    part.launch()
        torch.cuda.current_stream(self._device).wait_stream(stream)
        torch.cuda.synchronize(self._device)

    def _warm_up_without_trace(self) -> None:
        with state_preserved(self._program):
            self._warm_up()


@contextmanager
def state_preserved(program: GpuProgram) -> Iterator[None]:
    """Put back afterwards what an iteration changes: weights, optimiser, environments, the GPU's
    random generator, and the policy's mode."""
    memory, device = program.memory, program.memory.device
    mode = memory.job.policy.training
    tensors = [*trained_tensors(memory.job), memory.carry, *memory.env.memory()]
    before = [tensor.clone() for tensor in tensors]
    random = torch.cuda.get_rng_state(device)
    memory.rates.host[:] = 1e-4, 0.2
    try:
        with matmul_precision(program.precision):
            yield
    finally:
        torch.cuda.synchronize(device)  # what failed may not have ended on other streams
        with torch.no_grad():
            for tensor, good in zip(tensors, before, strict=True):
                tensor.copy_(good)
        torch.cuda.set_rng_state(random, device)
        memory.job.policy.train(mode)


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Nothing is collected meanwhile: to free an older engine's graphs or memory, as Python may at
    any allocation, invalidates the graph that is being captured."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def first_line(error: BaseException) -> str:
    """Of the message of what came first: a capture that failed fails again."""
    while error.__context__ is not None:
        error = error.__context__
    return str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
