"""PPO on several ranks, here threads of one process: the same bits as on one."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from operant import PPO
from operant.training.guard import NonFiniteError
from operant.training.ranks import RankError, joined_as
from tests.training.thread_group import ThreadGroup, together, trainers

ENGINES = ["eager", "fused"]
SMALL: dict[str, Any] = {
    "shards": 4,
    "num_envs": 16,
    "num_steps": 40,
    "minibatches": 4,
    "epochs": 3,
    "target_kl": 0.01,
    "seed": 3,
    "device": "cpu",
    "max_episode_steps": 25,
    "normalize_obs": True,
    "normalize_reward": True,
    "learning_rate_schedule": "constant",
    "clip_schedule": "constant",
}
ITERATION = 16 * 40


def cartpole() -> gymnasium.Env:
    return gymnasium.make("CartPole-v1")


ENVS = {
    "ours": ("CartPole-v1", {}),
    "continuous": ("Pendulum-v1", {"value_clip": 0.2, "entropy_coef": 0.0}),
    "gymnasium": (cartpole, {"backend": "serial"}),
}


def made(env: Any, size: int, **options: Any) -> list[PPO]:
    return trainers(size, lambda: PPO(env, **{**SMALL, **options}))


def learn(ranks: list[PPO], iterations: int) -> list[dict[str, float]]:
    """Train all ranks; the figures of each iteration, as rank 0 has them."""
    from operant.training.callbacks import Callback

    class Notes(Callback):
        def on_update(self, trainer: PPO, metrics: dict[str, float]) -> None:
            rows.append({k: v for k, v in metrics.items() if k != "sps" and "seconds" not in k})

    rows: list[dict[str, float]] = []
    total = iterations * ITERATION
    calls = [lambda p=p: p.learn(total, progress=False) for p in ranks[1:]]
    together([lambda: ranks[0].learn(total, Notes(), progress=False), *calls])
    return rows


def weights(ppo: PPO) -> dict[str, torch.Tensor]:
    return {**ppo.policy.state_dict(), **ppo.optimizer_tensors()}


def assert_same(one: PPO, two: PPO) -> None:
    assert (one.steps, one.episodes) == (two.steps, two.episodes)
    assert list(one.recent) == list(two.recent)
    other = weights(two)
    for name, tensor in weights(one).items():
        assert torch.equal(tensor, other[name]), name


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ENVS)
def test_ranks_change_no_bit(name: str, engine: str) -> None:
    env, options = ENVS[name]
    alone = made(env, 1, engine=engine, **options)
    figures = learn(alone, 3)
    assert alone[0].engine_name == engine
    assert alone[0].episodes > 0
    assert all(1 <= row["epochs"] <= 3 for row in figures)
    for size in (2, 4):
        ranks = made(env, size, engine=engine, **options)
        found = learn(ranks, 3)
        for ppo in ranks:
            assert_same(ppo, alone[0])
        for row, wanted in zip(found, figures, strict=True):
            assert row.pop("ranks") == size
            np.testing.assert_equal(row, wanted)


@pytest.mark.parametrize("engine", ENGINES)
def test_target_kl_stops_all_ranks_together(engine: str) -> None:
    strict = learn(made("CartPole-v1", 2, engine=engine, target_kl=1e-9), 1)
    assert strict[0]["epochs"] == 1
    assert learn(made("CartPole-v1", 2, engine=engine, target_kl=0), 1)[0]["epochs"] == 3


@pytest.mark.parametrize("engine", ENGINES)
def test_other_shards_have_other_bits_and_the_same_data(engine: str) -> None:
    """The first rollout is the same: environments draw their own random numbers."""
    one, four = made("CartPole-v1", 1, engine=engine, shards=1)[0], made("CartPole-v1", 1)[0]
    for ppo in (one, four):
        with torch.no_grad():
            for parameter in ppo.policy.parameters():
                parameter.fill_(0.01)
        ppo.engine.collect(0, 0)
    assert torch.equal(one.buffer.obs, four.buffer.obs)
    learn([one], 1)
    learn([four], 1)
    differences = [
        (tensor - weights(four)[name]).abs().max().item()
        for name, tensor in weights(one).items()
        if tensor.numel()
    ]
    assert max(differences) > 0


@pytest.mark.parametrize("engine", ENGINES)
def test_a_minibatch_has_the_gradient_of_all_its_samples(engine: str) -> None:
    """Against automatic differentiation in float64 on the whole minibatch."""
    options = {"minibatches": 1, "epochs": 1, "max_grad_norm": 0.0, "normalize_reward": False}
    ppo = made("CartPole-v1", 1, engine=engine, **options)[0]
    ppo.engine.collect(0, 0)
    ppo.engine.advantages()
    buffer = ppo.buffer
    obs, action, old, target, advantage = (
        x.clone() for x in buffer.flat("obs", "action", "log_prob", "target", "advantage")
    )
    policy = deepcopy(ppo.policy).double()  # the update changes it
    ppo.engine.update(0, 1e-3, 0.2)
    found = ppo.optimizer.exp_avg / 0.1  # after one step
    inputs = policy.obs_normalizer(obs.double())
    head = policy.actor_head(policy.actor(inputs))
    now = policy.critic_head(policy.critic(inputs)).squeeze(1)
    log_prob, entropy = ppo.distribution.evaluate(head, action)
    advantage = advantage.double()
    scaled = (advantage - advantage.mean()) / (advantage.std(correction=0) + 1e-8)
    ratio = (log_prob - old.double()).exp()
    gain = torch.minimum(ratio * scaled, ratio.clamp(0.8, 1.2) * scaled).mean()
    config = ppo.config.ppo
    loss = -gain + config.value_coef * 0.5 * (now - target.double()).square().mean()
    loss = loss - config.entropy_coef * entropy.mean()
    pieces = torch.autograd.grad(loss, list(policy.parameters()))
    wanted = torch.cat([piece.flatten() for piece in pieces])
    torch.testing.assert_close(found.double(), wanted, rtol=2e-4, atol=2e-6 * wanted.norm().item())


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["ours", "gymnasium"])
def test_a_checkpoint_goes_on_with_other_ranks(name: str, engine: str, tmp_path: Path) -> None:
    env, options = ENVS[name]
    whole = made(env, 2, engine=engine, **options)
    learn(whole, 4)
    first = made(env, 4, engine=engine, **options)
    learn(first, 2)
    together([lambda p=p: p.save(tmp_path) for p in first])
    for size in (1, 2):
        given = None if isinstance(env, str) else env
        rest = trainers(size, lambda given=given: PPO.load(tmp_path, given, engine=engine))
        assert rest[0].config.run.shards == 4
        learn(rest, 4)
        assert_same(rest[0], whole[0])


def test_without_a_number_of_shards_each_rank_has_one() -> None:
    assert made("CartPole-v1", 2, shards=0)[1].config.run.shards == 2
    assert made("CartPole-v1", 1, shards=0)[0].config.run.shards == 0


def test_a_rank_with_other_weights_is_refused() -> None:
    ranks = made("CartPole-v1", 2)
    with torch.no_grad():
        next(ranks[1].policy.parameters()).add_(1)
    with pytest.raises(RankError, match=r"rank 1 has the weights .*, and rank 0 has"):
        learn(ranks, 1)


def test_a_rank_with_another_configuration_is_refused() -> None:
    made_ranks = []
    for group, clip in zip(ThreadGroup.all_of(2), (0.2, 0.3), strict=True):
        with joined_as(group):
            made_ranks.append(PPO("CartPole-v1", **SMALL, clip=clip))
    with pytest.raises(RankError, match=r"rank 1 has ppo.clip 0.3, and rank 0 has 0.2"):
        learn(made_ranks, 1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"num_envs": 18}, "cannot be cut into 4 shards"),
        ({"minibatches": 200}, "each of 4 shards has only 160 samples"),
        ({"shards": 3, "num_envs": 18}, "2 ranks cannot share evenly"),
        ({"intrinsic": "rnd"}, r"has 'intrinsic'; set intrinsic.kind=none"),
        ({"value_head": "popart"}, r"has 'popart'; set policy.value_head=linear"),
    ],
)
def test_what_ranks_cannot_do_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        made("CartPole-v1", 2, **options)


def test_a_vector_environment_of_its_own_is_refused() -> None:
    options = {"backend": "vector", "max_episode_steps": 0}
    with pytest.raises(ValueError, match="seeded one by one, and a vector environment"):
        made("gymnasium:CartPole-v1", 2, **options)


def test_what_one_process_trained_does_not_go_on_as_two_shards(tmp_path: Path) -> None:
    made("CartPole-v1", 1, shards=0)[0].save(tmp_path)
    with pytest.raises(ValueError, match="as one shard, which 2 ranks cannot share"):
        trainers(2, lambda: PPO.load(tmp_path))


def test_evaluations_are_due_at_the_same_steps() -> None:
    from operant.training.evaluator import Evaluator

    due = []
    for size in (1, 2):
        ppo = made("CartPole-v1", size, eval_every=3 * ITERATION // 2 + 7)[0]
        steps = range(ITERATION, 40 * ITERATION, ITERATION)
        due.append([at for at in steps if Evaluator(ppo)._due(ppo, at)])
    assert due[0] == due[1]
    assert 20 < len(due[0]) < 39


def test_a_configuration_without_shards_changes_none() -> None:
    from operant.training.resume import _check_changes

    config, changes = made("CartPole-v1", 1)[0].config, {"run.shards": 0, "run.keep": 4}
    _check_changes(config, changes)
    assert changes == {"run.keep": 4}
    with pytest.raises(ValueError, match=r"run\.shards cannot change"):
        _check_changes(config, {"run.shards": 2})


def test_a_batch_is_no_block_of_a_larger_one() -> None:
    import operant

    batch = operant.make("CartPole-v1", 16, autoreset_mode="SameStep", backend="cpu")
    with pytest.raises(ValueError, match="what makes them, and not a batch"):
        trainers(2, lambda: PPO(batch, num_steps=40))


def test_a_rank_that_meets_nan_ends_the_others() -> None:
    ranks = made("CartPole-v1", 2)
    learn(ranks, 1)
    state = ranks[1].env.get_state()
    state["state.x"][5] = np.nan
    ranks[1].env.set_state(state)
    with pytest.raises(NonFiniteError, match="observation of environment 13 is not finite"):
        learn(ranks, 2)
