"""The loop: determinism, callbacks, options, policies of one's own, saving."""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from torch import nn

import operant
from operant.lang import where
from operant.models import PPO
from operant.ppo.ppo import METRICS
from operant.training.callbacks import Callback
from operant.training.guard import NonFiniteError

SMALL = {
    "num_envs": 8,
    "num_steps": 16,
    "epochs": 2,
    "minibatches": 2,
    "hidden": (16,),
    "backend": "reference",
    "threads": 1,
}
ROLLOUT = 8 * 16


def small(env="CartPole-v1", **options) -> PPO:
    settings = {**SMALL, **options}
    if "policy" in options:
        del settings["hidden"]
    return PPO(env, **settings)


def weights(ppo: PPO) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in ppo.policy.parameters()])


class Drift(operant.Env):
    """Two knobs push a point; keep it near zero. MultiDiscrete actions and a time limit."""

    class State(NamedTuple):
        x: float

    observation_space = Box(-100.0, 100.0, (1,))
    action_space = MultiDiscrete([2, 3])
    max_episode_steps = 5

    def reset(random):
        return Drift.State(random[0] - 0.5)

    def step(state, action):
        x = state.x + 0.1 * (where(action[0] == 1, 1.0, -1.0) + where(action[1] == 2, 1.0, 0.0))
        return Drift.State(x), -x * x, x > 3.0

    def observe(state):
        return (state.x,)


class Recording(Callback):
    def __init__(self):
        self.events, self.metrics, self.episodes = [], [], []

    def on_rollout(self, ppo, buffer):
        self.events.append("rollout")
        self.done = buffer.arrays["terminated"] | buffer.arrays["truncated"]
        self.reward = buffer.arrays["reward"].copy()

    def on_episodes(self, ppo, episodes):
        self.events.append("episodes")
        self.episodes.append(episodes)

    def on_update(self, ppo, metrics):
        self.events.append("update")
        self.metrics.append(metrics)


# Determinism --------------------------------------------------------------------------------
@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1", Drift])
def test_the_same_seed_gives_the_same_weights_and_another_does_not(env):
    one, same, other = (small(env, seed=seed).learn(3 * ROLLOUT) for seed in (5, 5, 6))
    assert torch.equal(weights(one), weights(same))
    assert not torch.equal(weights(one), weights(other))


def test_the_number_of_threads_changes_no_bit(monkeypatch):
    monkeypatch.setattr("operant.ppo.engines.eager.SLICE", 10)  # many slices, one of them short
    one, two, three = (small(threads=n, seed=1).learn(3 * ROLLOUT) for n in (1, 2, 3))
    assert torch.equal(weights(one), weights(two))
    assert torch.equal(weights(one), weights(three))


def test_what_the_user_does_with_torch_meanwhile_changes_nothing():
    class Noisy(Callback):
        def on_update(self, ppo, metrics):
            torch.rand(3)
            np.random.default_rng().random()

    assert torch.equal(
        weights(small().learn(2 * ROLLOUT)), weights(small().learn(2 * ROLLOUT, Noisy()))
    )


def test_torch_keeps_its_threads():
    before = torch.get_num_threads()
    small().learn(ROLLOUT)
    assert torch.get_num_threads() == before


# The loop -----------------------------------------------------------------------------------
def test_total_steps_counts_earlier_calls_and_rounds_up_to_rollouts():
    ppo = small()
    assert ppo.learn(ROLLOUT + 1).steps == 2 * ROLLOUT
    assert ppo.learn(2 * ROLLOUT).steps == 2 * ROLLOUT
    assert ppo.learn(3 * ROLLOUT).iteration == 3


@pytest.mark.parametrize("steps", [0, -5])
def test_no_steps_are_refused(steps):
    with pytest.raises(ValueError, match="total_steps must be at least 1"):
        small().learn(steps)


