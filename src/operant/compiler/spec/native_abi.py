"""What ``operant_env.h`` says, for ctypes; and what a library says of itself, checked."""

from __future__ import annotations

import ctypes
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ABI_VERSION = 1
BOX, DISCRETE, MULTI_DISCRETE = 1, 2, 3
FUNCTIONS = (
    "operant_abi_version",
    "operant_describe",
    "operant_reset_many",
    "operant_step_many",
    "operant_observe_many",
)
STREAM = np.dtype([("seed", np.uint64), ("index", np.uint32), ("episode", np.uint32)])
"""An ``operant_stream``."""
MOST_STATE_BYTES = 1 << 26
MOST_NUMBERS = 1 << 22
"""In an observation or an action."""
_MOST_DIMS, _MOST_COMPONENTS, _MOST_CHOICES = 4, 64, 1 << 24
_GUARD, _GUARD_BYTES = 0xA5, 4096


class NativeError(ValueError):
    """A library was refused; the message says why."""


class _Space(ctypes.Structure):
    _fields_ = [
        ("kind", ctypes.c_int32),
        ("num_dims", ctypes.c_int32),
        ("shape", ctypes.c_int64 * _MOST_DIMS),
        ("choices", ctypes.c_int32 * _MOST_COMPONENTS),
        ("low", ctypes.c_float),
        ("high", ctypes.c_float),
        ("lows", ctypes.POINTER(ctypes.c_float)),
        ("highs", ctypes.POINTER(ctypes.c_float)),
    ]


class _Spec(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("max_episode_steps", ctypes.c_int32),
        ("name", ctypes.c_ubyte * 64),
        ("observation", _Space),
        ("action", _Space),
        ("state_bytes", ctypes.c_int64),
        ("mask_size", ctypes.c_int64),
        ("reward_threshold", ctypes.c_double),
    ]


@dataclass(frozen=True)
class SpaceSpec:
    """An ``operant_space``. Bounds are those of each number of a Box, flat, or one for all; choices
    those of each component of the others."""

    kind: int
    shape: tuple[int, ...]
    choices: tuple[int, ...] = ()
    lows: tuple[float, ...] = ()
    highs: tuple[float, ...] = ()

    @property
    def size(self) -> int:
        """Numbers in one value."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Spec:
    """An ``operant_spec``. There is no limit or threshold where it is None."""

    name: str
    observation: SpaceSpec
    action: SpaceSpec
    state_bytes: int
    mask_size: int
    max_episode_steps: int | None
    reward_threshold: float | None

    @property
    def obs_dtype(self) -> np.dtype[Any]:
        """Of the numbers in an observation."""
        return np.dtype(np.float32 if self.observation.kind == BOX else np.int64)

    @property
    def action_dtype(self) -> np.dtype[Any]:
        """Of the numbers in an action."""
        return np.dtype(np.float32 if self.action.kind == BOX else np.int32)


class Library:
    """A library that follows ``operant_env.h``, loaded into this process.

    `reset`, `step` and `observe` are its functions ``operant_reset_many`` and so on, which take a
    count and the addresses of arrays. They run without the GIL, and nothing checks the addresses.

    Raises:
        NativeError: it cannot be loaded, lacks a function, was made for another version, or
            describes something that cannot be.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._library = ctypes.CDLL(str(path))
        except OSError as error:
            raise NativeError(f"it cannot be loaded: {error}") from None
        found = {name: getattr(self._library, name, None) for name in FUNCTIONS}
        missing = [name for name, function in found.items() if function is None]
        if missing:
            raise NativeError(
                f"it lacks {', '.join(missing)}; a library exports all functions of operant_env.h"
            )
        version, self._describe, self.reset, self.step, self.observe = map(_typed, found.items())
        named = {"reset_many": self.reset, "step_many": self.step, "observe_many": self.observe}
        self.addresses = {name: _address(function) for name, function in named.items()}
        """Of these functions, for compiled code."""
        self._check_version(version())
        self.spec = self.describe()

    def describe(self) -> Spec:
        """What the library says of itself now.

        Raises:
            NativeError: that cannot be.
        """
        size = ctypes.sizeof(_Spec)
        memory = (ctypes.c_ubyte * (size + _GUARD_BYTES))()
        ctypes.memset(memory, _GUARD, len(memory))
        ctypes.memset(memory, 0, size)
        raw = _Spec.from_buffer(memory)
        for space in (raw.observation, raw.action):
            space.low, space.high = -math.inf, math.inf
        raw.reward_threshold = math.nan
        self._describe(ctypes.addressof(memory))
        if raw.struct_size != size:
            raise NativeError(
                f"its operant_spec has {raw.struct_size} bytes (struct_size), expected {size}: "
                "write sizeof(operant_spec), and compile with the operant_env.h of this package"
            )
        if bytes(memory)[size:] != bytes([_GUARD]) * _GUARD_BYTES:
            raise NativeError("operant_describe wrote beyond the operant_spec it was given")
        return _spec(raw)

    @staticmethod
    def _check_version(found: int) -> None:
        if found != ABI_VERSION:
            raise NativeError(
                f"it was made for version {found} of operant_env.h, and this is version "
                f"{ABI_VERSION}: compile it again with the header of this package"
            )


