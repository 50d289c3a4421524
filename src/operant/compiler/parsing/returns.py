"""``return`` in an imperative function, and what an environment's own functions have to return."""

from __future__ import annotations

import ast
from typing import Any

from operant.compiler.emit.dialects import tuple_text
from operant.compiler.parsing.assignments import Assignments
from operant.compiler.parsing.kinds import BOOL, FLOAT, INT, NOTHING, NUMBERS, Value, described


class Returns(Assignments):
    """Writes what is returned."""

    returns: list[tuple[ast.AST, Any]]
    """What was returned so far, and where."""
    wanted: Any
    """The kind that has to be returned, if that is given."""

    def leave(self, node: ast.Return) -> None:
        """``return``."""
        name, given = self.function.__name__, node.value
        if self.wanted == NOTHING and given is not None:
            if not (isinstance(given, ast.Constant) and given.value is None):
                where = "obs[k] = ..." if name == "observe" else "state.name[k] = ..."
                where = "mask[k] = False" if name == "action_mask" else where
                self.fail(node, f"{name}() writes in place ({where}) and returns nothing")
            given = None
        if given is None:
            if self.wanted not in (None, NOTHING):
                self.fail(node, f"{self.must_return()}; got nothing")
            self.returns.append((node, NOTHING))
            self.emit("return")
            return
        if self.wanted is not None:
            value = self.as_wanted(node, given)
        else:
            value = self.visit(given)
            if value.kind not in NUMBERS and not isinstance(value.kind, tuple):
                text = f"a function returns numbers, not {described(value.kind)}"
                self.fail(node, f"{text}; hand it an array to write into: def f(state, row)")
        self.returns.append((node, value.kind))
        if value.parts:
            self.add(self.library.dialect.returned([part.text for part in value.parts]))
        else:
            self.emit(f"return {value.text}")

    def return_zeros(self) -> None:
        """Return something where only a loop that made too many passes arrives."""
        kind = self.returns[-1][1]
        zeros = {FLOAT: "f32(0.0)", BOOL: "False", INT: self.library.dialect.integer(0)}
        if isinstance(kind, tuple):
            self.add(self.library.dialect.returned([zeros[part] for part in kind]))
        else:
            self.emit(f"return {zeros.get(kind, '')}".rstrip())

    def must_return(self) -> str:
        """The sentence for an entry point that returns something else."""
        return f"{self.function.__name__}() must return {signature_text(self.wanted)}"

    def as_wanted(self, node: ast.Return, given: ast.expr) -> Value:
        """What an environment's own function has to return: reward and terminated."""
        count = len(given.elts) if isinstance(given, ast.Tuple | ast.List) else 0
        if count > len(self.wanted):
            extra = " (the state is changed in place; the time limit is max_episode_steps)"
            self.fail(node, f"{self.must_return()}; got {count} values{extra}")
        parts = given.elts if isinstance(given, ast.Tuple) else [given]
        nothing = any(isinstance(part, ast.Constant) and part.value is None for part in parts)
        if nothing or isinstance(given, ast.List | ast.Dict) or count == 1:
            self.fail(node, f"{self.must_return()}; got {ast.unparse(given)}")
        if not isinstance(given, ast.Tuple):
            value = self.visit(given)
            if value.kind == self.wanted:
                return value  # another function's result, handed on
            self.fail(node, f"{self.must_return()}; got {described(value.kind)}")
        names = ("the reward, the first value returned,", "terminated, the second value returned,")
        pairs = list(zip(given.elts, names, strict=True))
        values = [self.number(part, what=name) for part, name in pairs]
        if values[0].kind == BOOL != values[1].kind:
            self.fail(node, "reward and terminated are swapped; write return reward, terminated")
        fitted = [
            self.as_kind(part, value, kind, name)
            for (part, name), value, kind in zip(pairs, values, self.wanted, strict=True)
        ]
        return Value(tuple_text(fitted), self.wanted, parts=tuple(fitted))


def signature_text(kinds: Any) -> str:
    """What an entry point returns, as it is written."""
    return "nothing" if kinds == NOTHING else "two values, reward and terminated (0.0, False)"
