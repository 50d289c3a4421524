"""The grid: what is read from the command line, and which cells come of it."""

from __future__ import annotations

import pytest

from operant.bench import grid
from operant.bench.grid import Axis, cells, default_grid, parsed_grid
from operant.ppo.config_file import resolved

BASE = resolved("CartPole-v1", {"env.num_envs": 8, "ppo.num_steps": 16, "ppo.minibatches": 4})


def test_names_stand_for_options() -> None:
    axes = parsed_grid(
        ["num_envs=64, 256", "num_workers=1", "rollout_steps=32", "num_minibatches=2,2,4"]
    )
    assert axes == [
        Axis("num_envs", "env.num_envs", (64, 256)),
        Axis("num_workers", "run.threads", (1,)),
        Axis("rollout_steps", "ppo.num_steps", (32,)),
        Axis("num_minibatches", "ppo.minibatches", (2, 4)),
    ]
    assert parsed_grid(["env.workers=1,2", "run.engine=eager,fused", "epochs=4"]) == [
        Axis("workers", "env.workers", (1, 2)),
        Axis("engine", "run.engine", ("eager", "fused")),
        Axis("epochs", "ppo.epochs", (4,)),
    ]
    assert parsed_grid(["env.num_envs=1e3"])[0] == Axis("num_envs", "env.num_envs", (1000,))


def test_the_default_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid, "usable_cores", lambda: 1)
    assert [axis.values for axis in parsed_grid([])] == [(64, 256, 1024), (1,), (32, 128), (2, 4)]
    monkeypatch.setattr(grid, "usable_cores", lambda: 8)
    assert default_grid()[1].values == (1, 8)


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        (["num_envs"], "--grid takes name=value,value, such as num_envs=64,256, got 'num_envs'"),
        (["num_envs=,"], "--grid takes name=value,value"),
        (["num_envs=some"], "env.num_envs must be an integer, got 'some'"),
        (["num_envs=0"], "env.num_envs must be at least 1, got 0"),
        (["num_env=1"], "there is no option 'num_env'; here it is num_envs"),
        (["gamma=0.9"], "gamma cannot be tuned for speed; axes are num_envs, num_workers"),
        (["num_envs=1", "env.num_envs=2"], "--grid names env.num_envs twice"),
        ([f"num_envs={','.join(str(k) for k in range(1, 202))}"], "the grid has 201 cells, 200 at"),
    ],
)
def test_mistakes(texts: list[str], sentence: str) -> None:
    with pytest.raises(ValueError) as error:
        parsed_grid(texts)
    assert str(error.value).startswith(sentence)


def test_every_combination_and_the_base() -> None:
    found = cells(BASE, parsed_grid(["num_envs=8,16", "rollout_steps=16,32"]))
    assert [tuple(cell.values.values()) for cell in found] == [(8, 16), (8, 32), (16, 16), (16, 32)]
    assert [cell.is_base for cell in found] == [True, False, False, False]
    assert found[3].config == BASE.replaced({"env.num_envs": 16, "ppo.num_steps": 32})
    assert found[3].label == "num_envs 16, rollout_steps 32"


def test_a_base_beside_the_grid_is_measured_too() -> None:
    found = cells(BASE, parsed_grid(["num_envs=16", "num_workers=1"]))
    assert [cell.is_base for cell in found] == [False, True]
    assert found[1].values == {"num_envs": 8, "num_workers": 0}
    assert found[1].config is BASE


def test_cells_that_cannot_be_are_skipped_with_a_reason() -> None:
    found = cells(BASE, parsed_grid(["num_envs=1,2", "rollout_steps=1", "num_minibatches=1,2,3"]))
    reasons = [cell.reason for cell in found]
    assert reasons[0] == reasons[3] == reasons[4] == ""
    assert reasons[1].startswith("ppo.minibatches is 2, but a rollout has only 1 samples")
    assert reasons[5].startswith("ppo.minibatches is 3, but a rollout has only 2")
    odd = cells(BASE, parsed_grid(["num_minibatches=3"]))[0]
    assert odd.reason == "3 minibatches do not divide a rollout of 128 steps"
    assert odd.config is None
