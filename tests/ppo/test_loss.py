"""The loss against one sample at a time in float64, its gradient, and its edges."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from operant.ppo.loss import Loss, normalized, ppo_loss

COEFFICIENTS = {"clip": 0.2, "value_clip": 0.0, "value_coef": 0.5, "entropy_coef": 0.01}
F64 = torch.float64


def batch(size: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """log_prob, entropy, value, old_log_prob, advantage, target, old_value."""
    random = torch.Generator().manual_seed(seed)
    numbers = torch.randn(7, size, generator=random, dtype=dtype)
    numbers[3] = numbers[0] + 0.3 * numbers[3]  # ratios around 1, many outside the clip range
    return list(numbers.unbind())


def reference(inputs: list[Tensor], **options: float) -> dict[str, float]:
    """Written out for a sample, and summed up."""
    clip, value_clip = options["clip"], options["value_clip"]
    sums = dict.fromkeys(("policy", "value", "entropy", "kl", "clipped"), 0.0)
    rows = torch.stack(inputs).T.double().tolist()
    for log_prob, entropy, value, old_log_prob, advantage, target, old_value in rows:
        ratio = math.exp(log_prob - old_log_prob)
        nearest = min(max(ratio, 1 - clip), 1 + clip)
        sums["policy"] -= min(ratio * advantage, nearest * advantage)
        error = (value - target) ** 2
        if value_clip > 0:
            moved = min(max(value, old_value - value_clip), old_value + value_clip)
            error = max(error, (moved - target) ** 2)
        sums["value"] += 0.5 * error
        sums["entropy"] += entropy
        sums["kl"] += ratio - 1 - math.log(ratio)
        sums["clipped"] += abs(ratio - 1) > clip
    means = {name: total / len(rows) for name, total in sums.items()}
    total = means["policy"] + options["value_coef"] * means["value"]
    return {**means, "total": total - options["entropy_coef"] * means["entropy"]}


@settings(deadline=None, max_examples=60)
@given(
    size=st.integers(1, 40),
    seed=st.integers(0, 10_000),
    clip=st.sampled_from([0.05, 0.2, 1.5]),
    value_clip=st.sampled_from([0.0, 0.1, 1.0]),
    value_coef=st.sampled_from([0.0, 0.5]),
    entropy_coef=st.sampled_from([0.0, 0.01]),
)
def test_agrees_with_one_sample_at_a_time(size: int, seed: int, **options: float) -> None:
    inputs = batch(size, seed)
    wanted = reference(inputs, **options)
    found = ppo_loss(*inputs, **options)  # type: ignore[arg-type]
    for name, number in found._asdict().items():
        assert number.shape == ()
        assert number.item() == pytest.approx(wanted[name], rel=1e-4, abs=1e-5), name


@pytest.mark.parametrize("value_clip", [0.0, 0.3])
def test_gradients(value_clip: float) -> None:
    inputs = batch(12, dtype=F64)
    options = {**COEFFICIENTS, "value_clip": value_clip}

    def total(*trained: Tensor) -> Tensor:
        return ppo_loss(*trained, *inputs[3:], **options).total  # type: ignore[arg-type]

    trained = [x.clone().requires_grad_() for x in inputs[:3]]
    assert torch.autograd.gradcheck(total, trained)


def test_only_the_total_carries_a_gradient() -> None:
    inputs = [x.requires_grad_() for x in batch(5)]
    loss = ppo_loss(*inputs, **COEFFICIENTS)  # type: ignore[arg-type]
    assert loss.total.requires_grad
    assert not any(number.requires_grad for number in loss[1:])


# ratio, advantage -> gain per sample, whether the ratio's gradient passes
CASES = {
    "inside, good": (1.1, 2.0, 2.2, True),
    "inside, bad": (1.1, -2.0, -2.2, True),
    "too likely already, good": (1.5, 2.0, 2.4, False),  # 1.2 * 2
    "too likely, bad": (1.5, -2.0, -3.0, True),  # the smaller one: 1.5 * -2
    "too unlikely, good": (0.5, 2.0, 1.0, True),  # 0.5 * 2
    "too unlikely already, bad": (0.5, -2.0, -1.6, False),  # 0.8 * -2
    "nothing to gain": (1.5, 0.0, 0.0, False),
}


@pytest.mark.parametrize("name", CASES)
def test_clipping(name: str) -> None:
    ratio, advantage, gain, passes = CASES[name]
    log_prob = torch.tensor([math.log(ratio)], dtype=F64, requires_grad=True)
    zero = torch.zeros(1, dtype=F64)
    loss = ppo_loss(
        log_prob, zero, zero, zero, torch.tensor([advantage], dtype=F64), zero, zero, **COEFFICIENTS
    )
    assert loss.policy.item() == pytest.approx(-gain)
    assert loss.total.item() == pytest.approx(-gain)
    assert loss.clipped.item() == (ratio in (0.5, 1.5))
    loss.total.backward()
    assert log_prob.grad is not None
    assert log_prob.grad.item() == pytest.approx(-ratio * advantage if passes else 0.0)


def test_the_first_update_is_the_policy_gradient() -> None:
    """The ratio is 1 then, on no side of the clip range: the whole gradient must pass."""
    log_prob, *_, advantage, _, _ = batch(50, dtype=F64)
    log_prob.requires_grad_()
    zeros = torch.zeros(50, dtype=F64)
    loss = ppo_loss(
        log_prob, zeros, zeros, log_prob.detach(), advantage, zeros, zeros, **COEFFICIENTS
    )
    loss.total.backward()
    torch.testing.assert_close(log_prob.grad, -advantage / 50)
    assert loss.kl.item() == loss.clipped.item() == 0


# value, old_value, target -> error, whether its gradient passes; the limit is 0.5
VALUES = {
    "moved little": (1.2, 1.0, 2.0, 0.64, True),
    "moved too far, towards the target": (2.0, 1.0, 3.0, 2.25, False),  # as if at 1.5
    "moved too far, away from it": (2.0, 1.0, 0.0, 4.0, True),  # the larger error counts
    "moved too far, past it": (3.0, 1.0, 1.4, 2.56, True),
}


@pytest.mark.parametrize("name", VALUES)
def test_value_clipping(name: str) -> None:
    number, old, goal, error, passes = VALUES[name]
    value = torch.tensor([number], dtype=F64, requires_grad=True)
    zero, one = torch.zeros(1, dtype=F64), torch.ones(1, dtype=F64)
    options = {**COEFFICIENTS, "value_clip": 0.5, "value_coef": 1.0}
    loss = ppo_loss(zero, zero, value, zero, zero, goal * one, old * one, **options)  # type: ignore[arg-type]
    assert loss.value.item() == pytest.approx(error / 2)
    loss.total.backward()
    assert value.grad is not None
    assert value.grad.item() == pytest.approx(number - goal if passes else 0.0)


def test_coefficients() -> None:
    inputs = batch(20)
    loss = ppo_loss(*inputs, clip=0.2, value_clip=0, value_coef=3.0, entropy_coef=2.0)  # type: ignore[arg-type]
    total = loss.policy + 3 * loss.value - 2 * loss.entropy
    torch.testing.assert_close(loss.total, total)
    assert loss.entropy == inputs[1].mean()


@settings(deadline=None, max_examples=100)
@given(
    size=st.integers(1, 50),
    seed=st.integers(0, 10_000),
    scale=st.sampled_from([0.0, 1e-8, 1e-6, 1e-4, 1e-2, 1.0, 10.0]),
)
def test_kl_is_never_negative(size: int, seed: int, scale: float) -> None:
    """Also where rounding is larger than it: half the squared log ratio, for small ones."""
    random = torch.Generator().manual_seed(seed)
    old = torch.randn(size, generator=random)
    log_prob = old + scale * torch.randn(size, generator=random)
    zeros = torch.zeros(size)
    kl = ppo_loss(log_prob, zeros, zeros, old, zeros, zeros, zeros, **COEFFICIENTS).kl.item()
    assert kl >= 0
    log_ratio = (log_prob - old).double()
    wanted = (log_ratio.expm1() - log_ratio).mean().item()
    rounding = 2**-23 * log_ratio.abs().mean().item()
    assert kl == pytest.approx(wanted, rel=1e-5, abs=rounding)


@pytest.mark.parametrize("value_clip", [0.0, 0.3])
def test_parts_weighted_by_their_size_make_the_whole(value_clip: float) -> None:
    inputs = batch(100, dtype=F64)
    options = {**COEFFICIENTS, "value_clip": value_clip}
    whole = ppo_loss(*inputs, **options)  # type: ignore[arg-type]
    sums = torch.zeros(6, dtype=F64)
    for part in zip(*(x.split([1, 30, 69]) for x in inputs), strict=True):
        loss: Loss = ppo_loss(*part, **options)  # type: ignore[arg-type]
        sums += torch.stack(loss) * len(part[0]) / 100
    torch.testing.assert_close(sums, torch.stack(whole))


# Normalised advantages ----------------------------------------------------------------------
@settings(deadline=None, max_examples=50)
@given(
    size=st.integers(2, 300),
    seed=st.integers(0, 10_000),
    scale=st.sampled_from([1e-4, 1.0, 1e4]),
    offset=st.sampled_from([0.0, -3.0, 100.0]),
)
def test_mean_0_and_deviation_1(size: int, seed: int, scale: float, offset: float) -> None:
    random = torch.Generator().manual_seed(seed)
    advantage = scale * (torch.randn(size, generator=random) + offset)
    before = advantage.clone()
    found = normalized(advantage)
    assert torch.equal(advantage, before), "a new tensor"
    assert found.dtype == torch.float32
    wide = before.double()
    spread = wide.std(correction=0).item()
    wanted = (wide - wide.mean()) / (spread + 1e-8)
    # The mean is a float32: what it was rounded by counts where all are as good as equal.
    near = 1e-5 + 2**-22 * wide.abs().max().item() / max(spread, 1e-30)
    np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=near, atol=near)
    assert abs(found.double().mean()) < near
    one = spread / (spread + 1e-8)
    assert found.double().std(correction=0).item() == pytest.approx(one, abs=near)


@pytest.mark.parametrize("size", [1, 2, 3, 1000, 4097])
@pytest.mark.parametrize("constant", [0.0, 0.1, -0.3, 1e-20, 123456.7, -1e30])
def test_equal_advantages_become_0(size: int, constant: float) -> None:
    """Exactly: what is left of a rounded mean would be blown up to 1."""
    assert torch.equal(normalized(torch.full((size,), constant)), torch.zeros(size))


def test_normalising_does_not_depend_on_the_order_of_slices() -> None:
    advantage = torch.randn(64, generator=torch.Generator().manual_seed(0))
    order = torch.randperm(64, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(normalized(advantage)[order], normalized(advantage[order]))
