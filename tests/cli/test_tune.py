"""``operant tune`` as a user types it; in this process, since PyTorch is slow to load."""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from operant.cli import main, meter
from operant.envs.classic.cartpole import CartPole
from operant.ppo.config_file import read_config, resolved

Tune = Callable[..., tuple[int, str, str]]
SMALL = ["--set", "env.backend=reference", "--set", "policy.hidden=[8]", "--set", "env.num_envs=4"]
SMALL += ["--set", "ppo.num_steps=16", "--set", "run.eval_episodes=4", "--set", "ppo.epochs=1"]
SMALL += ["--set", "run.threads=1", "--device", "cpu"]
GRID = ["--grid", "num_envs=4,8", "--grid", "num_minibatches=2,3", "--max-spread", "10"]
QUICK = ["CartPole-v1", *SMALL, *GRID, "--verify-steps", "128"]


@pytest.fixture
def tune(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Tune:
    """Runs the command in an empty folder; its exit code, standard output and standard error.

    Rounds are so short that no machine needs more than a part of the budget.
    """
    monkeypatch.chdir(tmp_path)
    for name, value in {"LEAST_ROUND_S": 0.001, "MOST_ROUND_S": 0.001, "MOST_ROUNDS": 5}.items():
        monkeypatch.setattr(f"operant.bench.tune.{name}", value)

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["operant", "tune", *arguments])
        monkeypatch.setenv("COLUMNS", "120")
        with pytest.raises(SystemExit) as left:
            main()
        return int(left.value.code or 0), *capsys.readouterr()

    return run


def test_from_a_grid_to_a_configuration(tune: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CartPole, "reward_threshold", 1.0)
    monkeypatch.setattr(meter, "_LINE_EVERY_S", 0.0)
    code, out, err = tune(*QUICK)
    assert code == 0, err
    (folder,) = Path("artifacts/tuning").iterdir()
    assert folder.name.split("_")[2] == "cartpole-v1"
    report = json.loads((folder / "report.json").read_text())
    status = {tuple(cell["values"].values()): cell["status"] for cell in report["cells"]}
    # A rollout of 4 x 16 steps has no three equal parts; the base has 4 minibatches.
    assert status == {
        (4, 2): "stable",
        (4, 3): "skipped",
        (8, 2): "stable",
        (8, 3): "skipped",
        (4, 4): "stable",
    }
    assert report["cells"][1]["reason"] == "3 minibatches do not divide a rollout of 64 steps"
    assert [cell["base"] for cell in report["cells"]] == [False, False, False, False, True]
    assert all(len(cell["sps"]["rounds"]) >= 3 for cell in report["cells"] if cell["sps"])
    assert report["grid"]["num_minibatches"] == {"option": "ppo.minibatches", "values": [2, 3]}

    stable = [cell for cell in report["cells"] if cell["status"] == "stable"]
    best = max(stable, key=lambda cell: cell["sps"]["median"])
    chosen = report["chosen"]
    assert chosen["values"] == best["values"]
    assert chosen["verified"] is True
    (trial,) = report["verification"]["trials"]
    assert len(trial["returns"]) == 2  # seeds
    assert report["verification"]["reward_threshold"] == 1.0

    config = resolved("CartPole-v1", read_config(folder / "tuned.toml"))
    assert config.env.num_envs == chosen["values"]["num_envs"]
    assert config.ppo.minibatches == chosen["values"]["num_minibatches"]
    assert (config.ppo.epochs, config.run.total_steps) == (1, 128)
    assert (folder / "tuned.toml").read_text().startswith("# operant tune CartPole-v1, 20")
    with Image.open(folder / "heat_map.png") as picture:
        assert picture.size[0] > 500
    for word in ("skipped: num_envs 4, num_minibatches 3", "converges:", "chosen:", "stable, base"):
        assert word in out
    assert f"next: operant train --config {folder / 'tuned.toml'}" in out
    assert "starting num_envs 4, num_minibatches 2" in err
    assert "verifying num_envs" in err


