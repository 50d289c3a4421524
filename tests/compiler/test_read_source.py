"""A function is compiled from the text that was imported, or it is refused."""

from __future__ import annotations

import ast
import importlib
import linecache
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType, ModuleType

import pytest

from operant.compiler.read_source import SourceError, read_source
from operant.lang import LanguageError

OLD = "def gain(x):\n    return x + 1\n"
NEW = "def gain(x):\n    return x - 6\n"
Load = Callable[[str], ModuleType]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Load]:
    """Write a text to ``helper_of_a_game.py`` and import it."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def write(text: str) -> ModuleType:
        (tmp_path / "helper_of_a_game.py").write_text(text)
        importlib.invalidate_caches()
        return importlib.import_module("helper_of_a_game")

    yield write
    sys.modules.pop("helper_of_a_game", None)
    linecache.checkcache()


def edit(module: ModuleType, text: str) -> None:
    Path(str(module.__file__)).write_text(text)


def text_of(function: FunctionType) -> str:
    return ast.unparse(read_source(function) or ast.Pass())


def test_an_edited_helper_is_refused(load: Load) -> None:
    module = load(OLD)
    edit(module, NEW)
    with pytest.raises(SourceError, match=r"helper_of_a_game\.py:1: .* was changed after gain\(\)"):
        read_source(module.gain)


@pytest.mark.parametrize(
    "text",
    [
        OLD.replace("+ 1", "+ 1.0"),
        OLD.replace("+ 1", "+ True"),
        OLD.replace("x + 1", "y + 1"),
        OLD.replace("x + 1", "x + (lambda: 1)()"),
        "def loss(x):\n    return x + 1\n",
        "def gain(x:\n",
        "",
        f"{OLD}\n{NEW}".replace("+ 1", "+ 2"),
        f"class A:\n    {OLD.replace('    ', '        ')}",
    ],
)
def test_whatever_else_it_computes_is_noticed(load: Load, text: str) -> None:
    module = load(OLD)
    edit(module, text)
    with pytest.raises(SourceError):
        read_source(module.gain)


def test_the_text_that_was_read_before_the_edit_is_used(load: Load) -> None:
    module = load(OLD)
    linecache.getlines(str(module.__file__))
    edit(module, NEW)
    assert text_of(module.gain) == OLD.strip()


def test_lines_above_it_may_come_and_go(load: Load) -> None:
    module = load(f"# one\n# two\n\n{OLD}")
    edit(module, f"SIZE = 3\n\n\ndef other(x):\n    return x\n\n\n{OLD}")
    found = read_source(module.gain)
    assert found is not None
    assert found.lineno == 8
    edit(module, OLD)
    assert text_of(module.gain) == OLD.strip()


def test_imported_again_it_is_read_again(load: Load) -> None:
    module = load(OLD)
    assert text_of(module.gain) == OLD.strip()
    edit(module, NEW)
    old, module = module.gain, importlib.reload(module)
    assert module.gain(1) == -5
    assert text_of(module.gain) == NEW.strip()
    with pytest.raises(SourceError):
        read_source(old)


def test_of_two_with_the_same_name_the_right_one_is_read(load: Load) -> None:
    first = load(f"{OLD}\nfirst = gain\n\n{NEW}")
    assert text_of(first.first) == OLD.strip()
    assert text_of(first.gain) == NEW.strip()


HONEST = '''
"""A file with what makes compilation differ."""
from __future__ import annotations

PATTERN = "\\d"  # a warning at import


def outer(k):
    def inner(x):
        """It closes over k."""
        return x + k

    return inner


closure = outer(3)


class Game:
    size = 3

    @staticmethod
    def step(x: int) -> int:
        y: int = x * 2 + -0.0
        return [y + __name for __name in (1, 2)][0] if x < 3 else y

    def plain(x):
        return {1, 2, 3} | {x}, (1, (2.0, -0.0)), 3 * 5

    twice = lambda x: 2 * x
'''


def test_honest_functions_are_read(load: Load) -> None:
    with pytest.warns(SyntaxWarning if sys.version_info >= (3, 12) else DeprecationWarning):
        module = load(HONEST)
    assert text_of(module.closure).startswith("def inner(x)")
    assert text_of(module.Game.step).startswith("@staticmethod\ndef step")
    assert text_of(module.Game.plain).startswith("def plain")
    assert read_source(module.Game.twice) is None


def test_a_traced_function_is_read(load: Load) -> None:
    """Coverage and debuggers watch a function; its bytecode reads as before."""
    module = load(OLD)
    before = sys.gettrace()
    sys.settrace(lambda frame, event, argument: lambda *_: None)
    try:
        assert [module.gain(k) for k in range(100)] == list(range(1, 101))
        assert text_of(module.gain) == OLD.strip()
    finally:
        sys.settrace(before)


def test_a_function_with_assert_is_read_although_pytest_rewrote_it() -> None:
    def checked(x: int) -> int:
        assert x > 0
        return x

    assert "assert x > 0" in text_of(checked)  # type: ignore[arg-type]


def test_a_cell_of_a_notebook_is_read() -> None:
    name = "/nowhere/ipykernel_1/12345.py"
    cell = f"import asyncio\nawait asyncio.sleep(0)\n{OLD}"
    linecache.cache[name] = (len(cell), None, cell.splitlines(keepends=True), name)
    namespace: dict[str, FunctionType] = {}
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    code = compile(f"\n\n{OLD}", name, "exec", flags=flags, dont_inherit=True)
    exec(code, namespace)
    try:
        assert text_of(namespace["gain"]) == OLD.strip()
        assert name in linecache.cache
    finally:
        del linecache.cache[name]


def test_without_a_text_the_advice_is_to_write_a_file() -> None:
    namespace: dict[str, FunctionType] = {}
    exec(OLD, namespace)
    with pytest.raises(SourceError, match=r"source of gain\(\) cannot be read; write it in a file"):
        read_source(namespace["gain"])


GAME = """
from gymnasium.spaces import Box, Discrete

import operant
from helper_of_a_game import gain
from operant.lang import Arrays, int32, to_float


class Game(operant.Env):
    class State(Arrays):
        n = int32[1]

    observation_space = Box(-100.0, 100.0, (1,))
    action_space = Discrete(2)

    def reset(state):
        state.n[0] = 1

    def step(state, action):
        state.n[0] = gain(state.n[0])
        return to_float(state.n[0]), False

    def observe(state, obs):
        obs[0] = to_float(state.n[0])
"""


def test_a_game_is_not_compiled_from_a_helper_that_does_not_run(load: Load) -> None:
    """What it was for: reference and compiled code computed different things."""
    module = load(OLD)
    edit(module, NEW)
    game = Path(str(module.__file__)).with_name("game_with_a_helper.py")
    game.write_text(GAME)
    with pytest.raises(LanguageError, match="import it again"):
        importlib.import_module("game_with_a_helper")
    importlib.reload(module)
    assert importlib.import_module("game_with_a_helper").Game.__name__ == "Game"
    del sys.modules["game_with_a_helper"]
