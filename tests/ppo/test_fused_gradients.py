"""The fused engine's gradient and figures against autograd in float64, on the same samples."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from torch import Tensor

import operant
from operant.models import PPO
from operant.models.actor_critic import ActorCritic, ContinuousActorCritic, DiscreteActorCritic
from operant.models.encoders import column, flatten
from operant.ppo.loss import Loss, ppo_loss

Tasks = dict[str, type[operant.Env]]
CLIP = 0.2
# PPO without what the defaults add to it: nothing normalised, no entropy, one learning rate.
PLAIN: dict[str, Any] = {
    "minibatches": 4,
    "normalize_obs": False,
    "normalize_reward": False,
    "entropy_coef": 0.0,
    "learning_rate": 2.5e-4,
    "learning_rate_schedule": "constant",
}
WHOLE = {"minibatches": 1, "epochs": 1, "max_grad_norm": 0.0}
"""One minibatch: the gradient of the whole rollout stays in the optimiser."""
BONUS = {"value_clip": 0.3, "value_coef": 0.7, "entropy_coef": 0.05}
HEADS = {
    "discrete": "Turns",
    "discrete, not from 0": "Doors",
    "multi-discrete": "Knobs",
    "multi-binary": "Switches",
    "box of one": "Push",
    "box of three": "Arm",
    "deviations by state": "Arm",
}
LAYERS = {1: (21,), 2: (16, 7), 3: (5, 33, 12)}


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def collected(env: type[operant.Env], by_state: bool = False, **options: Any) -> PPO:
    """A rollout, and a policy that has moved since: ratios on both sides of the clip range."""
    settings = {**PLAIN, **WHOLE, **BONUS, "num_envs": 7, "num_steps": 13, "seed": 3, "threads": 1}
    settings |= {"max_episode_steps": 7, **options}
    if by_state:
        names = ("hidden", "activation", "shared", "normalize_obs")
        network = {name: settings.pop(name) for name in names if name in settings}
        policy = ContinuousActorCritic(
            env.observation_space, env.action_space, state_dependent_std=True, **network
        )
        ppo = PPO(env, engine="fused", policy=policy, **settings)
    else:
        if "policy" in settings:  # which has its own way with observations
            del settings["normalize_obs"]
        ppo = PPO(env, engine="fused", **settings)
    assert ppo.engine.name == "fused", ppo.engine_reason
    move(ppo.policy, 1)
    ppo.engine.collect(0, 0)
    spread(ppo)
    ppo.engine.advantages()
    move(ppo.policy, 2)
    return ppo


def spread(ppo: PPO) -> None:
    """Change what is known of the old policy, so that every clip has samples on all its sides."""
    random = torch.Generator().manual_seed(4)
    for tensor in (ppo.engine.buffer.log_prob, ppo.engine.buffer.value):
        tensor += 0.3 * torch.randn(tensor.shape, generator=random)


def move(policy: torch.nn.Module, seed: int, size: float = 0.1) -> None:
    """Add noise to all parameters; biases are 0 to begin with, heads almost."""
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter += size * torch.randn(parameter.shape, generator=random)


def exact(ppo: PPO, clip: float = CLIP) -> tuple[Tensor, Loss]:
    """Gradient ``[P]`` and loss by autograd in float64, of what the buffer holds in float32."""
    policy, buffer, options = ppo.policy, ppo.engine.buffer, ppo.config.ppo
    assert isinstance(policy, ActorCritic)
    twin = copy.deepcopy(policy).double()
    obs, action = buffer.flat("obs", "action")
    with torch.no_grad():
        x = policy._inputs(obs).double()  # normalised in float32, as a policy does
    features = twin.actor(x)
    value = twin.critic_head(features if twin.critic is None else twin.critic(x)).squeeze(-1)
    head = twin._head(twin.actor_head(features))
    if action.is_floating_point():
        action = action.double()
    log_prob, entropy = ppo.distribution.evaluate(head, action)
    rest = buffer.flat("log_prob", "advantage", "target", "value")
    old_log_prob, advantage, target, old_value = (x.double() for x in rest)
    if options.normalize_advantage:
        deviation = advantage.std(correction=0)
        advantage = (advantage - advantage.mean()) / (deviation + 1e-8)
    loss = ppo_loss(
        log_prob,
        entropy,
        value,
        old_log_prob,
        advantage,
        target,
        old_value,
        clip=clip,
        value_clip=options.value_clip,
        value_coef=options.value_coef,
        entropy_coef=options.entropy_coef,
    )
    pieces = torch.autograd.grad(loss.total, list(twin.parameters()))
    return torch.cat([piece.flatten() for piece in pieces]), loss


def check(ppo: PPO, tolerance: float = 1e-5, clip: float = CLIP) -> None:
    """The engine's gradient is autograd's, and so are its figures; nothing was moved."""
    before = [p.detach().clone() for p in ppo.policy.parameters()]
    wanted, loss = exact(ppo, clip)
    figures = ppo.engine.update(0, 0.0, clip)
    found = ppo.optimizer.gradient.double()
    assert torch.linalg.norm(found - wanted) <= tolerance * torch.linalg.norm(wanted)
    # Each parameter by itself too, or a bias could hide behind the weights.
    sizes = ppo.optimizer.sizes
    names = [name for name, _ in ppo.policy.named_parameters()]
    for name, ours, theirs in zip(names, found.split(sizes), wanted.split(sizes), strict=True):
        limit = 10 * tolerance * torch.linalg.norm(theirs) + tolerance * 1e-2
        assert torch.linalg.norm(ours - theirs) <= limit, name
    pairs = {
        "policy_loss": loss.policy,
        "value_loss": loss.value,
        "entropy": loss.entropy,
        "kl": loss.kl,
        "clip_fraction": loss.clipped,
        "grad_norm": torch.linalg.norm(wanted),
    }
    for name, theirs in pairs.items():
        assert figures[name] == pytest.approx(theirs.item(), rel=1e-5, abs=1e-6), name
    for parameter, old in zip(ppo.policy.parameters(), before, strict=True):
        assert torch.equal(parameter, old)


@pytest.mark.parametrize("shared", [False, True], ids=["separate", "shared"])
@pytest.mark.parametrize("activation", ["tanh", "relu", "silu"])
@pytest.mark.parametrize("depth", LAYERS)
@pytest.mark.parametrize("head", HEADS)
def test_every_head_and_network(
    tasks: Tasks, head: str, depth: int, activation: str, shared: bool
) -> None:
    ppo = collected(
        tasks[HEADS[head]],
        by_state=head == "deviations by state",
        hidden=LAYERS[depth],
        activation=activation,
        shared=shared,
        normalize_advantage=depth != 2,
    )
    check(ppo)


def test_the_samples_are_of_every_kind(tasks: Tasks) -> None:
    """Otherwise the comparisons above say little."""
    for task, hidden in product(("Turns", "Arm"), LAYERS.values()):
        ppo = collected(tasks[task], hidden=hidden)
        buffer = ppo.engine.buffer
        assert buffer.terminated.any()
        assert buffer.truncated.any()
        value = ppo.policy.value(buffer.obs[:-1].flatten(0, 1))
        far = (value - buffer.value.flatten()).abs() > BONUS["value_clip"]
        assert 0.1 < far.float().mean() < 0.9
        figures = ppo.engine.update(0, 0.0, CLIP)
        assert 0.2 < figures["clip_fraction"] < 0.8
        assert figures["kl"] > 1e-3


WIDTHS = [(1,), (5,), (50, 5), (130, 50), (256, 256), (64, 130, 256), (17, 256, 1)]


@pytest.mark.parametrize("activation", ["tanh", "relu", "silu"])
@pytest.mark.parametrize("hidden", WIDTHS, ids=str)
def test_every_width(tasks: Tasks, hidden: tuple[int, ...], activation: str) -> None:
    """Of several chunks, and tiles that are not full."""
    options = {"num_envs": 65, "num_steps": 17, "hidden": hidden, "activation": activation}
    check(collected(tasks["Turns"], **options))
    check(collected(tasks["Knobs"], **options, shared=True))


@pytest.mark.parametrize("samples", [(1, 1), (1, 2), (3, 5), (16, 1), (64, 2), (43, 3), (64, 16)])
def test_any_number_of_samples(tasks: Tasks, samples: tuple[int, int]) -> None:
    envs, steps = samples
    for task in ("Turns", "Push"):
        check(collected(tasks[task], num_envs=envs, num_steps=steps, hidden=(20, 9)))


@pytest.mark.parametrize(
    "options",
    [
        {"value_clip": 0.0},
        {"entropy_coef": 0.0},
        {"value_coef": 0.0},
        {"normalize_advantage": False, "value_clip": 0.0, "entropy_coef": 0.0},
        {"normalize_reward": True},
        {"normalize_obs": True},
        {"normalize_obs": True, "shared": True, "activation": "silu"},
    ],
    ids=str,
)
@pytest.mark.parametrize("task", ["Switches", "Arm"])
def test_every_option(tasks: Tasks, task: str, options: dict[str, Any]) -> None:
    ppo = collected(tasks[task], **{"hidden": (24, 24), **options})
    normalizer = ppo.policy.obs_normalizer
    if normalizer is not None:
        normalizer.update(torch.randn(100, *normalizer.mean.shape) * 0.3 + 0.2)
        ppo.engine.collect(0, 0)
        spread(ppo)
        ppo.engine.advantages()
        move(ppo.policy, 5)
    check(ppo)


@pytest.mark.parametrize("task", ["Knobs", "Arm"])
def test_any_clip_range(tasks: Tasks, task: str) -> None:
    """One after the other, as a schedule has it."""
    ppo = collected(tasks[task], hidden=(9,))
    for clip in (0.2, 0.05, 0.7):
        check(ppo, clip=clip)


@pytest.mark.parametrize(("chunks", "steps"), [(2, 8), (3, 13), (5, 20), (6, 24), (7, 28)])
def test_any_number_of_chunks(tasks: Tasks, chunks: int, steps: int) -> None:
    options = {"num_envs": 65, "num_steps": steps, "hidden": (9,)}
    for task in ("Turns", "Arm"):
        ppo = collected(tasks[task], **options, threads=2)
        assert ppo.engine._arguments["chunks"] == chunks
        check(ppo)


@pytest.mark.parametrize("task", ["Doors", "Knobs"])
def test_whole_numbers_as_they_are(tasks: Tasks, task: str) -> None:
    """A policy that takes them for coordinates, not for names."""
    env = tasks[task]
    shape = env.observation_space.shape
    policy = DiscreteActorCritic(Box(-9.0, 9.0, shape), env.action_space, hidden=(8, 8))
    assert policy.encode is (flatten if shape else column)
    ppo = collected(env, policy=policy, num_envs=65)
    assert ppo.engine.buffer.obs.dtype == torch.int64
    assert (ppo.engine.buffer.obs < 0).any()
    check(ppo)


def test_a_deviation_beyond_its_range_has_no_slope(tasks: Tasks) -> None:
    ppo = collected(tasks["Arm"], hidden=(8,), entropy_coef=0.5)
    assert isinstance(ppo.policy, ContinuousActorCritic)
    assert ppo.policy.log_std is not None
    with torch.no_grad():
        ppo.policy.log_std[1] = 21.0
    check(ppo)
    names = [name for name, _ in ppo.policy.named_parameters()]
    pieces = dict(zip(names, ppo.optimizer.gradient.split(ppo.optimizer.sizes), strict=True))
    assert pieces["log_std"][1] == 0
    assert (pieces["log_std"][[0, 2]] != 0).all()


def test_masked_actions_get_no_gradient(tasks: Tasks) -> None:
    ppo = collected(tasks["Turns"], hidden=(8,))
    with torch.no_grad():
        ppo.policy.actor_head.bias[2] = -np.inf
    ppo.engine.collect(0, 0)
    assert not (ppo.engine.buffer.action == 2).any()
    ppo.engine.advantages()
    move(ppo.policy, 7)
    figures = ppo.engine.update(0, 0.0, CLIP)
    assert np.isfinite(list(figures.values())).all()
    names = [name for name, _ in ppo.policy.named_parameters()]
    pieces = dict(zip(names, ppo.optimizer.gradient.split(ppo.optimizer.sizes), strict=True))
    assert pieces["actor_head.bias"][2] == 0
    assert pieces["actor_head.bias"][0] != 0
    wanted, _ = exact(ppo)
    assert torch.linalg.norm(ppo.optimizer.gradient - wanted) <= 1e-5 * torch.linalg.norm(wanted)


def test_equal_advantages_are_centred_not_blown_up(tasks: Tasks) -> None:
    ppo = collected(tasks["Turns"], hidden=(8,), num_envs=65, value_coef=0.0, entropy_coef=0.0)
    ppo.engine.buffer.reward.fill_(0.7)
    ppo.engine.buffer.value.fill_(0.1)
    ppo.engine.buffer.terminated.fill_(True)
    ppo.engine.advantages()
    assert ppo.engine.buffer.advantage.unique().numel() == 1
    figures = ppo.engine.update(0, 0.0, CLIP)
    assert figures["policy_loss"] == 0
    assert not ppo.optimizer.gradient.any()


@pytest.mark.parametrize("task", ["Turns", "Doors", "Arm"])
@pytest.mark.parametrize("activation", ["tanh", "relu", "silu"])
def test_what_was_in_scratch_memory_before_does_not_matter(
    tasks: Tasks, task: str, activation: str
) -> None:
    """Tiles are not full, widths no whole vectors: what lies beyond is never part of a result."""
    options = {"activation": activation, "normalize_obs": task != "Doors", "hidden": (9, 21)}
    ppo = collected(tasks[task], **options)
    scratch = ppo.engine._arguments.arrays["scratch"]
    ppo.engine.update(0, 0.0, CLIP)
    wanted = ppo.optimizer.gradient.clone()
    for junk in (np.nan, np.inf, 1e30):
        scratch[:] = junk
        ppo.engine.update(0, 0.0, CLIP)
        assert torch.equal(ppo.optimizer.gradient, wanted)
    state, values = ppo.env.get_state(), []
    for junk in (0.0, np.nan):
        ppo.env.set_state(state)
        scratch[:] = junk
        ppo.engine.collect(1, 13)
        values.append(ppo.engine.buffer.value.clone())
    assert torch.equal(*values)
