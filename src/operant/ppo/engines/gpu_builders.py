"""The engines on a GPU, put together: program, executor, backup, lookahead."""

from __future__ import annotations

from functools import partial

from operant.ppo.engines.backup import Backup, whole_backup_bytes
from operant.ppo.engines.captured_graph import GraphExecutor
from operant.ppo.engines.compile_policy import compile_functions, compile_level
from operant.ppo.engines.executors import DirectExecutor, Executor
from operant.ppo.engines.fused_gpu_layout import FusedLayout
from operant.ppo.engines.fused_gpu_program import FusedProgram
from operant.ppo.engines.gpu_engine import GpuEngine
from operant.ppo.engines.gpu_memory import GpuMemory
from operant.ppo.engines.lookahead import Lookahead
from operant.ppo.engines.torch_program import TorchProgram, torch_bytes_per_sample
from operant.ppo.job import Job


def eager_engine(job: Job) -> GpuEngine:
    """Runs each operation as PyTorch reaches it."""
    memory = GpuMemory(job, torch_bytes_per_sample(job))
    program = TorchProgram(memory, "fp32")
    return GpuEngine("eager", program, DirectExecutor(program), Backup(memory, whole=False))


def graph_engine(job: Job) -> GpuEngine:
    """Runs the same as CUDA graphs, compiled where that pays.

    Raises:
        CannotCaptureError: the policy does something that a graph cannot hold.
    """
    memory = GpuMemory(job, torch_bytes_per_sample(job))
    program, level = TorchProgram(memory, "tf32"), compile_level(job.config.run)
    compile_with = None if level == "off" else partial(compile_functions, program, level)
    executor = GraphExecutor(program, compile_with)
    return GpuEngine("graph", program, executor, Backup(memory, whole=False))


def fused_engine(job: Job, captured: bool | None = None) -> Lookahead:
    """Runs kernels of our own, and begins with an iteration before it is asked for.

    Args:
        captured: as CUDA graphs, which is the default on a GPU, or each kernel as it is reached.

    Raises:
        CannotCaptureError: the kernels cannot be captured.
        CompileError: the GPU's compiler or driver refuses them.
    """
    layout = FusedLayout(job)
    memory = GpuMemory(job, layout.bytes_per_sample(), whole_backup_bytes(job))
    program = FusedProgram(memory, layout)
    if captured is None:
        captured = job.device.type == "cuda"
    executor: Executor = GraphExecutor(program) if captured else DirectExecutor(program)
    return Lookahead(GpuEngine("fused", program, executor, Backup(memory, whole=True)))
