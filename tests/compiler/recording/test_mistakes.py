"""Mistakes in environments of numbers: file, line, what came and what to write, in one sentence."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import operant
from operant.cli import main
from operant.compiler.spec.rules import Rules
from operant.lang import LanguageError

from ...modules import load as load_file
from .class_mistakes import CLASS_MISTAKES
from .hidden_mistakes import HIDDEN_MISTAKES
from .mistakes import FUNCTION_MISTAKES, GOOD, HEAD, LINE, Change

MISTAKES = FUNCTION_MISTAKES | CLASS_MISTAKES | HIDDEN_MISTAKES

_numbers = itertools.count()


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    """A file of its own, whose module is forgotten afterwards."""
    path = tmp_path / f"cart{next(_numbers)}.py"
    yield path
    sys.modules.pop(path.stem, None)


def changed(*changes: Change) -> str:
    text = GOOD
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def load(file: Path, text: str) -> ModuleType:
    file.write_text(text)
    return load_file(file)


def marked_line(text: str) -> int:
    lines = text.splitlines()
    marked = [k for k, line in enumerate(lines, 1) if line.endswith("#!")]
    return marked[0] if marked else lines.index(HEAD) + 1


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_sentence_with_its_place(
    file: Path, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    changes, sentence = MISTAKES[name]
    text = changed(*changes) if isinstance(changes, list) else changed(changes)
    with pytest.raises(LanguageError) as caught:
        load(file, text)
    assert str(caught.value) == f"{file}:{marked_line(text)}: {sentence}"
    assert capfd.readouterr().out == ""  # nothing of the author's ran that can be seen


def test_the_file_without_mistakes_runs(file: Path) -> None:
    env = operant.make(load(file, GOOD).Cart, num_envs=2, backend="reference")
    obs, _ = env.reset(seed=0)
    assert obs.shape == (2, 2)
    env.step(np.zeros(2, np.int64))


ALLOWED = [
    'name = f"x{1}"\n        x = getattr(state, name[:1]) + v',
    "x = state.x + v\n        parts = []\n        parts.append(x)\n        x = parts[0]",
    "x = state.x + v\n        x = [x, v][0]\n        table = {}\n        table['a'] = x",
    "x = state.x + v\n        hit = (action == 1) & (state.n & 1 == 1)",
    "x = state.x + v\n        try:\n            x = x + 1.0\n        finally:\n            pass",
    "x = state.x + v\n\n        def more(y):\n            nonlocal x\n            x = x + y\n"
    "        more(1.0)",
    "x = state.x + v\n        assert params is not None, f'{params.__class__}'",
    "x = state.x + v\n        table = LOG\n        table = [*table, x]\n        x = table[0]",
    "x = state.x + v\n        import queue\n        x = x + queue.Queue(3).maxsize",
    "x = state.x + v\n        x += TRACKER.total",
    "x = state.x + v\n        best = None\n        x = x if best is None else x + best",
    "x = state.x + v\n        x = x if LOG is not None and params is not None else v",
    "x = state.x + v\n        x = x if params.gravity is not None else v",
    "x = state.x + v\n        old = state\n        state = old\n        x = x + old.v",
    "x = state.x + v\n        x = max(1.0, 2.0) * x + math.sin(1.0) + sum([x, v])",
]


CONSTANTS = [
    ("max_episode_steps = 50", "max_speed = 50\n    render_rate = 3\n    horizon = 9"),
    ("max_episode_steps = 50", "max_episode_steps = 50\n    max_steps = 3\n    obs_size = 2"),
    ("x = state.x + v", "x = clip(state.x + v, -Cart.max_steps, Cart.max_steps)"),
    ("gravity: float = 9.8", "gravity: float = 9.8\n        STEP = 0.02"),
]


@pytest.mark.parametrize("change", CONSTANTS)
def test_constants_of_the_authors_own_are_allowed(file: Path, change: Change) -> None:
    text = changed(change)
    if "Cart.max_steps" in text:
        text = text.replace("max_episode_steps = 50", "max_steps = 50")
    assert load(file, text).Cart.__name__ == "Cart"


@pytest.mark.parametrize("lines", ALLOWED)
def test_python_that_depends_on_no_value_is_allowed(file: Path, lines: str) -> None:
    assert load(file, changed((LINE, lines))).Cart.State._fields == ("x", "v", "n")


def test_functions_of_libraries_are_not_looked_through(file: Path) -> None:
    """``textwrap.fill`` and the like may do what they want."""
    more = f"{LINE}\n        import statistics\n        x = x * statistics.mean([1.0, 2.0])"
    load(file, changed((LINE, more)))


def test_the_line_is_that_of_the_helper_in_another_module(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    helper = file.with_name(f"helper_of_{file.name}")
    helper.write_text("PAIR = (1.0, 2.0)\n\n\ndef third(x):\n    return x + PAIR[2]\n")
    monkeypatch.syspath_prepend(file.parent)
    monkeypatch.setitem(sys.modules, helper.stem, load_file(helper))
    more = f"{LINE}\n        import {helper.stem}\n        x = {helper.stem}.third(x)"
    with pytest.raises(LanguageError) as caught:
        load(file, changed((LINE, more)))
    assert str(caught.value) == (
        f"{helper}:5: IndexError: PAIR[2] is outside: PAIR holds 2 values, 0 to 1"
    )


def test_text_that_is_not_to_be_had_is_not_looked_through() -> None:
    scope = {"__name__": "typed"}
    exec(compile(changed((LINE, f"{LINE}\n        LOG.append(1)")), "<typed>", "exec"), scope)
    assert "Cart" in scope


def test_a_debugger_sees_symbols(file: Path) -> None:
    seen: list[str] = []
    sys.modules["helper_of_debuggers"] = ModuleType("helper_of_debuggers")
    sys.modules["helper_of_debuggers"].show = lambda value: _put(seen, repr(value))  # type: ignore[attr-defined]
    more = f"{LINE}\n        import helper_of_debuggers\n        helper_of_debuggers.show(x)"
    load(file, changed((LINE, more)))
    del sys.modules["helper_of_debuggers"]
    assert seen[0].startswith("<float add")


def _put(items: list[str], text: str) -> None:
    items.append(text)


def test_a_class_in_a_function_has_a_place(file: Path) -> None:
    text = GOOD.replace("observation_space = Box(-10.0, 10.0, (2,))", "observation_space = 1  #!")
    start = text.index(HEAD)
    inner = "".join(f"    {line}\n" if line else "\n" for line in text[start:].splitlines())
    text = f"{text[:start]}def make():\n{inner}\n    return Cart\n"
    module = load(file, text)
    with pytest.raises(LanguageError) as caught:
        module.make()
    assert str(caught.value).startswith(f"{file}:{marked_line(text)}: make.<locals>.Cart.observ")


def test_a_part_of_a_base_class_has_its_own_place(file: Path) -> None:
    module = load(file, GOOD)
    with pytest.raises(LanguageError) as caught:
        type("Wide", (module.Cart,), {"observe": lambda state: (state.x,)})
    assert f"{__file__}:" in str(caught.value)
    with pytest.raises(TypeError, match="Cart has no parameter 'g'"):
        Rules.of(module.Cart, {"g": 1.0})


# The command line ---------------------------------------------------------------------------------
def run(*arguments: str) -> int:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["operant", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
    return int(end.value.code or 0)


AT_THE_DEFINITION = ["a list field", "a float64 Box", "a Dict space", "no observe", "IndexError"]


@pytest.mark.parametrize("name", AT_THE_DEFINITION)
def test_check_fails_with_the_sentence(
    file: Path, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    changes, sentence = MISTAKES[name]
    assert isinstance(changes, tuple)
    file.write_text(changed(changes))
    assert run("check", f"{file}:Cart") == 1
    out, err = capfd.readouterr()
    place = f"{file}:{marked_line(file.read_text())}"
    line = f"  FAIL definition   {place}: {sentence}"
    assert out.splitlines() == [f"{file}:Cart", line, "  1 failed"]
    assert err == ""


@pytest.mark.parametrize("name", AT_THE_DEFINITION)
def test_train_says_the_sentence(file: Path, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    changes, sentence = MISTAKES[name]
    assert isinstance(changes, tuple)
    file.write_text(changed(changes))
    assert run("train", f"{file}:Cart") == 2
    place = f"{file}:{marked_line(file.read_text())}"
    assert capfd.readouterr().err.splitlines()[-1] == f"operant: {place}: {sentence}"


GYMNASIUM = """
import gymnasium

