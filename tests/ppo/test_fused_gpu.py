"""The fused engine on a GPU: on one where there is one, else in Triton's interpreter.

Gradients against autograd in float64, rollouts against the policy as PyTorch computes it, and whole
trainings against the eager engine.
"""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete
from torch import Tensor

import operant
from operant.models import PPO
from operant.models.actor_critic import ActorCritic, ContinuousActorCritic
from operant.models.distributions import masked
from operant.ppo.engines.figures import trained_tensors
from operant.ppo.engines.fused_scope import MOST_NEURONS_IN_BF16, why_not_fused_on_gpu
from operant.ppo.loss import Loss, normalized, ppo_loss
from operant.training.callbacks import Callback
from operant.training.guard import NonFiniteError

from ..environments import Leaky

pytestmark = pytest.mark.filterwarnings("ignore:(invalid|overflow|divide):RuntimeWarning")
Tasks = dict[str, type[operant.Env]]
ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
PRECISIONS = {"fp32": 1e-5, "tf32": 1e-2, "bf16": 1e-2} if ON_GPU else {"fp32": 1e-5}
CLIP = 0.2
PLAIN: dict[str, Any] = {"normalize_obs": False, "normalize_reward": False, "entropy_coef": 0.0}
BONUS = {"value_clip": 0.3, "value_coef": 0.7, "entropy_coef": 0.05, "max_grad_norm": 0.0}


@pytest.fixture(autouse=True)
def _gpu(request: pytest.FixtureRequest) -> None:
    if not ON_GPU:
        request.getfixturevalue("interpreter")


class Locked(operant.Env):
    """Two choices with a mask, draws in the step."""

    class State(NamedTuple):
        x: float

    observation_space = Box(-np.inf, np.inf, (3,))
    action_space = MultiDiscrete([3, 4], start=[1, -1])
    max_episode_steps = 5

    def reset(random):
        return Locked.State(random[0] - 0.5)

    def step(state, action, random):
        x = 0.9 * state.x + 0.1 * (action[0] - 2) + 0.2 * (random[0] - 0.5)
        return Locked.State(x), 1.0 - x * x, x > 0.4

    def observe(state):
        return state.x, state.x * state.x, 1.0

    def action_mask(state):
        low = state.x < 0.0
        return (True, low, ~low, low, True, ~low, low)


class Wide(operant.Env):
    """Many inputs, many actions."""

    class State(NamedTuple):
        x: float

    observation_space = Box(-np.inf, np.inf, (40,))
    action_space = Discrete(20)
    max_episode_steps = 5

    def reset(random):
        return Wide.State(random[0] - 0.5)

    def step(state, action, random):
        x = 0.9 * state.x + 0.02 * (action - 9) + 0.2 * (random[0] - 0.5)
        return Wide.State(x), 1.0 - x * x, x > 0.4

    def observe(state):
        return tuple(state.x * (k - 20) for k in range(40))


def made(
    env: Any, *, num_envs: int = 7, by_state: bool = False, engine: str = "fused", **options: Any
) -> PPO:
    """A trainer with environments on the GPU."""
    given = {"num_steps": 6, "epochs": 1, "minibatches": 1, "seed": 3, "precision": "fp32"}
    settings = {**PLAIN, **given, **options}
    batch = operant.make(
        env, num_envs, backend="cuda", autoreset_mode="SameStep", max_episode_steps=4
    )
    if by_state:
        names = ("hidden", "activation", "shared", "normalize_obs")
        network = {name: settings.pop(name) for name in names if name in settings}
        settings["policy"] = ContinuousActorCritic(
            batch.single_observation_space,
            batch.single_action_space,
            state_dependent_std=True,
            **network,
        )
    ppo = PPO(batch, device=DEVICE, engine=engine, **settings)
    assert ppo.engine.name == engine, ppo.engine_reason
    return ppo


