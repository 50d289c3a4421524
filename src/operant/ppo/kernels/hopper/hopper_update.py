"""`operant.ppo.kernels.triton.update` on Hopper's tensor cores: the kernel of ``update.cu``.

For networks whose hidden layers have 128 neurons at most, in bfloat16.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from operant.models.names import LOG_STD_RANGE
from operant.ppo.kernels.hopper.wgmma import wrappers
from operant.ppo.kernels.triton.layers import NUMBERS
from operant.ppo.kernels.triton.networks import Network, Networks
from operant.ppo.kernels.triton.order import permutation
from operant.toolchain.nvrtc import Kernels

PANEL = 64
"""Neurons that a warpgroup has the gradients of; a hidden layer has one or two panels."""
SHARED = 228 << 10
"""Bytes of shared memory of a processor; of each block's 1024 are the system's."""
TANH, RELU, SILU = (NUMBERS[name] for name in ("tanh", "relu", "silu"))
OPTIONS = ("--std=c++17", "--use_fast_math", "--diag-suppress=177")
_ARGUMENT = np.dtype(
    [(name, np.uint64) for name in ("rows", "low", "full", "moments", "keys", "clip")]
    + [(name, np.uint64) for name in ("gradients", "sums")]
    + [(name, np.int32) for name in ("job", "count", "stride", "programs")]
)


class UpdatePlan(NamedTuple):
    """A kernel and what a launch of it needs."""

    source: str
    memory: int
    """Bytes of shared memory of a block."""
    networks: int
    blocks: int
    """Blocks that run on a processor at once."""
    threads: int
    """Of a block."""


def update_source(
    networks: Networks, outputs: int, categories: list[int], constants: dict[str, Any], count: int
) -> UpdatePlan:
    """The kernel's text, and what a launch of it needs.

    Args:
        networks: padded to one or two panels.
        outputs: columns of the actor's head.
        categories: how many each part of a discrete action has; empty for a continuous one.
        constants: those of the Triton kernel, see `train_tiles`.
        count: samples of a rollout.
    """
    inputs = networks.actor
    widths = {width for net in (networks.actor, networks.critic) for width in net.widths}
    assert widths in ({PANEL}, {2 * PANEL}), "all layers are padded to the same width"
    vectors, numbers = input_vectors(inputs), -(-constants["OBS"] // 4)
    shuffling = permutation(count)
    whole = {
        "WIDTH": inputs.widths[0],
        "IN": _columns(inputs.ones + 1, inputs.inputs),
        "ONES": inputs.ones,
        "INPUT_VECTORS": vectors,
        "NUMBER_VECTORS": numbers,
        "ROW_VECTORS": vectors + numbers,
        "MINIBATCHES": constants["MINIBATCHES"],
        "BITS": shuffling["BITS"],
        "WALK": int(shuffling["WALK"]),
        "NORMALIZE": int(constants["NORMALIZE"]),
        "ACTIVATION": constants["ACTIVATION"],
        "DISTRIBUTION": constants["DISTRIBUTION"],
        "PARTS": len(categories) or 1,
        "ACTION": constants["ACTION"],
        "ACTIONS": constants["ACTIONS"],
        "MASK": constants["MASK"],
        "OLD_VALUE": constants["OLD_VALUE"],
        "TANH": TANH,
        "RELU": RELU,
        "SILU": SILU,
        "CATEGORICAL": 0,
        "GAUSSIAN": 1,
    }
    real = {
        "VALUE_CLIP": constants["VALUE_CLIP"],
        "VALUE_COEF": constants["VALUE_COEF"],
        "ENTROPY_COEF": constants["ENTROPY_COEF"],
        "LOWEST": float(LOG_STD_RANGE[0]),
        "HIGHEST": float(LOG_STD_RANGE[1]),
        "HALF_LOG_2PI": 0.9189385332046727,
    }
    described = [_network(0, inputs, outputs + networks.shared, True, networks.shared)]
    if not networks.shared:
        described.append(_network(1, networks.critic, 1, False, True))
    nets = [inputs] if networks.shared else [inputs, networks.critic]
    sizes, silu = [outputs + networks.shared, 1], constants["ACTIVATION"] == SILU
    used = max(
        _memory(net, numbers, size, size + constants["ACTIONS"] + 5, silu)
        for net, size in zip(nets, sizes, strict=False)
    )
    deep = max(len(net.widths) for net in nets) > 2
    panels = inputs.widths[0] // PANEL
    most = 1 if panels > 1 else 2 if deep else 3 if silu else 4  # what registers allow
    blocks = min(most, SHARED // (used + 1024))
    text = [
        wrappers(),
        f"#define NETWORKS {len(described)}",
        f"#define CATEGORIES {', '.join(map(str, categories or [1]))}",
        f"#define BLOCKS_A_PROCESSOR {blocks}",
        f"#define MEMORY {used}",
        "#define INFINITY __int_as_float(0x7f800000)",
        *[f"constexpr int {name} = {value};" for name, value in whole.items()],
        *[f"constexpr float {name} = {value!r}f;" for name, value in real.items()],
        *described,
        files(__package__).joinpath("update.cu").read_text(),
    ]
    return UpdatePlan("\n".join(text), used, len(nets), blocks, 128 * panels)


def input_vectors(net: Network) -> int:
    """16-byte vectors that a sample's inputs take in bfloat16, the constant one included."""
    return -(-(net.ones + 1) // 8)


def _network(number: int, net: Network, outputs: int, actor: bool, critic: bool) -> str:
    depth = len(net.widths)
    matrices, biases = list(net.matrices[1:depth]), list(net.biases[1:depth])

    def offset_of(name: str, offsets: list[int]) -> str:
        tests = "".join(f"l == {k + 1} ? {at} : " for k, at in enumerate(offsets))
        return f"  static constexpr __device__ int {name}(int l) {{ return {tests}0; }}\n"

    values = {
        "BASE": net.base,
        "DEPTH": depth,
        "HEAD": _columns(outputs, net.head),
        "HEAD_COLUMNS": net.head,
        "OUTPUTS": outputs,
        "FIRST": net.matrices[0],
        "HEAD_MATRIX": net.matrices[depth],
        "HEAD_BIAS": net.biases[depth],
        "LOG_STD": net.log_std,
    }
    flags = {"ACTOR": actor, "CRITIC": critic}
    lines = [f"  static constexpr int {name} = {value};\n" for name, value in values.items()]
    lines += [f"  static constexpr bool {k} = {str(v).lower()};\n" for k, v in flags.items()]
    return "".join(
        [
            f"struct Network{number} {{\n",
            *lines,
            offset_of("matrix", matrices),
            offset_of("bias", biases),
            "};",
        ]
    )


def _columns(used: int, padded: int) -> int:
    """Columns of a tile of which so many are used, where weights are `padded`."""
    return 8 if used <= 8 else padded


def _memory(net: Network, numbers: int, outputs: int, gathers: int, silu: bool) -> int:
    """What ``Offsets`` of the kernel adds up to."""
    depth, width = len(net.widths), net.widths[0]
    inputs, head = max(16, net.inputs), max(16, net.head)  # narrow tiles are padded to 16 columns
    tiles = (3 * depth - 2 + depth * silu) * width + 4 * inputs + 2 * head
    vectors = 3 * width * 16 * numbers + 48 + 4 * (width * (depth - 1) + 2 * net.head)
    sums = 4 * width * (outputs | 1) + 16 * width * (-(-gathers // 4) | 1)
    return 2 * width * tiles + vectors + sums


class HopperUpdate:
    """The kernel, compiled for one job.

    Raises:
        RuntimeError: the compiler or the driver refused, with their words.
    """

    def __init__(self, plan: UpdatePlan, device: torch.device) -> None:
        self._kernels = Kernels(
            plan.source,
            ["train_networks"],
            device,
            options=OPTIONS,
            feature="a",
            shared=plan.memory,
        )
        self._networks, self._threads = plan.networks, plan.threads

    def __call__(
        self,
        rows: Tensor,
        low: Tensor,
        full: Tensor,
        moments: Tensor,
        keys: Tensor,
        clip: Tensor,
        gradients: Tensor,
        sums: Tensor,
        job: int,
    ) -> None:
        """See `train_tiles`; `rows` is what `pack_rows` writes."""
        tensors = (rows, low, full, moments, keys, clip, gradients, sums)
        sizes = (job, len(rows), gradients.stride(0), len(gradients))
        given = np.array([(*[x.data_ptr() for x in tensors], *sizes)], _ARGUMENT)
        blocks = self._networks * len(gradients)
        self._kernels.launch("train_networks", blocks, self._threads, given)