def test_callbacks_see_each_part_in_order():
    seen = Recording()
    small(Drift).learn(2 * ROLLOUT, seen)
    assert seen.events == ["rollout", "episodes", "update"] * 2
    assert list(seen.metrics[0]) == list(METRICS)
    assert [m["iteration"] for m in seen.metrics] == [1, 2]
    assert [m["steps"] for m in seen.metrics] == [ROLLOUT, 2 * ROLLOUT]
    for name in METRICS:
        assert np.isfinite([m[name] for m in seen.metrics]).all(), name


def test_episodes_agree_with_a_loop_over_the_environments():
    seen = Recording()
    ppo = small(Drift, num_steps=23)
    ppo.learn(8 * 23, seen)
    (episodes,) = seen.episodes
    expected = []
    for t in range(23):
        for i in range(8):
            if seen.done[t, i]:
                ends = [k for k in range(t) if seen.done[k, i]]
                start = ends[-1] + 1 if ends else 0
                expected.append((t, i, t - start + 1, seen.reward[start : t + 1, i].sum()))
    found = zip(episodes.step, episodes.env_index, episodes.lengths, episodes.returns, strict=True)
    assert [row[:3] for row in expected] == [row[:3] for row in found]
    np.testing.assert_allclose(episodes.returns, [row[3] for row in expected], rtol=1e-5)
    assert episodes.truncated.all()
    assert ppo.episodes == len(episodes) == len(expected)
    assert ppo.mean_length == 5.0


def test_no_episodes_no_call():
    seen = Recording()
    small("Pendulum-v1").learn(ROLLOUT, seen)
    assert seen.events == ["rollout", "update"]
    assert np.isnan(seen.metrics[0]["mean_return"])


def test_a_callback_can_stop_training():
    class Stop(Callback):
        def on_update(self, ppo, metrics):
            ppo.stop()

    ppo = small()
    assert ppo.learn(10 * ROLLOUT, [Stop()]).steps == ROLLOUT
    assert ppo.learn(3 * ROLLOUT).steps == 3 * ROLLOUT  # and training can go on


def test_a_callback_can_change_rewards_before_advantages():
    class Zero(Callback):
        def on_rollout(self, ppo, buffer):
            buffer.reward.zero_()
            buffer.value.zero_()
            buffer.last_value.zero_()
            buffer.final_value.zero_()

    ppo = small()
    ppo.learn(ROLLOUT, Zero())
    assert not ppo.engine.buffer.advantage.any()


def test_schedules_fall_to_zero():
    seen = Recording()
    options = {"learning_rate": 1e-3, "learning_rate_schedule": "linear", "clip_schedule": "cosine"}
    small(**options).learn(4 * ROLLOUT, seen)
    rates = [m["learning_rate"] for m in seen.metrics]
    np.testing.assert_allclose(rates, [1e-3, 0.75e-3, 0.5e-3, 0.25e-3])
    clips = [m["clip"] for m in seen.metrics]
    np.testing.assert_allclose(clips, 0.1 * (1 + np.cos(np.pi * np.arange(4) / 4)))


def test_target_kl_ends_the_passes():
    seen = Recording()
    small(learning_rate=0.05, epochs=8, target_kl=1e-3).learn(ROLLOUT, seen)
    assert 1 <= seen.metrics[0]["epochs"] < 8
    small(learning_rate=1e-6, epochs=8, target_kl=1e-3).learn(ROLLOUT, seen)
    assert seen.metrics[1]["epochs"] == 8


def test_normalisers_learn_from_the_rollouts():
    ppo = small(normalize_obs=True, normalize_reward=True).learn(2 * ROLLOUT)
    assert ppo.policy.obs_normalizer.count == 2 * ROLLOUT
    assert ppo.policy.return_normalizer.count == 2 * ROLLOUT
    assert not torch.allclose(ppo.policy.obs_normalizer.variance, torch.ones(4).double())


