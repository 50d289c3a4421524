"""What the documentation shows is what runs."""

from __future__ import annotations

import importlib
import inspect
import itertools
import re
import shlex
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest

import operant
from operant.render.canvas import Canvas
from operant.render.colors import COLORS
from operant.sweep.space import parse_space
from operant.toolchain import paths

from .modules import load

ROOT = Path(__file__).parents[1]


def rules(name: str) -> str:
    """An example up to its picture, which pages leave out."""
    text = (ROOT / "examples" / name).read_text()
    shown, *rest = re.split(r"\n    (?:render_size|def render)\b", text)
    assert rest
    return shown


EXAMPLE = rules("lander.py")


def test_the_example_is_about_thirty_lines() -> None:
    assert len(EXAMPLE.splitlines()) <= 32


@pytest.mark.parametrize("page", ["README.md", "docs/environments.md"])
def test_pages_show_the_example_as_it_is(page: str) -> None:
    assert EXAMPLE in (ROOT / page).read_text()


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_the_example_runs_and_registers(backend: str, monkeypatch) -> None:
    known = "operant.vector.registry._REGISTERED"
    monkeypatch.setattr(known, {})  # forgotten afterwards: other tests list what is registered
    namespace: dict[str, object] = {"__name__": "lander"}
    exec(compile(EXAMPLE, str(ROOT / "examples" / "lander.py"), "exec"), namespace)
    operant.register("Lander-v0", namespace["Lander"])  # type: ignore[arg-type]
    env = operant.make("Lander-v0", num_envs=256, backend=backend)
    env.reset(seed=0)
    landed = 0
    for _ in range(400):
        state = env.get_state()
        too_fast = state["state.speed"] < -0.6 - 0.12 * state["state.height"]
        _, reward, terminated, _, _ = env.step(too_fast.astype(int))
        landed += int(((reward == 10.0) & terminated).sum())
    assert landed >= 200  # slower near the ground: a soft landing


SNAKE = rules("snake.py")


def test_the_grid_game_is_seventy_lines_and_shown_as_it_is() -> None:
    assert len(SNAKE.splitlines()) <= 70
    assert SNAKE in (ROOT / "docs" / "arrays.md").read_text()


def test_the_page_on_pictures_shows_the_one_of_the_grid_game() -> None:
    text = (ROOT / "examples" / "snake.py").read_text().partition("    def render(")
    assert dedent("".join(text[1:])) in dedent((ROOT / "docs" / "environments.md").read_text())


def test_the_page_on_pictures_names_every_colour_and_method() -> None:
    page = (ROOT / "docs" / "environments.md").read_text().partition("### Pictures")[2]
    for name in COLORS:
        assert f"`{name}`" in page
    for name, method in vars(Canvas).items():
        if callable(method) and not name.startswith("_") and name != "to_array":
            given = list(inspect.signature(method).parameters.values())[1:]
            said = [f"{one.name}=0" if one.default == 0.0 else one.name for one in given]
            assert f"`canvas.{name}({', '.join(said)})`" in page


