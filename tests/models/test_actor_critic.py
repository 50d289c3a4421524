"""Networks: shapes, trunks, initial weights, encodings, saving."""

from __future__ import annotations

import copy
import io
import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from operant.models.actor_critic import (
    ActorCritic,
    ContinuousActorCritic,
    DiscreteActorCritic,
    policy_for,
)
from operant.models.distributions import SquashedGaussian
from operant.models.encoders import encoder
from operant.models.layers import ACTIVATIONS
from operant.models.names import ACTIVATION_NAMES

OBSERVATIONS = {
    "box": (spaces.Box(-1, 1, (4,)), 4),
    "scalar box": (spaces.Box(-1, 1, ()), 1),
    "bytes": (spaces.Box(0, 255, (30,), np.uint8), 30),
    "image": (spaces.Box(0, 255, (12, 10, 3), np.uint8), 128),
    "bits": (spaces.MultiBinary((2, 3)), 6),
    "many": (spaces.Discrete(5000, start=3), 32),
    "double box": (spaces.Box(-1, 1, (2,), np.float64), 2),
    "discrete": (spaces.Discrete(6), 6),
    "discrete from -2": (spaces.Discrete(3, start=-2), 3),
    "multi": (spaces.MultiDiscrete([2, 3]), 5),
    "multi from": (spaces.MultiDiscrete([2, 3], start=[5, -1]), 5),
    "grid": (spaces.MultiDiscrete(np.array([[2, 3], [4, 1]])), 10),
    "int32": (spaces.MultiDiscrete([2, 3], dtype=np.int32), 5),
}
ACTIONS = {
    "discrete": (spaces.Discrete(3), 3),
    "multi": (spaces.MultiDiscrete([2, 4]), 6),
    "binary": (spaces.MultiBinary(3), 6),
    "box": (spaces.Box(-1, 1, (2,)), 4),
    "scalar box": (spaces.Box(-1, 1, ()), 2),
}
BOX, CHOICE, CONTROL = OBSERVATIONS["box"][0], ACTIONS["discrete"][0], ACTIONS["box"][0]


def observations(space: spaces.Space, count: int = 5) -> Tensor:
    space.seed(0)
    return torch.from_numpy(np.stack([space.sample() for _ in range(count)]))


def linears(*modules: nn.Module | None) -> list[nn.Linear]:
    return [m for top in modules if top is not None for m in top.modules() if type(m) is nn.Linear]


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("obs", OBSERVATIONS)
def test_shapes(obs: str, action: str, shared: bool) -> None:
    (space, size), (actions, columns) = OBSERVATIONS[obs], ACTIONS[action]
    policy = policy_for(space, actions, hidden=(8,), shared=shared)
    assert linears(policy.actor)[0].in_features == size
    batch = observations(space)
    head, value = policy(batch)
    assert head.shape == (5, columns)
    assert value.shape == (5,)
    assert head.dtype == value.dtype == torch.float32
    assert torch.equal(policy.value(batch), value)
    head, value = policy(batch[:0])
    assert (head.shape, value.shape) == ((0, columns), (0,))


@pytest.mark.parametrize("hidden", [(), (1,), [7, 3], (4, 4, 4)])
@pytest.mark.parametrize("shared", [False, True])
def test_any_number_of_layers(hidden: Sequence[int], shared: bool) -> None:
    policy = policy_for(BOX, CHOICE, hidden=hidden, shared=shared)
    assert [layer.out_features for layer in linears(policy.actor)] == list(hidden)
    assert (policy.critic is None) == shared
    head, value = policy(observations(BOX))
    assert head.shape == (5, 3)
    assert value.shape == (5,)


def test_one_trunk_or_two() -> None:
    batch = observations(BOX)
    for shared in (False, True):
        policy = policy_for(BOX, CHOICE, shared=shared)
        policy(batch)[1].sum().backward()
        reached = [layer.weight.grad is not None for layer in linears(policy.actor)]
        assert reached == [shared, shared]
        assert policy.actor_head.weight.grad is None
        policy.zero_grad()
        policy(batch)[0].square().sum().backward()
        assert policy.critic_head.weight.grad is None
        assert all(layer.weight.grad is None for layer in linears(policy.critic))
        assert all(layer.weight.grad.any() for layer in linears(policy.actor, policy.actor_head))


