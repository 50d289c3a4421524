"""README and documentation: what they name exists, and what they show runs."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from pathlib import Path

import pytest
import torch
import typer.main

import operant.lang
from operant.cli import app
from operant.ppo.config import Config
from operant.toolchain import paths

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
README = (ROOT / "README.md").read_text()
TUTORIAL = (DOCS / "tutorial.md").read_text()
SB3 = (DOCS / "coming-from-sb3.md").read_text()


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


def rows(section: str) -> list[list[str]]:
    """The cells of the tables of a section, without their headers."""
    found = [line.strip("| ").split(" | ") for line in section.splitlines() if line[:2] == "| "]
    return [row for row in found if "---" not in row[0] and row[0] != "Stable-Baselines3"]


@pytest.fixture
def elsewhere(tmp_path, monkeypatch) -> Path:
    """An empty folder to work in, and an empty home with the kernels that were compiled before."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "kernels").symlink_to(paths.home() / "kernels")
    monkeypatch.setenv("OPERANT_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_readme_fits_a_terminal() -> None:
    without = re.sub(r"```python\n.*?```", "", README, flags=re.DOTALL)
    assert [line for line in without.splitlines() if len(line) > 80] == []
    assert len(README.split()) < 700


def test_the_readme_shows_a_small_moving_picture() -> None:
    [picture] = re.findall(r"!\[[^]]*\]\((\S+\.gif)\)", README)
    data = (ROOT / picture).read_bytes()
    assert data[:6] == b"GIF89a"
    assert len(data) < 1_500_000


def test_the_python_of_the_readme_runs(elsewhere, capsys) -> None:
    first, _lander = blocks(README, "python")  # tests/test_docs.py runs the second
    exec(first.replace("200_000", "2_000"), {})
    assert capsys.readouterr().out


@pytest.mark.parametrize("page", ["README.md", *(p.name for p in sorted(DOCS.glob("*.md")))])
def test_commands_have_the_verbs_and_options_that_pages_show(page: str) -> None:
    text = (ROOT / page if page == "README.md" else DOCS / page).read_text()
    commands = typer.main.get_command(app).commands
    for line in "".join(blocks(text, "bash")).splitlines():
        for call in re.findall(r"\boperant ([a-z].*?)(?: &&|  +#|$)", line):
            command = commands[call.split()[0]]
            if hasattr(command, "commands") and len(call.split()) > 1:
                command = command.commands.get(call.split()[1], command)
            known = {name for param in command.params for name in param.opts}
            known |= {name for param in command.params for name in param.secondary_opts}
            assert set(re.findall(r"(?<=\s)--?[a-z][a-z-]*", call)) <= known, f"{page}: {call}"


def test_every_page_is_in_the_navigation_once() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2].partition("\nmarkdown")[0]
    named = re.findall(r"(\S+\.md)$", navigation, re.MULTILINE)
    pages = [page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")]
    assert sorted(named) == sorted([*pages, "contributing.md", "changelog.md"])


def test_the_index_names_every_page() -> None:
    index = (ROOT / "docs" / "index.md").read_text()
    pages = sorted(str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md"))
    assert [page for page in pages if f"({page})" not in index] == ["index.md"]


def test_the_tutorial_runs(elsewhere, monkeypatch, capsys) -> None:
    monkeypatch.syspath_prepend(ROOT / "examples")
    game, play, train = blocks(TUTORIAL, "python")
    assert game == (ROOT / "examples" / "catch.py").read_text()
    names: dict[str, object] = {}
    exec(play, names)
    assert capsys.readouterr().out == "[ True] [10.]\n"
    small = "PPO(Catch, seed=1, backend='reference', engine='eager', num_envs=8, num_steps=16)"
    exec(train.replace("PPO(Catch, seed=1)", small).replace("1_000_000", "256"), {})
    assert (elsewhere / "catcher" / "latest").exists()


def test_the_code_of_the_page_for_sb3_runs_on_both_sides(elsewhere, request) -> None:
    theirs, ours = blocks(SB3, "python")
    names: dict[str, object] = {}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # of small networks they mostly wait for each other
    request.addfinalizer(lambda: torch.set_num_threads(threads))
    exec(theirs.replace("seed=1", "seed=1, device='cpu'"), names)
    exec(ours.replace("seed=1", "seed=1, engine='eager', backend='reference'"), names)
    assert names["ppo"].steps == 512
    assert names["ppo"].config.ppo.minibatches == 8 * 32 // 64


def test_the_options_of_the_page_for_sb3_exist_on_both_sides() -> None:
    from stable_baselines3 import PPO

    theirs = inspect.signature(PPO.__init__).parameters
    ours = {
        f"{section.name}.{option.name}"
        for section in fields(Config)
        for option in fields(getattr(Config(), section.name))
    }
    table = rows(SB3.partition("## Options")[2].partition("## Environments")[0])
    assert len(table) >= 15
    for their_name, our_name, *_ in table:
        assert their_name.strip("`") in theirs
        assert not our_name or our_name.strip("`") in ours
    assert set(re.findall(r"`((?:ppo|run|policy|env)\.\w+)`", SB3)) - ours <= {"ppo.policy"}


def test_what_the_page_for_sb3_says_of_predict() -> None:
    from stable_baselines3 import PPO

    from operant.models import PPO as OURS

    assert inspect.signature(PPO.predict).parameters["deterministic"].default is False
    assert inspect.signature(OURS.predict).parameters["deterministic"].default is True


def test_the_reference_tells_every_word_of_the_language() -> None:
    page = (DOCS / "api" / "lang.md").read_text()
    told = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", page, re.MULTILINE))
    for name in operant.lang.__all__:
        word = getattr(operant.lang, name)
        # mkdocstrings reads docstrings of statements; these words get theirs from a function.
        if name in told:
            assert name == "pi" or told[name] == word.__doc__.splitlines()[0]
        else:
            assert f"def {name}(" in inspect.getsource(inspect.getmodule(word)) or isinstance(
                word, type
            )