def move(policy: torch.nn.Module, seed: int, size: float = 0.1) -> None:
    """Add noise to all parameters; biases are 0 to begin with, heads almost."""
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter += (size * torch.randn(parameter.shape, generator=random)).to(DEVICE)


def filled(ppo: PPO) -> PPO:
    """Invented samples, so that every clip has some on all its sides."""
    b, random = ppo.engine.buffer, np.random.default_rng(1)
    space, actions = ppo.env.single_observation_space, ppo.env.single_action_space
    seen = [np.asarray(_drawn(space, random)) for _ in range(len(b) + b.num_envs)]
    b.obs.copy_(torch.from_numpy(np.stack(seen)).view(b.obs.shape))
    start = torch.from_numpy(np.asarray(getattr(actions, "start", 0)))
    done = torch.from_numpy(np.stack([np.asarray(_drawn(actions, random)) for _ in range(len(b))]))
    b.action.copy_((done - start).reshape(b.action.shape))
    if ppo.env.rules.mask is not None:
        b.action_mask.copy_(torch.from_numpy(random.random(b.action_mask.shape) < 0.7))
        b.action_mask[..., :1], b.action_mask[..., 3:4], b.action.data[:] = True, True, 0
    head, value = ppo.policy(b.obs[:-1].flatten(0, 1))
    if ppo.env.rules.mask is not None:
        head = masked(head, b.action_mask[:-1].flatten(0, 1))
    log_prob = ppo.distribution.evaluate(head, b.action.flatten(0, 1))[0].detach()

    def noise() -> Tensor:
        return torch.from_numpy(random.normal(size=b.reward.shape).astype(np.float32)).to(DEVICE)

    def sides() -> Tensor:  # of a limit, none of them near it: there, rounding decides
        return 0.4 * noise().sign() * (noise() > 0) + 0.02 * noise()

    b.log_prob.copy_(log_prob.view(b.reward.shape) + sides())
    b.value.copy_(value.detach().view(b.reward.shape) + sides())
    # Something to learn: a gradient of noise alone is what rounding leaves of sums that cancel.
    first = b.action.view(*b.reward.shape, -1)[..., 0].float()
    b.target.copy_(b.value + noise() + 1.0)
    b.advantage.copy_(noise() + first)
    return ppo


def _drawn(space: Any, random: np.random.Generator) -> Any:
    if isinstance(space, Box):
        return random.normal(size=space.shape).astype(np.float32)
    size = 2 if isinstance(space, MultiBinary) else getattr(space, "nvec", getattr(space, "n", 2))
    return random.integers(0, size, space.shape) + np.asarray(getattr(space, "start", 0))


def exact(ppo: PPO) -> tuple[Tensor, Loss]:
    """Gradient ``[P]`` and loss by autograd in float64, of what the buffer holds in float32."""
    policy, b, options = ppo.policy, ppo.engine.buffer, ppo.config.ppo
    assert isinstance(policy, ActorCritic)
    twin = copy.deepcopy(policy).double()
    obs, action, mask = b.flat("obs", "action", "action_mask")
    with torch.no_grad():
        x = policy._inputs(obs).double()  # normalised in float32, as a policy does
    features = twin.actor(x)
    value = twin.critic_head(features if twin.critic is None else twin.critic(x)).squeeze(-1)
    head = twin._head(twin.actor_head(features))
    if mask.shape[1]:
        head = masked(head, mask)
    action = action.double() if action.is_floating_point() else action
    log_prob, entropy = ppo.distribution.evaluate(head, action)
    rest = (x.double() for x in b.flat("log_prob", "advantage", "target", "value"))
    old_log_prob, advantage, target, old_value = rest
    loss = ppo_loss(
        log_prob,
        entropy,
        value,
        old_log_prob,
        normalized(advantage) if options.normalize_advantage else advantage,
        target,
        old_value,
        clip=CLIP,
        value_clip=options.value_clip,
        value_coef=options.value_coef,
        entropy_coef=options.entropy_coef,
    )
    pieces = torch.autograd.grad(loss.total, list(twin.parameters()))
    return torch.cat([piece.flatten() for piece in pieces]), loss


