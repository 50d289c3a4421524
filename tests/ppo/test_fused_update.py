"""Updates of the fused engine against plain PyTorch on the same minibatches; and determinism."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numba
import numpy as np
import pytest
import torch
from torch import Tensor, nn

import operant
from operant.models import PPO
from operant.ppo.kernels.cpu.shuffle import bits_for, shuffle_keys, shuffled_index
from operant.training.adam import Adam
from operant.training.callbacks import Callback

Tasks = dict[str, type[operant.Env]]
# PPO without what the defaults add to it: nothing normalised, no entropy, one learning rate.
PLAIN: dict[str, Any] = {
    "minibatches": 4,
    "normalize_obs": False,
    "normalize_reward": False,
    "entropy_coef": 0.0,
    "learning_rate": 2.5e-4,
    "learning_rate_schedule": "constant",
}
TIMES = ("seconds", "sps", "collect_seconds", "advantages_seconds", "update_seconds")


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def made(env: Any, **options: Any) -> PPO:
    settings = {"num_envs": 13, "num_steps": 17, "epochs": 2, "minibatches": 4, "seed": 2}
    ppo = PPO(
        env, engine="fused", **{**PLAIN, **settings, "hidden": (20, 20), "threads": 2, **options}
    )
    assert ppo.engine.name == "fused", ppo.engine_reason
    return ppo


def collected(env: Any, **options: Any) -> PPO:
    """After two iterations, so that the optimiser has moments and episodes are under way."""
    ppo = made(env, **options)
    size = len(ppo.engine.buffer)
    ppo.learn(2 * size)
    ppo.engine.collect(ppo.iteration, ppo.steps // ppo.env.num_envs)
    ppo.engine.advantages()
    return ppo


def parameters(ppo: PPO) -> Tensor:
    return torch.cat([p.detach().flatten() for p in ppo.policy.parameters()])


@numba.njit
def _fill(out, keys):  # type: ignore[no-untyped-def]
    for k in range(out.size):
        out[k] = shuffled_index(k, out.size, bits_for(out.size), keys)


def order(count: int, seed: int, iteration: int, epoch: int) -> Tensor:
    """The engine's own order of samples."""
    out = np.empty(count, np.int64)
    _fill(out, shuffle_keys(seed, iteration, epoch + 1)[epoch])
    return torch.from_numpy(out)


def plain_update(ppo: PPO, rate: float, clip: float) -> tuple[nn.Module, list[dict[str, float]]]:
    """With autograd, `torch.optim.Adam` and no tiles: the policy afterwards, figures by minibatch.

    The policy in here is a copy; the optimiser's moments are those of `ppo` before its update.
    """
    options, buffer, policy = ppo.config.ppo, ppo.engine.buffer, copy.deepcopy(ppo.policy)
    optimizer = torch.optim.Adam(policy.parameters(), lr=rate, eps=options.adam_eps)
    sizes, adam = ppo.optimizer.sizes, ppo.optimizer
    for parameter, m, v in zip(
        policy.parameters(), adam.exp_avg.split(sizes), adam.exp_avg_sq.split(sizes), strict=True
    ):
        optimizer.state[parameter] = {
            "step": torch.tensor(float(adam.count)),
            "exp_avg": m.clone().view_as(parameter),
            "exp_avg_sq": v.clone().view_as(parameter),
        }
    obs, action = buffer.flat("obs", "action")
    rest = buffer.flat("log_prob", "advantage", "target", "value")
    figures = []
    for epoch in range(options.epochs):
        places = order(len(buffer), ppo.config.run.seed, ppo.iteration, epoch)
        for index in places.tensor_split(options.minibatches):
            old_log_prob, advantage, target, old_value = (x[index] for x in rest)
            if options.normalize_advantage:
                deviation = advantage.std(correction=0)
                advantage = (advantage - advantage.mean()) / (deviation + 1e-8)
            head, value = policy(obs[index])
            log_prob, entropy = ppo.distribution.evaluate(head, action[index])
            ratio = torch.exp(log_prob - old_log_prob)
            gain = torch.min(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)
            error = (value - target) ** 2
            if options.value_clip:
                moved = (value - old_value).clamp(-options.value_clip, options.value_clip)
                error = torch.max(error, (old_value + moved - target) ** 2)
            value_loss = 0.5 * error.mean()
            loss = -gain.mean() + options.value_coef * value_loss
            loss = loss - options.entropy_coef * entropy.mean()
            optimizer.zero_grad()
            loss.backward()
            most = options.max_grad_norm or float("inf")
            norm = nn.utils.clip_grad_norm_(policy.parameters(), most)
            optimizer.step()
            figures.append(
                {
                    "policy_loss": -gain.mean().item(),
                    "value_loss": value_loss.item(),
                    "entropy": entropy.mean().item(),
                    "kl": (ratio.double() - 1 - (log_prob - old_log_prob).double()).mean().item(),
                    "clip_fraction": ((ratio - 1).abs() > clip).float().mean().item(),
                    "grad_norm": norm.item(),
                }
            )
    return policy, figures


