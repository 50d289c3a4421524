"""Forged runs and authors' mistakes: one sentence and exit code 2, never a traceback."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from operant.cli import main
from operant.ppo.config_file import resolved
from operant.ppo.session import Session
from operant.runs.checkpoint import latest_checkpoint, load_checkpoint
from operant.runs.directory import find_run, new_run_id
from operant.toolchain import paths
from operant.toolchain.child import python_command, python_environment

SMALL = {"env.num_envs": 4, "ppo.num_steps": 8, "policy.hidden": [4], "ppo.minibatches": 1}
SMALL |= {"run.total_steps": 64, "run.threads": 1, "run.eval_episodes": 0}
SMALL |= {"policy.normalize_obs": True, "ppo.normalize_reward": True}
Cli = Callable[..., tuple[int, str]]
Arrays = dict[str, dict[str, np.ndarray]]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A home with a run of each engine."""
    home, kernels = tmp_path_factory.mktemp("home"), paths.home() / "kernels"
    kernels.mkdir(parents=True, exist_ok=True)
    (home / "kernels").symlink_to(kernels)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPERANT_HOME", str(home))
        for name, values in (("eager", {"env.backend": "reference"}), ("fused", {})):
            config = resolved("CartPole-v1", SMALL, {"run.engine": name}, values)
            Session.start(config, "CartPole-v1", name).train()
        yield home


