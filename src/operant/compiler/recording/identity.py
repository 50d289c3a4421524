"""``is`` of numbers: ``state.n is None`` has one answer, in every environment and every step."""

from __future__ import annotations

import ast

from operant.compiler.recording.followed import Names, assigned_once, root

_GIVEN = ("state", "action", "random")


class Numbers:
    """Which expressions of one of an environment's own functions are made of the numbers that it is
    given, `state`, `action` and `random`."""

    def __init__(self, names: Names) -> None:
        arguments = names.tree.args.args if isinstance(names.tree, ast.FunctionDef) else []
        self._given = {argument.arg for argument in arguments} & {*_GIVEN}
        self._maybe = set(self._given)
        """These, and variables that are given what is made of them somewhere."""
        self._once = assigned_once(names.tree)
        stores = [node for node in ast.walk(names.tree) if isinstance(node, ast.Assign)]
        while True:
            found = {
                target.id
                for node in stores
                for target in node.targets
                if isinstance(target, ast.Name) and self._is_made(node.value)
            }
            if found <= self._maybe:
                return
            self._maybe |= found

    def _is_made(self, node: ast.expr) -> bool:
        """Whether an expression may be a number that differs per environment."""
        if isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
            holder = root(node)
            return isinstance(holder, ast.Name) and holder.id in self._maybe
        return self._is_computed(node)

    def _is_computed(self, node: ast.expr) -> bool:
        match node:
            case ast.BinOp(left=left, right=right) | ast.Compare(left=left, comparators=[right]):
                return self._is_made(left) or self._is_made(right)
            case ast.UnaryOp(operand=operand):
                return self._is_made(operand)
        return False

    def has(self, node: ast.expr) -> bool:
        """Whether an expression is one for sure, or a tuple of them."""
        if isinstance(node, ast.Name) and node.id in self._once:
            return self.has(self._once[node.id])
        if isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
            holder = root(node)
            return isinstance(holder, ast.Name) and holder.id in self._given
        return self._is_computed(node)


def identity_advice(node: ast.Compare) -> str:
    """The sentence for ``state.n is None`` and ``state.hit is True``."""
    first, right = node.left, node.comparators[0]
    if isinstance(first, ast.Constant):  # None is state.n
        first, right = right, first
    left = ast.unparse(first)
    same = isinstance(node.ops[0], ast.Is)
    if isinstance(right, ast.Constant) and right.value is None:
        return (
            f"{left} is never None; leave the question out, or write -1 for nobody, and "
            f"{left} {'==' if same else '!='} -1"
        )
    text = f"`{ast.unparse(node)}` is {not same} in every step: `is` compares no numbers"
    if isinstance(right, ast.Constant) and isinstance(right.value, bool):
        truth = left if right.value == same else f"logical_not({left})"
        return f"{text}; write {truth} (of an int, x {'!=' if right.value == same else '=='} 0)"
    return f"{text}; write {left} {'==' if same else '!='} {ast.unparse(right)}"
