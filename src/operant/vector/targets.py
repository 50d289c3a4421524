"""How environments are named: the grammar of targets, and what a name stands for.

| target | what it is |
| --- | --- |
| ``CartPole-v1``, ``operant/CartPole-v1`` | an id: one that operant compiles, else Gymnasium's |
| ``LunarLander-v3``, ``ALE/Pong-v5`` | an id of Gymnasium's; without the version the newest |
| ``gymnasium:CartPole-v1`` | Gymnasium's, although operant has one of that name |
| ``package:Name-v0`` | Gymnasium's, registered by importing the package |
| ``file.py:name``, ``file.py`` | a class, or a function that makes environments, in a file |
| ``package.module:name`` | the same in a module |
| ``libgame.so`` | a game in C |
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, NamedTuple

from operant.vector.foreign_env import ForeignEnv
from operant.vector.gymnasium_ids import PREFIX, find_gymnasium, has_namespace, near_ids
from operant.vector.registry import env_ids, known_env

if TYPE_CHECKING:
    from operant.lang.env import Env

LIBRARIES = (".so", ".dylib", ".dll")
_ID = re.compile(r"(?:[\w-]+/)?[\w.-]+-v\d+")
"""What ids look like, those of namespaces such as ``ALE/Pong-v5`` included."""
_OURS = ("operant:", "operant/")


def is_id(name: str) -> bool:
    """Whether a name looks like an id with its version."""
    return _ID.fullmatch(name) is not None


class Target(NamedTuple):
    """What a user names."""

    kind: Literal["id", "code", "library"]
    place: str
    """The id; the file or module; the library."""
    name: str = ""
    """Of a class or function in the code; empty: the only one there is."""


def parsed_target(text: str) -> Target:
    """A target by the grammar above. A word without a version or a colon, such as ``CartPole`` or
    ``lander``, is an id here; it may be the name of a module as well."""
    if text.endswith(LIBRARIES):
        return Target("library", text)
    if text.startswith((PREFIX, *_OURS)):
        return Target("id", text)
    place, colon, name = text.rpartition(":")
    if colon and not _ID.fullmatch(name):
        return Target("code", place, name)
    is_path = "/" in text and not _ID.fullmatch(text) and not has_namespace(text)
    if text.endswith(".py") or (not colon and is_path):
        return Target("code", text)
    return Target("id", text)


def _with_version(name: str) -> str:
    """The id of ours that a name without its version means, the newest; others as they are."""
    bare = name.removeprefix("operant:").removeprefix("operant/")
    versions = [env_id for env_id in env_ids() if env_id.rpartition("-v")[0] == bare]
    return versions[-1] if versions else name


def find_env(name: str, import_modules: bool = True) -> type[Env] | ForeignEnv:
    """The environment of an id: ours, else Gymnasium's.

    Args:
        name: an id, see above.
        import_modules: whether a package that the id names may be imported (``package:Name-v0``);
            not where the name comes from a run's own files.

    Raises:
        ValueError: there is none; the message names the nearest ids of both. Or its package is not
            installed, with what to install.
    """
    if parsed_target(name).kind != "id":
        raise ValueError(
            f"unknown environment {name!r}: code and libraries are named so on the command line; "
            "from Python import them, and pass the class or function itself"
        )
    found = None if name.startswith(PREFIX) else known_env(_with_version(name))
    if found is not None:
        return found
    if not name.startswith(_OURS):
        foreign = find_gymnasium(name, import_modules)
        if foreign is not None:
            return foreign
    near = near_ids(name, [] if name.startswith(PREFIX) else env_ids())
    if near:
        raise ValueError(f"unknown environment {name!r}; did you mean {' or '.join(near)}?")
    raise ValueError(
        f"unknown environment {name!r}; there are {', '.join(env_ids())}, and what Gymnasium "
        "knows, such as LunarLander-v3"
    )