# Against plain PyTorch ----------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("task", "options"),
    [
        ("Turns", {"entropy_coef": 0.02}),
        ("Turns", {"value_clip": 0.05, "shared": True, "normalize_advantage": False}),
        ("Doors", {"num_envs": 65, "minibatches": 2, "activation": "relu", "hidden": (30,)}),
        ("Knobs", {"num_envs": 65, "max_grad_norm": 0.01, "minibatches": 3}),
        ("Switches", {"normalize_obs": True, "normalize_reward": True}),
        ("Push", {"entropy_coef": 0.01, "max_grad_norm": 0.0, "hidden": (7, 50, 9)}),
        ("Arm", {"num_envs": 65, "value_coef": 2.0, "activation": "silu", "adam_eps": 1e-8}),
        ("Turns", {"num_envs": 1, "num_steps": 7, "minibatches": 7, "epochs": 1}),
        ("Turns", {"num_envs": 3, "num_steps": 7, "minibatches": 5}),
    ],
    ids=str,
)
def test_an_update_is_plain_ppo(tasks: Tasks, task: str, options: dict[str, Any]) -> None:
    ppo = collected(tasks[task], **options)
    before, count = parameters(ppo), ppo.optimizer.count
    policy, rows = plain_update(ppo, 3e-3, 0.2)
    figures = ppo.engine.update(ppo.iteration, 3e-3, 0.2)
    wanted = torch.cat([p.detach().flatten() for p in policy.parameters()])
    assert (wanted - before).abs().max() > 1e-3
    torch.testing.assert_close(parameters(ppo), wanted, rtol=2e-4, atol=2e-5)
    assert ppo.optimizer.count == count + len(rows)
    for name in rows[0]:
        mean = np.mean([row[name] for row in rows])
        assert figures[name] == pytest.approx(mean, rel=1e-3, abs=1e-5), name
    assert figures["epochs"] == ppo.config.ppo.epochs


@pytest.mark.parametrize("clip", [0.05, 0.5])
def test_an_update_clips_as_it_is_told(tasks: Tasks, clip: float) -> None:
    ppo = collected(tasks["Turns"], epochs=4)
    policy, rows = plain_update(ppo, 1e-2, clip)
    figures = ppo.engine.update(ppo.iteration, 1e-2, clip)
    wanted = torch.cat([p.detach().flatten() for p in policy.parameters()])
    torch.testing.assert_close(parameters(ppo), wanted, rtol=2e-4, atol=2e-5)
    share = np.mean([row["clip_fraction"] for row in rows])
    assert share > 0.01
    assert figures["clip_fraction"] == pytest.approx(share, abs=1e-5)


def test_a_schedule_of_the_clip_range(tasks: Tasks) -> None:
    options = {"epochs": 6, "clip": 0.3, "learning_rate": 1e-2}
    scheduled, constant, by_hand = (
        made(tasks["Turns"], **options, clip_schedule=schedule)
        for schedule in ("linear", "constant", "constant")
    )
    total = 3 * len(by_hand.engine.buffer)
    for ppo in (scheduled, constant):
        ppo.learn(total)
    for iteration, clip in enumerate((0.3, 0.2, 0.1)):
        by_hand.engine.collect(iteration, 17 * iteration)
        by_hand.engine.advantages()
        by_hand.engine.update(iteration, 1e-2, clip)
    torch.testing.assert_close(parameters(scheduled), parameters(by_hand), rtol=1e-6, atol=1e-7)
    assert (parameters(scheduled) - parameters(constant)).abs().max() > 1e-4


