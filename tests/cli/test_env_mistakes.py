"""What an environment is to blame for is one sentence and exit code 2, in every command."""

from __future__ import annotations

import asyncio
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from operant.backends.reference.watch import WATCH
from operant.check import plays as check_plays
from operant.cli import main
from operant.cli.play import make_app
from operant.cli.target import load_env
from operant.compiler.compile_error import FallbackWarning
from operant.toolchain import paths

ENVS = "tests/raising_envs.py"
FILE = Path(__file__).parents[1] / "raising_envs.py"
SMALL = ["--set", "env.num_envs=4", "--set", "ppo.num_steps=16", "--set", "policy.hidden=[8]"]
SMALL += ["--set", "run.threads=1", "--set", "run.eval_episodes=0", "--total-steps", "64"]
Cli = Callable[..., str]


@pytest.fixture(scope="module", autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    home, kernels = tmp_path_factory.mktemp("home"), paths.home() / "kernels"
    kernels.mkdir(parents=True, exist_ok=True)
    (home / "kernels").symlink_to(kernels)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPERANT_HOME", str(home))
        patch.setenv("COLUMNS", "120")
        patch.chdir(FILE.parents[1])
        yield home


def run(*arguments: str) -> int:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["operant", *arguments])
        try:
            main()
        except SystemExit as end:
            return int(end.code or 0)
    return 0


@pytest.fixture
def mistake(capfd: pytest.CaptureFixture[str]) -> Cli:
    """Runs a command that ends with exit code 2; the sentence it says."""

    def ended(*arguments: str) -> str:
        code = run(*arguments)
        error = capfd.readouterr().err
        assert code == 2, error
        assert "Traceback" not in error
        (line,) = [line for line in error.splitlines() if line.startswith("operant: ")]
        return line.removeprefix("operant: ")

    return ended


@pytest.fixture(scope="module", params=["reference", "cpu"])
def backend(request: pytest.FixtureRequest) -> str:
    """The backend of a run of that name, trained on an environment that raises nothing."""
    name: str = request.param
    chosen = ["--set", f"env.backend={name}", "--run-id", name]
    assert run("train", f"{ENVS}:Sound", *SMALL, *chosen) == 0
    return name


def line_of(name: str) -> int:
    """The line ``#!`` of a class."""
    lines = FILE.read_text().splitlines()
    start = next(k for k, line in enumerate(lines) if line.startswith(f"class {name}("))
    return next(k for k, line in enumerate(lines, 1) if k > start and line.endswith("#!"))


OUTSIDE = "index 4 of state.n is outside 0..3; ask before with `if`, or write clip(x, 0, 3)"
SAID = {"reference": f"step() raised IndexError: {OUTSIDE}", "cpu": OUTSIDE}


def test_train(mistake: Cli, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_plays, "FIRST_STEPS", 0)  # as if it came later
    name = f"bad-{backend}"
    chosen = ["--set", f"env.backend={backend}", "--run-id", name]
    said = mistake("train", f"{ENVS}:Always", *SMALL, *chosen)
    assert said == (
        f"{FILE}:{line_of('Always')}: {SAID[backend]}; {name} is saved up to step 0; correct it "
        f"and continue with: operant train {ENVS}:Always --resume {name}"
    )


def test_what_compiled_code_would_go_on_with_is_found_before_training(mistake: Cli) -> None:
    said = mistake("train", f"{ENVS}:TooLarge", *SMALL, "--set", "env.backend=cpu")
    assert said.startswith(f"{FILE}:{line_of('TooLarge')}: step() raised OverflowError: ")
    assert "does not fit into state." in said