def test_scaled_rewards_are_those_of_the_environment_over_the_deviation():
    class Keep(Callback):
        def on_rollout(self, ppo, buffer):
            self.raw = buffer.reward.clone()

        def on_update(self, ppo, metrics):
            self.scaled = buffer_reward = ppo.engine.buffer.reward
            assert buffer_reward is self.scaled

    keep = Keep()
    ppo = small("Pendulum-v1", normalize_reward=True).learn(ROLLOUT, keep)
    scale = ppo.policy.return_normalizer.scale()
    torch.testing.assert_close(keep.scaled, keep.raw * scale)


# Policies and environments of one's own ------------------------------------------------------
class Tiny(nn.Module):
    def __init__(self, outputs: int = 2) -> None:
        super().__init__()
        self.body = nn.Linear(4, outputs + 1)
        self.drop = nn.Dropout(0.5)

    def forward(self, obs):
        out = self.drop(self.body(obs))
        return out[:, :-1], out[:, -1]


def test_any_module_that_follows_the_protocol_is_trained():
    before = Tiny()
    ppo = small(policy=before, normalize_reward=True)
    start = before.body.weight.detach().clone()
    ppo.learn(2 * ROLLOUT)
    assert ppo.policy is before
    assert not torch.equal(start, before.body.weight)
    assert ppo.policy.return_normalizer.count == 2 * ROLLOUT
    obs = np.zeros((3, 4), np.float32)
    assert ppo.predict(obs).tolist() == ppo.predict(obs).tolist()  # no dropout when acting


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (Tiny(3), r"head \[B, 2\].*returned shapes \(2, 3\)"),
        (nn.Linear(4, 2), "must return"),
        (nn.Sequential(nn.Flatten(), Tiny()).requires_grad_(False), "no parameters"),
    ],
)
def test_a_policy_of_the_wrong_form_is_refused(policy, message):
    with pytest.raises(ValueError, match=message):
        small(policy=policy)


def test_a_policy_in_double_precision_is_refused():
    class Double(Tiny):
        def forward(self, obs):
            head, value = super().forward(obs.double())
            return head.float(), value.float()

    with pytest.raises(ValueError, match="must be float32"):
        small(policy=Double().double())


def test_a_batch_of_ones_own_is_used_as_it_is():
    env = operant.make(Drift, 6, backend="reference", autoreset_mode="SameStep")
    ppo = PPO(env, num_steps=4, threads=1)
    assert ppo.env is env
    assert (ppo.config.env.num_envs, ppo.config.env.id) == (6, "Drift")
    assert ppo.learn(48).steps == 48


def test_a_batch_that_resets_otherwise_is_refused():
    env = operant.make("CartPole-v1", 4, backend="reference")
    with pytest.raises(ValueError) as caught:
        PPO(env)
    assert str(caught.value) == (
        "PPO needs autoreset_mode='SameStep', this batch has 'NextStep'; write "
        "operant.make('CartPole-v1', num_envs=4, autoreset_mode='SameStep'), or "
        "PPO('CartPole-v1', num_envs=4), which makes the batch itself"
    )
    with pytest.raises(ValueError, match=r"or PPO\(Drift, num_envs=2\), which"):
        PPO(operant.make(Drift, 2, backend="reference"))
    with pytest.raises(TypeError, match="env must be"):
        PPO(3)


def test_options_that_contradict_each_other_are_refused():
    env = operant.make(Drift, 6, backend="reference", autoreset_mode="SameStep")
    with pytest.raises(ValueError, match=r"env\.num_envs is 7, but the batch was made with 6"):
        PPO(env, num_envs=7)
    with pytest.raises(ValueError, match="env is 'CartPole-v1', but the configuration says"):
        PPO("CartPole-v1", small("Pendulum-v1").config)
    with pytest.raises(ValueError, match="built-in networks"):
        PPO("CartPole-v1", policy=Tiny(), hidden=(3,))
    with pytest.raises(ValueError, match="too large"):
        small(num_steps=10**10)


