"""Bonuses in training: what they see, what they pay, saved and resumed to the bit."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from operant import PPO
from operant.models import ICM, RND, Bonus, EpisodicCount
from operant.ppo.config import Config
from operant.ppo.config_file import parsed_settings, resolved
from operant.ppo.session import Session
from operant.runs.checkpoint import CheckpointError, latest_checkpoint, load_checkpoint
from operant.runs.logs import read_csv
from operant.training.callbacks import Callback
from operant.training.intrinsic import Intrinsic
from operant.training.return_scale import ReturnScale
from operant.training.sample_order import SampleOrder

SMALL: dict[str, Any] = {"num_envs": 4, "num_steps": 8, "hidden": (4,), "seed": 1, "threads": 1}
TINY = {"intrinsic.hidden": (4,), "intrinsic.features": 4, "intrinsic.random_steps": 16}
ROLLOUT = 32


class Watching(Bonus):
    """Pays nothing; remembers what it is shown."""

    name = "watching"
    figures = ()
    normalized = False

    def reward(self, obs: Any, action: Tensor, next_obs: Any) -> Tensor:
        self.seen = obs, next_obs.clone()
        return torch.zeros(action.shape[:2])


class Rows(Callback):
    def __init__(self) -> None:
        self.rows: list[dict[str, float]] = []

    def on_update(self, trainer: Any, metrics: dict[str, float]) -> None:
        self.rows.append(metrics)


@pytest.mark.parametrize("engine", ["eager", "fused"])
@pytest.mark.parametrize("limit", [0, 9])
def test_what_follows_an_episodes_last_step_is_its_final_observation(
    engine: str, limit: int
) -> None:
    """CartPole falls over, or is cut short: pole and cart move a little with every step, and jump
    only from one episode to the next."""
    bonus = Watching()
    options = SMALL | {"num_steps": 64, "max_episode_steps": limit}
    ppo = PPO("CartPole-v1", **options, engine=engine, intrinsic=bonus)
    ppo.learn(256, progress=False)
    assert ppo.engine_name == engine
    obs, following = bonus.seen
    buffer = ppo.buffer
    done = buffer.terminated | buffer.truncated
    assert int(done.sum()) > 4
    assert int(buffer.terminated.sum() if limit == 0 else buffer.truncated.sum()) > 4
    assert following[~done].equal(buffer.obs[1:][~done])
    assert not following[done].equal(buffer.obs[1:][done])
    # The cart moves by its speed: x' = x + 0.02 v, in every step, the last one included.
    torch.testing.assert_close(following[..., 0], obs[..., 0] + 0.02 * obs[..., 1])


def test_stacks_of_frames_go_on_to_the_final_frame() -> None:
    bonus = Watching()
    options = SMALL | {"num_steps": 64, "backend": "serial", "frame_stack": 2}
    ppo = PPO("gymnasium:CartPole-v1", **options, intrinsic=bonus)
    ppo.learn(256, progress=False)
    obs, following = bonus.seen
    assert obs.shape == following.shape == (64, 4, 2, 4)
    assert (ppo.buffer.terminated | ppo.buffer.truncated).sum() > 4
    assert following[:, :, 0].equal(obs[:, :, 1])  # the last frame but one was the last
    now = obs[:, :, 1]
    torch.testing.assert_close(following[:, :, 1, 0], now[..., 0] + 0.02 * now[..., 1])


def test_a_bonus_of_a_tree_of_leaves() -> None:
    """Dict observations on `eager`: leaves go to encoders of their own, and can be chosen."""
    from tests.ppo.gymnasium_batch import Lamps

    kinds = [RND((8,), 4, 16), ICM((8,), 4, random_steps=16), EpisodicCount(leaves=["goal"])]
    rows = Rows()
    options = SMALL | {"backend": "serial"}
    ppo = PPO(Lamps, **options, intrinsic=kinds)
    ppo.learn(4 * ROLLOUT, rows, progress=False)
    assert all(np.isfinite(value) for name, value in rows.rows[-1].items() if "intrinsic" in name)
    assert rows.rows[-1]["intrinsic/count_states"] == pytest.approx(3, abs=0.5)


def test_the_page_on_exploration_runs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "exploration.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.S)
    assert len(blocks) == 2
    for block in blocks:
        exec(block, {})


def test_a_buffer_without_them_says_so() -> None:
    ppo = PPO("CartPole-v1", **SMALL, backend="reference")
    with pytest.raises(ValueError, match="set needs_next_obs in the add-on"):
        ppo.buffer.next_obs()


def test_rewards_are_the_environments_and_the_weighted_bonus() -> None:
    class Two(Watching):
        def reward(self, obs: Any, action: Tensor, next_obs: Any) -> Tensor:
            return torch.full(action.shape[:2], 2.0)

    rows = Rows()
    options = {"intrinsic.coef": 0.25, "intrinsic.extrinsic_coef": 3.0}
    plain = SMALL | {"normalize_reward": False}
    ppo = PPO("CartPole-v1", **plain, backend="reference", intrinsic=Two(), **options)
    ppo.learn(ROLLOUT, rows, progress=False)
    assert (ppo.buffer.reward == 3 * 1 + 0.25 * 2).all()
    assert rows.rows[0]["intrinsic/reward_mean"] == 2
    assert rows.rows[0]["intrinsic/reward_share"] == pytest.approx(0.5 / 3.5)


def test_the_weight_falls_towards_the_end() -> None:
    options = {"intrinsic.coef_schedule": "linear", "intrinsic.coef": 1.0}
    ppo = PPO("CartPole-v1", **SMALL, backend="reference", intrinsic=Watching(), **options)
    (intrinsic,) = ppo.add_ons
    ppo.learn(4 * ROLLOUT, progress=False)
    assert intrinsic._numbers[0] == 0.25


def test_several_are_added_or_multiplied() -> None:
    class Two(Watching):
        name = "two"

        def reward(self, obs: Any, action: Tensor, next_obs: Any) -> Tensor:
            return torch.full(action.shape[:2], 2.0)

    class Five(Two):
        name = "five"

        def reward(self, obs: Any, action: Tensor, next_obs: Any) -> Tensor:
            return torch.full(action.shape[:2], 5.0)

    for combine, mean in (("sum", 7), ("product", 10)):
        rows = Rows()
        bonuses = [Two(), Five()]
        options = {"intrinsic.combine": combine}
        ppo = PPO("CartPole-v1", **SMALL, backend="reference", intrinsic=bonuses, **options)
        ppo.learn(ROLLOUT, rows, progress=False)
        assert rows.rows[0]["intrinsic/reward_mean"] == mean


def test_a_bonus_of_another_shape_is_refused() -> None:
    class Flat(Watching):
        def reward(self, obs: Any, action: Tensor, next_obs: Any) -> Tensor:
            return torch.zeros(3)

    ppo = PPO("CartPole-v1", **SMALL, backend="reference", intrinsic=Flat())
    with pytest.raises(ValueError, match=r"'watching' must be \[T, N\], \[8, 4\], got shape \[3\]"):
        ppo.learn(ROLLOUT, progress=False)


# Normalising and drawing --------------------------------------------------------------------
def test_the_scale_is_the_deviation_of_discounted_sums() -> None:
    """Against the sums one by one, over several rollouts, longer than those of one product."""
    scale, gamma = ReturnScale(3, 0.9), 0.9
    rng, total, seen = np.random.default_rng(5), np.zeros(3), []
    for steps in (5, 300, 17):
        bonus = rng.random((steps, 3)).astype(np.float32)
        found = scale(torch.from_numpy(bonus))
        for row in bonus:
            total = gamma * total + row
            seen.append(total)
        wanted = bonus / np.sqrt(np.var(np.array(seen)) + 1e-8)
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-4)
    np.testing.assert_allclose(scale.carry.numpy(), total, rtol=1e-5)


def test_the_scale_leaves_out_rows_that_rest() -> None:
    """Statistics and sums are those of the same bonuses with nothing in between."""
    rng = np.random.default_rng(6)
    dense = torch.from_numpy(rng.random((40, 1)).astype(np.float32))
    live = torch.from_numpy(rng.random((90, 1)) < 0.6)
    places = live.flatten().nonzero().flatten()[:40]
    live[:] = False
    live[places] = True
    sparse = torch.zeros(90, 1)
    sparse[places] = dense
    wanted, ours = ReturnScale(1, 0.9), ReturnScale(1, 0.9)
    expected = torch.cat([wanted(part) for part in (dense[:15], dense[15:])])
    half = int(places[15])
    found = torch.cat([ours(sparse[:half], live[:half]), ours(sparse[half:], live[half:])])
    torch.testing.assert_close(found[places], expected)
    torch.testing.assert_close(ours.carry, wanted.carry)
    assert ours.normalizer.count == 40


@pytest.mark.parametrize("count", [1, 6, 32, 1000, 4096, 4095])
def test_samples_are_drawn_once_each_and_differ_from_time_to_time(count: int) -> None:
    order = SampleOrder(count, 0.5, torch.device("cpu"))
    draws = [order.draw() for _ in range(50)]
    for found in draws:
        assert len(set(found.tolist())) == len(found) == max(1, round(count / 2))
        assert 0 <= int(found.min()) <= int(found.max()) < count
    if count >= 32:
        assert len({tuple(found.tolist()) for found in draws}) == 50
        share = torch.cat(draws).bincount(minlength=count).float() / 50
        assert share.std() < 0.15  # no sample is preferred


@pytest.mark.parametrize(("steps", "envs"), [(100, 10), (64, 64), (128, 8), (16, 1024)])
def test_a_draw_is_spread_over_steps_and_environments(steps: int, envs: int) -> None:
    """As chance has it: of each step and of each environment about as many, and of every pair of
    samples both as often as of any other."""
    count, draws = steps * envs, 40
    order = SampleOrder(count, 0.25, torch.device("cpu"), seed=3)
    pairs = []
    for _ in range(draws):
        chosen = torch.zeros(count, dtype=torch.bool)
        chosen[order.draw()] = True
        grid = chosen.view(steps, envs)
        for axis, size in ((0, steps), (1, envs)):
            part = grid.float().mean(axis)
            chance = (0.25 * 0.75 / size) ** 0.5
            assert abs(float(part.std()) / chance - 1) < 0.9
            assert float((part - 0.25).abs().max()) < 6 * chance
        near = chosen[:-1] & chosen[1:], grid[:-1] & grid[1:]
        pairs.append([float(both.float().mean()) for both in near])
    deviation = 3 * (0.0625 / count / draws) ** 0.5
    np.testing.assert_allclose(np.mean(pairs, 0), 0.0625, atol=max(deviation, 2e-3))


def test_the_seed_and_the_draws_so_far_decide() -> None:
    first, other, later = (SampleOrder(500, 0.5, torch.device("cpu"), s) for s in (1, 2, 1))
    draws = [first.draw() for _ in range(3)]
    assert not draws[0].equal(other.draw())
    later.drawn.fill_(2)
    assert draws[2].equal(later.draw())


def test_only_live_samples_are_drawn_and_their_share() -> None:
    order = SampleOrder(200, 0.25, torch.device("cpu"))
    live = torch.arange(200) % 5 == 0
    found = [order.draw(live) for _ in range(30)]
    assert all(len(draw) == 10 and (draw % 5 == 0).all() for draw in found)
    assert len(torch.cat(found).unique()) == 40
    assert not len(order.draw(torch.zeros(200, dtype=torch.bool)))


# Saving -------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", [["rnd"], ["icm"], ["count"], ["rnd", "count"]])
@pytest.mark.parametrize("engine", ["eager", "fused"])
def test_saved_loaded_and_copied_to_the_bit(engine: str, kind: list[str], tmp_path: Path) -> None:
    ppo = PPO("CartPole-v1", **SMALL, engine=engine, intrinsic=kind, **TINY)
    ppo.learn(2 * ROLLOUT, progress=False)
    ppo.save(tmp_path)
    ends = []
    for one in (ppo, copy.deepcopy(ppo), PPO.load(tmp_path)):
        one.learn(4 * ROLLOUT, progress=False)
        (intrinsic,) = one.add_ons
        ends.append(intrinsic.state() | dict(one.policy.named_parameters()))
    for other in ends[1:]:
        assert other.keys() == ends[0].keys()
        for name, value in ends[0].items():
            assert torch.equal(torch.as_tensor(value), torch.as_tensor(other[name])), name


def test_the_seed_decides() -> None:
    def first(seed: int) -> Tensor:
        ppo = PPO("CartPole-v1", **SMALL | {"seed": seed}, engine="eager", intrinsic="rnd", **TINY)
        ppo.learn(2 * ROLLOUT, progress=False)
        return torch.cat([p.flatten() for p in ppo.policy.parameters()])

    assert first(1).equal(first(1))
    assert not first(1).equal(first(2))


def test_objects_become_options_and_ones_own_must_be_passed_again(tmp_path: Path) -> None:
    bonuses = [RND((4,), 3, 16), EpisodicCount("first", resolution=0.5), Watching()]
    ppo = PPO("CartPole-v1", **SMALL, backend="reference", intrinsic=bonuses)
    found = ppo.config.intrinsic
    assert found.kind == ("rnd", "count")
    assert (found.hidden, found.features, found.random_steps) == ((4,), 3, 16)
    assert (found.count_form, found.count_resolution) == ("first", 0.5)
    ppo.learn(ROLLOUT, progress=False)
    ppo.save(tmp_path)
    (loaded,) = PPO.load(tmp_path, intrinsic=Watching()).add_ons
    assert {one.name for one in loaded.bonuses} == {"rnd", "count", "watching"}
    (again,) = PPO.load(tmp_path, add_ons=[Intrinsic([Watching()])]).add_ons
    assert len(again.bonuses) == 3

    class Other(Watching):
        name = "other"

        def build(self, setting: Any) -> None:
            self.weight = torch.nn.Parameter(torch.zeros(3))

    with pytest.raises(CheckpointError, match=r"'adam\.exp_avg' .*|weight"):
        PPO.load(tmp_path, intrinsic=Other())


def test_a_run_is_resumed_to_the_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPERANT_HOME", str(tmp_path))
    values = {"env.num_envs": 4, "env.backend": "reference", "ppo.num_steps": 8, **TINY}
    values |= {"policy.hidden": [4], "run.total_steps": 4 * ROLLOUT, "run.eval_episodes": 0}
    settings = ["separate_value=true", "coef_schedule=linear", 'kind=["icm", "rnd", "count"]']
    values |= parsed_settings([f"intrinsic.{one}" for one in settings])
    values |= {"policy.value_head": "popart", "ppo.normalize_reward": False}

    class Half(Callback):
        def on_update(self, trainer: Any, metrics: dict[str, float]) -> None:
            if trainer.iteration == 2:
                trainer.stop()

    ends = []
    for name, callbacks in (("whole", []), ("half", [Half()])):
        session = Session.start(resolved("CartPole-v1", values), "CartPole-v1", name)
        session.train(callbacks)
        if callbacks:
            with pytest.raises(ValueError, match=r"intrinsic\.kind cannot change"):
                Session.resume(session.run, changes={"intrinsic.kind": ["count"]})
            session = Session.resume(session.run)
            session.train()
        table = read_csv(session.run.csv_file)
        assert len(table["intrinsic/rnd_loss"]) == 4
        assert (table["intrinsic/reward_share"] > 0).all()
        ends.append(load_checkpoint(latest_checkpoint(session.run.checkpoints)).arrays)
    assert ends[0].keys() == ends[1].keys()
    for group, part in ends[0].items():
        for name, array in part.items():
            np.testing.assert_array_equal(array, ends[1][group][name], err_msg=name)


def test_the_nan_guard_puts_weights_back() -> None:
    ppo = PPO("CartPole-v1", **SMALL, engine="eager", intrinsic="rnd", **TINY)
    ppo.learn(ROLLOUT, progress=False)
    (intrinsic,) = ppo.add_ons
    before = intrinsic.state()
    object.__setattr__(intrinsic._options, "lr", float("inf"))
    with pytest.raises(ArithmeticError, match="add-on intrinsic is not finite"):
        ppo.learn(2 * ROLLOUT, progress=False)
    for name, array in intrinsic.state().items():
        np.testing.assert_array_equal(array, before[name], err_msg=name)


def test_the_nan_guard_gives_a_first_rollout_its_random_steps_again() -> None:
    """Their statistics are put back to nothing along with all else."""
    ppo = PPO("CartPole-v1", **SMALL, engine="eager", intrinsic="rnd", **TINY)
    (intrinsic,) = ppo.add_ons
    object.__setattr__(intrinsic._options, "lr", float("inf"))
    with pytest.raises(ArithmeticError, match="add-on intrinsic is not finite"):
        ppo.learn(ROLLOUT, progress=False)
    assert intrinsic.bonuses[0].inputs.normalizers[0].count == 0
    object.__setattr__(intrinsic._options, "lr", 1e-3)
    ppo.learn(ROLLOUT, progress=False)
    assert intrinsic.bonuses[0].inputs.normalizers[0].count == 16 + ROLLOUT


# What is refused ----------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"intrinsic.kind": "rdn"}, "of rnd, icm, count, got 'rdn'; did you mean 'rnd'"),
        ({"intrinsic.kind": ["rnd", "rnd"]}, "has a bonus twice: rnd, rnd"),
        ({"intrinsic.kind": 3}, "must be a list of strings"),
        ({"intrinsic.coeff": 1}, "did you mean intrinsic.coef"),
        ({"intrinsic.combine": "max"}, "must be one of sum, product"),
        ({"intrinsic.count_form": "cube"}, "must be one of sqrt, first"),
        ({"intrinsic.share": 0}, "must be above 0"),
    ],
)
def test_bad_configurations(values: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Config().replaced(values)


def test_bad_arguments() -> None:
    for intrinsic, options, kind, text in (
        (3, {}, TypeError, "'int' object is not iterable|intrinsic must be names"),
        (RND, {}, TypeError, "intrinsic must be names|not iterable"),
        ([Watching(), Watching()], {}, ValueError, "names of their own, got watching, watching"),
        ("rnd", {"intrinsic.kind": "count"}, ValueError, "but intrinsic= says"),
        ([RND((4,)), ICM((5,))], {}, ValueError, r"intrinsic.hidden is \(4,\) for one bonus and"),
        (None, {"intrinsic.separate_value": True}, ValueError, "set intrinsic.kind"),
    ):
        with pytest.raises(kind, match=text):
            PPO("CartPole-v1", **SMALL, backend="reference", intrinsic=intrinsic, **options)
    assert Config().replaced({"intrinsic.kind": "none"}).intrinsic.kind == ()
    assert PPO("CartPole-v1", **SMALL, backend="reference", intrinsic="none").add_ons.metrics == ()


# What a GPU is told, run on the CPU ---------------------------------------------------------
def test_adams_step_on_a_device_is_that_on_the_host() -> None:
    ends = []
    for on_device in (False, True):
        ppo = PPO("CartPole-v1", **SMALL, engine="eager", intrinsic=["rnd", "icm"], **TINY)
        (intrinsic,) = ppo.add_ons
        intrinsic._on_device = on_device
        ppo.learn(3 * ROLLOUT, progress=False)
        ends.append(intrinsic.state())
    assert ends[0]["steps"] == ends[1]["steps"] > 0
    for name, array in ends[0].items():
        np.testing.assert_allclose(array, ends[1][name], atol=1e-5, err_msg=name)
