"""Rollouts that were collected and not yet trained on, as arrays of a checkpoint, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from operant.buffers.frame_rollout import FrameRollout
from operant.buffers.rollout import RolloutBuffer
from operant.ppo.engines.collector import Collected
from operant.runs.schedule import Slice
from operant.training.episodes import Episodes

_LATER = frozenset(("advantage", "target"))
"""Written when the rollout is trained on."""
_EPISODES = {"env_index": "i8", "step": "i8", "returns": "f4", "lengths": "i4", "truncated": "?"}


def arrays_of(rollouts: Sequence[Collected]) -> dict[str, np.ndarray]:
    """Copies, by name; how many there are is ``in_flight``, the number of the first its entry 1."""
    first = rollouts[0].number if rollouts else 0
    found: dict[str, np.ndarray] = {"in_flight": np.array([len(rollouts), first], np.int64)}
    for k, one in enumerate(rollouts):
        parts = {f"episodes.{name}": getattr(one.episodes, name) for name in _EPISODES}
        parts |= _kept(one.buffer)
        parts["final_obs"], parts["final_place"] = one.buffer.final_obs, one.buffer.final_place
        parts["slices"] = np.array(one.slices, np.int64).reshape(-1, len(Slice._fields))
        found |= {f"rollout_{k}.{name}": np.array(array) for name, array in parts.items()}
    return found


def _kept(buffer: RolloutBuffer) -> dict[str, np.ndarray]:
    """The memory of a rollout that collecting fills."""
    kept = {name: array for name, array in buffer.arrays.items() if name not in _LATER}
    if isinstance(buffer, FrameRollout):
        kept["obs"] = buffer.frames  # those before the rollout too
    return kept


def read_rollouts(
    state: Mapping[str, Any], most: int, memory: Callable[[], RolloutBuffer], parts: int
) -> list[Collected]:
    """The rollouts in a state.

    Args:
        state: from `arrays_of`, or from anyone.
        most: so many there may be.
        memory: gives the buffer of each.
        parts: that rows are collected in.

    Raises:
        ValueError: a missing entry, a wrong shape, or numbers that cannot be.
    """
    counts = _array(state, "in_flight", (2,), np.dtype("i8"))
    count, first = counts.tolist()
    if not (0 <= count <= most and 0 <= first < 2**40):
        raise ValueError(f"in_flight must be 0 to {most} rollouts, got {counts.tolist()}")
    found = []
    for k in range(count):
        buffer = memory()
        own = {
            name.removeprefix(f"rollout_{k}."): value
            for name, value in state.items()
            if name.startswith(f"rollout_{k}.")
        }
        _fill(buffer, own)
        episodes = _episodes(own, buffer)
        slices = _slices(own, buffer, first + k, parts)
        found.append(Collected(first + k, buffer, episodes, slices, 0.0))
    return found


def _fill(buffer: RolloutBuffer, own: Mapping[str, Any]) -> None:
    for name, array in _kept(buffer).items():
        array[...] = _array(own, name, array.shape, array.dtype)
    place = np.asarray(own.get("final_place", ()))
    wanted = (len(place), *buffer.final_obs.shape[1:])
    final_obs = _array(own, "final_obs", wanted, buffer.final_obs.dtype)
    place = _array(own, "final_place", (len(place),), np.dtype("i8"))
    if len(place) and not (place.min() >= 0 and place.max() < len(buffer)):
        raise ValueError(f"final_place must be samples of a rollout, 0 to {len(buffer) - 1}")
    buffer.set_final_obs(place.copy(), final_obs.copy())


def _episodes(own: Mapping[str, Any], buffer: RolloutBuffer) -> Episodes:
    count = len(np.atleast_1d(own.get("episodes.returns", ())))
    arrays = {
        name: _array(own, f"episodes.{name}", (count,), np.dtype(kind))
        for name, kind in _EPISODES.items()
    }
    for name, end in (("env_index", buffer.num_envs), ("step", buffer.num_steps)):
        if count and not (arrays[name].min() >= 0 and arrays[name].max() < end):
            raise ValueError(f"episodes.{name} must be 0 to {end - 1}")
    return Episodes(**arrays)


def _slices(
    own: Mapping[str, Any], buffer: RolloutBuffer, number: int, parts: int
) -> tuple[Slice, ...]:
    rows = np.asarray(own.get("slices", ()))
    rows = _array(own, "slices", (len(rows), len(Slice._fields)), np.dtype("i8"))
    slices = tuple(Slice(*row) for row in rows.tolist())
    good = all(
        0 <= one.part < parts and 0 <= one.t < buffer.num_steps and 0 <= one.version <= number
        for one in slices
    )
    if not good or {one.part for one in slices} != set(range(parts)):
        raise ValueError("slices must be the parts, steps and versions of a rollout")
    return slices


def _array(
    state: Mapping[str, Any], name: str, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> np.ndarray:
    found = state.get(name)
    if not isinstance(found, np.ndarray) or found.shape != shape or found.dtype != dtype:
        what = "nothing" if found is None else f"{found.dtype} of shape {found.shape}"
        raise ValueError(f"{name} must be {dtype} of shape {shape}, got {what}")
    return found