NETWORKS = [
    ("Turns", False, (21,), "tanh", False),
    ("Doors", False, (16, 7), "relu", True),
    ("Knobs", False, (5, 33, 12), "silu", False),
    ("Switches", False, (64, 64), "tanh", True),
    ("Push", False, (33, 12), "silu", True),
    ("Arm", False, (40,), "relu", False),
    ("Arm", True, (16, 7, 20), "tanh", False),
    ("Arm", True, (50,), "silu", True),
    ("Locked", False, (17, 30), "tanh", False),
    ("Wide", False, (30,), "relu", True),
]
if ON_GPU:
    NETWORKS += [
        (("Turns", "Arm", "Wide")[(k + j) % 3], False, hidden, activation, (k + j) % 2 == 1)
        for k, hidden in enumerate([(32,), (64, 64), (128, 128), (64, 64, 32), (64, 128, 32)])
        for j, activation in enumerate(("tanh", "relu", "silu"))
    ]
    NETWORKS += [
        ("Turns", False, (128, 128), "tanh", False),
        ("Push", False, (128, 100), "relu", True),
        ("Arm", True, (72,), "tanh", False),
    ]


def in_bf16(task: str, hidden: tuple[int, ...], activation: str) -> bool:
    """Whether the engine trains a network in bf16."""
    if max(hidden) <= MOST_NEURONS_IN_BF16:
        return True
    return ON_GPU and len(hidden) < 3 and activation != "silu" and task != "Wide"


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(("task", "by_state", "hidden", "activation", "shared"), NETWORKS)
def test_the_gradient_is_autograds(
    monkeypatch: pytest.MonkeyPatch,
    tasks: Tasks,
    task: str,
    by_state: bool,
    hidden: tuple[int, ...],
    activation: str,
    shared: bool,
    precision: str,
) -> None:
    from operant.ppo.engines import gpu_builders

    if precision == "bf16" and not in_bf16(task, hidden, activation):
        pytest.skip("too wide for bf16")
    # Without graphs, and without a rollout: its kernel takes longest to compile.
    monkeypatch.setattr(gpu_builders, "GraphExecutor", gpu_builders.DirectExecutor)
    ppo = made(
        {**tasks, "Locked": Locked, "Wide": Wide}[task],
        num_envs=1000 if ON_GPU else 23,
        by_state=by_state,
        hidden=hidden,
        activation=activation,
        shared=shared,
        normalize_obs=task in ("Arm", "Turns"),
        normalize_advantage=activation != "relu",
        precision=precision,
        **BONUS,
    )
    move(ppo.policy, 1)
    if ppo.policy.obs_normalizer is not None:
        ppo.policy.obs_normalizer.update(
            3 * torch.randn(50, ppo.engine.buffer.obs[0, 0].numel()).to(DEVICE)
        )
    program = ppo.engine.engine.program
    monkeypatch.setattr(program, "collect", program.memory.keys.send)
    ppo.engine.collect(0, 0)
    ppo.engine.advantages()
    filled(ppo)
    before = [p.detach().clone() for p in ppo.policy.parameters()]
    wanted, loss = exact(ppo)
    figures = ppo.engine.update(0, 0.0, CLIP)
    found, tolerance = ppo.optimizer.gradient.double(), PRECISIONS[precision]
    assert torch.linalg.norm(found - wanted) <= tolerance * torch.linalg.norm(wanted)
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
        "grad_norm": torch.linalg.norm(wanted),
    }
    for name, theirs in pairs.items():
        near = pytest.approx(theirs.item(), rel=3 * tolerance, abs=3 * tolerance)
        assert figures[name] == near, name
    assert 0.1 < loss.clipped.item() < 0.9  # or the comparison says little
    assert figures["clip_fraction"] == pytest.approx(loss.clipped.item(), abs=max(0.01, tolerance))
    for parameter, old in zip(ppo.policy.parameters(), before, strict=True):
        assert torch.equal(parameter, old)


