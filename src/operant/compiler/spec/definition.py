"""What a class of `operant.Env` must have, looked at when its statement runs."""

from __future__ import annotations

from operant.compiler.env_functions import part_place
from operant.compiler.spec.parts import REQUIRED
from operant.compiler.spec.rules import Rules
from operant.lang.advice import LanguageError
from operant.lang.env import Env


def check_definition(env: type[Env]) -> None:
    """Refuse a class that cannot be compiled. One with no rules yet is a base class.

    Raises:
        LanguageError: with file, line and what to write instead.
    """
    if "__init__" in vars(env):
        raise LanguageError(
            f"{part_place(env, '__init__')}{env.__qualname__}.__init__ would never run: an "
            "environment has no instances; put settings into class Params(NamedTuple), with "
            "defaults, and what changes into State"
        )
    if any(hasattr(env, name) for name in REQUIRED):
        Rules.of(env)