@pytest.mark.parametrize("policy_kind", ["discrete", "continuous", "state dependent"])
def test_initial_weights_are_orthogonal(policy_kind: str) -> None:
    torch.manual_seed(1)
    policy = (
        DiscreteActorCritic(BOX, CHOICE, hidden=(16, 6))
        if policy_kind == "discrete"
        else ContinuousActorCritic(
            BOX, CONTROL, hidden=(16, 6), state_dependent_std=policy_kind == "state dependent"
        )
    )
    gains = [(layer, math.sqrt(2)) for layer in linears(policy.actor, policy.critic)]
    gains += [(policy.actor_head, 0.01), (policy.critic_head, 1.0)]
    assert len(gains) == 6
    for layer, gain in gains:
        weight = layer.weight.detach().double() / gain
        short = weight if weight.shape[0] <= weight.shape[1] else weight.T
        eye = torch.eye(len(short), dtype=torch.float64)
        torch.testing.assert_close(short @ short.T, eye, rtol=0, atol=1e-5)
        assert (layer.bias == 0).all()
    first, other = linears(policy.actor)[0], linears(policy.critic)[0]
    assert not torch.equal(first.weight, other.weight)


def test_a_fresh_policy_does_not_care() -> None:
    """Nearly uniform over actions, so that the first rollout explores."""
    head, _ = policy_for(BOX, CHOICE)(observations(BOX, 50))
    assert (head.softmax(-1) - 1 / 3).abs().max() < 0.02


@pytest.mark.parametrize("name", ACTIVATION_NAMES)
def test_activations_by_name(name: str) -> None:
    layers = list(policy_for(BOX, CHOICE, activation=name, hidden=(5, 4)).actor)
    assert [type(layer) for layer in layers] == [nn.Linear, ACTIVATIONS[name]] * 2
    function = {"tanh": torch.tanh, "relu": torch.relu, "silu": nn.functional.silu}[name]
    x = torch.linspace(-3, 3, 9)
    assert torch.equal(layers[1](x), function(x))


def test_configurations_know_the_activations_there_are() -> None:
    assert tuple(ACTIVATIONS) == ACTIVATION_NAMES


# Encodings ----------------------------------------------------------------------------------
def test_one_hot_vectors() -> None:
    encode, size = encoder(spaces.Discrete(3, start=-2))
    assert size == 3
    assert encode(torch.tensor([-2, 0])).tolist() == [[1, 0, 0], [0, 0, 1]]
    encode, size = encoder(spaces.MultiDiscrete([2, 3], start=[5, -1]))
    assert size == 5
    assert encode(torch.tensor([[5, 1], [6, -1]])).tolist() == [[1, 0, 0, 0, 1], [0, 1, 1, 0, 0]]
    encode, _ = encoder(spaces.MultiDiscrete(np.array([[1, 2], [2, 1]])))
    assert encode(torch.tensor([[[0, 1], [0, 0]]])).tolist() == [[1, 0, 1, 1, 0, 1]]


def test_boxes_are_flattened_in_order() -> None:
    encode, size = encoder(spaces.Box(-100, 100, (3, 5, 2), np.int8))
    assert size == 30
    numbers = torch.arange(60, dtype=torch.int8).reshape(2, 3, 5, 2)
    assert encode(numbers).tolist() == [list(range(30)), list(range(30, 60))]
    encode, size = encoder(OBSERVATIONS["scalar box"][0])
    assert encode(torch.tensor([0.5, -1.0])).tolist() == [[0.5], [-1.0]]


def test_a_number_that_the_space_has_not_is_no_observation() -> None:
    policy = policy_for(spaces.Discrete(3, start=1), CHOICE)
    with pytest.raises(RuntimeError):
        policy(torch.tensor([0]))


