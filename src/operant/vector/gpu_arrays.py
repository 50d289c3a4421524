"""The ``cuda`` backend for a state of arrays: one thread steps one environment.

The kernels are C++ (`compiler.emit.cuda_array_kernels`), compiled by NVRTC. Where Triton interprets
its kernels, for tests without a GPU, the system's C++ compiler stands in for NVRTC.
"""

from __future__ import annotations

import time
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from operant.compiler.compile_error import compiling
from operant.compiler.emit.cuda_array_kernels import KERNELS, NUMBERS, array_cuda_source, pointers
from operant.compiler.emit.numba_array_kernels import noted_error
from operant.compiler.emit.triton_text import RECORD
from operant.compiler.recording.trace import FLOAT
from operant.compiler.spec.array_rules import ArrayRules
from operant.vector.base import NO_LIMIT
from operant.vector.gpu_env import CudaVecEnv, Results
from operant.version import __version__

_THREADS = 64
"""Of a block: enough blocks for every multiprocessor with 16 384 environments."""
_DTYPES = {"float32": torch.float32, "int32": torch.int32, "uint8": torch.uint8, "bool": torch.bool}


class ArrayCudaVecEnv(CudaVecEnv):
    """See `CudaVecEnv`. Where actions are checked, so are indices: `RulesError`."""

    rules: ArrayRules

    def _bytes_per_env(self) -> int:
        rules = self.rules
        kept = sum(int(np.prod(m.shape)) * m.dtype.itemsize for m in rules.memory.values())
        seen = rules.observation.size * (4 if rules.observation.dtype == FLOAT else 8)
        return kept + 2 * seen + rules.mask_size + 4 * len(RECORD) + 32

    def _allocate(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        memory, views = {}, {}
        fields = {f"state_{name}": kept for name, kept in self.rules.memory.items()}
        for name, kept in fields.items():
            dtype = _DTYPES[kept.dtype.name]
            block = torch.zeros((*kept.shape, self._stride), dtype=dtype, device=self.device)
            memory[name] = block
            views[name] = block[..., : self.num_envs].movedim(-1, 0)
        counters = {"episode_return": torch.float32, "steps": torch.int32, "done": torch.bool}
        for name, dtype in counters.items():
            memory[name] = torch.zeros(self._stride, dtype=dtype, device=self.device)
            views[name] = memory[name][: self.num_envs]
        return memory, views

    def _prepare(self) -> None:
        with compiling(self.rules.env, "cuda"):
            source, self._places = array_cuda_source(self.rules, __version__)
            self._kernels = _loaded(source, self.device)
        self._trouble = torch.zeros(2, dtype=torch.int64, device=self.device)
        self._pointers = tuple(pointers(self.rules))

    def _run(self, name: str, results: Results, **arguments: Any) -> None:
        tensors = {
            **self._memory,
            **results._asdict(),
            "constants": self._params,
            "trouble": self._trouble,
            **{key: value for key, value in arguments.items() if isinstance(value, Tensor)},
        }
        action = arguments.get("action")
        numbers = {
            "num_envs": self.num_envs,
            "stride": self._stride,
            "max_steps": self.max_episode_steps or NO_LIMIT,
            "mode": self._mode,
            "count": arguments.get("STEPS", 1),
            "report_all": arguments.get("REPORT", False),
            "wide": action is not None and action.dtype == torch.int64,
            "host_ns": time.perf_counter_ns() if self.device.type == "cpu" else 0,
        }
        words = [int(numbers[key]) for key in NUMBERS]
        words += [tensors[key].data_ptr() if key in tensors else 0 for key in self._pointers]
        argument = np.array(words, np.uint64)
        blocks = -(-self.num_envs // _THREADS)
        with self._on_device():
            self._kernels.launch(name, blocks, _THREADS, argument)

    def memory(self) -> list[Tensor]:
        """See `CudaVecEnv`."""
        return [*super().memory(), self._trouble]

    def check_actions(self) -> None:
        """See `CudaVecEnv`.

        Raises:
            RulesError: an index lay outside its array; element 0 was used instead.
            RulesOverflowError: an int did not fit into its array; its lowest bits were kept.
            EndlessLoopError: a ``while`` made too many passes, and was left.
        """
        super().check_actions()
        self.check_rules()

    def check_rules(self) -> None:
        """See `CudaVecEnv`."""
        word = int(self._trouble[0])
        if word:
            self._trouble.zero_()
            raise noted_error(word, self._places)


@lru_cache(maxsize=64)
def _loaded(source: str, device: torch.device) -> Any:
    if device.type == "cpu":
        from operant.toolchain.host_kernels import HostKernels

        return HostKernels(source, KERNELS)
    from operant.toolchain.nvrtc import Kernels

    return Kernels(source, KERNELS, device)
