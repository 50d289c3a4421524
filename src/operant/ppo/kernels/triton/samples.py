"""Samples of a rollout as rows, one after the other: what an update looks at of a sample lies
together, so that fetching it in any order costs one or two memory transactions.

Columns, float32: log-probability, advantage, target of the value, the old value (if its change is
limited), the action, the allowed actions (bits, if there is a mask), the observation.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from operant.buffers.gpu import GpuBuffer
from operant.toolchain.gpus import interpreted

SECTOR = 8
"""float32 numbers that memory hands out at once."""


class Columns(NamedTuple):
    """Where the columns are, and how many a row has."""

    old_value: int  # -1: not there
    action: int
    actions: int
    mask: int  # -1: not there
    masks: int
    obs: int
    numbers: int
    row: int

    @classmethod
    def of(cls, actions: int, masks: int, numbers: int, value_clip: float) -> Columns:
        """For as many numbers of an action, of a mask and of an observation."""
        action = 4 if value_clip else 3
        mask = action + actions
        obs = mask + (masks > 0)
        row = -(-(obs + numbers) // SECTOR) * SECTOR
        return cls(
            3 if value_clip else -1,
            action,
            actions,
            mask if masks else -1,
            masks,
            obs,
            numbers,
            row,
        )

    def constants(self) -> dict[str, Any]:
        """The kernels' arguments."""
        return {
            "OLD_VALUE": self.old_value,
            "ACTION": self.action,
            "ACTIONS": self.actions,
            "MASK": self.mask,
            "MASKS": self.masks,
            "OBS": self.obs,
            "NUMBERS": self.numbers,
            "ROW": self.row,
        }


def pack_samples(buffer: GpuBuffer, columns: Columns, out: Tensor) -> None:
    """Write the samples of a rollout to `out`, float32 ``[T * N, row]``."""
    count = len(buffer)
    block = min(1 << (count - 1).bit_length(), 1 << 16) if interpreted() else 128
    _pack[(triton.cdiv(count, block),)](
        buffer.log_prob,
        buffer.advantage,
        buffer.target,
        buffer.value,
        buffer.action,
        buffer.action_mask,
        buffer.obs,
        out,
        count,
        BLOCK=block,
        **columns.constants(),
    )


def pack_samples_torch(buffer: GpuBuffer, columns: Columns, out: Tensor) -> None:
    """The same by PyTorch."""
    names = ("log_prob", "advantage", "target", "value", "action", "action_mask", "obs")
    log_prob, advantage, target, value, action, mask, obs = buffer.flat(*names)
    parts = [log_prob, advantage, target] + ([value] if columns.old_value >= 0 else [])
    rows = [part.unsqueeze(1) for part in parts] + [action.reshape(len(action), -1).float()]
    if columns.masks:
        bits = (mask.long() << torch.arange(columns.masks, device=mask.device)).sum(1)
        rows.append(bits.to(torch.int32).view(torch.float32).unsqueeze(1))
    rows.append(obs.reshape(len(obs), -1).float())
    out.zero_()
    found = torch.cat(rows, 1)
    out[:, : found.shape[1]] = found


@triton.jit
def _pack(
    log_prob,
    advantage,
    target,
    value,
    action,
    action_mask,
    obs,
    out,
    count,
    OLD_VALUE: tl.constexpr,  # noqa: N803
    ACTION: tl.constexpr,  # noqa: N803
    ACTIONS: tl.constexpr,  # noqa: N803
    MASK: tl.constexpr,  # noqa: N803
    MASKS: tl.constexpr,  # noqa: N803
    OBS: tl.constexpr,  # noqa: N803
    NUMBERS: tl.constexpr,  # noqa: N803
    ROW: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    here = i < count
    row = out + i * ROW
    tl.store(row, tl.load(log_prob + i, mask=here), mask=here)
    tl.store(row + 1, tl.load(advantage + i, mask=here), mask=here)
    tl.store(row + 2, tl.load(target + i, mask=here), mask=here)
    if OLD_VALUE >= 0:
        tl.store(row + OLD_VALUE, tl.load(value + i, mask=here), mask=here)
    for k in tl.static_range(ACTIONS):
        taken = tl.load(action + i * ACTIONS + k, mask=here)
        tl.store(row + ACTION + k, taken.to(tl.float32), mask=here)
    if MASK >= 0:
        bits = tl.zeros([BLOCK], tl.int32)
        for k in tl.static_range(MASKS):
            allowed = tl.load(action_mask + i * MASKS + k, mask=here, other=0)
            bits = bits | (allowed.to(tl.int32) << k)
        tl.store(row + MASK, bits.to(tl.float32, bitcast=True), mask=here)
    for k in tl.static_range(NUMBERS):
        seen = tl.load(obs + i * NUMBERS + k, mask=here)
        tl.store(row + OBS + k, seen.to(tl.float32), mask=here)
