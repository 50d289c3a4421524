"""Memory that is known not to overlap: access to it by the name of its alias scope.

Numba cannot say that two pointers never meet, and LLVM gives up vectorising a loop over more than a
handful of arrays rather than compare all their addresses at run time. `load` and `store` carry
LLVM's alias scopes instead, which are declared by name:

    HEADS = AliasScopes(__name__, "heads", ("logits", "log_prob"))
    ...
    store(HEADS.log_prob, log_prob, i, load(HEADS.logits, logits, i))

Two scopes of one declaration never overlap; scopes of two declarations may. Two loops that name the
same memory differently need declarations of their own, for one loop may be inlined into the other's
function.
"""

# mypy: disable-error-code="no-untyped-call, untyped-decorator, override"

from __future__ import annotations

import keyword
from collections.abc import Iterable
from typing import Any

from numba import types
from numba.core.errors import TypingError
from numba.core.imputils import lower_constant, lower_getattr_generic
from numba.core.typing.templates import AttributeTemplate, infer_getattr
from numba.extending import intrinsic, models, register_model, typeof_impl

_declared: dict[tuple[str, str], tuple[str, ...]] = {}


class AliasScopes:
    """Names of blocks of memory no two of which overlap.

    Args:
        module: ``__name__`` of the module that declares them.
        name: tells the declarations of a module apart.
        scopes: the names.

    Raises:
        ValueError: a name comes twice or is no identifier, or the module has declared other scopes
            under `name`. The same declaration again is none of this: a module may be loaded twice.
    """

    def __init__(self, module: str, name: str, scopes: Iterable[str]) -> None:
        self.scopes = tuple(scopes)
        self.label = f"{module}.{name}"
        wrong = [text for text in (name, *self.scopes) if not _is_name(text)]
        if wrong:
            raise ValueError(f"{self.label}: {wrong[0]!r} is no identifier, so no name here")
        twice = sorted({scope for scope in self.scopes if self.scopes.count(scope) > 1})
        if twice:
            raise ValueError(
                f"{self.label}: alias scopes {', '.join(twice)} are declared twice; two blocks of "
                "memory under one name would be taken for memory that overlaps nothing else"
            )
        before = _declared.setdefault((module, name), self.scopes)
        if before != self.scopes:
            raise ValueError(
                f"{self.label} is declared already, with the alias scopes {', '.join(before)}; "
                "declare these under another name"
            )


def _is_name(text: str) -> bool:
    return text.isidentifier() and not keyword.iskeyword(text)


# Both are values to Numba, so that kernels can write HEADS.logits, and nothing to LLVM.
class _ScopesType(types.Type):
    """An `AliasScopes`."""

    def __init__(self, label: str, scopes: tuple[str, ...]) -> None:
        self.label, self.scopes = label, scopes
        super().__init__(f"AliasScopes({label}: {' '.join(scopes)})")


class _ScopeType(types.Type):
    """One of its scopes."""

    def __init__(self, owner: _ScopesType, scope: str) -> None:
        self.owner, self.scope = owner, scope
        super().__init__(f"AliasScope({owner.label}.{scope})")


register_model(_ScopesType)(models.OpaqueModel)
register_model(_ScopeType)(models.OpaqueModel)


@typeof_impl.register(AliasScopes)
def _type_of(value: AliasScopes, context: Any) -> _ScopesType:
    return _ScopesType(value.label, value.scopes)


@lower_constant(_ScopesType)
def _constant(context: Any, builder: Any, kind: Any, value: AliasScopes) -> Any:
    return context.get_dummy_value()


@infer_getattr
class _ScopeOf(AttributeTemplate):
    key = _ScopesType

    def generic_resolve(self, owner: _ScopesType, scope: str) -> _ScopeType:
        if scope not in owner.scopes:
            raise TypingError(
                f"{owner.label} declares no alias scope {scope!r}, only {', '.join(owner.scopes)}; "
                "declare it there"
            )
        return _ScopeType(owner, scope)


@lower_getattr_generic(_ScopesType)
def _scope(context: Any, builder: Any, kind: Any, value: Any, scope: str) -> Any:
    return context.get_dummy_value()


def _mark(instruction: Any, module: Any, scope: _ScopeType) -> None:
    """Tell LLVM that this access touches `scope` and no other of its declaration."""
    domain = module.add_metadata([f"operant {scope.owner.label}"])
    nodes = {name: module.add_metadata([name, domain]) for name in scope.owner.scopes}
    own = nodes.pop(scope.scope)
    instruction.set_metadata("alias.scope", module.add_metadata([own]))
    instruction.set_metadata("noalias", module.add_metadata(list(nodes.values())))


def _check(scope: Any) -> None:
    if not isinstance(scope, _ScopeType):
        raise TypingError(f"expected an alias scope, one of an AliasScopes by name; got {scope}")


@intrinsic
def load(typing_context: Any, scope: Any, array: Any, index: Any) -> Any:
    """``array[index]`` of a pointer to memory that overlaps no other scope of the declaration."""
    _check(scope)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value = builder.load(builder.gep(args[1], [args[2]], inbounds=True))
        _mark(value, builder.module, scope)
        return value

    return array.dtype(scope, array, types.intp), generate


@intrinsic
def store(typing_context: Any, scope: Any, array: Any, index: Any, value: Any) -> Any:
    """``array[index] = value`` of a pointer to memory that overlaps no other scope."""
    _check(scope)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        target = builder.gep(args[1], [args[2]], inbounds=True)
        _mark(builder.store(args[3], target), builder.module, scope)
        return context.get_dummy_value()

    return types.void(scope, array, types.intp, array.dtype), generate
