"""Which jobs the fused engine takes, and what is said of those it leaves to the eager one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import operant
from operant.buffers.normalizer import RunningNormalizer
from operant.models import PPO
from operant.models.actor_critic import (
    ActorCritic,
    ContinuousActorCritic,
    DiscreteActorCritic,
    linear,
    mlp,
)
from operant.models.distributions import Categorical
from operant.ppo.engines import fused_scope
from operant.ppo.engines.fused_scope import (
    MOST_LAYERS,
    MOST_NEURONS,
    why_fused_is_slow_on_gpu,
)

Tasks = dict[str, type[operant.Env]]
SMALL = {"num_envs": 4, "num_steps": 4, "threads": 1}
START = "the fused engine cannot do this job: "


class Own(DiscreteActorCritic):
    """Might do anything."""


class Halved(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 0.5 * super().forward(x)


class OwnNormalizer(RunningNormalizer):
    """Might do anything."""


class Odd(Categorical):
    """Might do anything."""


def network(env: type[operant.Env], kind: Any = DiscreteActorCritic, **options: Any) -> Any:
    torch.manual_seed(0)
    return kind(env.observation_space, env.action_space, **{"hidden": (8, 8), **options})


def changed(change: Callable[[Any], object]) -> Callable[[type[operant.Env]], nn.Module]:
    """A function that makes a policy and changes it."""

    def make(env: type[operant.Env]) -> nn.Module:
        policy = network(env)
        change(policy)
        assert isinstance(policy, nn.Module)
        return policy

    return make


def hooked(policy: ActorCritic) -> None:
    policy.actor[0].register_forward_hook(lambda module, inputs, output: output)


def hooked_before(policy: ActorCritic) -> None:
    policy.critic_head.register_forward_pre_hook(lambda module, inputs: inputs)


def hooked_parameter(policy: ActorCritic) -> None:
    policy.actor[0].weight.register_hook(lambda gradient: 0 * gradient)


def hooked_backward(policy: ActorCritic) -> None:
    policy.actor[2].register_full_backward_hook(lambda module, inputs, outputs: None)


def hooked_before_backward(policy: ActorCritic) -> None:
    policy.critic_head.register_full_backward_pre_hook(lambda module, outputs: outputs)


def patched(name: str, where: str = "") -> Callable[[ActorCritic], None]:
    """A change that replaces a method of one object."""

    def change(policy: ActorCritic) -> None:
        module = policy.get_submodule(where)
        method = getattr(module, name)
        setattr(module, name, lambda *args: method(*args))

    return change


# What a job is, and a word of the reason.
POLICIES = {
    "a subclass": (lambda env: network(env, Own), "not Own"),
    "a module of one's own": (lambda env: Tiny(), "not Tiny"),
    "a distribution of one's own": (
        lambda env: network(env, distribution=Odd(3)),
        "does not know the distribution Odd",
    ),
    "a normaliser of one's own": (
        changed(lambda policy: setattr(policy, "obs_normalizer", OwnNormalizer((2,)))),
        "normalises observations",
    ),
    "another activation": (
        changed(lambda policy: setattr(policy, "actor", mlp(2, (8, 8), nn.GELU))),
        "tanh, relu or silu",
    ),
    "two activations": (
        changed(lambda policy: policy.actor.__setitem__(3, nn.ReLU())),
        "one activation",
    ),
    "one for the actor, one for the critic": (
        changed(lambda policy: setattr(policy, "critic", mlp(2, (8, 8), nn.ReLU))),
        "one activation",
    ),
    "a layer of another kind": (
        changed(lambda policy: policy.critic.__setitem__(2, Halved(8, 8))),
        "linear layers",
    ),
    "a layer too many": (
        changed(lambda policy: policy.actor.append(nn.Linear(8, 8))),
        "linear layers",
    ),
    "a frozen parameter": (
        changed(lambda policy: policy.actor[0].weight.requires_grad_(False)),
        "frozen",
    ),
    "a hook": (changed(hooked), "hooks"),
    "a hook before": (changed(hooked_before), "hooks"),
    "a hook of a parameter": (changed(hooked_parameter), "hooks"),
    "a hook of the backward pass": (changed(hooked_backward), "hooks"),
    "a hook before the backward pass": (changed(hooked_before_backward), "hooks"),
    "another forward": (changed(patched("forward")), "replaced"),
    "another forward of a layer": (changed(patched("forward", "actor.2")), "replaced"),
    "another head": (changed(patched("_head")), "replaced"),
    "another value": (changed(patched("value")), "replaced"),
    "other inputs": (changed(patched("_inputs")), "replaced"),
    "weights that are not contiguous": (
        changed(lambda policy: setattr(policy.actor[2].weight, "data", torch.zeros(8, 8).t())),
        "contiguous",
    ),
}
OPTIONS = {
    "squashed actions": ("Push", {"squash": True}, "does not squash actions"),
    "four layers": ("Turns", {"hidden": (8, 8, 8, 8)}, "1 to 3 hidden layers, not 4"),
    "no layers": ("Turns", {"hidden": ()}, "1 to 3 hidden layers, not 0"),
    "a wide layer": ("Turns", {"hidden": (8, 300)}, "256 neurons at most, not 300"),
    "environments in Python": ("Turns", {"backend": "reference"}, "backend 'reference'"),
}


class Tiny(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(2, 4)

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        out = self.body(obs)
        return out[:, :3], out[:, 3]


def falls_back(ppo: PPO, reason: str) -> None:
    assert ppo.engine.name == "eager"
    assert ppo.engine_reason.startswith(START)
    said = ppo.engine_reason.removeprefix(START)
    assert reason in said
    assert "\n" not in said
    assert not said.endswith(".")
    assert ". " not in said  # one sentence
    ppo.learn(16)
    assert ppo.steps == 16


@pytest.mark.parametrize("engine", ["auto", "fused"])
@pytest.mark.parametrize("name", POLICIES)
def test_policies_for_the_eager_engine(tasks: Tasks, name: str, engine: str) -> None:
    make, reason = POLICIES[name]
    env = tasks["Turns"]
    falls_back(PPO(env, engine=engine, device="cpu", policy=make(env), **SMALL), reason)


@pytest.mark.parametrize("engine", ["auto", "fused"])
@pytest.mark.parametrize("name", OPTIONS)
def test_options_for_the_eager_engine(tasks: Tasks, name: str, engine: str) -> None:
    task, options, reason = OPTIONS[name]
    ppo = PPO(tasks[task], engine=engine, device="cpu", **{"hidden": (8,), **SMALL, **options})
    falls_back(ppo, reason)


@pytest.mark.parametrize("task", ["Turns", "Doors", "Knobs", "Switches", "Push", "Arm"])
@pytest.mark.parametrize(("engine", "reason"), [("auto", "the fastest"), ("fused", "as asked")])
def test_what_it_does(tasks: Tasks, task: str, engine: str, reason: str) -> None:
    hidden = (MOST_NEURONS,) * MOST_LAYERS if task == "Turns" else (8,)
    ppo = PPO(tasks[task], engine=engine, device="cpu", hidden=hidden, **SMALL)
    assert ppo.engine.name == "fused"
    assert ppo.engine_reason.startswith(reason)


def test_eager_is_what_it_is_asked_for(tasks: Tasks) -> None:
    ppo = PPO(tasks["Turns"], engine="eager", device="cpu", hidden=(8,), **SMALL)
    assert (ppo.engine.name, ppo.engine_reason) == ("eager", "as asked")


# Networks that were put together by hand ----------------------------------------------------------
def other_critic(policy: Any) -> None:
    """Its widths and depth are its own."""
    policy.critic = mlp(2, (50, 21, 5), nn.Tanh)
    policy.critic_head = linear(5, 1, 1.0)


def one_trunk(policy: Any) -> None:
    policy.critic = policy.actor


def tied(policy: Any) -> None:
    policy.critic[2].weight = policy.actor[2].weight


def no_bias(policy: Any) -> None:
    policy.actor[0] = nn.Linear(2, 8, bias=False)


def no_bias_in_the_head(policy: Any) -> None:
    policy.actor_head = nn.Linear(8, 3, bias=False)


def another_head(policy: Any) -> None:
    policy.actor_head = Halved(8, 3)


def head_of_layers(policy: Any) -> None:
    policy.critic_head = nn.Sequential(nn.Linear(8, 4), nn.Linear(4, 1))


def one_more_parameter(policy: Any) -> None:
    policy.more = nn.Parameter(torch.zeros(3))


def another_encoding(policy: Any) -> None:
    policy.encode = lambda obs: 2.0 * obs.flatten(1)


# How a network is put together, and what is said of it; nothing if it can be done.
BY_HAND = {
    other_critic: "",
    one_trunk: "do not share weights",
    tied: "do not share weights",
    no_bias: "have biases",
    no_bias_in_the_head: "have biases",
    another_head: "heads that are linear layers",
    head_of_layers: "heads that are linear layers",
    one_more_parameter: "does not know all of the policy's parameters",
    another_encoding: "how the policy encodes observations",
}


@pytest.mark.parametrize("change", BY_HAND)
def test_whatever_engine_does_it_does_it_right(tasks: Tasks, change: Callable[[Any], None]) -> None:
    ppo = same_gradients(tasks["Turns"], lambda: changed(change)(tasks["Turns"]))
    assert ppo.engine.name == ("eager" if BY_HAND[change] else "fused")
    assert BY_HAND[change] in ppo.engine_reason


def same_gradients(env: type[operant.Env], make: Callable[[], nn.Module]) -> PPO:
    """Rollout and gradient of whichever engine `auto` picks are those of the eager engine; the
    trainer that it picked one for."""
    found, trainers = [], []
    options = {"minibatches": 1, "epochs": 1, "max_grad_norm": 0.0, "num_envs": 7, "num_steps": 13}
    for engine in ("auto", "eager"):
        ppo = PPO(env, engine=engine, device="cpu", threads=1, seed=1, policy=make(), **options)
        random = torch.Generator().manual_seed(1)
        for _ in range(2):
            with torch.no_grad():
                for parameter in ppo.policy.parameters():
                    parameter += 0.1 * torch.randn(parameter.shape, generator=random)
            ppo.engine.collect(0, 0)
        ppo.engine.advantages()
        ppo.engine.update(0, 0.0, 0.2)
        trainers.append(ppo)
        found.append([ppo.engine.buffer.value, ppo.engine.buffer.log_prob, ppo.optimizer.gradient])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    return trainers[0]


def test_the_base_class_with_box_actions(tasks: Tasks) -> None:
    """All of the head comes from the network, deviations too."""
    same_gradients(tasks["Arm"], lambda: network(tasks["Arm"], ActorCritic))


def test_deviations_by_state(tasks: Tasks) -> None:
    def make() -> nn.Module:
        policy = network(tasks["Arm"], ContinuousActorCritic, state_dependent_std=True)
        assert isinstance(policy, nn.Module)
        return policy

    same_gradients(tasks["Arm"], make)


@pytest.mark.parametrize(
    ("hidden", "options", "hopper", "fast"),
    [
        ((64, 8), {}, False, True),
        ((8, 65), {}, False, False),
        ((8, 65), {}, True, True),
        ((128, 128), {"activation": "relu", "shared": True}, True, True),
        ((128, 128), {"activation": "silu"}, True, False),
        ((128, 8, 8), {}, True, False),
        ((64, 8, 8), {"activation": "silu"}, False, True),
    ],
)
def test_where_it_is_not_the_fastest_on_a_gpu(
    monkeypatch: pytest.MonkeyPatch,
    hidden: tuple[int, ...],
    options: dict[str, Any],
    hopper: bool,
    fast: bool,
) -> None:
    monkeypatch.setattr(fused_scope, "is_hopper", lambda _: hopper)
    job = PPO("CartPole-v1", hidden=hidden, **options, **SMALL).engine.job
    reason = why_fused_is_slow_on_gpu(job)
    assert reason is None if fast else "64 neurons at most" in reason
    assert fused_scope.why_not_bf16(job.policy) == reason
