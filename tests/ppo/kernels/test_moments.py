"""Minibatches seen from the samples, in Triton's interpreter: where each is, and what they add up
to."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from operant.ppo.kernels.cpu.shuffle import shuffle_keys

pytestmark = pytest.mark.usefixtures("interpreter")
FEW = settings(
    deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def keys_of(epochs: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(shuffle_keys(seed, 3, epochs).view(np.int64))


def orders(count: int, keys: Tensor) -> Tensor:
    """Which sample comes when, int64 ``[epochs, count]``."""
    from operant.ppo.kernels.triton.order import fill_orders

    out = torch.empty(len(keys), count, dtype=torch.int32)
    fill_orders(out, keys)
    return out.long()


UNDO = """
import triton
import triton.language as tl

from operant.ppo.kernels.triton.order import loaded_keys, undoing_keys, unshuffled

@triton.jit
def undo(samples, out, keys, count, BITS: tl.constexpr, WALK: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    here = i < count
    own = undoing_keys(loaded_keys(keys, 0))
    sample = tl.load(samples + i, mask=here, other=0)
    tl.store(out + i, unshuffled(sample, own, count, BITS, WALK), mask=here)
"""
Places = Callable[[Tensor, Tensor], Tensor]


@pytest.fixture
def places(interpreter: None, tmp_path: Path) -> Places:
    """When each of the samples ``[count]`` comes, by `unshuffled`."""
    from operant.ppo.kernels.triton.order import permutation

    (tmp_path / "undo.py").write_text(UNDO)
    kernel = runpy.run_path(str(tmp_path / "undo.py"))["undo"]

    def found(samples: Tensor, keys: Tensor) -> Tensor:
        count = len(samples)
        out = torch.full((count,), -1, dtype=torch.int32)
        block = 1 << (count - 1).bit_length()
        kernel[(1,)](samples.int(), out, keys, count, BLOCK=block, **permutation(count))
        return out.long()

    return found


@FEW
@given(count=st.integers(1, 3000), seed=st.integers(0, 2**64 - 1))
def test_the_inverse_finds_every_place(places: Places, count: int, seed: int) -> None:
    keys = keys_of(1, seed)
    assert torch.equal(places(orders(count, keys)[0], keys), torch.arange(count))


@pytest.mark.parametrize("bits", [1, 2, 3, 10, 16, 17])
def test_the_inverse_at_powers_of_two_and_their_neighbours(places: Places, bits: int) -> None:
    for count in (2**bits - 1, 2**bits, 2**bits + 1):
        keys = keys_of(1, bits)
        assert torch.equal(places(orders(count, keys)[0], keys), torch.arange(count))


def moments(advantage: Tensor, keys: Tensor, minibatches: int) -> Tensor:
    from operant.ppo.kernels.triton.moments import SPLIT, advantage_moments

    jobs = len(keys) * minibatches
    parts = torch.full((jobs, 2, SPLIT), float("nan"), dtype=torch.float64)
    out = torch.full((jobs, 2), float("nan"))
    advantage_moments(advantage, keys, minibatches, parts, out)
    return out


@pytest.mark.parametrize("minibatches", [1, 5, 17])
@pytest.mark.parametrize("count", [40, 1024, 20_011])
def test_moments_of_minibatches(count: int, minibatches: int) -> None:
    random = np.random.default_rng(count)
    advantage = torch.from_numpy(random.normal(2, 3, count).astype(np.float32))
    keys = keys_of(3, count)
    wanted = []
    for order in orders(count, keys):
        for index in order.tensor_split(minibatches):
            own = advantage[index].double()
            wanted.append([own.mean(), 1 / (own.std(correction=0) + 1e-8)])
    found = moments(advantage, keys, minibatches)
    torch.testing.assert_close(found, torch.tensor(wanted).float(), rtol=3e-7, atol=3e-7)


def test_moments_far_from_zero() -> None:
    """A mean of 1000 deviations: in float32 nothing would be left of these."""
    random = np.random.default_rng(0)
    advantage = torch.from_numpy((1000 + random.normal(size=5000)).astype(np.float32))
    keys = keys_of(1)
    wanted = [own.double().std(correction=0) for own in advantage[orders(5000, keys)[0]].chunk(4)]
    torch.testing.assert_close(1 / moments(advantage, keys, 4)[:, 1], torch.tensor(wanted).float())


def test_a_bad_advantage_spoils_its_minibatches_only() -> None:
    advantage = torch.ones(1000)
    advantage[123] = float("nan")
    keys = keys_of(3)
    found = moments(advantage, keys, 4).view(3, 4, 2)
    for epoch, order in enumerate(orders(1000, keys)):
        spoilt = int((order == 123).nonzero()) // 250
        assert (~torch.isfinite(found[epoch])).any(1).tolist() == [k == spoilt for k in range(4)]


@pytest.mark.parametrize("count", [1, 2, 1000, 20_000])
def test_variances_are_numpys(count: int) -> None:
    from operant.ppo.kernels.triton.moments import SPLIT, variances

    random = np.random.default_rng(count)
    one, other = (random.normal(50.0, size, count).astype(np.float32) for size in (0.01, 3.0))
    parts = torch.full((2, 2, SPLIT), torch.nan, dtype=torch.float64)
    out = torch.empty(2, dtype=torch.float64)
    variances(torch.from_numpy(one), torch.from_numpy(other), parts, out)
    expected = [x.astype(np.float64).var() for x in (one, other)]
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-6, atol=1e-11)
