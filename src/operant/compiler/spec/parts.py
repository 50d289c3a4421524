"""The parts of an environment class, and how each is written."""

from __future__ import annotations

from typing import Any

from operant.compiler.env_functions import part_place
from operant.lang.advice import LanguageError
from operant.lang.arrays import Arrays

REQUIRED = {
    "State": "class State(NamedTuple): with fields such as x: float",
    "reset": "def reset(random): return {name}.State(...)",
    "step": "def step(state, action): return {name}.State(...), reward, terminated",
    "observe": "def observe(state): return the numbers of the observation",
    "observation_space": "observation_space = Box(-1.0, 1.0, (2,))",
    "action_space": "action_space = Discrete(2)",
}
"""The parts of an environment, and how each is written."""
_OF_ARRAYS = {
    "reset": "def reset(state, random): state.cells[0] = ...",
    "step": "def step(state, action): return reward, terminated",
    "observe": "def observe(state, obs): obs[0] = ...",
}
"""How they are written for a state of arrays."""


def check_complete(env: type[Any]) -> None:
    """Refuse a class that lacks a part.

    Raises:
        LanguageError: which, and how it is written.
    """
    missing = [name for name in REQUIRED if not hasattr(env, name)]
    if not missing:
        return
    state = getattr(env, "State", None)
    forms = dict(REQUIRED)
    if isinstance(state, type) and issubclass(state, Arrays):
        forms |= _OF_ARRAYS
    first = forms[missing[0]].format(name=env.__name__)
    raise LanguageError(
        f"{part_place(env)}{env.__qualname__} lacks {', '.join(missing)}; write {first}"
    )