def test_the_chosen_configuration_trains(
    tune: Tune, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OPERANT_HOME", str(Path.cwd() / "home"))
    assert tune(*QUICK, "--set", "run.total_steps=256", "--no-verify", "--out", "out")[0] == 0
    monkeypatch.setattr(sys, "argv", ["operant", "train", "--config", "out/tuned.toml", "--json"])
    with pytest.raises(SystemExit) as left:
        main()
    captured = capsys.readouterr()
    assert not left.value.code, captured.err
    assert json.loads(captured.out)["steps"] == 256


def test_json_and_no_verification(tune: Tune) -> None:
    code, out, err = tune(*QUICK, "--no-verify", "--out", "out", "--json")
    assert code == 0, err
    report = json.loads(out)
    assert report == json.loads(Path("out/report.json").read_text())
    assert report["verification"] is None
    assert report["chosen"]["verified"] is False
    assert report["files"]["config"] == "out/tuned.toml"
    first = Path("out/tuned.toml").read_text().splitlines()[0]
    assert "convergence was not verified" in first
    assert tomllib.loads(Path("out/tuned.toml").read_text())["env"]["id"] == "CartPole-v1"


def test_nothing_converges(tune: Tune) -> None:
    code, out, err = tune(*QUICK, "--verify-seeds", "1", "--out", "out")
    assert code == 1
    assert "fails: num_envs" in out
    text = " ".join(err.split())
    assert "none converged in 128 steps; give more --verify-steps" in text
    assert not Path("out/tuned.toml").exists()
    report = json.loads(Path("out/report.json").read_text())
    assert report["chosen"] is None
    assert not any(trial["converged"] for trial in report["verification"]["trials"])
    assert report["verification"]["trials"][-1]["base"]  # or all that are as fast were tried
    assert Path("out/heat_map.png").is_file()


def test_the_next_best_is_tried(tune: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    from operant.bench import verify

    returns = iter([0.0, 500.0])
    monkeypatch.setattr(verify, "_return_of", lambda ppo: next(returns))
    grid = ["--grid", "num_envs=64,128", "--max-spread", "10", "--verify-seeds", "1"]
    small = ["CartPole-v1", *SMALL, "--verify-steps", "128", "--out", "out"]
    code, out, err = tune(*small, *grid, "--json")
    assert code == 0, err
    first, second = json.loads(out)["verification"]["trials"]
    assert (first["converged"], second["converged"]) == (False, True)
    assert json.loads(out)["chosen"]["values"] == second["values"] != first["values"]


def test_a_base_that_breaks_ends_with_exit_code_3(
    tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    from operant.bench import verify
    from operant.training.guard import NonFiniteError

    def breaks(ppo: object, text: str) -> None:
        raise NonFiniteError("reward", 3, 0, "it is nan")

    monkeypatch.setattr(CartPole, "reward_threshold", None)
    monkeypatch.setattr(verify, "_learn", breaks)
    code, _, err = tune(*QUICK)
    assert code == 3
    assert "operant: iteration 3: the reward of environment 0 is not finite" in err
    assert "Traceback" not in err


def test_everything_is_noisy(tune: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("operant.bench.tune._calm", lambda *arguments: iter(()))  # no more rounds
    code, _, err = tune(*QUICK, "--max-spread", "0", "--out", "out")
    assert code == 1
    assert "no cell has an IQR below 0% of its median" in " ".join(err.split())
    assert json.loads(Path("out/report.json").read_text())["chosen"] is None


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["Cartpol-v1"], "did you mean CartPole-v1"),
        (["CartPole-v1", "--grid", "num_envs"], "--grid takes name=value,value"),
        (["CartPole-v1", "--grid", "clip=1,2"], "clip cannot be tuned for speed"),
        (
            ["CartPole-v1", "--budget", "soon"],
            "--budget must be a time such as 120s, 5m or 1h, got",
        ),
        (["CartPole-v1", "--budget", "0s"], "--budget must be a time"),
        (["CartPole-v1", "--budget", ".01s"], "too small for 25 cells, 3 rounds of each: it takes"),
        (["CartPole-v1", "--verify-steps", "x"], "--verify-steps must be a number, got 'x'"),
        (["CartPole-v1", "--verify-steps", "0"], "run.total_steps must be at least 1, got 0"),
        (["CartPole-v1", "--verify-seeds", "0"], "--verify-seeds"),
        (["CartPole-v1", "--device", "tpu"], "run.device must be auto, cpu, cuda or cuda:N"),
        (["CartPole-v1", "--set", "ppo.clop=1"], "there is no option 'ppo.clop'"),
        (["CartPole-v1", "--out", "/proc/nowhere"], "cannot read or write"),
    ],
)
def test_mistakes_are_one_sentence(
    tune: Tune, monkeypatch: pytest.MonkeyPatch, arguments: list[str], sentence: str
) -> None:
    monkeypatch.setattr("operant.bench.grid.usable_cores", lambda: 2)
    code, out, err = tune(*arguments)
    assert code == 2
    assert sentence in " ".join(err.split())
    assert "Traceback" not in err
    assert out == ""
    assert not list(Path().glob("artifacts/tuning/*"))


def test_budgets_have_units() -> None:
    from operant.cli.duration import seconds_of

    found = [seconds_of(text, "--budget") for text in ("120s", "90", "1.5 m", "2min", "1h", ".5s")]
    assert found == [120.0, 90.0, 90.0, 120.0, 3600.0, 0.5]


def test_help_has_an_example(tune: Tune) -> None:
    code, out, _ = tune("--help")
    assert code == 0
    assert "Example:" in out
