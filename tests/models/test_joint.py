"""Actions of Dict and Tuple spaces, and of Boxes of integers: one distribution a leaf."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch import distributions as oracle

from operant.models import (
    ContinuousActorCritic,
    DiscreteActorCritic,
    Joint,
    JointActorCritic,
    distribution_for,
    policy_for,
)
from operant.models.distributions import (
    Categorical,
    Gaussian,
    MultiCategorical,
    SquashedGaussian,
)
from operant.spaces import unflatten

BOX = spaces.Box(-1, 1, (4,))
ACTIONS = spaces.Dict(
    {
        "arm": spaces.Tuple([spaces.Box(-2, 3, (2,), np.float64), spaces.Discrete(4, start=-1)]),
        "gears": spaces.MultiDiscrete([3, 2], start=[0, 5]),
        "lamps": spaces.MultiBinary((2, 2)),
        "level": spaces.Box(-2, 1, (2,), np.int8),
    }
)
HEAD = 4 + 4 + 5 + 8 + 8
CHOICES = spaces.Tuple([spaces.Discrete(3), spaces.MultiBinary(2)])


def rand(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def one_of(space: Any, actions: Any, index: int) -> Any:
    if isinstance(space, spaces.Dict):
        return {key: one_of(inner, actions[key], index) for key, inner in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        pairs = zip(space.spaces, actions, strict=True)
        return tuple(one_of(inner, part, index) for inner, part in pairs)
    return np.asarray(actions[index])


def test_parts_by_leaf() -> None:
    dist = distribution_for(ACTIONS)
    assert isinstance(dist, Joint)
    kinds = [type(part) for part in dist.parts]
    several = MultiCategorical
    assert kinds == [Gaussian, Categorical, several, several, several]
    assert dist.head_size == HEAD
    assert dist.noise_size == 4 + 1 + 2 + 4 + 2
    assert (dist.action_shape, dist.action_dtype) == ((11,), torch.float32)
    squashed = distribution_for(ACTIONS, squash=True)
    assert type(squashed.parts[0]) is SquashedGaussian  # type: ignore[attr-defined]
    choices = distribution_for(CHOICES)
    assert (choices.action_shape, choices.action_dtype) == ((3,), torch.int64)


def test_sums_agree_with_torchs_distributions() -> None:
    dist = distribution_for(ACTIONS)
    head = 2 * torch.randn(50, HEAD, generator=torch.Generator().manual_seed(0))
    action, log_prob = dist.sample(head, rand(50, dist.noise_size))
    columns = [4, 4, 3, 2, *[2] * 4, *[4] * 2]
    arm, *logits = head.split(columns, -1)
    normal = oracle.Normal(arm[:, :2], arm[:, 2:].exp())
    wanted, entropy = normal.log_prob(action[:, :2]).sum(-1), normal.entropy().sum(-1)
    for k, one in enumerate(logits):
        choice = oracle.Categorical(logits=one)
        wanted = wanted + choice.log_prob(action[:, 2 + k])
        entropy = entropy + choice.entropy()
    found = dist.evaluate(head, action)
    torch.testing.assert_close(log_prob, wanted, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found[1], entropy, rtol=1e-5, atol=1e-5)
    assert torch.equal(found[0], log_prob)


def test_each_leaf_is_drawn_with_its_own_noise() -> None:
    """As its distribution alone draws with the same numbers."""
    dist = distribution_for(ACTIONS)
    assert isinstance(dist, Joint)
    head, noise = torch.randn(9, HEAD), rand(9, dist.noise_size)
    whole, _ = dist.sample(head, noise)
    drawn, at_head, at_noise = [], 0, 0
    for part in dist.parts:
        heads, noises = at_head + part.head_size, at_noise + part.noise_size
        one, _ = part.sample(head[:, at_head:heads], noise[:, at_noise:noises])
        drawn.append(one.reshape(9, -1).float())
        at_head, at_noise = heads, noises
    assert torch.equal(whole, torch.cat(drawn, 1))


@pytest.mark.parametrize("squash", [False, True])
def test_the_environment_gets_what_its_space_has(squash: bool) -> None:
    dist = distribution_for(ACTIONS, squash)
    assert isinstance(dist, Joint)
    head = 3 * torch.randn(60, HEAD)
    seen: set[Any] = set()
    for action in (dist.sample(head, rand(60, dist.noise_size))[0], dist.mode(head)):
        rows = dist.to_env(action)
        assert (rows.dtype, rows.shape) == (torch.uint8, (60, dist.layout.nbytes))
        nested = unflatten(ACTIONS, rows.numpy())
        assert all(ACTIONS.contains(one_of(ACTIONS, nested, k)) for k in range(60))
        for path, leaf in dist.leaves(action).items():
            view = dist.layout.views(rows)[path]
            torch.testing.assert_close(view.double(), leaf.double())
        seen |= {*nested["level"].flatten().tolist()}
    assert seen == {-2, -1, 0, 1}, "every integer of the Box"


def test_integers_of_a_box_are_choices() -> None:
    space = spaces.Box(np.array([[-3], [4]]), np.array([[-1], [4]]), dtype=np.int64)
    dist = distribution_for(space)
    assert isinstance(dist, MultiCategorical)
    assert (dist.sizes, dist.start, dist.env_shape) == ([3, 1], [-3, 4], (2, 1))
    assert dist.to_env(torch.tensor([[2, 0]])).tolist() == [[[-1], [4]]]
    assert type(policy_for(BOX, space)) is DiscreteActorCritic
    bits = distribution_for(spaces.Box(0, 1, (3,), np.bool_))
    assert bits.head_size == 6


def test_gradients() -> None:
    dist = distribution_for(ACTIONS)
    action, _ = dist.sample(torch.zeros(3, HEAD), rand(3, dist.noise_size))
    head = torch.randn(3, HEAD, requires_grad=True)
    log_prob, entropy = dist.evaluate(head, action)
    (gradient,) = torch.autograd.grad((log_prob + entropy).sum(), head)
    assert (gradient != 0).all()


def test_copies_and_pickles() -> None:
    dist = distribution_for(ACTIONS)
    head = torch.randn(3, HEAD)
    for twin in (copy.deepcopy(dist), pickle.loads(pickle.dumps(dist))):
        assert torch.equal(twin.to_env(twin.mode(head)), dist.to_env(dist.mode(head)))
        assert twin.evaluate(head[:0], twin.mode(head[:0]))[0].shape == (0,)


# Policies -----------------------------------------------------------------------------------
def test_the_network_gives_logits_and_means_and_the_deviations_are_its_own() -> None:
    policy = policy_for(BOX, ACTIONS, hidden=(8,), log_std=-0.7)
    assert isinstance(policy, JointActorCritic)
    assert policy.log_std is not None
    assert policy.actor_head.out_features == HEAD - 2
    assert policy.log_std.tolist() == [pytest.approx(-0.7)] * 2
    obs = torch.randn(5, 4)
    head, value = policy(obs)
    assert (head.shape, value.shape) == ((5, HEAD), (5,))
    assert torch.equal(policy.head(obs), head)
    outputs = policy.actor_head(policy.actor(obs))
    assert torch.equal(head[:, :2], outputs[:, :2])
    assert (head[:, 2:4] == policy.log_std).all()
    assert torch.equal(head[:, 4:], outputs[:, 2:])
    choices = policy_for(BOX, CHOICES)
    assert choices.log_std is None
    assert choices(obs)[0].shape == (5, 7)
    nothing = policy_for(BOX, spaces.Tuple([spaces.Box(-1, 1, ()), spaces.Box(-1, 1, (2,))]))
    assert nothing(obs)[0].shape == (5, 6)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: JointActorCritic(BOX, BOX), "needs Dict or Tuple actions, got Box"),
        (lambda: DiscreteActorCritic(BOX, CHOICES), "needs discrete actions, got Tuple"),
        (lambda: ContinuousActorCritic(BOX, CHOICES), "needs Box actions of floats, got Tuple"),
        (lambda: policy_for(BOX, CHOICES, squash=True), "squash is for Box actions, not Tuple"),
        (
            lambda: policy_for(BOX, spaces.Dict({"a": spaces.Box(-np.inf, 1, (2,))}), squash=True),
            "finite bounds",
        ),
        (
            lambda: distribution_for(spaces.Dict({"a": spaces.Sequence(BOX)})),
            "no policy for the action space Dict.*greatest length",
        ),
    ],
)
def test_what_is_refused(make: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        make()


LEAVES = (
    st.builds(
        lambda shape, t: spaces.Box(0, 1, shape, np.dtype(t)),
        st.lists(st.integers(1, 3), max_size=2).map(tuple),
        st.sampled_from(("bool", "u1", "i4", "u8", "f2", "f4", "f8")),
    )
    | st.builds(lambda n, low: spaces.Discrete(n, start=low), st.integers(1, 5), st.integers(-3, 3))
    | st.lists(st.integers(1, 4), min_size=1, max_size=3).map(spaces.MultiDiscrete)
    | st.integers(1, 3).map(spaces.MultiBinary)
)
TREES = st.recursive(
    st.dictionaries(st.sampled_from("abc"), LEAVES, min_size=1, max_size=3).map(spaces.Dict),
    lambda inner: st.lists(inner | LEAVES, min_size=1, max_size=3).map(spaces.Tuple),
    max_leaves=4,
)


@settings(deadline=None, max_examples=40)
@given(space=TREES, seed=st.integers(0, 1000))
def test_any_tree_of_actions(space: Any, seed: int) -> None:
    dist = distribution_for(space)
    assert isinstance(dist, Joint)
    head = policy_for(BOX, space, hidden=())(torch.randn(4, 4))[0]
    assert head.shape == (4, dist.head_size)
    action, log_prob = dist.sample(head, rand(4, dist.noise_size, seed=seed))
    assert action.shape == (4, *dist.action_shape)
    assert action.dtype == dist.action_dtype
    assert torch.equal(dist.evaluate(head, action)[0], log_prob)
    nested = unflatten(space, dist.to_env(action).numpy())
    assert all(space.contains(one_of(space, nested, k)) for k in range(4))