@pytest.fixture
def cli(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Runs a command; its exit code, 130 if it takes for ever, and what it says."""

    def run(*words: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["operant", *words])
        code = 0
        signal.alarm(300)
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
        finally:
            signal.alarm(0)
        return code, capsys.readouterr().err

    return run


# Forging ------------------------------------------------------------------------------------
NUMBERS = (0, -1, 1, 2**31, 2**62, 2**63, 2**64, 10**30, -(2**63), 1e308, -1e308, 0.5)
VALUES = (*NUMBERS, True, None, "x", "", [], {}, [1], "\ud800", "9" * 5000)
TOML = ("0", "-1", "1", "1000000", "9223372036854775807", "99999999999999999999", "1e308", "nan")
TOML += ("inf", "0.5", "true", '"x"', '""', "[]", "[1]", "{}", "[1000000]", "[[1]]", "{ a = 1 }")
TOML += ('"fused"', '"graph"', '"native"', "1979-05-27")
PAIRS = ([[1e308, 2]] * 200, [[0.5, -1]], [[0.5, 2**62]], [[None, 1]], [[0.5]], [0.5], [[0.5, 1.5]])
KINDS = ("float64", "float32", "float16", "int8", "int64", "uint64", "bool", "int32", "uint8")
FLOATS = (np.nan, np.inf, -np.inf, -1.0, 1e9, 1e-45)


def forge_facts(rng: random.Random, facts: dict[str, Any]) -> str:
    name = rng.choice(sorted(facts))
    if rng.random() < 0.2:
        del facts[name]
        return f"no {name}"
    if name == "config" and rng.random() < 0.9:
        lines = facts[name].splitlines()
        line = rng.choice([k for k, text in enumerate(lines) if "=" in text])
        lines[line] = f"{lines[line].partition('=')[0]}= {rng.choice(TOML)}"
        facts[name] = "\n".join(lines)
        return f"config {lines[line]}"
    facts[name] = rng.choice(PAIRS if name == "recent" else VALUES)
    return f"{name} = {facts[name]!r:.60}"


def forge_array(rng: random.Random, arrays: Arrays) -> str:
    group = rng.choice([group for group in sorted(arrays) if arrays[group]])
    name = rng.choice(sorted(arrays[group]))
    array = arrays[group][name]
    how = rng.choice(("group", "missing", "extra", "dtype", "shape", "value", "value", "one value"))
    if how == "group":
        del arrays[group]
    elif how == "missing":
        del arrays[group][name]
    elif how == "extra":
        arrays[group]["extra"] = np.zeros(3)
    elif how == "dtype":
        with np.errstate(all="ignore"):
            arrays[group][name] = array.astype(rng.choice(KINDS))
    elif how == "shape":
        shapes = [(), (0,), (1,), (*array.shape, 1), (2 * array.size + 1,), (3, 3)]
        arrays[group][name] = np.resize(array, rng.choice(shapes))
    else:
        changed = array.copy()
        flat = changed.reshape(-1)
        which = slice(None) if how == "value" else rng.randrange(max(flat.size, 1))
        if array.dtype.kind in "iu":
            limits = np.iinfo(array.dtype)
            flat[which] = rng.choice([limits.min, limits.max, 0, 1])
        else:
            flat[which] = rng.choice(FLOATS) if array.dtype.kind == "f" else True
        arrays[group][name] = changed
    return f"{group}.{name}: {how}"


def write(folder: Path, arrays: Arrays, facts: dict[str, Any], step: int) -> None:
    """A checkpoint with a manifest that agrees with it."""
    data = {f"{group}.safetensors": save(members) for group, members in arrays.items()}
    data["facts.json"] = json.dumps(facts).encode()
    for file in folder.iterdir():
        file.unlink()
    files = {}
    for name, text in data.items():
        (folder / name).write_bytes(text)
        files[name] = {"size": len(text), "sha256": hashlib.sha256(text).hexdigest()}
    manifest = {"format": "operant checkpoint", "version": 1, "step": step, "files": files}
    (folder / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.usefixtures("unseen_test")
@pytest.mark.parametrize("engine", ["eager", "fused"])
def test_forged_checkpoints(engine: str, home: Path, cli: Cli, tmp_path: Path) -> None:
    rng = random.Random(16)
    run = home / "runs" / "forged"
    refused = 0
    for _ in range(12):
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(home / "runs" / engine, run)
        folder = latest_checkpoint(run / "checkpoints")
        found = load_checkpoint(folder)
        facts: dict[str, Any] = found.facts
        arrays = {group: dict(members) for group, members in found.arrays.items()}
        what = forge_facts(rng, facts) if rng.random() < 0.4 else forge_array(rng, arrays)
        write(folder, arrays, facts, found.step)
        verb = rng.choice(
            [["eval", "forged", "--episodes=2", "--max-episode-steps=3"]] * 3
            + [
                ["export", "forged", f"--onnx={tmp_path / 'policy.onnx'}"],
                ["record", "forged", f"--out={tmp_path / 'film.gif'}", "--seconds=0.1"],
                ["plot", "forged", f"--out={tmp_path / 'curve.png'}"],
                ["monitor", "forged", "--once"],
            ]
        )
        for words in (verb, ["train", "--resume=forged", "--total-steps=128"]):
            code, said = cli(*words)
            # 3: what the NaN guard finds, say in an environment's state that was forged
            assert code in (0, 2) or (code == 3 and words[0] == "train"), (what, code, said)
            if code == 2:
                refused += 1
                lines = [line for line in said.splitlines() if line.startswith("operant: ")]
                assert len(lines) == 1, (what, said)
                assert lines[0] == said.splitlines()[-1], (what, said)
                assert len(lines[0]) > 20, (what, said)
    assert refused >= 5


def test_weights_that_are_not_finite_are_refused(home: Path, cli: Cli) -> None:
    run = home / "runs" / "forged"
    for group, name in (("model", "critic_head.weight"), ("optimizer", "critic_head.bias.exp_avg")):
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(home / "runs" / "fused", run)
        folder = latest_checkpoint(run / "checkpoints")
        found = load_checkpoint(folder)
        found.arrays[group][name].reshape(-1)[0] = np.nan
        write(folder, found.arrays, found.facts, found.step)
        code, said = cli("train", "--resume=forged", "--total-steps=128")
        assert code == 2
        assert said.endswith(f"{group}.safetensors: {name} has numbers that are not finite\n")


@pytest.mark.parametrize(
    "text", ["", "nonsense", "[run]\ntotal_steps = nan", "\0", "[env]\nid = 3"]
)
def test_forged_configurations(text: str, home: Path, cli: Cli) -> None:
    """Of a run that has no checkpoint yet."""
    run = home / "runs" / "forged"
    shutil.rmtree(run, ignore_errors=True)
    run.mkdir()
    (run / "config.toml").write_text(text)
    for words in (["train", "--resume=forged"], ["eval", "forged"], ["plot", "forged"]):
        code, said = cli(*words)
        assert code == 2
        assert said.count("\n") == 1
    for words in (["monitor", "forged", "--once"], ["runs"]):
        assert cli(*words)[0] == 0


# Names --------------------------------------------------------------------------------------
def test_the_run_one_stands_in(home: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(home / "runs" / "fused", home / "moved")
    monkeypatch.chdir(home / "moved")
    code, said = cli("train", "--resume=.", "--total-steps=128")
    assert code == 0, said
    assert said.startswith("moved: ")
    assert cli("eval", ".", "--episodes=1", "--max-episode-steps=3")[0] == 0
    assert cli("monitor", ".", "--once")[0] == 0
    assert find_run(".").id == "moved"
    (home / "moved" / "inner").mkdir()
    monkeypatch.chdir(home / "moved" / "inner")
    assert find_run("..").id == "moved"


def test_a_run_elsewhere_trains_in_the_background(home: Path, cli: Cli, tmp_path: Path) -> None:
    shutil.copytree(home / "runs" / "fused", tmp_path / "elsewhere")
    words = ["train", f"--resume={tmp_path / 'elsewhere'}", "--total-steps=1e9", "--detach"]
    command = python_command("-m", "operant", *words)
    done = subprocess.run(command, capture_output=True, text=True, env=python_environment())
    assert done.returncode == 0, done.stderr
    assert f"operant stop {tmp_path / 'elsewhere'}" in done.stderr.replace("\n", "")
    assert cli("stop", str(tmp_path / "elsewhere"))[0] == 0


LONG = """
from typing import NamedTuple
from gymnasium.spaces import Box, Discrete
import operant

class NAME(operant.Env):
    class State(NamedTuple):
        x: float
    observation_space = Box(-100.0, 100.0, (1,))
    action_space = Discrete(2)
    max_episode_steps = 3
    def reset(random):
        return NAME.State(random[0])
    def step(state, action):
        return NAME.State(state.x * 0.5 + action), 1.0, False
    def observe(state):
        return (state.x,)
    def render(state, canvas):
        [][7]
"""
ARRAYS = """
import numpy as np
from gymnasium.spaces import Box, Discrete
import operant
from operant.lang import Arrays, int32, to_float

class Walk(operant.Env):
    observation_space = Box(-100.0, 100.0, (1,), np.float32)
    action_space = Discrete(2)
    max_episode_steps = 20
    class State(Arrays):
        cells = int32[LENGTH]
        at = int32[1]
    def reset(state, random):
        state.at[0] = 0
    def step(state, action):
        state.at[0] = state.at[0] + 1 + action
        state.cells[state.at[0]] = 1
        return 1.0, False
    def observe(state, obs):
        obs[0] = to_float(state.at[0])
"""
FEW = [
    "--total-steps=64",
    "--set=env.num_envs=4",
    "--set=ppo.num_steps=8",
    "--set=policy.hidden=[4]",
]
FEW += ["--set=ppo.minibatches=1", "--set=run.eval_episodes=0", "--set=run.threads=1"]


@pytest.mark.parametrize("letters", [101, 230])
def test_classes_with_long_names(letters: int, home: Path, cli: Cli, tmp_path: Path) -> None:
    name = "L" + "o" * (letters - 1)
    (tmp_path / f"long{letters}.py").write_text(LONG.replace("NAME", name))
    target = f"{tmp_path / f'long{letters}.py'}:{name}"
    code, said = cli("train", target, *FEW)
    assert code == 0, said
    code, said = cli("eval", "latest", "--episodes=1", f"--env={target}")
    assert code == 0, said
    assert len(new_run_id(target)) < 100


# Authors ------------------------------------------------------------------------------------
def test_a_mistake_in_render(home: Path, cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "drawn.py").write_text(LONG.replace("NAME", "Drawn"))
    target = f"{tmp_path / 'drawn.py'}:Drawn"
    assert cli("train", target, *FEW)[0] == 0
    code, said = cli("record", "latest", f"--env={target}", f"--out={tmp_path / 'x.gif'}")
    assert code == 2
    file = tmp_path / "drawn.py"
    assert said == f"operant: {file}:19: render() raised IndexError: list index out of range\n"


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_an_index_outside_its_array(backend: str, home: Path, cli: Cli, tmp_path: Path) -> None:
    for length in (50, 7):  # the second is too short, for the same run
        (tmp_path / f"walk{length}.py").write_text(ARRAYS.replace("LENGTH", str(length)))
    long, short = (f"{tmp_path / f'walk{length}.py'}:Walk" for length in (50, 7))
    where = f"operant: {tmp_path / 'walk7.py'}:18: "
    code, said = cli("train", short, *FEW, f"--set=env.backend={backend}", "--run-id=short")
    assert code == 2
    assert said.splitlines()[-1].startswith(where)  # before there is a run
    assert cli("train", long, *FEW, f"--set=env.backend={backend}", "--run-id=long")[0] == 0
    code, said = cli("eval", "long", f"--env={short}", "--episodes=1")
    assert code == 2
    assert said.startswith(where)
    assert said.count("\n") == 1
    assert not (home / "runs" / "short").exists()
    shutil.rmtree(home / "runs" / "long")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import nothing_of_that_name", "ModuleNotFoundError: No module named 'nothing_of_that"),
        ("[][3]", "IndexError: list index out of range"),
        ("raise ValueError", "ValueError\n"),
        ("x = (", "SyntaxError: '(' was never closed"),
    ],
)
def test_a_file_that_cannot_be_loaded(text: str, words: str, cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(f"\n{text}\n")
    for verb in ("train", "check"):
        code, said = cli(verb, f"{tmp_path / 'broken.py'}:Env")
        assert code == 2
        file = tmp_path / "broken.py"
        assert said.startswith(f"operant: {file} cannot be imported: {file}:2: {words}")


def test_mistakes_of_our_own_are_shown_whole(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("operant.runs.directory.list_runs", [].pop)
    with pytest.raises(IndexError):
        cli("runs")