ROLLOUTS = [
    ("Turns", False, (21,), "tanh", False),
    ("Knobs", False, (16, 7), "relu", True),
    ("Locked", False, (12, 9, 20), "silu", False),
    ("Arm", False, (30,), "tanh", True),
    ("Arm", True, (16, 7), "silu", False),
]


@pytest.mark.parametrize(("task", "by_state", "hidden", "activation", "shared"), ROLLOUTS)
def test_the_rollout_is_that_of_the_policy(
    tasks: Tasks, task: str, by_state: bool, hidden: tuple[int, ...], activation: str, shared: bool
) -> None:
    options = {"hidden": hidden, "activation": activation, "shared": shared, "by_state": by_state}
    env = {**tasks, "Locked": Locked}[task]
    ours, theirs = (
        made(env, num_envs=37, normalize_obs=task == "Arm", engine=engine, **options)
        for engine in ("fused", "eager")
    )
    for ppo in (ours, theirs):
        move(ppo.policy, 1)
        if ppo.policy.obs_normalizer is not None:
            ppo.policy.obs_normalizer.update(torch.linspace(-1, 2, 50).view(10, 5).to(DEVICE))
    theirs.policy.load_state_dict(ours.policy.state_dict())
    for iteration in range(2):  # the second begins where the first ended
        found = [ppo.engine.collect(iteration, 100 + 6 * iteration) for ppo in (ours, theirs)]
        a, b = ours.engine.buffer, theirs.engine.buffer
        ended = b.terminated | b.truncated
        assert 3 < ended.sum() < 150
        assert (b.truncated & ~b.terminated).any()
        for name in ("action", "terminated", "truncated", "action_mask"):
            assert torch.allclose(getattr(a, name).float(), getattr(b, name).float(), atol=2e-5)
        for name in ("obs", "log_prob", "values", "reward", "final_value"):
            assert torch.allclose(getattr(a, name), getattr(b, name), atol=2e-5), name
        assert torch.allclose(a.final_obs[ended], b.final_obs[ended], atol=1e-5)
        assert torch.allclose(a.report[ended][:, 0], b.report[ended][:, 0], atol=1e-5)
        for name in ("env_index", "step", "returns", "lengths", "truncated"):
            np.testing.assert_allclose(*(getattr(one, name) for one in found), atol=1e-5)
    states = ours.env.get_state(), theirs.env.get_state()
    for name in states[1]:
        np.testing.assert_allclose(states[0][name], states[1][name], atol=2e-5, err_msg=name)


class Watch(Callback):
    def __init__(self) -> None:
        self.metrics: list[dict[str, float]] = []

    def on_update(self, ppo: PPO, metrics: dict[str, float]) -> None:
        self.metrics.append(dict(metrics))


CLOCKS = ("seconds", "sps", "collect_seconds", "advantages_seconds", "update_seconds")


def weights(ppo: PPO) -> Tensor:
    return torch.cat([p.detach().flatten() for p in ppo.policy.parameters()])


@pytest.mark.parametrize("target_kl", [0.0, 1e-5])
def test_training_is_that_of_the_eager_engine(target_kl: float) -> None:
    options = {"epochs": 2, "minibatches": 2, "learning_rate": 1e-2, "hidden": (16, 8)}
    options |= {"normalize_obs": True, "normalize_reward": True, "target_kl": target_kl}
    trained = [made("CartPole-v1", num_envs=21, engine=e, **options) for e in ("fused", "eager")]
    watches = Watch(), Watch()
    for ppo, watch in zip(trained, watches, strict=True):
        ppo.learn(21 * 6 * 2, watch)
    for ours, theirs in zip(*(watch.metrics for watch in watches), strict=True):
        for name in set(ours) - set(CLOCKS):
            assert ours[name] == pytest.approx(theirs[name], rel=2e-3, abs=2e-5), name
    torch.testing.assert_close(*map(weights, trained), rtol=1e-3, atol=1e-5)
    assert trained[0].optimizer.count == trained[1].optimizer.count
    stopped = any(metrics["epochs"] < 2 for metrics in watches[0].metrics)
    assert stopped == (target_kl > 0)


