"""Distributions against `torch.distributions`, against statistics, and at the extremes."""

from __future__ import annotations

import copy
import itertools
import math
import pickle

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch import distributions as oracle

from operant.models.action_distributions import distribution_for
from operant.models.distributions import (
    Categorical,
    Gaussian,
    MultiCategorical,
    SquashedGaussian,
    _Constants,
    masked,
)
from operant.models.names import LOG_STD_RANGE

LARGEST = 1 - 2**-24  # the largest float32 below 1
F64 = torch.float64


def randn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def rand(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def close(found: Tensor, wanted: Tensor, atol: float = 1e-5) -> None:
    torch.testing.assert_close(found, wanted.to(found.dtype), rtol=1e-5, atol=atol)


def ks_distance(sample: Tensor, cdf: Tensor) -> float:
    """Kolmogorov's D times sqrt(n); above 1.95 with probability 0.001. `cdf` is of the sample."""
    n = len(sample)
    level = cdf.double()[sample.argsort()]
    steps = torch.arange(n, dtype=F64) / n
    return float(torch.maximum(level - steps, steps + 1 / n - level).max()) * math.sqrt(n)


def tanh_normal(mean: Tensor, std: Tensor, low: float, high: float) -> oracle.Distribution:
    transforms = [
        oracle.TanhTransform(),
        oracle.AffineTransform((low + high) / 2, (high - low) / 2),
    ]
    return oracle.Independent(
        oracle.TransformedDistribution(oracle.Normal(mean, std), transforms), 1
    )


# Categorical --------------------------------------------------------------------------------
def test_categorical_agrees_with_torch() -> None:
    head = 3 * randn(50, 7)
    action = torch.arange(50) % 7
    log_prob, entropy = Categorical(7).evaluate(head, action)
    wanted = oracle.Categorical(logits=head)
    close(log_prob, wanted.log_prob(action))
    close(entropy, wanted.entropy())
    assert Categorical(7).mode(head).tolist() == head.argmax(-1).tolist()


def test_categorical_samples_by_their_probability() -> None:
    n = 100_000
    head = torch.tensor([0.0, 1.0, -math.inf, -2.0, 0.5])
    action, _ = Categorical(5).sample(head.expand(n, 5), rand(n, 1))
    counts = torch.bincount(action, minlength=5).double()
    expected = n * head.double().softmax(-1)
    assert counts[2] == 0
    kept = expected > 0
    chi_square = ((counts - expected)[kept].square() / expected[kept]).sum()
    assert chi_square < 16.3, "probability 0.001 with 3 degrees of freedom"


def test_categorical_inverts_the_cumulated_probability() -> None:
    """Halves and quarters are exact, so each boundary can be named."""
    head = torch.tensor([0.25, 0.25, 0.5]).log().expand(6, 3)
    noise = torch.tensor([0.0, 0.2499, 0.25, 0.4999, 0.5, LARGEST]).unsqueeze(-1)
    assert Categorical(3).sample(head, noise)[0].tolist() == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("noise", [0.0, 0.5, LARGEST])
def test_a_masked_action_is_never_sampled(noise: float) -> None:
    """Whatever the other logits: where their sum rounds to less than 1, LARGEST is above it."""
    head = 4 * randn(4096, 12)
    head[:, [0, 5, 11]] = -math.inf
    action, log_prob = Categorical(12).sample(head, torch.full((4096, 1), noise))
    assert not torch.isin(action, torch.tensor([0, 5, 11])).any()
    assert torch.isfinite(log_prob).all()


def test_sums_that_do_not_grow_in_order_choose_no_masked_action(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As on a GPU, where each of many sums is rounded in its own way."""
    random = torch.Generator().manual_seed(0)
    plain = torch.Tensor.cumsum

    def jittered(x: Tensor, dim: int) -> Tensor:
        sums = plain(x, dim)
        return sums * (1 + 1e-3 * (torch.rand(sums.shape, generator=random) - 0.5))

    monkeypatch.setattr(torch.Tensor, "cumsum", jittered)
    head = torch.randn(20_000, 69, generator=random)
    allowed = torch.rand(head.shape, generator=random) < 0.3
    allowed[:, 40] = True
    noise = torch.rand(len(head), 1, generator=random)
    action, log_prob = Categorical(69).sample(masked(head, allowed), noise)
    assert log_prob.isfinite().all()
    assert allowed.gather(-1, action.unsqueeze(-1)).all()


def test_the_sum_does_round_below_the_largest_number() -> None:
    """Otherwise the test above would not test what it says."""
    total = (4 * randn(4096, 12)).softmax(-1).cumsum(-1)[:, -1]
    assert (total <= LARGEST).any()


@settings(deadline=None)
@given(
    logits=st.lists(st.floats(-1e4, 1e4, width=32), min_size=1, max_size=9),
    noise=st.one_of(st.sampled_from([0.0, LARGEST]), st.floats(0, LARGEST, width=32)),
)
def test_categorical_is_finite_for_any_logits(logits: list[float], noise: float) -> None:
    head = torch.tensor([logits]).requires_grad_()
    dist = Categorical(len(logits))
    with torch.no_grad():
        action, sampled = dist.sample(head, torch.tensor([[noise]]))
    assert 0 <= action < len(logits)
    log_prob, entropy = dist.evaluate(head, action)
    assert torch.equal(log_prob, sampled)
    assert log_prob <= 0
    assert -1e-6 <= entropy <= math.log(len(logits)) + 1e-5
    (gradient,) = torch.autograd.grad((log_prob + entropy).sum(), head)
    assert torch.isfinite(gradient).all()


def test_a_mask_does_not_spoil_the_gradient() -> None:
    logits = randn(20, 6).requires_grad_()
    mask = torch.zeros(20, 6).masked_fill(rand(20, 6) < 0.4, -math.inf)
    mask[:, 3] = 0
    log_prob, entropy = Categorical(6).evaluate(logits + mask, torch.full((20,), 3))
    masked = torch.isinf(mask)
    close(entropy, oracle.Categorical(probs=(logits + mask).softmax(-1)).entropy())
    (gradient,) = torch.autograd.grad((log_prob + entropy).sum(), logits)
    assert torch.isfinite(gradient).all()
    assert (gradient[masked] == 0).all()
    assert (gradient[~masked] != 0).any()


def test_categorical_gradients() -> None:
    head = randn(4, 5, dtype=F64).requires_grad_()
    action = torch.tensor([0, 4, 2, 2])
    assert torch.autograd.gradcheck(lambda x: Categorical(5).evaluate(x, action), head)


# MultiCategorical ---------------------------------------------------------------------------
def test_multi_categorical_is_the_product_of_its_parts() -> None:
    sizes = [3, 2, 5]
    dist = MultiCategorical(sizes)
    assert (dist.head_size, dist.noise_size, dist.action_shape) == (10, 3, (3,))
    head, noise = 2 * randn(64, 10), rand(64, 3)
    action, sampled = dist.sample(head, noise)
    log_prob, entropy = dist.evaluate(head, action)
    assert torch.equal(log_prob, sampled)
    assert action.dtype == torch.int64
    parts = [oracle.Categorical(logits=part) for part in head.split(sizes, -1)]
    close(log_prob, sum(part.log_prob(action[:, k]) for k, part in enumerate(parts)))
    close(entropy, sum(part.entropy() for part in parts))
    assert torch.equal(dist.mode(head), torch.stack([p.logits.argmax(-1) for p in parts], -1))
    for k, part in enumerate(head.split(sizes, -1)):
        alone, _ = Categorical(sizes[k]).sample(part, noise[:, k : k + 1])
        assert torch.equal(alone, action[:, k]), "each choice has a number of its own"


def test_multi_categorical_gradients() -> None:
    head = randn(3, 5, dtype=F64).requires_grad_()
    action = torch.tensor([[0, 2], [1, 1], [1, 0]])
    dist = MultiCategorical([2, 3])
    assert torch.autograd.gradcheck(lambda x: dist.evaluate(x, action), head)


# Gaussian -----------------------------------------------------------------------------------
def box(*shape: int, low: float = -2.0, high: float = 2.0) -> spaces.Box:
    return spaces.Box(low, high, shape)


def test_gaussian_agrees_with_torch() -> None:
    dist = distribution_for(box(3))
    head, action = randn(40, 6), 2 * randn(40, 3, seed=1)
    log_prob, entropy = dist.evaluate(head, action)
    mean, log_std = head.chunk(2, -1)
    wanted = oracle.Independent(oracle.Normal(mean, log_std.exp()), 1)
    close(log_prob, wanted.log_prob(action))
    close(entropy, wanted.entropy())
    assert torch.equal(dist.mode(head), mean)


def test_gaussian_samples_are_normal_and_independent() -> None:
    n = 100_000
    dist = distribution_for(box(2))
    assert (dist.head_size, dist.noise_size, dist.action_shape) == (4, 4, (2,))
    mean, log_std = torch.tensor([0.5, -3.0]), torch.tensor([-1.0, 0.7])
    action, _ = dist.sample(torch.cat([mean, log_std]).expand(n, 4), rand(n, 4))
    for k in range(2):
        normal = oracle.Normal(mean[k], log_std[k].exp())
        assert ks_distance(action[:, k], normal.cdf(action[:, k])) < 1.95
    assert abs(torch.corrcoef(action.T)[0, 1]) < 4 / math.sqrt(n)


@pytest.mark.parametrize("squash", [False, True])
def test_sampled_log_probability_is_that_of_the_stored_action(squash: bool) -> None:
    """To the bit, also where the deviation is below the resolution of the mean; otherwise the
    first ratio of an update would not be 1."""
    dist = distribution_for(box(2), squash)
    head = torch.cat([1000 * randn(500, 2), torch.full((500, 2), -20.0)], -1)
    action, sampled = dist.sample(head, rand(500, 4))
    log_prob, _ = dist.evaluate(head, action)
    assert torch.equal(log_prob, sampled)


@pytest.mark.parametrize("squash", [False, True])
def test_gaussian_extremes_are_finite(squash: bool) -> None:
    dist = distribution_for(box(1), squash)
    uniform, angle = [0.0, 2**-24, LARGEST], [0.0, 0.25, LARGEST]
    mean, log_std = [-1e4, 0.0, 1e4], [-1e4, -20.0, 0.0, 1e4]
    rows = torch.tensor(list(itertools.product(mean, log_std, uniform, angle)))
    head = rows[:, :2].clone().requires_grad_()
    action, _ = dist.sample(head.detach(), rows[:, 2:])
    log_prob, entropy = dist.evaluate(head, action)
    (gradient,) = torch.autograd.grad((log_prob + entropy).sum(), head)
    for numbers in (action, log_prob, entropy, gradient):
        assert torch.isfinite(numbers).all()
    assert all(box(1).contains(sent) for sent in dist.to_env(action).numpy())


def test_deviations_are_limited_but_not_in_reach() -> None:
    low, high = LOG_STD_RANGE
    dist = distribution_for(box(1))
    _, entropy = dist.evaluate(
        torch.tensor([[0.0, low - 5], [0.0, low], [0.0, high], [0.0, 99.0]]), torch.zeros(4, 1)
    )
    assert entropy[0] == entropy[1] < entropy[2] == entropy[3]
    # At deviations that training may well reach there is still a gradient, so a way back.
    head = torch.tensor([[0.0, 4.0]], requires_grad=True)
    dist.evaluate(head, torch.zeros(1, 1))[0].sum().backward()
    assert head.grad is not None
    assert head.grad[0, 1] == -1


@pytest.mark.parametrize("squash", [False, True])
def test_gaussian_gradients(squash: bool) -> None:
    dist = distribution_for(box(2), squash)
    head = randn(4, 4, dtype=F64).requires_grad_()
    action = randn(4, 2, seed=1, dtype=F64)
    assert torch.autograd.gradcheck(lambda x: dist.evaluate(x, action), head)


# SquashedGaussian ---------------------------------------------------------------------------
def test_squashed_log_probability_agrees_with_torch() -> None:
    low, high = -1.0, 3.0
    dist = distribution_for(box(2, low=low, high=high), squash=True)
    head, action = randn(60, 4), 1.5 * randn(60, 2, seed=1)
    mean, log_std = head.double().chunk(2, -1)
    wanted = tanh_normal(mean, log_std.exp(), low, high)
    seen = 2 * torch.tanh(action.double()) + 1  # as the environment gets it
    log_prob, _ = dist.evaluate(head, action)
    close(log_prob, wanted.log_prob(seen), atol=1e-4)
    close(dist.to_env(action), seen)


def test_squashed_log_probability_near_the_bounds() -> None:
    """tanh(40) is 1 in any float; there log(1 - tanh(x)^2) is 2 log 2 - 2 |x|, to 1e-34."""
    dist = SquashedGaussian(np.array([-1.0]), np.array([1.0]))
    head = torch.tensor([[40.0, 0.0], [-40.0, 0.0]])
    log_prob, _ = dist.evaluate(head, torch.tensor([[40.0], [-40.0]]))
    wanted = -0.5 * math.log(2 * math.pi) - (2 * math.log(2) - 80)
    close(log_prob, torch.full((2,), wanted))


def quadrature(mean: float, std: float) -> float:
    """Expected log(1 - tanh(x)^2) of a normal x, by the trapezoidal rule in float64."""
    z = np.linspace(-12, 12, 400_001)
    weight = np.exp(-z * z / 2)
    x = mean + std * z
    return float((2 * (math.log(2) - np.logaddexp(x, -x)) * weight).sum() / weight.sum())


@pytest.mark.parametrize("log_std", [-6.0, -1.0, 0.0, 1.0, 2.0, 4.0])
@pytest.mark.parametrize("mean", [0.0, 0.5, -1.5, 4.0])
def test_squashed_entropy_agrees_with_quadrature(mean: float, log_std: float) -> None:
    std = math.exp(log_std)
    dist = SquashedGaussian(np.array([-1.0]), np.array([1.0]))
    _, entropy = dist.evaluate(torch.tensor([[mean, log_std]], dtype=F64), torch.zeros(1, 1))
    wanted = log_std + 0.5 * (1 + math.log(2 * math.pi)) + quadrature(mean, std)
    assert entropy.item() == pytest.approx(wanted, abs=4e-6)


def test_squashed_entropy_agrees_with_samples() -> None:
    n, low, high = 400_000, -1.0, 4.0
    dist = SquashedGaussian(np.array([low]), np.array([high]))
    head = torch.tensor([[0.7, 0.2]])
    action, log_prob = dist.sample(head.expand(n, 2), rand(n, 2))
    _, entropy = dist.evaluate(head, action[:1])
    error = float(log_prob.std()) / math.sqrt(n)
    assert abs(entropy.item() + float(log_prob.mean())) < 4 * error
    wanted = tanh_normal(head[:, :1], head[:, 1:].exp(), low, high)
    seen = wanted.rsample(torch.Size([1000]))
    assert abs(entropy.item() + float(wanted.log_prob(seen).mean())) < 0.2


def test_squashed_entropy_is_largest_where_it_should_be() -> None:
    """Nothing on [-1, 1] has more entropy than the uniform distribution."""
    dist = SquashedGaussian(np.array([-1.0]), np.array([1.0]))
    log_std = torch.linspace(-20, 20, 801)
    _, entropy = dist.evaluate(torch.stack([torch.zeros(801), log_std], -1), torch.zeros(801, 1))
    assert entropy.max() < math.log(2)
    assert entropy.max() > math.log(2) - 0.02
    assert -0.5 < log_std[entropy.argmax()] < 0.2


def test_squashed_actions_fill_the_box_and_stay_in_it() -> None:
    space = spaces.Box(np.array([-1.0, 0.1], np.float32), np.array([3.0, 0.7], np.float32))
    dist = distribution_for(space, squash=True)
    actions = dist.to_env(torch.linspace(-30, 30, 4001).unsqueeze(-1).expand(-1, 2))
    assert all(space.contains(action) for action in actions.numpy())
    for row, wanted in ((0, space.low), (2000, np.array([1.0, 0.4])), (-1, space.high)):
        close(actions[row], torch.tensor(wanted), atol=1e-7)
    assert distribution_for(spaces.Box(-3e38, 3e38, (1,)), squash=True).to_env(
        torch.tensor([[0.0], [0.5], [99.0]])
    ).flatten().tolist() == pytest.approx([0, 3e38 * math.tanh(0.5), 3e38])


# Towards the environment --------------------------------------------------------------------
SPACES = {
    "discrete": spaces.Discrete(5),
    "discrete from 3": spaces.Discrete(5, start=3),
    "multi": spaces.MultiDiscrete([2, 4, 3]),
    "multi from": spaces.MultiDiscrete([2, 4, 3], start=[-1, 0, 7]),
    "grid": spaces.MultiDiscrete(np.array([[2, 3], [4, 5]]), start=np.array([[0, 1], [2, 3]])),
    "binary": spaces.MultiBinary(4),
    "binary grid": spaces.MultiBinary([2, 3]),
    "box": spaces.Box(-1, 1, (3,)),
    "scalar box": spaces.Box(-1, 1, ()),
    "grid box": spaces.Box(-1, 1, (2, 3)),
    "open box": spaces.Box(-np.inf, np.inf, (2,)),
    "half open box": spaces.Box(np.array([0, -np.inf], "f4"), np.array([np.inf, 1], "f4")),
    "narrow box": spaces.Box(0.1, 0.1, (2,)),
    "double box": spaces.Box(-0.7, 0.1, (2,), np.float64),
    "wide double box": spaces.Box(-1e300, 1e300, (1,), np.float64),
}


@pytest.mark.parametrize("name", SPACES)
def test_what_the_environment_gets_is_in_its_space(name: str) -> None:
    space = SPACES[name]
    dist = distribution_for(space)
    head = 5 * randn(200, dist.head_size)
    action, log_prob = dist.sample(head, rand(200, dist.noise_size))
    assert action.shape == (200, *dist.action_shape)
    assert action.dtype == dist.action_dtype
    assert log_prob.shape == (200,)
    assert log_prob.dtype == torch.float32
    for chosen in (action, dist.mode(head)):
        sent = dist.to_env(chosen)
        assert sent.shape == (200, *(space.shape or ()))
        for one in sent.numpy().astype(space.dtype):
            assert space.contains(np.asarray(one))
    everything = {tuple(row) for row in dist.to_env(action).reshape(200, -1).tolist()}
    assert len(everything) > 1 or name == "narrow box"


@pytest.mark.parametrize("name", SPACES)
def test_an_empty_batch(name: str) -> None:
    dist = distribution_for(SPACES[name])
    head = torch.zeros(0, dist.head_size)
    action, _ = dist.sample(head, torch.zeros(0, dist.noise_size))
    assert [len(x) for x in dist.evaluate(head, action)] == [0, 0]
    assert dist.to_env(action).shape == (0, *(SPACES[name].shape or ()))


def test_starts_are_added() -> None:
    assert Categorical(3, start=5).to_env(torch.tensor([0, 2])).tolist() == [5, 7]
    dist = distribution_for(SPACES["grid"])
    assert dist.to_env(torch.tensor([[1, 1, 1, 1]])).tolist() == [[[1, 2], [3, 4]]]


def test_the_bounds_are_copies() -> None:
    space = spaces.Box(-1, 1, (2,))
    dist = distribution_for(space)
    space.low[:] = space.high[:] = 0.5
    assert dist.to_env(torch.tensor([[-9.0, 9.0]])).tolist() == [[-1, 1]]
    frozen = spaces.Box(-1, 1, (2,))
    frozen.low.setflags(write=False)
    frozen.high.setflags(write=False)
    assert distribution_for(frozen).head_size == 4


def test_a_bad_number_is_not_hidden() -> None:
    """The guard looks for it in the action."""
    nan = torch.tensor([[math.nan, 0.0]])
    for squash in (False, True):
        assert distribution_for(box(2), squash).to_env(nan)[0, 0].isnan()


@pytest.mark.parametrize("name", ["multi from", "box"])
def test_copies_and_pickles(name: str) -> None:
    dist = distribution_for(SPACES[name])
    action = torch.ones(1, 3, dtype=dist.action_dtype)
    for other in (copy.deepcopy(dist), pickle.loads(pickle.dumps(dist))):
        assert torch.equal(other.to_env(action), dist.to_env(action))


def test_constants_brought_to_a_device_in_inference_mode_can_be_trained_with() -> None:
    """A rollout is collected in inference mode; what it brings to a device stays there."""
    constants = _Constants(torch.ones(2))
    meta = torch.device("meta")
    with torch.inference_mode():
        (first,) = constants.on(meta)
    assert first.device == meta
    assert not first.is_inference()
    assert constants.on(meta)[0] is first


# Errors -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("space", "squash", "text"),
    [
        (spaces.Text(3), False, "no policy for the action space Text"),
        (spaces.Box(0, 2**40, (2,), np.int64), False, "1099511627777 values .* narrower bounds"),
        (spaces.Box(0, 9, (2,), np.int64), True, "squash is for Box actions, not Box"),
        (spaces.Dict({"a": spaces.Text(2)}), False, "no policy for the action space Dict"),
        (spaces.Dict({"a": spaces.Discrete(2)}), True, "squash is for Box actions, not Dict"),
        (spaces.Box(-1, 1, (0,)), False, "nothing to choose"),
        (spaces.Box(-1, 1, (2, 0)), True, "nothing to choose"),
        (spaces.Box(-np.inf, 1, (2,)), True, "finite bounds.*-inf"),
        (spaces.Box(-1, np.inf, (2,)), True, "finite bounds"),
        (spaces.Box(0.5, 0.5, (1,)), True, "the lower below the upper"),
        (spaces.Discrete(3), True, "squash is for Box actions, not Discrete"),
        (spaces.MultiDiscrete([3]), True, "squash is for Box actions, not MultiDiscrete"),
    ],
)
def test_spaces_that_are_refused(space: spaces.Space, squash: bool, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        distribution_for(space, squash)


@settings(deadline=None, max_examples=40)
@given(
    sizes=st.lists(st.integers(1, 6), min_size=1, max_size=5),
    batch=st.integers(1, 5),
    seed=st.integers(0, 1000),
)
def test_any_number_of_choices(sizes: list[int], batch: int, seed: int) -> None:
    dist = MultiCategorical(sizes)
    head, noise = randn(batch, sum(sizes), seed=seed), rand(batch, len(sizes), seed=seed)
    action, sampled = dist.sample(head, noise)
    assert (action >= 0).all()
    assert (action < torch.tensor(sizes)).all()
    assert torch.equal(dist.evaluate(head, action)[0], sampled)


def test_gaussian_and_squashed_are_told_apart() -> None:
    assert type(distribution_for(box(1))) is Gaussian
    assert type(distribution_for(box(1), squash=True)) is SquashedGaussian
