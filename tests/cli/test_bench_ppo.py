"""``operant bench ppo`` as a user types it; in this process, since PyTorch is slow to load."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from operant.cli import main

Bench = Callable[..., tuple[int, str, str]]
TINY = ["--num-envs", "8", "--num-steps", "4", "--epochs", "1", "--hidden", "8", "--threads", "1"]
SHORT = ["--device", "cpu", "--engine", "eager", "--repeats", "2", "--seconds", "0.001"]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Bench:
    """Runs the command; its exit code, standard output and standard error."""

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["operant", "bench", "ppo", *arguments])
        monkeypatch.setenv("COLUMNS", "100")
        with pytest.raises(SystemExit) as left:
            main()
        return int(left.value.code or 0), *capsys.readouterr()

    return run


def test_table_and_frame(bench: Bench, tmp_path: Path) -> None:
    target = tmp_path / "folder" / "ppo.json"
    code, out, err = bench(*TINY, *SHORT, "--json", str(target))
    assert code == 0, err
    assert "operant eager" in out
    assert "coll/adv/upd" in out
    data = json.loads(target.read_text())
    assert set(data) == {"machine", "commit", "date", "results"}
    (ours,) = data["results"]
    assert (ours["engine"], ours["device"], ours["hidden"]) == ("eager", "cpu", [8])
    assert (ours["num_envs"], ours["num_steps"], ours["threads"]) == (8, 4, 1)
    assert ours["sps_min"] <= ours["sps"] <= ours["sps_max"]
    assert ours["repeats"] == 2
    assert ours["ratio_to"] == {}


def test_ratio_to_a_peer_on_standard_output(bench: Bench) -> None:
    pytest.importorskip("stable_baselines3")
    code, out, err = bench(*TINY, *SHORT, "--peers", "sb3", "--json", "-")
    assert code == 0, err
    ours, sb3 = json.loads(out)["results"]
    assert (sb3["system"], sb3["num_envs"]) == ("sb3", 8)
    assert ours["ratio_to"]["sb3"] == pytest.approx(ours["sps"] / sb3["sps"], abs=0.02)


def test_table_has_a_column_for_each_peer(capsys: pytest.CaptureFixture[str]) -> None:
    from operant.cli.bench_ppo import _print_table

    row = {"env": "CartPole-v1", "num_envs": 8, "threads": 2, "sps_min": 90, "sps_max": 110}
    row["limit_share"] = None
    ours = {"system": "operant", "engine": "graph", "gflops": 41.6, "sps": 100}
    peer = {"system": "sb3", "engine": "sync", "gflops": None, "sps": 40}
    ours["precision"], peer["precision"] = "bf16", None
    ours |= {"collect_share": 0.1, "advantages_share": 0.02, "update_share": 0.88}
    peer |= dict.fromkeys(("collect_share", "advantages_share", "update_share"))
    _print_table([row | ours | {"ratio_to": {"sb3": 2.5}}, row | peer | {"ratio_to": {}}])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0][-2:] == ["x", "sb3"]
    assert lines[1][:3] == ["operant", "graph", "bf16"]
    assert lines[1][-5:] == ["10%", "42", "10/2/88", "%", "2.50"]
    assert lines[2][-2:] == ["40", "25%"]
    ours |= {"limit_share": 0.215, "ratio_to": {"eager": 2.5}}
    _print_table([row | ours, row | peer | {"system": "eager", "engine": "eager", "ratio_to": {}}])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0][-4:] == ["of", "limit", "x", "eager"]
    assert lines[1][-2:] == ["21.5%", "2.50"]
    assert lines[2][:2] == ["eager", "CartPole-v1"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--peers", "pufferlib"], "unknown peer 'pufferlib'; known: sb3, rejax"),
        (["--env", "Nope-v9"], "unknown environment 'Nope-v9'"),
        (["--hidden", "64x64"], "--hidden must be sizes such as 64,64, got '64x64'"),
        (["--engine", "warp"], "run.engine must be one of"),
        (["--precision", "fp8"], "run.precision must be one of"),
        (["--compile", "twice"], "run.compile must be one of"),
        (["--activation", "sine"], "policy.activation must be one of"),
        (["--device", "tpu"], "run.device must be auto, cpu, cuda or cuda:N, got 'tpu'"),
        (["--minibatches", "7"], "minibatches must divide a rollout of 8 x 4 = 32 steps, got 7"),
        (["--json", "/proc/nowhere/x.json"], "cannot write"),
        (["--repeats", "0"], "--repeats"),
    ],
)
def test_mistakes_are_one_sentence(bench: Bench, arguments: list[str], sentence: str) -> None:
    code, _, err = bench(*TINY, *SHORT, *arguments)
    assert code == 2
    assert sentence in " ".join(err.split())
    assert "Traceback" not in err


def test_a_missing_peer(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rejax", None)
    code, _, err = bench(*TINY, *SHORT, "--peers", "rejax")
    assert code == 2
    assert "the peer rejax is not installed: pip install rejax" in " ".join(err.split())