def test_one_step_is_adams(tasks: Tasks) -> None:
    """The very gradient that the engine found, put through `operant.training.adam`."""
    ppo = collected(tasks["Arm"], epochs=1, minibatches=1)
    twin = copy.deepcopy(ppo.policy)
    adam = Adam(twin.parameters(), ppo.config.ppo.adam_eps)
    adam.exp_avg.copy_(ppo.optimizer.exp_avg)
    adam.exp_avg_sq.copy_(ppo.optimizer.exp_avg_sq)
    adam.count = ppo.optimizer.count
    before = parameters(ppo)
    ppo.engine.update(ppo.iteration, 1e-2, 0.2)
    adam.gradient.copy_(ppo.optimizer.gradient)
    adam.step(1e-2)
    assert ppo.optimizer.count == adam.count
    torch.testing.assert_close(ppo.optimizer.exp_avg, adam.exp_avg, rtol=1e-5, atol=1e-9)
    torch.testing.assert_close(ppo.optimizer.exp_avg_sq, adam.exp_avg_sq, rtol=1e-5, atol=1e-12)
    moved = parameters(ppo) - before
    wanted = torch.cat([p.detach().flatten() for p in twin.parameters()]) - before
    assert wanted.abs().max() > 1e-3
    torch.testing.assert_close(moved, wanted, rtol=1e-4, atol=1e-6)


def test_gradients_are_scaled_down_not_up(tasks: Tasks) -> None:
    options = {"epochs": 1, "minibatches": 1}
    norms, gradients = [], []
    for limit in (0.0, 0.05, 1e6):
        ppo = made(tasks["Turns"], max_grad_norm=limit, **options)
        ppo.engine.collect(0, 0)
        ppo.engine.advantages()
        norms.append(ppo.engine.update(0, 1e-3, 0.2)["grad_norm"])
        gradients.append(ppo.optimizer.gradient.clone())
    assert norms[0] == norms[1] == norms[2] > 0.1  # reported as it was before
    assert torch.equal(gradients[0], gradients[2])
    assert gradients[1].norm().item() == pytest.approx(0.05, rel=1e-4)
    torch.testing.assert_close(gradients[1], gradients[0] * (0.05 / norms[0]), rtol=1e-4, atol=1e-9)


def test_a_rate_of_0_moves_nothing(tasks: Tasks) -> None:
    ppo = collected(tasks["Turns"])
    before, moments = parameters(ppo), ppo.optimizer.exp_avg.clone()
    ppo.engine.update(ppo.iteration, 0.0, 0.2)
    assert torch.equal(parameters(ppo), before)
    assert not torch.equal(ppo.optimizer.exp_avg, moments)


def test_the_target_ends_the_passes_after_the_one_that_crosses_it(tasks: Tasks) -> None:
    ppo = collected(tasks["Turns"], epochs=5)
    _, rows = plain_update(ppo, 3e-3, 0.2)
    kl = [np.mean([row["kl"] for row in rows[k : k + 4]]) for k in range(0, 20, 4)]
    assert kl == sorted(kl)
    for stop in (0, 1, 3):
        # `learn` must not be stopped early too, so only the last update has the target.
        one = collected(tasks["Turns"], epochs=5)
        target = 0.5 * (kl[stop] + (kl[stop - 1] if stop else 0.0))
        set_option(one, target_kl=float(target))
        assert one.engine.update(one.iteration, 3e-3, 0.2)["epochs"] == stop + 1
        other = collected(tasks["Turns"], epochs=5)
        set_option(other, epochs=stop + 1)
        other.engine.update(other.iteration, 3e-3, 0.2)
        assert torch.equal(parameters(one), parameters(other))


def test_the_target_is_for_the_mean_of_a_pass(tasks: Tasks) -> None:
    """Not for its last minibatch, nor for its largest."""
    _, rows = plain_update(collected(tasks["Turns"], epochs=5), 3e-3, 0.2)
    kl = np.array([row["kl"] for row in rows]).reshape(5, 4)
    mean, last = kl.mean(1), kl[:, -1]
    for low, high in zip(np.minimum(mean, last), np.maximum(mean, last), strict=True):
        target = float(0.5 * (low + high))
        stops = [int((x > target).argmax()) if (x > target).any() else 4 for x in (mean, last)]
        ppo = collected(tasks["Turns"], epochs=5)
        set_option(ppo, target_kl=target)
        assert ppo.engine.update(ppo.iteration, 3e-3, 0.2)["epochs"] == stops[0] + 1
        assert stops[0] != stops[1] or target > mean[4]


