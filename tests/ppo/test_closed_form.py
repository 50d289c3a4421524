"""The closed forms against autograd of the loss and the distributions they stand for, in float64.

They compute in float32: a result is off by some units of 6e-8 for each operation, and by 5e-7 for
each exp, log or cos. So 1e-5 relative is asked for, with the largest of the terms that are added up
as the measure where they may cancel.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import ArrayLike, NDArray

from operant.compiler.emit.llvm_program import formula
from operant.lang.batch import batch
from operant.models.distributions import Categorical, Gaussian
from operant.models.names import LOG_STD_RANGE
from operant.ppo import closed_form
from operant.ppo.loss import ppo_loss

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Run = Callable[..., list[Doubles]]
F64 = torch.float64
small = st.floats(-4.0, 4.0, width=32)
INF, NAN = math.inf, math.nan


def with_numpy(name: str) -> Run:
    function = getattr(closed_form, name)

    def run(*inputs: ArrayLike) -> list[Doubles]:
        with np.errstate(all="ignore"):
            found = function(*[batch(x) for x in f32(*inputs)])
        return [np.asarray(x, np.float64) for x in found]

    return run


def compiled(name: str) -> Run:
    """The formula in a loop of its own, compiled now."""
    function = getattr(closed_form, name)
    names = list(inspect.signature(function).parameters)
    text = (
        f"def loop({', '.join(names)}, out):\n"
        f"    for i in range({names[0]}.size):\n"
        f"        found = word({', '.join(f'{x}[i]' for x in names)})\n"
        "        for k in range(len(found)):\n"
        "            out[k, i] = found[k]\n"
    )
    scope: dict[str, Any] = {"word": formula(function)}
    exec(text, scope)
    loop = numba.njit(error_model="numpy")(scope["loop"])
    outputs = {"surrogate": 4, "value_error": 2, "choice": 3, "gaussian": 5}.get(name, 1)

    def run(*inputs: ArrayLike) -> list[Doubles]:
        given = f32(*inputs)
        out = np.empty((outputs, given[0].size), np.float32)
        loop(*[x.ravel() for x in given], out)
        return [x.reshape(given[0].shape).astype(np.float64) for x in out]

    return run


def f32(*inputs: ArrayLike) -> list[Floats]:
    return [x.copy() for x in np.broadcast_arrays(*[np.asarray(x, np.float32) for x in inputs])]


@pytest.fixture(scope="module", params=["numpy", "compiled"])
def forms(request: pytest.FixtureRequest) -> dict[str, Run]:
    make = with_numpy if request.param == "numpy" else compiled
    return {function.__name__: make(function.__name__) for function in closed_form.FORMULAS}


def close(found: Doubles, wanted: ArrayLike, scale: ArrayLike = 0.0, rtol: float = 1e-5) -> None:
    """Equal up to `rtol` of the result or of `scale`, whichever is larger."""
    wanted = np.asarray(wanted, np.float64)
    limit = rtol * np.maximum(np.abs(wanted), scale) + 1e-37  # below float32's smallest
    worst = np.abs(found - wanted) / limit
    k = int(np.argmax(worst)) if worst.size else 0
    assert (worst <= 1).all(), (found.ravel()[k], wanted.ravel()[k])


def doubles(*inputs: ArrayLike) -> list[torch.Tensor]:
    return [torch.from_numpy(x.astype(np.float64)) for x in f32(*inputs)]


# The clipped objective --------------------------------------------------------------------------
def plain_surrogate(*inputs: ArrayLike, clip: float) -> dict[str, Doubles]:
    """Slopes ``[B]``, and means of the rest, by `ppo_loss` and autograd."""
    log_prob, old_log_prob, advantage = doubles(*inputs)
    log_prob.requires_grad_()
    zero = torch.zeros_like(advantage)
    loss = ppo_loss(
        log_prob, zero, zero, old_log_prob, advantage, zero, zero,
        clip=clip, value_clip=0.0, value_coef=0.0, entropy_coef=0.0,
    )  # fmt: skip
    (slope,) = torch.autograd.grad(loss.total * len(zero), log_prob)
    means = {"loss": loss.policy, "kl": loss.kl, "clipped": loss.clipped}
    return {"slope": slope.numpy(), **{name: x.numpy() for name, x in means.items()}}


triples = arrays(np.float32, st.tuples(st.just(3), st.integers(1, 12)), elements=small)


@settings(deadline=None, max_examples=60)
@given(samples=triples, clip=st.sampled_from([0.0625, 0.2, 0.75, 1.5]))
def test_surrogate(forms: dict[str, Run], samples: Floats, clip: float) -> None:
    clip = float(np.float32(clip))
    wanted = plain_surrogate(*samples, clip=clip)
    loss, slope, kl, clipped = forms["surrogate"](*samples, clip)
    log_prob, old, advantage = samples.astype(np.float64)
    ratio = np.exp(log_prob - old)
    scale = ratio * np.abs(advantage)
    close(loss.mean(), wanted["loss"], scale.max())
    edge = np.abs(np.abs(ratio - 1) - clip) < 1e-5 * ratio  # rounding decides there
    close(np.where(edge, 0, slope), np.where(edge, 0, wanted["slope"]), scale)
    close(kl.mean(), wanted["kl"], np.maximum(ratio, 1).max())
    if not edge.any():
        close(clipped.mean(), wanted["clipped"])


# ratio, advantage -> what of the ratio counts, and whether its slope passes
SIDES = {
    "inside, good": (1.125, 2.0, 1.125, True),
    "inside, bad": (1.125, -2.0, 1.125, True),
    "too likely already, good": (1.5, 2.0, 1.25, False),
    "too likely, bad": (1.5, -2.0, 1.5, True),
    "too unlikely, good": (0.5, 2.0, 0.5, True),
    "too unlikely already, bad": (0.5, -2.0, 0.75, False),
}


@pytest.mark.parametrize("name", SIDES)
def test_sides_of_the_clip_range(forms: dict[str, Run], name: str) -> None:
    ratio, advantage, counted, passes = SIDES[name]
    loss, slope, _, clipped = forms["surrogate"]([math.log(ratio)], 0.0, advantage, 0.25)
    close(loss, [-counted * advantage])
    close(slope, [-ratio * advantage if passes else 0.0])
    assert clipped == (abs(ratio - 1) > 0.25)


@pytest.mark.parametrize("advantage", [2.0, -2.0, 0.0])
def test_at_the_very_edge_the_slope_passes_as_autograds_does(
    forms: dict[str, Run], advantage: float
) -> None:
    """With a range of nothing a ratio of 1 is on both edges, in any precision."""
    wanted = plain_surrogate([0.5], [0.5], [advantage], clip=0.0)
    loss, slope, _, clipped = forms["surrogate"]([0.5], 0.5, advantage, 0.0)
    assert slope == wanted["slope"] == -advantage
    assert loss == wanted["loss"]
    assert clipped == 0


def test_ratios_far_away(forms: dict[str, Run]) -> None:
    log_ratio = np.array([-200.0, -100.0, -50.0, 50.0, 88.0, 100.0, 200.0])
    loss, slope, kl, clipped = forms["surrogate"](log_ratio, 0.0, 1.5, 0.25)
    near = log_ratio < 0
    close(loss, np.where(near, -np.exp(np.minimum(log_ratio, 0)) * 1.5, -1.25 * 1.5))
    close(slope, np.where(near, -np.exp(np.minimum(log_ratio, 0)) * 1.5, 0.0))
    assert clipped.all()
    close(kl[near], -log_ratio[near] - 1)
    close(kl[3:5], np.exp(log_ratio[3:5]))
    assert (kl[5:] == INF).all()
    loss, slope, _, _ = forms["surrogate"](log_ratio, 0.0, -1.5, 0.25)
    close(loss[near], np.full(3, 0.75 * 1.5))
    assert not slope[near].any()
    close(slope[3:5], np.exp(log_ratio[3:5]) * 1.5)
    assert (loss[5:] == INF).all()
    assert (slope[5:] == INF).all()


def test_small_log_ratios_keep_their_kl(forms: dict[str, Run]) -> None:
    sizes = np.concatenate([np.geomspace(1e-16, 3, 4000), np.linspace(0.28, 0.32, 2001)])
    log_ratio = np.concatenate([sizes, -sizes]).astype(np.float32).astype(np.float64)
    kl = forms["surrogate"](log_ratio, 0.0, 1.0, 0.2)[2]
    close(kl, exact_kl(log_ratio))
    assert (kl >= 0).all()
    assert forms["surrogate"]([0.0], 0.0, 1.0, 0.2)[2] == 0


def exact_kl(x: Doubles) -> Doubles:
    """exp(x) - 1 - x; below 1e-3 by its series, where even float64 runs out of digits."""
    series = x * x * (0.5 + x * (1 / 6 + x * (1 / 24 + x / 120)))
    return np.where(np.abs(x) < 1e-3, series, np.expm1(x) - x)


def test_what_is_no_number_stays_visible(forms: dict[str, Run]) -> None:
    for inputs in ((NAN, 0.0, 1.0), (0.0, NAN, 1.0), (0.0, 0.0, NAN)):
        loss, _, kl, _ = forms["surrogate"](*[[x] for x in inputs], 0.2)
        assert np.isnan(loss)
        assert np.isnan(kl) == (not math.isnan(inputs[2]))
    for inputs in ((NAN, 0.0, 1.0), (0.0, NAN, 1.0)):
        assert np.isnan(forms["value_error"](*[[x] for x in inputs], 0.2)[0])


# The value ----------------------------------------------------------------------------------------
def plain_value(*inputs: ArrayLike, value_clip: float) -> tuple[Doubles, Doubles]:
    """Mean loss and slopes ``[B]``."""
    value, target, old_value = doubles(*inputs)
    value.requires_grad_()
    zero = torch.zeros_like(target)
    loss = ppo_loss(
        zero, zero, value, zero, zero, target, old_value,
        clip=0.2, value_clip=value_clip, value_coef=1.0, entropy_coef=0.0,
    )  # fmt: skip
    (slope,) = torch.autograd.grad(loss.total * len(zero), value)
    return loss.value.numpy(), slope.numpy()


@settings(deadline=None, max_examples=60)
@given(samples=triples, value_clip=st.sampled_from([0.0, 0.125, 1.0, 3.0]))
def test_value_error(forms: dict[str, Run], samples: Floats, value_clip: float) -> None:
    wanted_loss, wanted_slope = plain_value(*samples, value_clip=value_clip)
    loss, slope = forms["value_error"](*samples, value_clip)
    value, target, old = samples.astype(np.float64)
    scale = np.abs(samples).max(0).astype(np.float64)
    close(loss.mean(), wanted_loss, (scale**2).max())
    # Where both errors are of one size, or the value is just at the limit, rounding decides.
    near = old + np.clip(value - old, -value_clip, value_clip)
    edge = np.abs(np.abs(value - target) - np.abs(near - target)) <= 1e-5 * scale
    edge &= value != near
    edge |= np.abs(np.abs(value - old) - value_clip) <= 1e-5 * scale
    edge &= value_clip > 0
    close(np.where(edge, 0, slope), np.where(edge, 0, wanted_slope), scale)


# value, target, old value, clip -> slope
VALUES = {
    "no limit": (3.0, 1.0, 0.0, 0.0, 2.0),
    "inside": (0.5, 2.0, 0.0, 1.0, -1.5),
    "on the limit": (1.0, 2.0, 0.0, 1.0, -1.0),
    "on the lower limit": (-1.0, 2.0, 0.0, 1.0, -3.0),
    "beyond, towards the target": (1.5, 2.0, 0.0, 1.0, 0.0),
    "beyond, away from the target": (1.5, -2.0, 0.0, 1.0, 3.5),
    "below, towards the target": (-1.5, -2.0, 0.0, 1.0, 0.0),
    "below, away from the target": (-1.5, 2.0, 0.0, 1.0, -3.5),
}


@pytest.mark.parametrize("name", VALUES)
def test_sides_of_the_value_clip(forms: dict[str, Run], name: str) -> None:
    value, target, old_value, value_clip, slope = VALUES[name]
    found = forms["value_error"]([value], target, old_value, value_clip)
    loss, wanted = plain_value([value], [target], [old_value], value_clip=value_clip)
    assert found[1] == wanted == slope
    assert found[0] == loss


# Choices ------------------------------------------------------------------------------------------
@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 10**6), size=st.integers(1, 9), spread=st.sampled_from([0.0, 1.0, 10.0]))
def test_choices(forms: dict[str, Run], seed: int, size: int, spread: float) -> None:
    """Probabilities, entropy and the slope by each logit; some of the logits masked."""
    random = np.random.default_rng(seed)
    logits = (spread * random.standard_normal(size)).astype(np.float32)
    one = np.arange(size) == random.integers(size)
    logits[(random.random(size) < 0.3) & ~one] = -INF
    by = random.uniform(-1, 1, 2).astype(np.float32)

    head = torch.from_numpy(logits.astype(np.float64)).unsqueeze(0).requires_grad_()
    log_prob, entropy = Categorical(size).evaluate(head, torch.from_numpy(np.flatnonzero(one)))
    (slopes,) = torch.autograd.grad(float(by[0]) * log_prob + float(by[1]) * entropy, head)

    largest = logits.max()
    (total,) = forms["log_total"]([largest], np.exp(logits.astype(np.float64) - largest).sum())
    close(total, torch.logsumexp(head, -1).detach(), np.abs(largest))
    probability, logarithm, added = forms["choice"](logits, total[0])
    # A logit of 30 is rounded to 2e-6, which is the relative error of its exponential.
    top = max(1.0, float(np.abs(logits[np.isfinite(logits)]).max()))
    close(probability, torch.softmax(head, -1).detach()[0], rtol=1e-6 * top)
    close(logarithm[one], log_prob.detach(), top)
    close(added.sum(), entropy.detach()[0], top, rtol=1e-6 * top)
    (slope,) = forms["choice_slope"](probability, logarithm, added.sum(), one, *by)
    assert (slope[np.isinf(logits)] == 0).all()
    close(slope, slopes[0], np.abs(by).max() * top)


# Gaussians ----------------------------------------------------------------------------------------
SPACE = Gaussian(np.array([-1.0], np.float32), np.array([1.0], np.float32))


@settings(deadline=None, max_examples=60)
@given(samples=triples, factor=st.sampled_from([0.0, 0.25, 1.0, 4.9, 5.1, 10.0]))
def test_gaussian(forms: dict[str, Run], samples: Floats, factor: float) -> None:
    action, mean, log_std = samples[0], samples[1], np.float32(factor) * samples[2]
    head = torch.stack(doubles(mean, log_std), -1).requires_grad_()
    log_prob, entropy = SPACE.evaluate(head, doubles(action)[0].unsqueeze(-1))
    (by_log_prob,) = torch.autograd.grad(log_prob.sum(), head, retain_graph=True)
    (by_entropy,) = torch.autograd.grad(entropy.sum(), head)
    found = forms["gaussian"](action, mean, log_std)
    limited = np.clip(log_std.astype(np.float64), *LOG_STD_RANGE)
    z = (action.astype(np.float64) - mean) * np.exp(-limited)
    close(found[0], log_prob.detach(), z * z + np.abs(limited) + 2)
    close(found[1], by_log_prob[:, 0])
    close(found[2], by_log_prob[:, 1], z * z + 1)
    close(found[3], entropy.detach(), np.abs(limited) + 2)
    np.testing.assert_array_equal(found[4], by_entropy[:, 1])


@pytest.mark.parametrize(("log_std", "inside"), [(-20.0, 1), (20.0, 1), (-20.001, 0), (20.001, 0)])
def test_edges_of_the_deviation(forms: dict[str, Run], log_std: float, inside: int) -> None:
    _, _, slope, entropy, by_entropy = forms["gaussian"]([0.25], 0.75, log_std)
    assert by_entropy == inside
    assert (slope != 0) == bool(inside)
    close(entropy, [math.copysign(20.0, log_std) + 0.5 * (1 + math.log(2 * math.pi))])


def test_gaussian_samples(forms: dict[str, Run]) -> None:
    random = np.random.default_rng(0)
    count = 20_000
    noise = (random.integers(0, 2**24, (2, count)) * 2.0**-24).astype(np.float32)
    noise[0, :2] = 0.0, 1 - 2**-24  # no deviation, and the largest there is
    mean = random.uniform(-2, 2, count).astype(np.float32)
    log_std = random.choice([-30.0, -3.0, 0.0, 1.0, 25.0], count).astype(np.float32)
    head, numbers = (
        torch.from_numpy(np.stack(x, -1).astype(np.float64)) for x in ((mean, log_std), noise)
    )
    wanted = SPACE.sample(head, numbers)[0][:, 0].numpy()
    (found,) = forms["gaussian_sample"](*noise, mean, log_std)
    deviation = np.exp(np.clip(log_std.astype(np.float64), *LOG_STD_RANGE))
    close(found, wanted, np.abs(mean) + deviation)
    assert found[0] == mean[0]
