"""The `graph` engine: a whole rollout, and a whole update, as one CUDA graph each.

Kernels of a `torch.nn.Module` are small, and a host cannot launch them as fast as a card runs
them. So each part of an iteration is run on a side stream first (by functions that `torch.compile`
made, where that pays), captured with every launch in it, and from then on replayed in one call.
"""

from __future__ import annotations

import gc
import logging
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from operant.ppo.engines.device import DeviceEngine
from operant.ppo.engines.places import Places
from operant.ppo.job import Job
from operant.training.config import RunConfig

WORTH = {"max": 16_000_000_000, "on": 1_000_000_000}
"""Steps of a run from which compiling pays. Standard PPO on CartPole with 8192 environments on an
H200, bf16: 32 million steps a second without, 63 with it (compiled in 12 to 20 s), 82 with products
chosen by measurement too (83 s)."""
_MOST: dict[str, Any] = {"max_autotune_gemm": True, "max_autotune_gemm_backends": "TRITON,ATEN"}
"""Choose products by measurement, also such that bias and activation become a part of."""
log = logging.getLogger("operant.compile")


class CannotCaptureError(Exception):
    """A job cannot be captured; the message ends a sentence that begins with "it"."""


class GraphEngine(DeviceEngine):
    """See `operant.ppo.job.Engine`.

    Raises:
        CannotCaptureError: the policy does something that a graph cannot hold.
    """

    name = "graph"
    preferred_precision = "tf32"
    knows_addresses = True
    parts: tuple[str, ...] = ("collect", "advantages", "update")
    """What is captured: a graph each."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._graphs: dict[str, torch.cuda.CUDAGraph] = {}
        self.compiled = False
        """Whether `torch.compile` fused operations."""
        level = self._compile_level()
        if level != "off":
            self._compile(level)
        self._capture()

    def _run(self, part: str) -> None:
        if not self._graphs:  # the last capture was broken off
            self._capture()
        with self._on_device():
            self._graphs[part].replay()
        self._prepare(part)  # for those who look at the policy, while the card works

    def _reconnect(self) -> None:
        super()._reconnect()
        self._capture()

    # compile --------------------------------------------------------------------------------
    def _compile_level(self) -> str:
        return compile_level(self.job.config.run)

    def _compile(self, level: str) -> None:
        """Replace what a step and a minibatch do by compiled functions, if that works here."""
        plain = {name: getattr(self, name) for name in ("_act", "_value", "_loss", "_apply")}
        for name, function in plain.items():
            setattr(self, name, _compiled(function, level))
        began = time.perf_counter()
        log.debug("compiling the policy for the card")
        try:
            with self._kept(), warnings.catch_warnings():
                warnings.filterwarnings("ignore", module=r"torch\._inductor")  # advice to PyTorch
                self._warm_up()
        except Exception as error:  # whatever the compiler stumbles over, it works without
            for name in plain:
                delattr(self, name)
            torch._dynamo.reset()
            log.info("torch.compile cannot do this policy (%s); without it", _first_line(error))
            return
        self.compiled = True
        log.info("compiled the policy in %.1f s", time.perf_counter() - began)

    # capture --------------------------------------------------------------------------------
    def _capture(self) -> None:
        """Record the parts; what they change is put back."""
        self._graphs = {}
        graphs: dict[str, torch.cuda.CUDAGraph] = {}
        stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        try:
            with self._on_device(), self._kept():
                if not self.compiled:
                    self._warm_up()
                pool = torch.cuda.graph_pool_handle()
                for part in self.parts:
                    self._prepare(part)
                    graph = torch.cuda.CUDAGraph()
                    with no_garbage_collection(), torch.cuda.graph(graph, pool=pool, stream=stream):
                        self._do(part)
                    graphs[part] = graph
            self._graphs = graphs
            self._places = Places(self.job.policy)  # running it may have made buffers
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            torch.cuda.synchronize(self.device)
            raise CannotCaptureError(f"cannot capture the policy: {_first_line(error)}") from error

    def _warm_up(self) -> None:
        """Run every part twice on a side stream: what is allocated or compiled once is then."""
        stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream):
            for _ in range(2):
                for part in self.parts:
                    self._prepare(part)
                    self._do(part)
        torch.cuda.current_stream(self.device).wait_stream(stream)
        torch.cuda.synchronize(self.device)

    @contextmanager
    def _kept(self) -> Iterator[None]:
        """Put back afterwards what an iteration changes: weights, optimiser, environments."""
        mode = self.job.policy.training
        tensors = [*self._trained(), self._carry, *self.env.memory()]
        before = [tensor.clone() for tensor in tensors]
        random = torch.cuda.get_rng_state(self.device)
        self._told_rates.host[:] = 1e-4, 0.2
        try:
            with self._products():
                yield
        finally:
            torch.cuda.synchronize(self.device)  # what failed may not have ended on other streams
            with torch.no_grad():
                for tensor, good in zip(tensors, before, strict=True):
                    tensor.copy_(good)
            torch.cuda.set_rng_state(random, self.device)
            self.job.policy.train(mode)


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


def compile_level(config: RunConfig) -> str:
    """``"off"``, ``"on"`` or ``"max"``: what is worth its time for the steps of a run."""
    if config.compile != "auto":
        return config.compile
    return next((level for level, steps in WORTH.items() if config.total_steps >= steps), "off")


def _compiled(function: Callable[..., Any], level: str) -> Callable[..., Any]:
    options = dict(_MOST) if level == "max" else None
    if options and hasattr(torch._inductor.config, "autotune_num_choices_displayed"):
        options["autotune_num_choices_displayed"] = 0  # no table for each product
    found: Callable[..., Any] = torch.compile(function, dynamic=False, options=options)
    return found


def _first_line(error: BaseException) -> str:
    while error.__context__ is not None:  # what came first: a capture that failed fails again
        error = error.__context__
    return str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
