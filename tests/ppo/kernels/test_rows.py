"""Samples as rows of pieces, in Triton's interpreter, against PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

pytestmark = pytest.mark.usefixtures("interpreter")


def filled(numbers: int, actions: int, masks: int, dtype: torch.dtype) -> Any:
    """A rollout of 3 steps of 5 environments with invented samples."""
    from operant.buffers.gpu import GpuBuffer

    random = np.random.default_rng(numbers)
    buffer = GpuBuffer(
        3, 5, (numbers,), (actions,), device="cpu", obs_dtype=dtype, mask_size=masks,
        action_dtype=torch.float32 if actions > 1 else torch.int64,
    )  # fmt: skip
    for name in ("log_prob", "advantage", "target", "value"):
        tensor = getattr(buffer, name)
        tensor.copy_(torch.from_numpy(random.normal(size=tensor.shape)))
    buffer.action.copy_(torch.from_numpy(random.integers(0, 3, buffer.action.shape)))
    buffer.action_mask.copy_(torch.from_numpy(random.random(buffer.action_mask.shape) < 0.5))
    seen = random.normal(size=buffer.obs.shape) if dtype == torch.float32 else None
    seen = random.integers(1, 4, buffer.obs.shape) if seen is None else seen
    buffer.obs.copy_(torch.from_numpy(seen))
    return buffer


@pytest.mark.parametrize(
    ("numbers", "actions", "masks", "value_clip", "limit"),
    [
        (4, 1, 0, 0.0, 0.0),
        (7, 3, 0, 0.2, 2.0),
        (8, 1, 5, 0.0, 0.0),
        (12, 2, 0, 0.2, 1.0),
        (17, 2, 31, 0.1, 1.5),
    ],
)
def test_rows_hold_inputs_and_numbers(
    numbers: int, actions: int, masks: int, value_clip: float, limit: float
) -> None:
    from operant.ppo.kernels.triton.rows import pack_rows, pack_rows_torch, row_words
    from operant.ppo.kernels.triton.samples import Columns, pack_samples_torch

    buffer = filled(numbers, actions, masks, torch.float32)
    columns = Columns.of(actions, masks, numbers, value_clip)
    statistics = torch.stack([torch.linspace(-1, 1, numbers), torch.linspace(0.5, 2, numbers)])
    found = torch.full((15, row_words(numbers, columns)), -1, dtype=torch.int32)
    options = {"ONES": numbers, "ONE_HOT": False, "LIMIT": limit}
    pack_rows(buffer, columns, statistics, torch.zeros(1, 2, dtype=torch.int32), options, found)

    samples = torch.empty(15, columns.row)
    pack_samples_torch(buffer, columns, samples)
    inputs = samples[:, columns.obs : columns.obs + numbers]
    if limit:
        inputs = ((inputs - statistics[0]) * statistics[1]).clamp(-limit, limit)
    wanted = torch.empty_like(found)
    pack_rows_torch(inputs, samples[:, : columns.obs], wanted)
    words = 4 * (-(-(numbers + 1) // 8))
    assert torch.equal(found[:, words:], wanted[:, words:])
    # The interpreter cuts off where GPUs and PyTorch round: one unit of bfloat16's last place.
    ours, theirs = (x[:, :words].contiguous().view(torch.bfloat16).float() for x in (found, wanted))
    torch.testing.assert_close(ours, theirs, rtol=2**-7, atol=0.0)
    assert torch.equal(ours[:, numbers:], theirs[:, numbers:])


def test_one_hot_inputs() -> None:
    from operant.ppo.kernels.triton.rows import pack_rows, row_words
    from operant.ppo.kernels.triton.samples import Columns

    buffer = filled(2, 1, 0, torch.int64)
    columns = Columns.of(1, 0, 2, 0.0)
    table = torch.tensor([[k, value] for k in range(2) for value in (1, 2, 3)], dtype=torch.int32)
    found = torch.zeros(15, row_words(6, columns), dtype=torch.int32)
    options = {"ONES": 6, "ONE_HOT": True, "LIMIT": 0.0}
    pack_rows(buffer, columns, torch.zeros(2, 2), table, options, found)
    seen = found[:, :4].view(torch.bfloat16).float()
    obs = buffer.flat("obs")[0]
    for k in range(2):
        wanted = torch.nn.functional.one_hot(obs[:, k] - 1, 3).float()
        assert torch.equal(seen[:, 3 * k : 3 * k + 3], wanted)
    assert torch.equal(seen[:, 6:], torch.tensor([[1.0, 0.0]]).expand(15, 2))
