"""Alias scopes: declared by name, so that two blocks of memory never get one scope."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from numba import float32, uint64
from numba.core.errors import TypingError

import operant
from operant.compiler.emit.numba_kernels import kernels_source
from operant.compiler.runtime.alias_scopes import AliasScopes, load, store
from operant.compiler.runtime.intrinsics import at
from operant.compiler.spec.rules import Rules
from operant.envs import CartPole

PAIR = AliasScopes(__name__, "pair", ("source", "result"))
OTHER = AliasScopes(__name__, "other", ("source", "result"))


def compiled(body: Any) -> Any:
    return numba.njit("void(uint64, uint64, int64)")(body)


def double(source: Any, result: Any, count: Any) -> None:
    a, b = at(uint64(source), float32), at(uint64(result), float32)
    for i in range(count):
        store(PAIR.result, b, i, load(PAIR.source, a, i) * float32(2))


def test_loads_and_stores() -> None:
    source = np.arange(37, dtype=np.float32)
    result = np.zeros(40, np.float32)
    compiled(double)(source.ctypes.data, result.ctypes.data, 37)
    np.testing.assert_array_equal(result[:37], 2 * source)
    assert not result[37:].any()


def test_scopes_of_a_declaration_are_told_apart_and_those_of_two_are_not() -> None:
    """In the IR: an access says where it is, and where all others of its declaration are not."""

    @compiled
    def both(source: Any, result: Any, count: Any) -> None:
        a, b = at(uint64(source), float32), at(uint64(result), float32)
        for i in range(count):
            store(PAIR.result, b, i, load(PAIR.source, a, i))
            store(OTHER.result, b, i + count, load(OTHER.source, a, i + count))

    (text,) = both.inspect_llvm().values()
    nodes = dict(re.findall(r"^(!\d+) = !\{(.*)\}$", text, re.MULTILINE))
    domains = {name: node for node, name in nodes.items() if name.startswith('!"operant ')}
    assert sorted(domains) == [f'!"operant {__name__}.{name}"' for name in ("other", "pair")]
    marks = re.findall(r"!alias\.scope (!\d+), !noalias (!\d+)", text)
    pairs = {(nodes[nodes[own]], nodes[nodes[others]]) for own, others in marks}
    wanted = set()
    for domain in domains.values():
        one, two = f'!"source", {domain}', f'!"result", {domain}'
        wanted |= {(one, two), (two, one)}
    assert pairs == wanted


def test_a_name_for_two_blocks_of_memory_raises() -> None:
    with pytest.raises(ValueError, match=r"twice: alias scopes obs are declared twice"):
        AliasScopes(__name__, "twice", ("obs", "reward", "obs"))


def test_other_scopes_under_a_name_that_is_taken_raise() -> None:
    with pytest.raises(ValueError, match=r"pair is declared already.*source, result.*another name"):
        AliasScopes(__name__, "pair", ("result", "source"))
    AliasScopes(__name__, "pair", ("source", "result"))  # as when a module is loaded again


@pytest.mark.parametrize("name", ["", "two words", "3", "for"])
def test_a_scope_is_an_identifier(name: str) -> None:
    with pytest.raises(ValueError, match="no identifier"):
        AliasScopes(__name__, "wrong", (name,))
    with pytest.raises(ValueError, match="no identifier"):
        AliasScopes(__name__, name, ("source",))


def test_an_undeclared_scope_raises() -> None:
    def wrong(source: Any, result: Any, count: Any) -> None:
        store(PAIR.target, at(uint64(result), float32), 0, float32(1))  # type: ignore[attr-defined]

    with pytest.raises(TypingError, match="no alias scope 'target', only source, result"):
        compiled(wrong)


def test_a_number_is_no_scope() -> None:
    def wrong(source: Any, result: Any, count: Any) -> None:
        store(3, at(uint64(result), float32), 0, float32(1))

    with pytest.raises(TypingError, match="expected an alias scope"):
        compiled(wrong)


def test_no_access_is_numbered() -> None:
    files = [
        path for path in Path(operant.__file__).parent.rglob("*.py") if "triton" not in str(path)
    ]
    texts = [path.read_text() for path in files] + [kernels_source(Rules.of(CartPole), "1")]
    assert not [text for text in texts if re.search(r"(?<![\w.])(load|store)\(\d", text)]