def _typed(named: tuple[str, Any]) -> Any:
    """Declare the arguments of a function; every pointer is an address."""
    name, function = named
    pointers = {"operant_reset_many": 5, "operant_step_many": 6, "operant_observe_many": 3}
    counted = name in pointers
    given = pointers.get(name, int(name == "operant_describe"))
    function.argtypes = [ctypes.c_int64] * counted + [ctypes.c_void_p] * given
    function.restype = ctypes.c_uint32 if name == "operant_abi_version" else None
    return function


def _address(function: Any) -> int:
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    return address


def _spec(raw: _Spec) -> Spec:
    name = bytes(raw.name).partition(b"\0")[0].decode("ascii", "replace")
    if not re.fullmatch(r"[A-Za-z_]\w{0,62}", name, re.ASCII):
        raise NativeError(
            f"its name must be a C identifier of at most 63 characters, ended by a zero, "
            f"got {name!r}"
        )
    if not 1 <= raw.state_bytes <= MOST_STATE_BYTES:
        raise NativeError(
            f"state_bytes must be 1 to {MOST_STATE_BYTES} (64 MiB), got {raw.state_bytes}"
        )
    if raw.max_episode_steps < 0:
        raise NativeError(
            f"max_episode_steps must be 0 (no limit) or more, got {raw.max_episode_steps}"
        )
    if math.isinf(raw.reward_threshold):
        raise NativeError(
            f"reward_threshold must be finite, or NAN for none, got {raw.reward_threshold}"
        )
    action = _space("action", raw.action)
    allowed = (0, sum(action.choices))
    if raw.mask_size not in allowed:
        many = f"0 or {allowed[1]}, one for each action" if allowed[1] else "0 for a Box of actions"
        raise NativeError(f"mask_size must be {many}; got {raw.mask_size}")
    return Spec(
        name=name,
        observation=_space("observation", raw.observation),
        action=action,
        state_bytes=raw.state_bytes,
        mask_size=raw.mask_size,
        max_episode_steps=raw.max_episode_steps or None,
        reward_threshold=None if math.isnan(raw.reward_threshold) else raw.reward_threshold,
    )


def _space(what: str, raw: _Space) -> SpaceSpec:
    dims = {BOX: range(1, _MOST_DIMS + 1), DISCRETE: range(1), MULTI_DISCRETE: range(1, 2)}
    if raw.kind not in dims:
        raise NativeError(
            f"{what}.kind must be OPERANT_BOX, OPERANT_DISCRETE or OPERANT_MULTI_DISCRETE, "
            f"got {raw.kind}"
        )
    if raw.num_dims not in dims[raw.kind]:
        wanted = {BOX: "1 to 4 for a Box", DISCRETE: "0 for Discrete", MULTI_DISCRETE: "1"}
        raise NativeError(f"{what}.num_dims must be {wanted[raw.kind]}, got {raw.num_dims}")
    shape = tuple(raw.shape[: raw.num_dims])
    most = MOST_NUMBERS if raw.kind == BOX else _MOST_COMPONENTS
    if any(number < 1 for number in shape) or math.prod(shape) > most:
        raise NativeError(
            f"{what}.shape must have at least 1 in each dimension and {most} numbers in all, "
            f"got {shape}"
        )
    if raw.kind == BOX:
        return SpaceSpec(BOX, shape, (), *_bounds(what, raw, math.prod(shape)))
    choices = tuple(raw.choices[: math.prod(shape)])
    for k, number in enumerate(choices):
        if not 1 <= number <= _MOST_CHOICES:
            raise NativeError(f"{what}.choices[{k}] must be 1 to {_MOST_CHOICES}, got {number}")
    return SpaceSpec(raw.kind, shape, choices)


def _bounds(what: str, raw: _Space, size: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    if bool(raw.lows) != bool(raw.highs):
        raise NativeError(f"{what}.lows and {what}.highs go together; one of them is NULL")
    if raw.lows:
        lows, highs = tuple(raw.lows[:size]), tuple(raw.highs[:size])
    else:
        lows, highs = (raw.low,), (raw.high,)
    for k, (low, high) in enumerate(zip(lows, highs, strict=True)):
        if not low <= high or low == math.inf or high == -math.inf:
            raise NativeError(f"{what}: number {k} has the bounds {low:g} to {high:g}")
    return lows, highs
