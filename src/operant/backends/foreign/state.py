"""One environment as bytes, and back, to the bit and without pickle.

Saved are environments that say how: their innermost one has ``get_state()``, which gives a dict of
arrays or an array, and ``set_state(state)``. And Gymnasium's classic-control and toy-text
environments, whose attributes are plain values. Around them wrappers that are known to have no
state, or these few values.
"""

from __future__ import annotations

import json
from typing import Any

import gymnasium
import numpy as np

_SAVED_MODULES = ("gymnasium.envs.classic_control.", "gymnasium.envs.toy_text.")
_WRAPPER_STATE: dict[str, tuple[str, ...]] = {
    "TimeLimit": ("_elapsed_steps",),
    "OrderEnforcing": ("_has_reset",),
    "PassiveEnvChecker": ("checked_reset", "checked_step", "checked_render", "close_called"),
    "ClipAction": (),
    "RescaleAction": (),
    "ClipReward": (),
    "DtypeObservation": (),
    "FlattenObservation": (),
    "GrayscaleObservation": (),
    "RescaleObservation": (),
    "ReshapeObservation": (),
    "ResizeObservation": (),
}
"""Wrappers of Gymnasium's, and the attributes that change as they run."""
_MISSING = object()


class _UnsavableError(TypeError):
    """A value that is none of those that `_encode` knows."""


def why_not_saved(env: gymnasium.Env[Any, Any]) -> str | None:
    """Why the state of an environment cannot be saved, as part of a sentence; None: it can."""
    inside: Any = env
    while isinstance(inside, gymnasium.Wrapper):
        kind = type(inside)
        if not kind.__module__.startswith("gymnasium.wrappers") or (
            kind.__name__ not in _WRAPPER_STATE
        ):
            return f"the state of the wrapper {kind.__name__} is not known"
        inside = inside.env
    if _has_own(inside) or type(inside).__module__.startswith(_SAVED_MODULES):
        return None
    return f"{type(inside).__name__} has no get_state() and set_state()"


def _has_own(inside: Any) -> bool:
    return hasattr(inside, "get_state") and hasattr(inside, "set_state")


def saved(env: gymnasium.Env[Any, Any]) -> bytes:
    """The state of an environment for which `why_not_saved` has nothing to say.

    Raises:
        TypeError: its ``get_state()`` gives something else than arrays and plain values.
    """
    found: dict[str, Any] = {"wrappers": []}
    inside: Any = env
    while isinstance(inside, gymnasium.Wrapper):
        names = _WRAPPER_STATE[type(inside).__name__]
        found["wrappers"].append({name: _encode(getattr(inside, name, None)) for name in names})
        inside = inside.env
    if _has_own(inside):
        found["own"] = _encode(inside.get_state())
    else:
        found["attributes"] = _attributes(inside)
    generator = getattr(inside, "_np_random", None)
    if generator is not None:
        found["random"] = _encode(generator.bit_generator.state)
        found["seed"] = inside._np_random_seed
    return json.dumps(found).encode()


def restore(env: gymnasium.Env[Any, Any], data: bytes) -> None:
    """Set an environment to what `saved` gave of one made alike.

    Raises:
        ValueError: it was of another one.
    """
    try:
        found = json.loads(data)
        inside: Any = env
        for attributes in found["wrappers"]:
            if set(attributes) != set(_WRAPPER_STATE[type(inside).__name__]):
                raise ValueError("other wrappers")
            for name, value in attributes.items():
                setattr(inside, name, _decode(value))
            inside = inside.env
        if isinstance(inside, gymnasium.Wrapper) or ("own" in found) != _has_own(inside):
            raise ValueError("other wrappers")
        if "random" in found:
            seed = found["seed"]
            generator, _ = gymnasium.utils.seeding.np_random(0)
            generator.bit_generator.state = _decode(found["random"])
            inside._np_random, inside._np_random_seed = generator, seed
        if "own" in found:
            inside.set_state(_decode(found["own"]))
            return
        for name, value in found["attributes"].items():
            if _is_plain(getattr(inside, name, _MISSING)):
                setattr(inside, name, _decode(value))
    except (KeyError, AttributeError, TypeError) as error:
        raise ValueError(
            f"the state does not fit {type(env.unwrapped).__name__}: {error!r}"
        ) from None


def _attributes(inside: Any) -> dict[str, Any]:
    """What an environment of Gymnasium's has of plain values; windows and tables stay as they
    are."""
    skipped = ("_np_random", "_np_random_seed", "render_mode", "spec", "metadata")
    return {
        name: _encode(value)
        for name, value in vars(inside).items()
        if name not in skipped and _is_plain(value)
    }


def _is_plain(value: Any) -> bool:
    if value is _MISSING:
        return True
    try:
        _encode(value)
    except _UnsavableError:
        return False
    return True


def _encode(value: Any) -> Any:
    """A value as JSON has it, so that `_decode` gives one of the same type and bits."""
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        return {"float": value.hex()}
    if isinstance(value, np.ndarray | np.generic):
        if value.dtype.kind not in "biufcSU":
            raise _UnsavableError(f"an array of {value.dtype} cannot be saved")
        kind = "array" if isinstance(value, np.ndarray) else "scalar"
        array = np.ascontiguousarray(value)
        return {kind: array.tobytes().hex(), "dtype": array.dtype.str, "shape": np.shape(value)}
    if type(value) in (list, tuple):
        return {type(value).__name__: [_encode(item) for item in value]}
    if type(value) is dict and all(type(key) is str for key in value):
        return {"dict": {key: _encode(item) for key, item in value.items()}}
    raise _UnsavableError(f"a {type(value).__name__} cannot be saved; get_state() must give arrays")


def _decode(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if "float" in value:
        return float.fromhex(value["float"])
    if "list" in value:
        return [_decode(item) for item in value["list"]]
    if "tuple" in value:
        return tuple(_decode(item) for item in value["tuple"])
    if "dict" in value:
        return {key: _decode(item) for key, item in value["dict"].items()}
    data = bytes.fromhex(value["array"] if "array" in value else value["scalar"])
    dtype = np.dtype(value["dtype"])
    if dtype.kind not in "biufcSU":
        raise ValueError(f"an array of {dtype} is no state")
    array = np.frombuffer(data, dtype).reshape(value["shape"]).copy()
    return array if "array" in value else array[()]