def test_the_same_seed_gives_the_same_bits_and_so_does_a_run_that_goes_on(tmp_path: Any) -> None:
    options = {"num_envs": 8, "minibatches": 2, "hidden": (8,)}
    options["precision"] = "auto" if ON_GPU else "fp32"
    size = 8 * 6
    whole, again = (made("Pendulum-v1", **options).learn(2 * size) for _ in range(2))
    assert torch.equal(weights(whole), weights(again))
    half = made("Pendulum-v1", **options)
    half.config = half.config.replaced({"run.total_steps": 2 * size})
    half.learn(2 * size, _Until(size))
    half.save(tmp_path)
    batch = operant.make(
        "Pendulum-v1", 8, backend="cuda", autoreset_mode="SameStep", max_episode_steps=4
    )
    other = PPO.load(tmp_path, batch, device=DEVICE)
    assert other.engine.name == "fused"
    other.learn(2 * size)
    assert torch.equal(weights(whole), weights(other))


class _Until(Callback):
    def __init__(self, steps: int) -> None:
        self.steps = steps

    def on_update(self, ppo: PPO, metrics: dict[str, float]) -> None:
        if ppo.steps >= self.steps:
            ppo.stop()


@pytest.mark.parametrize(("gift", "what"), [(0, "observation"), (1, "reward")])
def test_what_is_not_finite_is_noticed_and_nothing_is_moved(gift: int, what: str) -> None:
    batch = operant.make(Leaky, 5, backend="cuda", autoreset_mode="SameStep", gift=gift)
    ppo = PPO(batch, device=DEVICE, engine="fused", num_steps=6, epochs=1, minibatches=1)
    assert ppo.engine.name == "fused", ppo.engine_reason
    before = weights(ppo)
    with pytest.raises(NonFiniteError, match=f"the {what} of environment 0 is .*nan"):
        ppo.learn(5 * 6)
    assert torch.equal(weights(ppo), before)


def seen(inputs: int) -> type[operant.Env]:
    """An environment that shows so many numbers."""

    class Seen(Wide):
        observation_space = Box(-np.inf, np.inf, (inputs,))

        def observe(state):
            return tuple(state.x * (k - 20) for k in range(inputs))

    return Seen


def test_logits_that_are_not_numbers_are_noticed() -> None:
    ppo = made("CartPole-v1", num_envs=5, hidden=(8,))
    with torch.no_grad():
        ppo.policy.actor_head.bias[:] = float("nan")
    before = weights(ppo)
    with pytest.raises(NonFiniteError, match=r"the log-probability of environment 0 is .*nan"):
        ppo.learn(5 * 6)
    assert int(ppo.engine.buffer.action.max()) <= 1
    assert torch.equal(weights(ppo).nan_to_num(), before.nan_to_num())


class _Replace(Callback):
    def on_rollout(self, ppo: PPO, buffer: Any) -> None:
        for parameter in ppo.policy.parameters():
            parameter.data = parameter.data.clone()


def test_tensors_replaced_before_the_update_are_not_trained_in_silence() -> None:
    ppo = made("CartPole-v1", num_envs=5, hidden=(8,))
    before = weights(ppo)
    with pytest.raises(RuntimeError, match="replaced after its rollout was collected"):
        ppo.learn(5 * 6, _Replace())
    assert torch.equal(weights(ppo), before)
    ppo.learn(5 * 6)
    assert not torch.equal(weights(ppo), before)


def _assigned(policy: Any) -> None:
    state = {name: tensor.clone() for name, tensor in policy.state_dict().items()}
    policy.load_state_dict(state, assign=True)


