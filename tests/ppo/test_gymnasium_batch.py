"""Training on environments that operant did not compile, whose observations are trees."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode

from operant.models import PPO
from operant.spaces.rows import ObsLayout
from operant.training.evaluate import evaluate
from operant.training.evaluator import Evaluator
from operant.training.guard import NonFiniteError
from operant.vector.batch import StepMemory, compiled_batch, is_batch

from .gymnasium_batch import GymnasiumBatch, Lamps

GAMMA = 0.5
SMALL = {"num_steps": 8, "minibatches": 2, "epochs": 2, "hidden": [8], "seed": 2, "device": "cpu"}


class NoState(Lamps):
    """As most environments are."""

    get_state = set_state = property()  # type: ignore[assignment]  # hasattr says no


def trainer(env: type[Lamps] = Lamps, num_envs: int = 4, **options: Any) -> PPO:
    return PPO(GymnasiumBatch(env, num_envs), **(SMALL | options))


def weights(ppo: PPO) -> np.ndarray:
    return torch.cat([p.detach().flatten() for p in ppo.policy.parameters()]).numpy()


@pytest.fixture(scope="module")
def learned() -> PPO:
    ppo = PPO(
        GymnasiumBatch(Lamps, 16),
        num_steps=32,
        gamma=GAMMA,
        learning_rate=4e-3,
        epochs=6,
        entropy_coef=0.02,
        activation="relu",
        normalize_reward=False,
        seed=1,
        device="cpu",
    )
    return ppo.learn(16 * 32 * 30)


def test_it_learns_what_every_leaf_says(learned: PPO) -> None:
    assert learned.engine.name == "eager"
    found = evaluate(learned.agent, learned.env, learned.config.env, episodes=40)
    assert found.mean_return == 4.0
    assert (found.lengths == 4).all()


def test_values_look_beyond_the_time_limit(learned: PPO) -> None:
    """1 a step for ever is worth 1 / (1 - gamma). If the end of an episode, or the first
    observation of the next in its place, were taken for its last one, or no value followed it, the
    step before it would be worth 1."""
    buffer = learned.engine.buffer
    late = buffer.leaves(buffer.arrays["obs"])["clock"][:-1, :, 1] == 0.75
    assert buffer.arrays["value"][late].mean() == pytest.approx(1 / (1 - GAMMA), abs=0.1)
    finals = buffer.leaves(buffer.final_obs)["clock"]
    assert len(finals) == 16 * 8
    assert (finals[:, 1] == 1.0).all()
    assert np.unique(finals[:, 0]).tolist() == [-1.0, 1.0]


def test_the_rollout_holds_every_leaf_as_it_is(learned: PPO) -> None:
    buffer = learned.engine.buffer
    leaves = buffer.leaves(buffer.arrays["obs"])
    assert {name: (x.dtype.name, x.shape) for name, x in leaves.items()} == {
        "clock": ("float32", (33, 16, 2)),
        "goal": ("int64", (33, 16)),
        "picture": ("uint8", (33, 16, 2, 2)),
    }
    assert np.unique(leaves["goal"]).tolist() == [1, 2, 3]
    assert np.unique(leaves["picture"]).tolist() == [20, 200]
    right = (
        leaves["goal"] - 1 + (leaves["clock"][..., 0] > 0) + (leaves["picture"][..., 0, 0] > 99)
    ) % 3
    rewarded = buffer.arrays["action"] == right[:-1]
    np.testing.assert_array_equal(rewarded, buffer.arrays["reward"])


def test_predictions_of_one_and_of_many(learned: PPO) -> None:
    env = Lamps()
    seen = [env.reset(seed=k)[0] for k in range(12)]
    one = [int(learned.predict(obs)) for obs in seen]
    many = learned.predict({name: np.stack([obs[name] for obs in seen]) for name in seen[0]})
    assert one == many.tolist()
    assert len(set(one)) == 3
    assert learned.predict(seen[0], deterministic=False).shape == ()
    with pytest.raises(ValueError, match="must be of Dict"):
        learned.predict({"goal": 1})


def test_final_observations_are_not_the_next_episodes() -> None:
    batch = GymnasiumBatch(Lamps, 2)
    assert is_batch(batch)
    assert compiled_batch(batch) is None
    layout = ObsLayout.of(batch.single_observation_space)
    out = StepMemory(layout.memory(2), np.zeros(2, np.float32), *np.zeros((2, 2), np.bool_))
    batch.reset(seed=0)
    for k in range(4):
        ends = batch.write_step(np.zeros(2, int), out)
        assert (ends is None) == (k < 3)
    assert ends is not None
    assert ends.truncated.all()
    assert (layout.views(ends.final_obs)["clock"][:, 1] == 1.0).all()
    assert (layout.views(out.obs)["clock"][:, 1] == 0.0).all()


def test_evaluations_while_it_trains() -> None:
    ppo, seen = trainer(eval_every=32, eval_episodes=3), []
    evaluator = Evaluator(ppo)
    notice = evaluator.on_update

    def on_update(ppo: PPO, metrics: dict[str, float]) -> None:
        notice(ppo, metrics)
        seen.append(metrics["eval/length"])

    evaluator.on_update = on_update  # type: ignore[method-assign]
    ppo.learn(64, callbacks=evaluator)
    assert seen == [4.0, 4.0]


def test_a_saved_trainer_goes_on_as_if_nothing_had_been(tmp_path: Any) -> None:
    ppo = trainer(learning_rate_schedule="constant")
    ppo.learn(64)
    ppo.save(tmp_path / "saved")
    ppo.learn(128)
    again = PPO.load(tmp_path / "saved", env=GymnasiumBatch(Lamps, 4))
    assert again.steps == 64
    again.learn(128)
    np.testing.assert_array_equal(weights(again), weights(ppo))
    assert again.episodes == ppo.episodes == 32
    fresh = trainer(learning_rate_schedule="constant").learn(128)
    np.testing.assert_array_equal(weights(fresh), weights(ppo))


def test_environments_that_cannot_be_saved_begin_again(tmp_path: Any) -> None:
    ppo = trainer(NoState).learn(64)
    sentence = r"NoState has no get_state\(\) and set_state\(\): when this is resumed, the "
    with pytest.warns(UserWarning, match=sentence):
        ppo.save(tmp_path / "saved")
    again = PPO.load(tmp_path / "saved", env=GymnasiumBatch(NoState, 4))
    np.testing.assert_array_equal(weights(again), weights(ppo))
    assert again.steps == 64
    assert again.learn(128).steps == 128


@pytest.mark.parametrize("engine", ["fused", "graph"])
def test_other_engines_say_why_not(engine: str, caplog: pytest.LogCaptureFixture) -> None:
    ppo = trainer(engine=engine)
    assert ppo.engine.name == "eager"
    assert f"the {engine} engine cannot do this job" in ppo.engine_reason
    assert ppo.engine_reason in caplog.text
    if engine == "fused":
        assert "observations of one array, not Dict and Tuple" in ppo.engine_reason


def test_a_bad_number_in_a_leaf_is_found() -> None:
    class Broken(Lamps):
        def _lamps(self) -> dict[str, Any]:
            obs = super()._lamps()
            if self._draws == 3:
                obs["clock"][1] = np.nan
            return obs

    with pytest.raises(NonFiniteError, match=r"the observation of environment 0 .* at step 2"):
        trainer(Broken).learn(32)


def test_what_cannot_be_done_is_said() -> None:
    batch = GymnasiumBatch(Lamps, 2)
    batch.autoreset_mode = AutoresetMode.NEXT_STEP
    with pytest.raises(ValueError, match="this batch has 'NextStep'; make the batch of Lamps in"):
        PPO(batch)
    ppo = trainer()
    assert (ppo.config.env.id, ppo.config.env.backend) == ("Lamps", "serial")
    for copied in (copy.copy, pickle.dumps):
        with pytest.raises(TypeError, match=r"a trainer of Lamps cannot be copied .* ppo.save"):
            copied(ppo)
