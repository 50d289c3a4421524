"""The check of what `step` does with the action."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from gymnasium import spaces

from operant.check.finding import CheckFailed
from operant.check.plays import MAX_STEPS, random_actions, steps_of
from operant.compiler.env_functions import written_function
from operant.compiler.parsing.lookups import literal
from operant.compiler.recording.followed import Names, followed
from operant.compiler.recording.trace import INT
from operant.compiler.spec.layouts import Layout
from operant.compiler.spec.native_rules import is_native
from operant.compiler.spec.rules import Rules, TracedRules
from operant.lang.env import Env
from operant.vector.env import VecEnv


def check_actions(env: type[Env]) -> str:
    """Every component changes something, and is compared with what it can be.

    Raises:
        CheckFailed: one is not used, or a comparison with a constant is never true.
    """
    rules = Rules.of(env)
    if not is_native(env) and rules.action.dtype == INT:
        for said in _impossible(env, rules.action):
            raise CheckFailed(said)
    if not isinstance(rules, TracedRules):
        return _check_by_playing(env)
    used = {arg for node in rules.step.nodes for arg in node.args} | set(rules.step.outputs)
    names = {f"a_{k}" for k in range(rules.action.size)}
    unused = [
        str(node.value)
        for index, node in enumerate(rules.step.nodes)
        if node.op == "input" and str(node.value) in names and index not in used
    ]
    if len(unused) == rules.action.size:
        raise CheckFailed("step() never uses `action`: whatever the policy does changes nothing")
    if unused:
        raise CheckFailed(f"step() never uses action[{unused[0][2:]}]")
    return f"step() uses every component of {rules.action.space}"


def _check_by_playing(env: type[Env]) -> str:
    """Two batches that begin alike and take other actions: something must become different."""
    layout = Rules.of(env).action
    batches = [VecEnv(env, 16, seed=0) for _ in range(2)]
    for batch in batches:
        batch.reset()
    for step in range(steps_of(env)):
        for k, batch in enumerate(batches):
            batch.step(random_actions(layout, 16, k * MAX_STEPS + step))
        first, second = (batch.get_state() for batch in batches)
        # A library's bytes may be no part of the game, such as the gaps in a C struct.
        keys = [key for key in first if not (is_native(env) and key.startswith("state."))]
        if any(not np.array_equal(first[key], second[key], equal_nan=True) for key in keys):
            return f"actions of {layout.space} change what happens"
    raise CheckFailed("whatever the policy does changes nothing: does step() use `action`?")


_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def _impossible(env: type[Env], layout: Layout) -> Iterator[str]:
    """What is said of each comparison of the action with a constant that has one answer for all
    actions: ``action == 3`` of a ``Discrete(3)``.

    Only where the class that has the space has `step`, too: one that is written for several spaces
    may ask for more than this one has. What is always true may be asked as well.
    """
    owner = next(base for base in env.__mro__ if "action_space" in vars(base))
    function = written_function(vars(owner).get("step"))
    if function is None or not isinstance(env.action_space, spaces.Space):
        return
    for names in followed([function]):
        if names.function is not function:
            return
        for node in ast.walk(names.tree):
            if isinstance(node, ast.Compare):
                yield from _impossible_pairs(names, node, layout)


def _impossible_pairs(names: Names, node: ast.Compare, layout: Layout) -> Iterator[str]:
    terms = [node.left, *node.comparators]
    for left, sign, right in zip(terms, node.ops, terms[1:], strict=False):
        compare = _COMPARISONS.get(type(sign))
        for action, other, turned in ((left, right, False), (right, left, True)):
            component = _component(names.tree, action, layout)
            value = _number(names, other)
            if compare is None or component is None or value is None:
                continue
            low, last = layout.low[component], layout.high[component] - 1
            some = [low, last]  # what holds for these, and for the value, holds for all
            some += [value] if low <= value <= last and value == int(value) else []
            always = isinstance(sign, ast.NotEq)
            answers = {compare(value, k) if turned else compare(k, value) for k in some}
            if answers == {always}:
                text = ast.unparse(ast.Compare(left, [sign], [right]))
                place = f"{names.function.__code__.co_filename}:{node.lineno}"
                yield (
                    f"{place}: `{text}` is {'always' if always else 'never'} true: "
                    f"{ast.unparse(action)} is {low} to {last} in {layout.space}; write a "
                    "number of these, or a larger action_space"
                )


def _component(tree: ast.stmt, node: ast.expr, layout: Layout) -> int | None:
    """Which component of the action an expression is; None if it is none."""
    names = [part for part in ast.walk(tree) if isinstance(part, ast.Name) and part.id == "action"]
    if any(isinstance(part.ctx, ast.Store) for part in names):
        return None
    match node:
        case ast.Name(id="action") if layout.scalar:
            return 0
        case ast.Subscript(value=ast.Name(id="action"), slice=ast.Constant(value=int() as k)):
            return k if not layout.scalar and 0 <= k < layout.size else None
    return None


def _number(names: Names, node: ast.expr) -> Any:
    """The value of a constant, if it is a number that is known."""
    value = literal(node)
    value = names.value(node) if value is None else value
    return value if isinstance(value, int | float) else None
