"""What a class of `operant.Env` must have, looked at when its statement runs."""

from __future__ import annotations

from types import FunctionType

from operant.compiler.env_functions import arguments, part_place, place, written_function
from operant.compiler.spec.attributes import check_names
from operant.compiler.spec.parts import REQUIRED
from operant.compiler.spec.rules import Rules
from operant.lang.advice import LanguageError
from operant.lang.env import Env

_OF_RENDER = ("state", "canvas", "params")


def check_definition(env: type[Env]) -> None:
    """Refuse a class that cannot be compiled. One with no rules yet is a base class.

    Raises:
        LanguageError: with file, line and what to write instead.
    """
    if "__init__" in vars(env):
        instead = (
            "put settings into class Params(NamedTuple), with defaults, and what changes into State"
        )
        if not hasattr(env, "observation_space") and hasattr(env, "step"):
            instead = (
                "write observation_space = ... and action_space = ... in the class itself, and "
                "settings into class Params(NamedTuple)"
            )
        raise LanguageError(
            f"{part_place(env, '__init__')}{env.__qualname__}.__init__ would never run: an "
            f"environment has no instances; {instead}"
        )
    render = written_function(vars(env).get("render"))
    if render is not None:
        _check_render(render)
    if any(hasattr(env, name) for name in REQUIRED):
        check_names(env)
        Rules.of(env)


def _check_render(render: FunctionType) -> None:
    """Refuse arguments that nobody gives."""
    for argument in arguments(render):
        if argument not in _OF_RENDER:
            advice = "; it is no method" if argument in ("self", "cls") else ""
            raise LanguageError(
                f"{place(render)}: render() takes any of {', '.join(_OF_RENDER)}; got the argument "
                f"{argument!r}{advice}; write def render(state, canvas), which draws on the canvas"
            )