def test_the_page_on_arrays_runs(monkeypatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "examples")
    page = (ROOT / "docs" / "arrays.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.S)
    namespace: dict[str, object] = {"operant": operant}
    for block in blocks:
        if block != SNAKE:
            exec(block, namespace)
    assert namespace["windows"].steps == 100 * 1024


def test_the_page_on_grid_games_runs(tmp_path) -> None:
    """Each block as a file: classes are read from their source."""
    page = (ROOT / "docs" / "grid.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.S)
    for k, block in enumerate(blocks):
        (tmp_path / f"grid{k}.py").write_text(block.replace('"cpu"', '"reference"'))
    modules = [load(tmp_path / f"grid{k}.py", f"grid_page_{k}") for k in range(len(blocks))]
    env = operant.make(modules[-1].EmptyRoom, 8, backend="reference", seed=0)
    env.reset()
    rng = np.random.default_rng(0)
    returns = sum(env.step(rng.integers(0, 3, 8))[1].sum() for _ in range(150))
    assert returns > 0.5


def test_every_documented_training_has_a_threshold(monkeypatch) -> None:
    """What a page tells a reader to train, `benchmarks/learns.py` trains over several seeds."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    lines = importlib.import_module("learns").LINES
    trained = {asked_for(line.command.partition(" train ")[2]) for line in lines}
    examples = [path for path in (ROOT / "examples").rglob("*") if path.suffix in (".py", ".c")]
    seen = set()
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *examples]:
        text = page.read_text().replace("\\\n", " ")
        found = {asked_for(rest) for rest in re.findall(r"operant train ([^`#\n]+)", text)}
        found = {
            one for one in found if one and not one[0].startswith(("ENV", "game.py", "my_env.py"))
        }
        seen |= found
        assert found <= trained, f"{page.name}: add it to benchmarks/learns.py"
    assert len(seen) > 15


def asked_for(rest: str) -> tuple[str, ...]:
    """What follows ``operant train``, less its version and what changes nothing of the training;
    empty where no environment is named first."""
    words = shlex.split(rest.split("  ")[0].replace("'", " "))
    if not words or words[0].startswith("-"):
        return ()
    first, *others = words
    kept = [first.partition("-v")[0]]
    for name, value in itertools.pairwise(others):
        if name in ("--set", "--total-steps", "--learning-rate", "--num-envs"):
            kept += [name, value]
    return tuple(kept)


def test_links_in_the_documentation_exist() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    for page in pages:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_python_blocks_of_the_vector_page_run() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "vector.md").read_text(), re.S)
    assert blocks
    for block in blocks:
        exec(block.replace("range(1000)", "range(3)"), {})


def test_python_blocks_of_the_training_page_run(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "home" / "kernels").parent.mkdir()
    (tmp_path / "home" / "kernels").symlink_to(paths.home() / "kernels")
    monkeypatch.setenv("OPERANT_HOME", str(tmp_path / "home"))
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "training.md").read_text(), re.S)
    assert len(blocks) >= 3
    for block in blocks:
        exec(block.replace("0_000", "_000"), {})  # a tenth of the steps


def test_the_space_and_the_code_of_the_page_on_sweeps() -> None:
    page = (ROOT / "docs" / "sweeps.md").read_text()
    (space,) = re.findall(r"```toml\n(.*?)```", page, re.S)
    assert len(parse_space(space.encode(), "sweeps.md").ranges) == 4
    (code,) = re.findall(r"```python\n(.*?)```", page, re.S)
    exec(code.replace("20_000", "2_000"), {})


def test_the_training_example_runs(monkeypatch, capsys) -> None:
    monkeypatch.syspath_prepend(ROOT / "examples")
    importlib.import_module("train_lander").main(total_steps=2_000)
    assert "a soft landing is worth 10" in capsys.readouterr().out


@pytest.mark.usefixtures("interpreter")
def test_the_torch_loop_runs(monkeypatch, capsys) -> None:
    monkeypatch.syspath_prepend(ROOT / "examples")
    monkeypatch.setattr("sys.argv", ["torch_loop.py", "--num-envs", "16", "--steps", "12"])
    importlib.import_module("torch_loop").main()
    assert "episodes, mean return" in capsys.readouterr().out


def test_the_logger_of_the_monitor_page_and_the_reader_of_metrics(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("OPERANT_HOME", str(tmp_path))
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "monitor.md").read_text(), re.S)
    assert len(blocks) == 1
    exec(compile(blocks[0], "monitor.md", "exec"), {})
    monkeypatch.syspath_prepend(ROOT / "examples")
    from read_metrics import read

    names, rows = read(str(tmp_path / "runs" / "my-loop" / "metrics.mmap"))
    assert len(rows) == 1000
    assert rows[-1][names.index("steps")] == 999
    assert rows[-1][names.index("return")] == pytest.approx(99.9)