class Cart(gymnasium.Env):
    def step(self, action):
        return None, 0.0, False, False, {}
"""


@pytest.mark.parametrize("verb", ["check", "train"])
@pytest.mark.parametrize("cls", [":Cart", ""])
def test_an_environment_of_gymnasiums(
    file: Path, verb: str, cls: str, capfd: pytest.CaptureFixture[str]
) -> None:
    file.write_text(GYMNASIUM)
    assert run(verb, f"{file}{cls}") == (2 if verb == "train" else 1)
    out, err = capfd.readouterr()
    sentence = "no observation_space; set it in __init__"
    assert sentence in (err if verb == "train" else out)


def test_a_class_of_no_kind(file: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file.write_text("class Cart:\n    def step(self, action):\n        pass\n")
    assert run("check", f"{file}:Cart") == 2
    said = capfd.readouterr().err.splitlines()[-1]
    assert said == (
        f"operant: Cart in {file} is no environment: write class Cart(operant.Env), or "
        "class Cart(gymnasium.Env)"
    )


def test_a_class_without_rules(file: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file.write_text("import operant\nclass Base(operant.Env):\n    render_fps = 60\n")
    assert run("check", f"{file}:Base") == 1
    said = capfd.readouterr().out.splitlines()[1]
    assert said.startswith(f"  FAIL definition   {file}:2: Base lacks State, reset, step, observe")
