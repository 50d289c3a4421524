"""Environments that Gymnasium's registry knows, and packages that add theirs when imported."""

from __future__ import annotations

import difflib
import re
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import gymnasium

from operant.vector.foreign_env import ForeignEnv

PREFIX = "gymnasium:"
_PACKAGES = {
    "ALE/": ("ale_py", "atari"),
    "MiniGrid-": ("minigrid", "minigrid"),
    "BabyAI-": ("minigrid", "minigrid"),
}
"""Ids that begin like this are registered by a package, which an extra of operant installs."""
_NEEDS = {
    "gymnasium.envs.box2d": ("Box2D", "box2d"),
    "gymnasium.envs.mujoco": ("mujoco", "mujoco"),
}
"""Modules of Gymnasium's that need a package, and the extra that brings it."""


def find_gymnasium(name: str, import_modules: bool = True) -> ForeignEnv | None:
    """The environment of an id such as ``LunarLander-v3``, ``ALE/Pong-v5``, ``gymnasium:CartPole``
    or ``package:Name-v0``, as Gymnasium writes one that is registered by importing the package.

    Args:
        name: the id; without a version the newest.
        import_modules: whether a package that the name has may be imported.

    Returns:
        None: there is none of this name.

    Raises:
        ValueError: its package is not installed; the message says what to install.
    """
    asked = name.removeprefix(PREFIX)
    package, colon, env_id = asked.rpartition(":")
    if colon:
        if not import_modules or not package.replace(".", "").isidentifier():
            return None
        try:
            import_module(package)
        except ModuleNotFoundError as error:
            raise ValueError(f"{name!r}: there is no module {error.name!r}") from None
    _import_package(env_id)
    known = _spec(env_id)
    if known is None or known.id.startswith("operant/"):
        return None
    _check_installed(known)
    ours = known.id if not colon else f"{package}:{known.id}"
    return ForeignEnv(
        f"{PREFIX if name.startswith(PREFIX) else ''}{ours}", _Make(ours), gymnasium_id=known.id
    )


def known_id(name: str) -> ForeignEnv:
    """As `find_gymnasium`, which must find it.

    Raises:
        ValueError: as there, or there is none; the message names the nearest ids.
    """
    found = find_gymnasium(name)
    if found is None:
        near = " or ".join(near_ids(name, []))
        raise ValueError(
            f"Gymnasium knows no environment {name!r}" + (f"; did you mean {near}?" if near else "")
        )
    return found


class _Make:
    """``gymnasium.make`` of an id, in whichever process; the passive checker is left out, which
    `operant check` does more thoroughly."""

    def __init__(self, env_id: str) -> None:
        self.env_id = env_id

    def __call__(self, **params: Any) -> Any:
        _import_package(self.env_id.rpartition(":")[2])
        return gymnasium.make(self.env_id, disable_env_checker=True, **params)


def _import_package(env_id: str) -> None:
    """Import the known package that registers such ids, if it is installed."""
    for beginning, (package, extra) in _PACKAGES.items():
        if env_id.startswith(beginning):
            if find_spec(package) is None:
                raise ValueError(
                    f"{env_id!r} comes with the package {package}, which is not installed: "
                    f"pip install 'operant[{extra}]'"
                )
            import_module(package)


def _check_installed(spec: Any) -> None:
    for module, (package, extra) in _NEEDS.items():
        if str(spec.entry_point).startswith(module) and find_spec(package) is None:
            raise ValueError(
                f"{spec.id!r} needs the package {package}, which is not installed: "
                f"pip install 'operant[{extra}]'"
            )


def _spec(env_id: str) -> Any:
    """What the registry has of an id; of one without a version the newest."""
    found = gymnasium.registry.get(env_id)
    if found is not None or re.search(r"-v\d+$", env_id):
        return found
    versions = [one for one in gymnasium.registry.values() if _unversioned(one.id) == env_id]
    return max(versions, key=lambda one: one.version or 0, default=None)


def _unversioned(env_id: str) -> str:
    return re.sub(r"-v\d+$", "", env_id)


def has_namespace(text: str) -> bool:
    """Whether a name begins as ids of Gymnasium's do that have a namespace: ``ALE/Pong``."""
    beginning = text.partition("/")[0] + "/"
    return beginning in _PACKAGES or any(one.startswith(beginning) for one in gymnasium.registry)


def near_ids(name: str, ours: list[str]) -> list[str]:
    """The ids nearest to a name, of `ours` and of Gymnasium's, the nearest first; such as ask for
    Gymnasium's, if the name does."""
    asked = name.rpartition(":")[2].removeprefix("operant/")
    known = {env_id.lower(): env_id for env_id in gymnasium.registry if "operant/" not in env_id}
    known |= {env_id.lower(): env_id for env_id in ours}
    found = difflib.get_close_matches(asked.lower(), known, 3, 0.6)
    bare = {_unversioned(low): full for low, full in known.items()}
    other = difflib.get_close_matches(_unversioned(asked.lower()), bare, 3, 0.6)
    near = list(dict.fromkeys([known[one] for one in found] + [bare[one] for one in other]))[:3]
    return [f"{PREFIX}{one}" for one in near] if name.startswith(PREFIX) else near
