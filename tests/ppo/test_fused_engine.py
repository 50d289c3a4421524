"""The fused engine beside the rest: shared memory, other engines, the NaN guard, how it starts."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Callable
from math import inf, nan
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

import operant
from operant.lang import where
from operant.models import PPO
from operant.training.callbacks import Callback
from operant.training.guard import NonFiniteError

Tasks = dict[str, type[operant.Env]]
ROLLOUT = 7 * 13
# PPO without what the defaults add to it: nothing normalised, no entropy, one learning rate.
PLAIN: dict[str, Any] = {
    "minibatches": 4,
    "normalize_obs": False,
    "normalize_reward": False,
    "entropy_coef": 0.0,
    "learning_rate": 2.5e-4,
    "learning_rate_schedule": "constant",
}


def made(env: Any, engine: str = "fused", **options: Any) -> PPO:
    settings = {"num_envs": 7, "num_steps": 13, "hidden": (20, 9), "seed": 1, "threads": 2}
    ppo = PPO(env, engine=engine, backend="cpu", **{**PLAIN, **settings, **options})
    assert ppo.engine.name == engine, ppo.engine_reason
    return ppo


def parameters(ppo: PPO) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in ppo.policy.parameters()])


def assert_rollout_is_the_policys(ppo: PPO) -> None:
    """What was collected is what the policy, as it is now, says about it."""
    buffer = ppo.engine.buffer
    with torch.no_grad():
        head, value = ppo.policy(buffer.obs[:-1].flatten(0, 1))
        log_prob, _ = ppo.distribution.evaluate(head, buffer.action.flatten(0, 1))
    torch.testing.assert_close(buffer.value.flatten(), value, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(buffer.log_prob.flatten(), log_prob, rtol=1e-5, atol=1e-5)


# Parameters are the policy's own memory ----------------------------------------------------------
def in_place(ppo: PPO) -> None:
    with torch.no_grad():
        for parameter in ppo.policy.parameters():
            parameter.mul_(1.5).add_(0.1)


def loaded(ppo: PPO) -> None:
    state = {name: 0.5 * tensor for name, tensor in ppo.policy.state_dict().items()}
    ppo.policy.load_state_dict(state)


def replaced(ppo: PPO) -> None:
    for parameter in ppo.policy.parameters():
        parameter.data = parameter.data.clone() * 0.7 - 0.2


def replaced_by_a_view(ppo: PPO) -> None:
    for parameter in ppo.policy.parameters():
        parameter.data = torch.stack([parameter.data * 0.7, parameter.data], -1)[..., 0]


@pytest.mark.parametrize(
    "change",
    [in_place, loaded, replaced, replaced_by_a_view],
)
@pytest.mark.parametrize("task", ["Turns", "Arm"])
def test_a_change_from_outside_is_seen(
    tasks: Tasks, task: str, change: Callable[[PPO], None]
) -> None:
    ppo = made(tasks[task], normalize_obs=True).learn(ROLLOUT)
    change(ppo)
    ppo.engine.collect(ppo.iteration, 13)
    assert_rollout_is_the_policys(ppo)
    before, places = parameters(ppo), [p.data_ptr() for p in ppo.policy.parameters()]
    ppo.engine.advantages()
    change(ppo)
    before = parameters(ppo)
    ppo.engine.update(ppo.iteration, 1e-3, 0.2)
    assert 1e-4 < (parameters(ppo) - before).abs().max() < 0.1  # from where it was put
    if change in (in_place, loaded):
        assert [p.data_ptr() for p in ppo.policy.parameters()] == places
    ppo.engine.collect(ppo.iteration + 1, 26)
    assert_rollout_is_the_policys(ppo)


def test_changed_rewards_and_observations_count(tasks: Tasks) -> None:
    """A callback may change the rollout before it is trained on."""

    class Spoil(Callback):
        def __init__(self, what: str) -> None:
            self.what = what

        def on_rollout(self, ppo: PPO, buffer: Any) -> None:
            if self.what:
                getattr(buffer, self.what).mul_(0.5)

    found = [
        parameters(made(tasks["Turns"]).learn(ROLLOUT, Spoil(what)))
        for what in ("", "obs", "reward", "log_prob", "value")
    ]
    for other in found[1:]:
        assert not torch.equal(found[0], other)


# Other engines ------------------------------------------------------------------------------------
@pytest.mark.parametrize("task", ["Knobs", "Arm"])
def test_save_and_load_continue_to_the_bit(tasks: Tasks, task: str, tmp_path: Path) -> None:
    options = {"normalize_reward": True, "normalize_obs": task == "Arm"}
    whole = made(tasks[task], **options).learn(4 * ROLLOUT)
    half = made(tasks[task], **options).learn(2 * ROLLOUT)
    path = half.save(tmp_path / "agent")
    again = PPO.load(path, tasks[task])
    assert again.engine.name == "fused"
    again.learn(4 * ROLLOUT)
    assert torch.equal(parameters(again), parameters(whole))
    assert again.optimizer.count == whole.optimizer.count
    for name, array in whole.env.get_state().items():
        np.testing.assert_array_equal(again.env.get_state()[name], array)


def test_engines_hand_over_to_each_other(tasks: Tasks, tmp_path: Path) -> None:
    ppo = made(tasks["Turns"], normalize_obs=True, normalize_reward=True)
    total = ROLLOUT
    for engine in ("eager", "fused", "eager", "fused"):
        ppo.learn(total)
        state = ppo.engine.state()
        path = ppo.save(tmp_path / engine)
        old = ppo
        ppo = PPO.load(path, tasks["Turns"], engine=engine)
        assert ppo.engine.name == engine
        assert torch.equal(parameters(ppo), parameters(old))
        assert torch.equal(ppo.optimizer.exp_avg_sq, old.optimizer.exp_avg_sq)
        np.testing.assert_array_equal(ppo.engine.state()["return_carry"], state["return_carry"])
        total += ROLLOUT
        # The next rollout is the same on either.
        old.engine.collect(old.iteration, old.steps // 7)
        ppo.engine.collect(ppo.iteration, ppo.steps // 7)
        for name in ("obs", "action", "reward"):
            np.testing.assert_array_equal(
                ppo.engine.buffer.arrays[name], old.engine.buffer.arrays[name]
            )
        ppo = PPO.load(path, tasks["Turns"], engine=engine)
        before = parameters(ppo)
        ppo.learn(total)
        assert not torch.equal(parameters(ppo), before)
    assert ppo.iteration == 5


def test_a_state_of_another_shape_is_refused(tasks: Tasks) -> None:
    with pytest.raises(ValueError, match="return_carry"):
        made(tasks["Turns"]).engine.set_state({"return_carry": np.zeros(3, np.float32)})


# The NaN guard ------------------------------------------------------------------------------------
class Sick(NamedTuple):
    count: float
    sick: float


class Poison(operant.Env):
    """A counter; in some environments observation or reward is `bad` from a certain count on."""

    class Params(NamedTuple):
        obs: float = 1e9
        reward: float = 1e9

    State = Sick
    observation_space = Box(-np.inf, np.inf, (1,))
    action_space = Discrete(2)
    max_episode_steps = 9

    def reset(random: Any) -> Any:
        return Sick(0.0, where(random[0] < 0.3, 1.0, 0.0))

    def step(state: Any, action: Any, params: Any) -> Any:
        bad = (state.count >= params.reward) & (state.sick > 0.0)
        return Sick(state.count + 1.0, state.sick), where(bad, nan, 1.0), False

    def observe(state: Any, params: Any) -> Any:
        bad = (state.count >= params.obs) & (state.sick > 0.0)
        return (where(bad, nan, state.count),)


class PoisonBox(Poison):
    action_space = Box(-1.0, 1.0, (1,))


class PoisonInf(Poison):
    def observe(state: Any, params: Any) -> Any:
        return (where((state.count == params.obs) & (state.sick > 0.0), inf, state.count),)


def error_of(env: Any, engine: str, change: Callable[[PPO], None] | None = None, **options: Any):
    settings = {"num_envs": 16, "num_steps": 5, "threads": 1, "hidden": (8,), "seed": 1}
    ppo = PPO(env, engine=engine, backend="cpu", **{**PLAIN, **settings, **options})
    assert ppo.engine.name == engine
    if change is not None:
        change(ppo)
    before = parameters(ppo)
    with pytest.raises(NonFiniteError) as error:
        ppo.learn(16 * 5 * 4)
    if ppo.iteration == 0:
        assert torch.equal(parameters(ppo), before) or before.isnan().any()
    assert torch.isfinite(ppo.optimizer.exp_avg).all()
    found = error.value
    return found.what, found.iteration, found.env_index, str(found)


@pytest.mark.parametrize("env", [Poison, PoisonBox])
@pytest.mark.parametrize(
    ("params", "what"),
    [
        ({"obs": 0.0}, None),
        ({"obs": 7.0}, None),
        ({"obs": 5.0}, "observation"),  # the last of a rollout: no action depends on it
        ({"obs": 9.0}, "observation"),  # the last of an episode
        ({"reward": 6.0}, "reward"),
        ({"reward": 6.0, "obs": 8.0}, None),
    ],
    ids=str,
)
def test_the_guard_says_what_the_eager_engine_says(
    env: type[operant.Env], params: dict[str, float], what: str | None
) -> None:
    fused, eager = (error_of(env, engine, params=params) for engine in ("fused", "eager"))
    assert fused[:3] == eager[:3]
    if fused[1] == 0:  # later, the message tells of an action of a policy trained otherwise
        assert fused[3] == eager[3]
    assert what is None or fused[0] == what
    assert "nan" in fused[3]


@pytest.mark.parametrize("name", ["actor_head.bias", "critic_head.bias", "actor.0.weight"])
@pytest.mark.parametrize("env", [Poison, PoisonBox])
def test_weights_that_are_no_numbers(env: type[operant.Env], name: str) -> None:
    def spoil(ppo: PPO) -> None:
        with torch.no_grad():
            dict(ppo.policy.named_parameters())[name].view(-1)[0] = nan

    fused, eager = (error_of(env, engine, spoil) for engine in ("fused", "eager"))
    assert fused[:3] == eager[:3]
    by_actor = "action" if env is PoisonBox else "log-probability"
    assert fused[0] == ("value" if name == "critic_head.bias" else by_actor)


@pytest.mark.parametrize(("limit", "where"), [(9, "at step 4"), (5, "of the last observation")])
def test_a_value_that_overflows_where_no_action_depends_on_it(limit: int, where: str) -> None:
    """At the end of the rollout, or of an episode that is cut short; in an environment of the
    second tile, which is a step ahead of the others."""

    def spoil(ppo: PPO) -> None:
        state = ppo.env.get_state()
        given = {name: state[name] for name in ("state.count", "steps")}
        for array in given.values():
            array[67] = 1
        ppo.env.set_state(given)
        with torch.no_grad():
            for parameter in ppo.policy.critic.parameters():
                parameter.zero_()
            ppo.policy.critic_head.weight.zero_()
            ppo.policy.critic[0].weight[3, 0], ppo.policy.critic[0].bias[3] = 10.0, -40.0
            ppo.policy.critic_head.weight[0, 3] = 3e38  # 0 up to count 4, then infinity

    options = {"num_envs": 70, "num_steps": 4, "activation": "relu", "max_episode_steps": limit}
    fused, eager = (error_of(Poison, engine, spoil, **options) for engine in ("fused", "eager"))
    assert fused == eager
    assert fused[:3] == ("value", 0, 67)
    assert "inf" in fused[3]
    assert where in fused[3]


class Change(Callback):
    """Changes the rewards of the third rollout, and remembers the policy before it."""

    def __init__(self, reward: float) -> None:
        self.reward = reward

    def on_rollout(self, ppo: PPO, buffer: Any) -> None:
        if ppo.iteration == 2:
            self.before = {k: v.clone() for k, v in ppo.policy.state_dict().items()}
            self.moments, self.count = ppo.optimizer.exp_avg.clone(), ppo.optimizer.count
            buffer.reward[3, 4] = self.reward


@pytest.mark.parametrize("reward", [nan, inf, 3e38])
def test_a_bad_update_is_named_and_undone(tasks: Tasks, reward: float) -> None:
    found = []
    for engine in ("fused", "eager"):
        change = Change(reward)
        ppo = made(tasks["Turns"], engine, normalize_obs=True)
        with pytest.raises(NonFiniteError) as error:
            ppo.learn(9 * ROLLOUT, change)
        found.append((error.value.what, error.value.iteration, error.value.env_index))
        for name, tensor in ppo.policy.state_dict().items():
            assert torch.equal(tensor, change.before[name]), name
        assert torch.equal(ppo.optimizer.exp_avg, change.moments)
        assert ppo.optimizer.count == change.count > 0
    assert found[0] == found[1]
    assert found[0][:2] == ("loss", 2)


def test_a_gradient_too_large_is_named_and_undone(tasks: Tasks) -> None:
    ppo = made(tasks["Turns"], value_coef=3e38)
    before = parameters(ppo)
    with pytest.raises(NonFiniteError, match="though the loss is finite") as error:
        ppo.learn(ROLLOUT)
    assert (error.value.what, error.value.env_index) == ("gradient", None)
    assert torch.equal(parameters(ppo), before)
    assert ppo.optimizer.count == 0


def test_without_the_guard_nothing_is_said() -> None:
    options = {"num_envs": 16, "num_steps": 5, "seed": 1, "threads": 1, "hidden": (8,)}
    ppo = PPO(
        Poison, engine="fused", backend="cpu", nan_guard=False, params={"reward": 6.0}, **options
    )
    ppo.learn(16 * 5 * 3)
    assert ppo.engine.name == "fused"
    assert not torch.isfinite(parameters(ppo)).all()


def test_an_infinite_observation_is_seen_though_tanh_makes_it_finite() -> None:
    options: dict[str, Any] = {"params": {"obs": 7.0}, "hidden": (16,)}
    fused, eager = (error_of(PoisonInf, engine, **options) for engine in ("fused", "eager"))
    assert fused == eager
    assert fused[:2] == ("observation", 1)


@pytest.mark.parametrize(("count", "what"), [(0.0, "the first"), (9.0, "the last")])
def test_an_infinite_observation_at_an_end_is_seen(count: float, what: str) -> None:
    """The first of a run, or the last of an episode."""
    options: dict[str, Any] = {"params": {"obs": count}, "num_steps": 3 if count == 0 else 5}
    options["hidden"] = (16,)  # with fewer, zeros that fill up a vector make it NaN
    fused, eager = (error_of(PoisonInf, engine, **options) for engine in ("fused", "eager"))
    assert fused == eager, what


# How it starts ------------------------------------------------------------------------------------
def run(code: str, environ: dict[str, str]) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environ,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


COUNTING = "from numba.core import event\nwith event.install_recorder('numba:run_pass') as seen:\n"


def test_to_import_compiles_nothing_and_nor_does_the_second_start(
    unmeasured: Callable[[], dict[str, str]],
) -> None:
    """In the folder of all tests: to compile everything once more would take longest of them."""
    from operant.ppo.kernels import cpu as kernels

    names = sorted(path.stem for path in Path(str(kernels.__file__)).parent.glob("[a-z]*.py"))
    assert "train_epoch" in names
    for name in names:
        importlib.import_module(f"{kernels.__name__}.{name}")
    code = (
        COUNTING
        + "".join(f"    import {kernels.__name__}.{name}\n" for name in names)
        + "    from operant.models import PPO\n"
        + "    import operant.ppo.engines.fused_cpu\n"
        + "print(len(seen.buffer))\n"
        + COUNTING
        + "    ppo = PPO('CartPole-v1', engine='fused', num_envs=8, num_steps=8, threads=1,\n"
        + "              device='cpu').learn(128)\n"
        + "from operant.backends.cpu.kernels import cache_statistics\n"
        + "print(ppo.engine.name, len(seen.buffer), cache_statistics()['compiled'])\n"
        + "print(sum(p.double().sum().item() for p in ppo.policy.parameters()))\n"
        + COUNTING
        + "    import numba; numba.njit(lambda x: x + 1)(1)\n"
        + "print(len(seen.buffer) > 0)"
    )
    imported, name, _, _, first, counts = run(code, unmeasured())
    assert (imported, name, counts) == ("0", "fused", "True")
    assert run(code, unmeasured()) == ["0", "fused", "0", "0", first, "True"]