def test_a_stop_before_the_start_counts():
    ppo = small()
    ppo.stop()
    assert ppo.learn(ROLLOUT).steps == 0
    assert ppo.learn(ROLLOUT).steps == ROLLOUT


def test_time_in_callbacks_is_counted():
    class Slow(Callback):
        def on_update(self, ppo, metrics):
            time.sleep(0.2)

    began = time.perf_counter()
    ppo = small().learn(2 * ROLLOUT, Slow())
    assert 0.4 <= ppo.seconds <= time.perf_counter() - began


def test_dropout_gives_the_same_bits_with_threads(monkeypatch):
    monkeypatch.setattr("operant.ppo.engines.eager.SLICE", 10)
    found = []
    for threads in (1, 3):
        torch.manual_seed(0)
        policy = Tiny()
        found.append(weights(small(policy=policy, threads=threads).learn(2 * ROLLOUT)))
    assert torch.equal(*found)


def test_the_policy_is_put_back_when_a_number_is_not_finite():
    class Spoil(Callback):
        def on_rollout(self, ppo, buffer):
            if ppo.iteration == 2:
                self.before = {k: v.clone() for k, v in ppo.policy.state_dict().items()}
                buffer.reward.fill_(float("nan"))

    spoil = Spoil()
    ppo = small(normalize_reward=True)
    with pytest.raises(NonFiniteError):
        ppo.learn(10 * ROLLOUT, spoil)
    for name, tensor in ppo.policy.state_dict().items():
        assert torch.equal(tensor, spoil.before[name]), name
    assert torch.isfinite(ppo.optimizer.exp_avg).all()


def test_an_invalid_action_is_named_without_the_guard_too():
    class Spoil(Callback):
        def on_update(self, ppo, metrics):
            with torch.no_grad():
                ppo.policy.actor_head.bias.fill_(float("nan"))

    ppo = small("Pendulum-v1", engine="eager", nan_guard=False)
    with pytest.raises(NonFiniteError, match="iteration 1: the action of environment 0"):
        ppo.learn(2 * ROLLOUT, Spoil())


def test_unknown_options_name_the_nearest():
    with pytest.raises(ValueError, match=r"did you mean ppo\.learning_rate"):
        small(learning_rte=1.0)


def test_on_episodes_of_an_object_or_of_its_class():
    class Listener(Callback):
        count = 0

        def on_episodes(self, ppo, episodes):
            self.count += len(episodes)

    silent, listener, patched, heard = Callback(), Listener(), Callback(), []
    patched.on_episodes = lambda ppo, episodes: heard.append(len(episodes))
    ppo = small()
    ppo.learn(4000, [silent, listener, patched])
    assert ppo.episodes == listener.count == sum(heard) > 0


def test_an_engine_or_device_that_is_not_there():
    there = small(engine="graph")
    if not torch.cuda.is_available():
        assert there.engine.name == "eager"
        assert "it needs a GPU, and the policy is on cpu" in there.engine_reason
    with pytest.raises(ValueError, match=r"run\.device must be"):
        small(device="tpu")
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="no GPU"):
            small(device="cuda")


# Acting --------------------------------------------------------------------------------------
def test_predict_takes_one_observation_or_many():
    ppo = small()
    one = np.array([0.1, 0.0, -0.1, 0.2], np.float32)
    assert ppo.predict(one).shape == ()
    assert ppo.predict(np.stack([one] * 3)).shape == (3,)
    assert ppo.predict(one.tolist()).shape == ()
    for bad in (np.zeros(3), np.zeros((2, 2, 4)), 1.0):
        with pytest.raises(ValueError, match="observations must have shape"):
            ppo.predict(bad)


def test_samples_vary_and_stay_inside_the_action_space():
    ppo = small("Pendulum-v1", log_std=2.0)
    obs = np.zeros((200, 3), np.float32)
    drawn = ppo.predict(obs, deterministic=False)
    assert drawn.shape == (200, 1)
    assert drawn.dtype == np.float32
    assert drawn.std() > 0.5
    assert np.abs(drawn).max() <= 2.0
    assert (ppo.predict(obs) == ppo.predict(obs)).all()