def set_option(ppo: PPO, **options: Any) -> None:
    """Change what the engine reads from the configuration in each update."""
    for name, value in options.items():
        object.__setattr__(ppo.config.ppo, name, value)


def test_normalisers_learn_from_the_rollouts_after_training_on_them(tasks: Tasks) -> None:
    class Keep(Callback):
        def __init__(self) -> None:
            self.seen: list[Tensor] = []

        def on_rollout(self, ppo: PPO, buffer: Any) -> None:
            count = sum(len(obs) for obs in self.seen)
            assert ppo.policy.obs_normalizer.count == count
            self.seen.append(buffer.obs[:-1].flatten(0, 1).flatten(1).double())

    keep = Keep()
    ppo = made(tasks["Switches"], normalize_obs=True, normalize_reward=True)
    ppo.learn(2 * len(ppo.engine.buffer), keep)
    seen, normalizer = torch.cat(keep.seen), ppo.policy.obs_normalizer
    assert normalizer.count == ppo.policy.return_normalizer.count == len(seen)
    torch.testing.assert_close(normalizer.mean, seen.mean(0))
    torch.testing.assert_close(normalizer.variance, seen.var(0, correction=0))


def test_another_iteration_or_seed_shuffles_otherwise(tasks: Tasks) -> None:
    found = []
    for iteration in (0, 0, 1):
        ppo = made(tasks["Turns"])
        ppo.engine.collect(0, 0)
        ppo.engine.advantages()
        ppo.engine.update(iteration, 1e-3, 0.2)
        found.append(parameters(ppo))
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


# Determinism --------------------------------------------------------------------------------------
class Record(Callback):
    def __init__(self) -> None:
        self.metrics: list[dict[str, float]] = []

    def on_update(self, ppo: PPO, metrics: dict[str, float]) -> None:
        self.metrics.append({k: v for k, v in metrics.items() if k not in TIMES})


def trained(env: Any, **options: Any) -> tuple[PPO, list[dict[str, float]]]:
    settings = {"num_envs": 130, "num_steps": 16, "minibatches": 2, "learning_rate": 1e-3}
    ppo, record = made(env, **{**settings, **options}), Record()
    ppo.learn(3 * len(ppo.engine.buffer), record)
    return ppo, record.metrics


def assert_same(one: tuple[PPO, Any], other: tuple[PPO, Any]) -> None:
    a, b = one[0], other[0]
    assert torch.equal(parameters(a), parameters(b))
    for name in ("exp_avg", "exp_avg_sq", "gradient"):
        assert torch.equal(getattr(a.optimizer, name), getattr(b.optimizer, name)), name
    assert one[1] == other[1]
    for name, array in a.env.get_state().items():
        np.testing.assert_array_equal(array, b.env.get_state()[name])


@pytest.mark.parametrize("task", ["Turns", "Knobs", "Arm"])
def test_threads_change_no_bit_and_a_seed_all(tasks: Tasks, task: str) -> None:
    options = {"normalize_obs": task != "Knobs", "normalize_reward": True}
    one = trained(tasks[task], threads=1, **options)
    for threads in (1, 2, 3):
        assert_same(one, trained(tasks[task], threads=threads, **options))
    other = trained(tasks[task], threads=1, seed=3, **options)
    assert not torch.equal(parameters(one[0]), parameters(other[0]))
    assert one[1] != other[1]


def test_it_learns(tasks: Tasks) -> None:
    """A point that is to be kept from falling: episodes get longer."""
    record = Record()
    options = {"num_envs": 64, "num_steps": 32, "max_episode_steps": 100, "epochs": 4}
    ppo = made(tasks["Turns"], learning_rate=3e-3, **options)
    ppo.learn(20 * 64 * 32, record)
    assert record.metrics[-1]["mean_length"] > 2 * record.metrics[0]["mean_length"]
