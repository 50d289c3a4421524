"""The working directory may be anyone's: nothing that lies in it is run, unless it is named."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import operant
from operant.cli.screen import UserError
from operant.cli.target import load_env
from operant.ppo.kernels.cpu import compilation
from operant.toolchain.child import python_command, python_environment

SHADOWED = ("numba", "torch", "numpy", "gymnasium", "typer", "rich", "psutil", "textual", "numexpr")


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory with modules that leave a marker; that there is none is checked."""
    for name in SHADOWED:
        code = f"open({str(tmp_path / 'RAN')!r}, 'a').write('{name} '); raise ImportError('shadow')"
        (tmp_path / f"{name}.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    assert not (tmp_path / "RAN").exists()


@pytest.fixture
def environment() -> dict[str, str]:
    """As a user's: unsafe."""
    return python_environment() | {"PYTHONSAFEPATH": ""}


def run(command: list[str], environment: dict[str, str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_python_dash_m(hostile: Path, environment: dict[str, str]) -> None:
    for words in (["-m", "operant"], ["-Bm", "operant"], ["-moperant"], ["-Bmoperant"]):
        assert "operant" in run([sys.executable, *words, "--version"], environment)
    assert "CartPole-v1" in run([sys.executable, "-m", "operant", "envs"], environment)


def test_others_keep_their_path(tmp_path: Path, environment: dict[str, str]) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("import operant\n")
    (tmp_path / "package" / "operant.py").touch()
    (tmp_path / "package" / "tool.py").write_text("import beside; print('here')\n")
    (tmp_path / "beside.py").touch()
    command = [sys.executable, "-m", "package.tool", "operant"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment)
    assert done.stdout == "here\n"


def test_training_in_the_background(
    hostile: Path, environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    home = tmp_path_factory.mktemp("home")
    kernels = Path(os.environ["OPERANT_HOME"]) / "kernels"
    kernels.mkdir(parents=True, exist_ok=True)
    (home / "kernels").symlink_to(kernels)
    words = ["train", "CartPole-v1", "--total-steps=2000", "--set=run.eval_episodes=0", "--detach"]
    environment |= {"OPERANT_HOME": str(home)}
    name = run([sys.executable, "-m", "operant", *words], environment).strip()
    assert (home / "runs" / name / "metrics.mmap").exists()


def test_the_processes_that_compile(hostile: Path) -> None:
    process = compilation._compile_elsewhere([])
    assert process is not None
    assert process.wait() == 0


def test_the_monitor_in_the_browser(hostile: Path, environment: dict[str, str]) -> None:
    pytest.importorskip("textual_serve")
    from operant.monitor.web import MonitorServer

    command = MonitorServer().command
    assert "Keys:" in run([*command, "--help"], environment)


def test_grandchildren(hostile: Path) -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import numba'])"
    subprocess.run(python_command("-c", code), env=python_environment(), check=True)


def test_python_is_started_in_one_place_only() -> None:
    root = Path(operant.__file__).parent
    found = {path.name for path in root.rglob("*.py") if "sys.executable" in path.read_text()}
    assert found == {"child.py"}


def test_no_empty_place_on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", "/some/where", ""]))
    places = python_environment()["PYTHONPATH"].split(os.pathsep)
    assert places == [str(Path(operant.__file__).parents[1]), "/some/where"]


def test_numba_takes_no_settings_from_there(hostile: Path, environment: dict[str, str]) -> None:
    """It would run pickled code of a folder that they name, and overwrite files."""
    pytest.importorskip("yaml")
    for name in SHADOWED:
        (hostile / f"{name}.py").unlink()
    stolen = f"cache_dir: stolen\nchrome_trace: {hostile / 'a'}\ndump_html: {hostile / 'b'}\n"
    (hostile / ".numba_config.yaml").write_text(stolen)
    ask = "c = numba.config; print([c.CACHE_DIR, bool(c.CHROME_TRACE), c.HTML is None])"
    code = f"import numba; {ask}"
    assert run(python_command("-c", code), environment) == "['stolen', True, False]\n"
    (hostile / "a").unlink()
    code = (
        "import sys; sys.argv[1:] = ['envs']; from operant import cli\ntry: cli.main()\nfinally: "
    )
    code += f"import numba; numba.core.config.reload_config(); {ask}"  # as when it compiles
    assert run(python_command("-c", code), environment).endswith("['', False, True]\n")
    assert not (hostile / "a").exists()


def test_nor_do_the_processes_that_compile(
    hostile: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("yaml")
    for name in SHADOWED:
        (hostile / f"{name}.py").unlink()
    (hostile / ".numba_config.yaml").write_text(f"chrome_trace: {hostile / 'RAN'}\n")
    monkeypatch.setattr("numba.core.config._config_fname", "")
    process = compilation._compile_elsewhere([])
    assert process is not None
    assert process.wait() == 0


def test_a_file_that_is_named_finds_what_lies_there(hostile: Path) -> None:
    (hostile / "helper.py").write_text("name = 'helper'\n")
    (hostile / "walk.py").write_text("import helper\nimport numexpr_is_missing\n")
    (hostile / "sub").mkdir()
    (hostile / "sub" / "walk.py").write_text(
        "import helper\nfrom operant.envs.classic.cartpole import CartPole\n\n"
        "class Walk(CartPole):\n    pass\n"
    )
    before = list(sys.path)
    try:
        assert load_env("sub/walk.py:Walk").__name__ == "Walk"
        with pytest.raises(
            UserError, match=r"walk\.py:2: ModuleNotFoundError: .*numexpr_is_missing"
        ):
            load_env("walk.py:Walk")
    finally:
        for name in ("helper", "walk"):
            sys.modules.pop(name, None)
    assert sys.path == before


def test_a_module_that_is_named_brings_nothing_else_along(
    hostile: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An installed one would import a shadow of what it needs; one here comes before both."""
    installed = tmp_path_factory.mktemp("installed")
    game = "class Game(CartPole):\n    place = '{}'\n"
    for folder, name in ((installed, "far"), (installed, "twice"), (hostile, "twice")):
        start = "import numexpr_\nfrom operant.envs.classic.cartpole import CartPole\n"
        (folder / f"{name}.py").write_text(start + game.format(folder.name))
    (installed / "numexpr_.py").touch()
    (hostile / "numexpr_.py").write_text(f"open({str(hostile / 'RAN')!r}, 'a')")
    monkeypatch.syspath_prepend(installed)
    before = list(sys.path)
    try:
        assert load_env("far:Game").place == installed.name  # type: ignore[attr-defined]
        assert load_env("twice:Game").place == hostile.name  # type: ignore[attr-defined]
    finally:
        for name in ("far", "twice", "numexpr_"):
            sys.modules.pop(name, None)
    assert sys.path == before