def test_multi_discrete_actions():
    ppo = small(Drift).learn(ROLLOUT)
    assert ppo.predict(np.zeros((5, 1), np.float32), deterministic=False).shape == (5, 2)


# Saving --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("env", "options"),
    [
        ("CartPole-v1", {"normalize_obs": True}),
        ("Pendulum-v1", {"normalize_reward": True, "learning_rate_schedule": "linear"}),
        (Drift, {"normalize_obs": True, "normalize_reward": True, "seed": 3}),
    ],
)
def test_save_and_load_continue_to_the_bit(env, options, tmp_path):
    whole = small(env, **options).learn(4 * ROLLOUT)
    half = small(env, **options)
    half.learn(4 * ROLLOUT, _StopAfter(2))
    path = half.save(tmp_path / "agent")
    half.predict(np.zeros(half.env.single_observation_space.shape, np.float32), False)
    half.learn(4 * ROLLOUT)  # going on does not disturb what was saved
    for place in (tmp_path / "agent", path):
        loaded = PPO.load(place, env)
        assert (loaded.steps, loaded.iteration) == (2 * ROLLOUT, 2)
        loaded.learn(4 * ROLLOUT)
        assert torch.equal(weights(loaded), weights(whole))
        assert loaded.recent == whole.recent
        for name, array in whole.env.get_state().items():
            np.testing.assert_array_equal(loaded.env.get_state()[name], array)


class _StopAfter(Callback):
    def __init__(self, iterations):
        self.iterations = iterations

    def on_update(self, ppo, metrics):
        if ppo.iteration == self.iterations:
            ppo.stop()


class Wrapped(nn.Module):
    def __init__(self):
        super().__init__()
        self.inside = Tiny()

    def forward(self, obs):
        return self.inside(obs)


def test_a_custom_policy_is_loaded_into_a_new_one(tmp_path):
    ppo = small(policy=Tiny(), normalize_reward=True).learn(ROLLOUT)
    ppo.save(tmp_path)
    again = PPO.load(tmp_path, policy=Tiny())
    assert torch.equal(weights(again), weights(ppo))
    assert again.policy.return_normalizer.count == ROLLOUT
    with pytest.raises(ValueError, match="policy of your own"):
        PPO.load(tmp_path)
    with pytest.raises(ValueError, match="does not fit the policy"):
        PPO.load(tmp_path, policy=Wrapped())


def test_load_can_change_options(tmp_path):
    small().learn(ROLLOUT).save(tmp_path)
    assert PPO.load(tmp_path, learning_rate=0.5).config.ppo.learning_rate == 0.5


def test_an_unregistered_environment_must_be_named(tmp_path):
    small(Drift).save(tmp_path)
    with pytest.raises(ValueError, match="'Drift' of this checkpoint is not registered"):
        PPO.load(tmp_path)
    assert PPO.load(tmp_path, Drift).config.env.id == "Drift"


def test_there_is_nothing_to_load(tmp_path):
    with pytest.raises(ValueError, match="no such folder"):
        PPO.load(tmp_path / "nothing")
    with pytest.raises(ValueError):
        PPO.load(tmp_path)


def test_discrete_observations_are_one_hot():
    class Dice(operant.Env):
        class State(NamedTuple):
            face: int

        observation_space = Discrete(6, start=1)
        action_space = Discrete(2)

        def reset(random):
            return Dice.State(where(random[0] < 0.5, 1, 4))

        def step(state, action):
            return state, where((action == 1) == (state.face == 4), 1.0, 0.0), True

        def observe(state):
            return state.face

    ppo = small(Dice, learning_rate=0.02).learn(30 * ROLLOUT)
    assert ppo.predict(np.array([1, 4])).tolist() == [0, 1]
