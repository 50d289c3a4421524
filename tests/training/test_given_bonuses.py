"""Which bonuses a trainer pays: those that the caller gives, in whatever way, and no others."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from operant import PPO
from operant.models import ICM, RND, Bonus, EpisodicCount
from operant.ppo.config import Config
from operant.runs.checkpoint import CheckpointError
from operant.training.add_on import AddOn
from operant.training.intrinsic import Intrinsic

SMALL: dict[str, Any] = {
    "num_envs": 4,
    "num_steps": 8,
    "hidden": (4,),
    "seed": 1,
    "threads": 1,
    "backend": "reference",
}
TINY = {"intrinsic.random_steps": 16}
SHIPS_RND = "SparseMountainCar-v0"


class Mine(Bonus):
    name = "mine"

    def build(self, setting: Any) -> None:
        self.weight = torch.nn.Parameter(torch.zeros(2))

    def reward(self, obs: Any, action: Tensor, next_obs: Any) -> Tensor:
        return torch.ones(action.shape[:2])

    def loss(self, batch: Any) -> Tensor:
        return (self.weight - batch.next_obs[:, :2]).square().sum(-1)


class Yours(Mine):
    name = "yours"


class Other(AddOn):
    name = "other"


def names(ppo: PPO) -> list[str]:
    paying = [one for one in ppo.add_ons if isinstance(one, Intrinsic)]
    return [bonus.name for one in paying for bonus in one.bonuses]


@pytest.mark.parametrize(
    ("given", "paid"),
    [
        (None, ["rnd"]),
        ("none", []),
        ([], []),
        ("count", ["count"]),
        (EpisodicCount(), ["count"]),
        (Mine(), ["mine"]),
        ([Mine(), "icm"], ["mine", "icm"]),
        (["count", RND((4,), random_steps=16)], ["count", "rnd"]),
    ],
)
def test_what_is_given_is_instead_of_what_the_environment_ships(
    given: Any, paid: list[str], tmp_path: Path
) -> None:
    ppo = PPO(SHIPS_RND, **SMALL, intrinsic=given, **TINY)
    assert names(ppo) == paid
    assert ppo.config.intrinsic.kind == tuple(name for name in paid if name != "mine")
    ppo.learn(32, progress=False)
    ppo.save(tmp_path)
    again = PPO.load(tmp_path, **({"intrinsic": Mine()} if "mine" in paid else {}))
    assert names(again) == paid
    assert names(copy.deepcopy(ppo)) == names(pickle.loads(pickle.dumps(ppo))) == paid


def test_one_of_ones_own_is_beside_those_that_the_caller_names_himself() -> None:
    whole = Config().replaced({"intrinsic.kind": "count"})
    assert names(PPO("CartPole-v1", whole, **SMALL, intrinsic=Mine())) == ["mine", "count"]
    said = {"intrinsic.kind": "count"}
    assert names(PPO(SHIPS_RND, **SMALL, intrinsic=Mine(), **said)) == ["mine", "count"]
    assert names(PPO("CartPole-v1", whole, **SMALL, intrinsic="none")) == []
    same = {"intrinsic.kind": "rnd", "intrinsic.hidden": [4]}
    assert names(PPO("CartPole-v1", **SMALL, intrinsic=RND((4,)), **same)) == ["rnd"]


# Add-ons ------------------------------------------------------------------------------------
def test_add_ons_neither_drop_nor_double_bonuses(tmp_path: Path) -> None:
    for intrinsic, paid in ((None, ["rnd"]), (Mine(), ["mine"]), ("none", [])):
        ppo = PPO(SHIPS_RND, **SMALL, add_ons=[Other()], intrinsic=intrinsic)
        assert names(ppo) == paid
        assert [one.name for one in ppo.add_ons] == ["other", *(["intrinsic"] if paid else [])]
    inside = (([Mine()], ["mine"]), ([RND((4,), random_steps=8)], ["rnd"]), ([], ["rnd"]))
    for given, paid in inside:
        ppo = PPO(SHIPS_RND, **SMALL, add_ons=[Intrinsic(given)])
        assert names(ppo) == paid
    # The library's are described by the configuration, however they came.
    ppo = PPO(SHIPS_RND, **SMALL, add_ons=[Intrinsic([RND((4,), 3, 8)])])
    assert (ppo.config.intrinsic.hidden, ppo.config.intrinsic.features) == ((4,), 3)
    ppo.learn(32, progress=False)
    ppo.save(tmp_path)
    assert names(PPO.load(tmp_path)) == ["rnd"]


def test_what_contradicts_itself_is_refused_in_a_sentence() -> None:
    class Taken(AddOn):
        name = "intrinsic"

    class RNDOfMine(RND):
        pass

    named = {"intrinsic.kind": "rnd"}
    for add_ons, intrinsic, options, text in (
        ([Intrinsic([Mine()])], Yours(), {}, r"given twice: by intrinsic=, and by .* add_ons="),
        ([Intrinsic([Mine()])], "rnd", {}, "given twice"),
        ([Taken()], Mine(), {}, "given twice"),
        ([Taken()], None, named, "has the name 'intrinsic' .* call it something else"),
        ([], RNDOfMine(), named, "RNDOfMine has the name 'rnd' of the library's bonus"),
        ([], ["rnd", RND()], {}, "a bonus twice: rnd, rnd"),
        ([], ["none", "rnd"], {}, "got 'none'"),
        ([Intrinsic()], None, {}, "there is none: Intrinsic"),
        ([Intrinsic([RND((4,))])], None, {"intrinsic.hidden": (5,)}, "a bonus in add_ons= says"),
    ):
        with pytest.raises(ValueError, match=text):
            PPO("CartPole-v1", **SMALL, add_ons=add_ons, intrinsic=intrinsic, **options)


# One trainer each ---------------------------------------------------------------------------
@pytest.mark.parametrize("make", [lambda: RND(random_steps=16), Mine])
def test_a_bonus_belongs_to_one_trainer(make: Any) -> None:
    bonus = make()
    first = PPO("CartPole-v1", **SMALL, intrinsic=bonus)
    before = [p.clone() for p in bonus.parameters()]
    for given in ({"intrinsic": bonus}, {"add_ons": [Intrinsic([bonus])]}):
        with pytest.raises(ValueError, match=f"{bonus.name!r} belongs to a trainer already"):
            PPO("CartPole-v1", **SMALL, **given)
    assert all(p.equal(q) for p, q in zip(bonus.parameters(), before, strict=True))
    first.learn(32, progress=False)
    assert not all(p.equal(q) for p, q in zip(bonus.parameters(), before, strict=True))
    # A copy is another one, and so is that of a copied trainer.
    second = PPO("CartPole-v1", **SMALL, intrinsic=copy.deepcopy(bonus))
    third = copy.deepcopy(first)
    theirs = [next(iter(one.add_ons)).bonuses[0] for one in (first, second, third)]
    assert len({id(one) for one in theirs}) == 3
    third.learn(64, progress=False)
    assert first.steps == 32


def test_an_add_on_of_another_trainer_is_left_as_it_is() -> None:
    shared = Intrinsic([Mine()])
    first = PPO("CartPole-v1", **SMALL, add_ons=[shared])
    with pytest.raises(ValueError, match="belongs to a trainer already"):
        PPO("CartPole-v1", **SMALL, add_ons=[shared], **{"intrinsic.kind": "count"})
    assert names(first) == ["mine"]
    first.learn(32, progress=False)


# The order ----------------------------------------------------------------------------------
def test_moments_come_back_to_their_own_parameters(tmp_path: Path) -> None:
    """Adam has one vector for all: what is given in another order must not be mixed up."""
    given = [Yours(), ICM((4,), 3, random_steps=8), Mine(), "rnd"]
    options = {"intrinsic.hidden": (4,), "intrinsic.features": 3, "intrinsic.random_steps": 8}
    ppo = PPO("CartPole-v1", **SMALL, intrinsic=given, **options)
    assert names(ppo) == ["mine", "yours", "icm", "rnd"]
    ppo.learn(64, progress=False)
    ppo.save(tmp_path)
    again = PPO.load(tmp_path, intrinsic=[Mine(), Yours()])
    with pytest.raises(CheckpointError, match=r"is (unknown|missing)"):
        PPO.load(tmp_path, intrinsic=Mine())
    ends = []
    for one in (ppo, again):
        one.learn(128, progress=False)
        ends.append(one.add_ons.state()["add_on_intrinsic"] | dict(one.policy.named_parameters()))
    assert ends[0].keys() == ends[1].keys()
    for name, value in ends[0].items():
        assert torch.equal(torch.as_tensor(value), torch.as_tensor(ends[1][name])), name


# What a bonus of one's own may leave out or get wrong ----------------------------------------
class Plain(Bonus):
    """Figures as they are by default, and nothing to train."""

    name = "plain2"

    def build(self, setting: Any) -> None:
        self.network = torch.nn.Linear(4, 4)

    def reward(self, obs: Any, action: Tensor, next_obs: Any) -> Tensor:
        return self.network(next_obs).square().mean(-1)


def test_a_bonus_need_not_be_trained() -> None:
    for beside in ([], ["rnd"]):
        ppo = PPO("CartPole-v1", **SMALL, intrinsic=[Plain(), *beside], **TINY)
        ppo.learn(64, progress=False)
        assert not any("plain2" in name for name in ppo.add_ons.metrics)


def test_whole_numbers_and_doubles_are_numbers() -> None:
    class Steps(Plain):
        def reward(self, obs: Any, action: Tensor, next_obs: Any) -> Tensor:
            return action

    class Doubles(Plain):
        name = "doubles"
        normalized = False

        def reward(self, obs: Any, action: Tensor, next_obs: Any) -> Tensor:
            return next_obs[..., 0].double()

    ppo = PPO("CartPole-v1", **SMALL, intrinsic=[Steps(), Doubles()])
    ppo.learn(64, progress=False)


@pytest.mark.parametrize("options", [{}, {"intrinsic.coef": 0.0}])
def test_the_nan_guard_names_the_bonus(options: dict[str, Any]) -> None:
    class Root(Plain):
        def reward(self, obs: Any, action: Tensor, next_obs: Any) -> Tensor:
            found = torch.ones(action.shape[:2])
            found[3, 2] = -1.0
            return found.sqrt()

    ppo = PPO("CartPole-v1", **SMALL, intrinsic=Root(), **options)
    text = "iteration 0: the bonus 'plain2' of environment 2 is not finite: nan at step 3"
    with pytest.raises(ArithmeticError, match=text):
        ppo.learn(32, progress=False)


def test_what_is_wrong_with_a_bonus_is_said_in_a_sentence() -> None:
    class BadName(Plain):
        name = "My.Bonus"

    class Nothing(Plain):
        def reward(self, obs: Any, action: Tensor, next_obs: Any) -> Any:
            return None

    class Figure(Plain):
        figures = ("size",)

    class NoTotal(Mine):
        def loss(self, batch: Any) -> Any:
            return {"forward": batch.next_obs[:, 0]}

    class NoWeights(Mine):
        def build(self, setting: Any) -> None:
            self.weight = torch.zeros(2)

    for bonus, text in (
        (BadName(), "name must be lower-case letters, digits and _, BadName has 'My.Bonus'"),
        (Nothing(), r"'plain2' must be \[T, N\], \[8, 4\], got None"),
        (Figure(), "has 'size' among its figures, and neither loss nor state_figures returned"),
        (NoTotal(), r"the loss of the bonus 'mine' has no 'loss', got \['forward'\]"),
        (NoWeights(), "'mine' has a loss and no parameters that it could train"),
    ):
        with pytest.raises(ValueError, match=text):
            PPO("CartPole-v1", **SMALL, intrinsic=bonus).learn(32, progress=False)