def test_an_endless_loop(
    mistake: Cli,
    backend: str,
    tmp_path: Path,
    unseen_test: None,  # an error that comes from another thread may arrive in coverage's own code
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(WATCH, "limit_s", 0.1)
    said = mistake("eval", backend, "--env", f"{ENVS}:Endless", "--episodes", "2")
    limit = {"reference": "0.1 s of processor time", "cpu": "16777216 passes"}[backend]
    assert said == (
        f"{FILE}:{line_of('Endless')}: `while state.n[1] < 10` did not end within {limit}; let the "
        "loop change what it asks for, or write for k in range(n) with a break"
    )


@pytest.mark.parametrize("verb", ["eval", "record"])
def test_a_trained_policy(mistake: Cli, backend: str, verb: str, tmp_path: Path) -> None:
    more = ["--out", str(tmp_path / "agent.gif")] if verb == "record" else ["--episodes", "2"]
    said = mistake(verb, backend, "--env", f"{ENVS}:Always", *more)
    assert said == f"{FILE}:{line_of('Always')}: {SAID[backend]}"


def test_a_picture(mistake: Cli, backend: str, tmp_path: Path) -> None:
    said = mistake(
        "record", backend, "--env", f"{ENVS}:CannotDraw", "--out", str(tmp_path / "agent.gif")
    )
    assert said == f"{FILE}:{line_of('CannotDraw')}: render() raised KeyError: 'no colour'"


def measuring(verb: str, env: str, folder: Path, backend: str = "cpu") -> list[str]:
    if verb == "bench":
        return ["bench", "env", "--env", env, "--num-envs", "4", "--backend", backend]
    chosen = ["--set", f"env.backend={backend}", *SMALL[:-2]]
    return ["profile", env, "--mode", "env_only", "--out", str(folder), *chosen]


@pytest.mark.parametrize("verb", ["bench", "profile"])
def test_measurements(mistake: Cli, backend: str, verb: str, tmp_path: Path) -> None:
    said = mistake(*measuring(verb, f"{ENVS}:Always", tmp_path, backend))
    assert said == f"{FILE}:{line_of('Always')}: {SAID[backend]}"


def test_play(mistake: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """The screen is left, and then the sentence is said."""

    async def played(app: Any) -> None:
        async with app.run_test() as pilot:
            for _ in range(10):
                await pilot.press("0")

    app = make_app(load_env(f"{ENVS}:Always"), 0)
    monkeypatch.setattr(type(app), "run", lambda app: asyncio.run(played(app)))
    for stream in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(f"sys.{stream}.isatty", lambda: True, raising=False)
    said = mistake("play", f"{ENVS}:Always")
    assert said == f"{FILE}:{line_of('Always')}: {SAID['reference']}"


def test_a_module_that_cannot_be_imported(mistake: Cli, tmp_path: Path) -> None:
    file = tmp_path / "half_a_game.py"
    for text, said in {
        "import operant\nx = 1 / 0\n": f"{file}:2: ZeroDivisionError: division by zero",
        "import nowhere_at_all\n": f"{file}:1: ModuleNotFoundError: No module named 'nowhere_at_",
        "x = = 1\n": f"{file}:1: SyntaxError: invalid syntax",
        "from operant.lang import fabs\n": f"{file}:1: operant.lang has no 'fabs'; write operant.",
        "from gymnasium.spaces import Discrete\nDiscrete(0)\n": f"{file}:2: ValueError: n (coun",
    }.items():
        file.write_text(text)
        assert mistake("check", str(file)).startswith(f"{file} cannot be imported: {said}")


def test_a_refused_definition_is_said_with_one_place(mistake: Cli, tmp_path: Path) -> None:
    file = tmp_path / "asks_if.py"
    file.write_text(
        "from typing import NamedTuple\n"
        "import operant\n"
        "from gymnasium.spaces import Box, Discrete\n"
        "class Asks(operant.Env):\n"
        "    class State(NamedTuple):\n"
        "        x: float\n"
        "    observation_space, action_space = Box(-1.0, 1.0, (1,)), Discrete(2)\n"
        "    def reset(random):\n"
        "        return Asks.State(random[0])\n"
        "    def step(state, action):\n"
        "        if action == 1:\n"
        "            return state, 1.0, False\n"
        "        return state, 0.0, False\n"
        "    def observe(state):\n"
        "        return (state.x,)\n"
    )
    said = mistake("train", str(file))
    assert said.startswith(f"{file}:11: `if` on a value that differs per environment; write ")
    assert said.count(str(file)) == 1


def test_operants_functions_in_a_class_of_gymnasiums(mistake: Cli, tmp_path: Path) -> None:
    file = tmp_path / "other_base.py"
    file.write_text(
        "import gymnasium\n"
        "class Other(gymnasium.Env):\n"
        "    def reset(random):\n"
        "        return random[0]\n"
        "    def step(state, action):\n"
        "        return state, 0.0, False\n"
    )
    assert mistake("train", str(file)) == (
        f"{file}:5: step(state, ...) is written as for operant.Env, which Other is not; write "
        "class Other(operant.Env), or def step(self, ...)"
    )


# Compilers ----------------------------------------------------------------------------------------
@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> str:
    """Prints what no compiler takes; what is said of it."""
    monkeypatch.setattr(
        "operant.backends.cpu.kernels.array_kernels_source", lambda *_: ("this is no program", [])
    )
    return "Sound cannot be compiled for backend 'cpu': SyntaxError: invalid syntax"


def test_what_cannot_be_compiled_is_not_trained_on(mistake: Cli, no_compiler: str) -> None:
    said = mistake("train", f"{ENVS}:Sound", *SMALL, "--run-id", "never")
    assert said.startswith(no_compiler)
    assert "\n" not in said
    assert "never" not in [path.name for path in (paths.home() / "runs").iterdir()]


def test_nor_measured(mistake: Cli, no_compiler: str, tmp_path: Path) -> None:
    for verb in ("bench", "profile"):
        assert mistake(*measuring(verb, f"{ENVS}:Sound", tmp_path)).startswith(no_compiler)


def test_nor_played(mistake: Cli, request: pytest.FixtureRequest) -> None:
    assert run("train", f"{ENVS}:Sound", *SMALL, "--run-id", "compiled") == 0
    said = request.getfixturevalue("no_compiler")
    assert mistake("eval", "compiled", "--env", f"{ENVS}:Sound").startswith(said)


def test_a_fall_back_is_a_sentence(no_compiler: str, capfd: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("default", FallbackWarning)
        code = run(*measuring("bench", f"{ENVS}:Sound", Path(), "auto"), "--seconds", "0.001")
    assert code == 0
    said = "operant: Sound runs on backend 'reference', in plain Python, slowly: backend 'cpu' does"
    assert said in capfd.readouterr().err