def _transposed(policy: Any) -> None:
    weight = policy.actor[2].weight
    weight.data = weight.data.t()


def _rectified(policy: Any) -> None:
    policy.actor[1] = torch.nn.ReLU()


CHANGES = {
    "parameter": lambda policy: policy.half(),
    "is now torch.float64": lambda policy: policy.actor_head.double(),
    "parameters were replaced": _assigned,
    "no longer contiguous": _transposed,
    "layers were replaced": _rectified,
    "was frozen": lambda policy: policy.critic.requires_grad_(False),
    "hooks": lambda policy: policy.actor.register_forward_hook(lambda *_: None),
}


@pytest.mark.parametrize("said", CHANGES)
def test_a_policy_that_is_no_longer_what_it_was(said: str) -> None:
    ppo = made("CartPole-v1", num_envs=5, hidden=(8, 8)).learn(5 * 6)
    CHANGES[said](ppo.policy)
    with pytest.raises(ValueError, match=said):
        ppo.learn(2 * 5 * 6)
    assert ppo.iteration == 1


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"hidden": (129,)}, "128 neurons at most, not 129"),
        ({"hidden": (8, 8, 8, 8)}, "1 to 3 hidden layers, not 4"),
        ({"precision": "fp16"}, "bf16, tf32 or fp32, not fp16"),
        ({"precision": "bf16", "hidden": (65, 8, 8)}, "in bf16 its layers have 64 neurons at most"),
        ({"precision": "bf16", "env": 64}, "in bf16 its networks have 63 inputs at most, not 64"),
        ({"env": 65}, "64 inputs at most, not 65"),
    ],
)
def test_what_it_cannot_do_goes_to_another_engine(options: dict[str, Any], reason: str) -> None:
    inputs, options = options.get("env", 4), {k: v for k, v in options.items() if k != "env"}
    env = "CartPole-v1" if inputs == 4 else seen(inputs)
    batch = operant.make(env, 4, backend="cuda", autoreset_mode="SameStep")
    ppo = PPO(batch, device=DEVICE, engine="fused", num_steps=4, minibatches=1, **options)
    assert ppo.engine.name == ("graph" if ON_GPU else "eager")
    found = why_not_fused_on_gpu(ppo.engine.job)
    assert found is not None
    assert reason in found


def test_what_callbacks_change_before_an_update_counts() -> None:
    class Meddles(Callback):
        def on_rollout(self, ppo: PPO, buffer: Any) -> None:
            move(ppo.policy, ppo.iteration, 0.05)
            ppo.policy.obs_normalizer.update(3 * torch.ones(50, 4, device=DEVICE))
            ppo.optimizer.count += 100

    given = {"normalize_obs": True, "hidden": (8,), "shared": True, "num_steps": 2}
    ours, theirs = (made("CartPole-v1", engine=name, **given) for name in ("fused", "eager"))
    for ppo in (ours, theirs):
        ppo.learn(2 * 7 * 2, Meddles())
        assert ppo.optimizer.count == 2 * 101
    for a, b in zip(ours.policy.parameters(), theirs.policy.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("env", ["CartPole-v1", Locked])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_what_says_how_many_environments_fit_counts_what_is_taken(env: Any, precision: str) -> None:
    ppo = made(env, num_envs=1000, precision=precision)
    engine, b = ppo.engine.engine, ppo.engine.buffer
    tensors = [b.obs, b.action, b.action_mask, b.log_prob, b.reward, b.terminated, b.truncated]
    tensors += [b.final_obs, b.report, b.advantage, b.target, b.values, b._final_values]
    assert b.nbytes == sum(tensor.nbytes for tensor in tensors)
    copies = engine.backup.copies[len(trained_tensors(engine.job)) :]
    taken = sum(
        x.nbytes for x in (*tensors, *copies, engine.memory.carry, engine.program.arrays.samples)
    )
    assert engine.memory.bytes_per_env == taken // 1000