# Normalisation ------------------------------------------------------------------------------
def test_the_normalizer_is_part_of_the_network() -> None:
    space = spaces.Box(-100, 100, (2, 2))
    policy = policy_for(space, CHOICE, hidden=(8,), normalize_obs=True)
    assert policy.obs_normalizer is not None
    plain = policy_for(space, CHOICE, hidden=(8,))
    assert plain.obs_normalizer is None
    assert not any("normalizer" in name for name in plain.state_dict())
    plain.load_state_dict(
        {name: t for name, t in policy.state_dict().items() if "normalizer" not in name}
    )
    batch = observations(space, 200) + 40
    policy.obs_normalizer.update(batch)
    count = policy.obs_normalizer.count.item()
    normal = (batch - batch.mean(0)) / batch.std(0, correction=0)
    for found, wanted in zip(policy(batch), plain(normal), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(policy.value(batch), policy(batch)[1])
    assert policy.obs_normalizer.count.item() == count == 200, "forward only reads"


# Deviations ---------------------------------------------------------------------------------
def test_deviations_that_are_the_same_in_all_states() -> None:
    policy = ContinuousActorCritic(BOX, CONTROL, log_std=-0.7)
    head, _ = policy(observations(BOX))
    assert head[:, 2:].tolist() == [[pytest.approx(-0.7)] * 2] * 5
    head[:, 2:].sum().backward()
    assert policy.log_std is not None
    assert policy.log_std.grad is not None
    assert policy.log_std.grad.tolist() == [5, 5]
    assert policy.actor_head.weight.grad is None or not policy.actor_head.weight.grad.any()


def test_deviations_that_depend_on_the_state() -> None:
    policy = ContinuousActorCritic(BOX, CONTROL, log_std=-0.7, state_dependent_std=True)
    assert policy.log_std is None
    assert not any("log_std" in name for name in policy.state_dict())
    head, _ = policy(observations(BOX))
    assert (head[:, 2:] + 0.7).abs().max() < 0.05
    assert head[:, 2:].std(0).min() > 0
    assert policy.actor_head.bias.tolist() == [0, 0, pytest.approx(-0.7), pytest.approx(-0.7)]


def test_policy_for_chooses_by_the_actions() -> None:
    assert type(policy_for(BOX, CHOICE)) is DiscreteActorCritic
    policy = policy_for(BOX, CONTROL, log_std=0.5, squash=True)
    assert type(policy) is ContinuousActorCritic
    assert type(policy.distribution) is SquashedGaussian
    assert policy(observations(BOX))[0][0, -1].item() == 0.5


# Saving -------------------------------------------------------------------------------------
@pytest.mark.parametrize("action", ["discrete", "box"])
def test_weights_saved_and_loaded(action: str) -> None:
    def fresh() -> ActorCritic:
        return policy_for(BOX, ACTIONS[action][0], hidden=(8, 8), normalize_obs=True)

    policy, other = fresh(), fresh()
    batch = observations(BOX)
    assert policy.obs_normalizer is not None
    policy.obs_normalizer.update(batch)
    assert not torch.equal(policy(batch)[1], other(batch)[1])
    file = io.BytesIO()
    torch.save(policy.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    for found, wanted in zip(other(batch), policy(batch), strict=True):
        assert torch.equal(found, wanted)


def test_a_deep_copy_is_independent() -> None:
    policy = policy_for(BOX, CONTROL, normalize_obs=True)
    twin = copy.deepcopy(policy)
    batch = observations(BOX)
    before = policy(batch)[1].clone()
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter += 1
    assert twin.obs_normalizer is not None
    twin.obs_normalizer.update(batch)
    assert torch.equal(policy(batch)[1], before)
    assert not torch.equal(twin(batch)[1], before)


# Errors -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: policy_for(BOX, CHOICE, activation="gelu"), "tanh, relu, silu, got 'gelu'"),
        (lambda: policy_for(BOX, CHOICE, hidden=(8, 0)), r"at least one unit, got \(8, 0\)"),
        (lambda: policy_for(spaces.Text(2), CHOICE), "no encoding for the observation space Text"),
        (lambda: policy_for(spaces.Box(-1, 1, (0,)), CHOICE), "nothing to see"),
        (lambda: policy_for(BOX, spaces.Text(2)), "no policy for the action space Text"),
        (lambda: policy_for(BOX, CHOICE, squash=True), "squash is for Box actions, not Discrete"),
        (lambda: DiscreteActorCritic(BOX, CONTROL), "needs discrete actions, got Box"),
        (lambda: ContinuousActorCritic(BOX, CHOICE), "needs Box actions of floats, got"),
        (
            lambda: policy_for(spaces.Discrete(2), CHOICE, normalize_obs=True),
            "only Box observations can be normalised, not Discrete",
        ),
        (
            lambda: ContinuousActorCritic(BOX, spaces.Box(-np.inf, 1, (1,)), squash=True),
            "finite bounds",
        ),
    ],
)
def test_what_is_refused(make: object, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        make()  # type: ignore[operator]
