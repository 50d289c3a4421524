"""Rollouts that were collected and not yet trained on, as arrays of a checkpoint, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from operant.buffers.frame_rollout import FrameRollout
from operant.buffers.rollout import RolloutBuffer
from operant.ppo.engines.collector import Collected
from operant.runs.schedule import Shape, Slice, is_good
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
        most: so many there may be, and so many versions behind their weights.
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
        shape = Shape(buffer.num_steps, buffer.num_envs, most, parts)
        slices = _slices(own, first + k, shape)
        found.append(Collected(first + k, buffer, episodes, slices, 0.0))
    return found


def _fill(buffer: RolloutBuffer, own: Mapping[str, Any]) -> None:
    for name, array in _kept(buffer).items():
        array[...] = _array(own, name, array.shape, array.dtype)
    count = _count(own, "final_place")
    wanted = (count, *buffer.final_obs.shape[1:])
    final_obs = _array(own, "final_obs", wanted, buffer.final_obs.dtype)
    place = _array(own, "final_place", (count,), np.dtype("i8"))
    if len(place) and not (place.min() >= 0 and place.max() < len(buffer)):
        raise ValueError(f"final_place must be samples of a rollout, 0 to {len(buffer) - 1}")
    buffer.set_final_obs(place.copy(), final_obs.copy())


def _episodes(own: Mapping[str, Any], buffer: RolloutBuffer) -> Episodes:
    count = _count(own, "episodes.returns")
    arrays = {
        name: _array(own, f"episodes.{name}", (count,), np.dtype(kind))
        for name, kind in _EPISODES.items()
    }
    for name, end in (("env_index", buffer.num_envs), ("step", buffer.num_steps)):
        if count and not (arrays[name].min() >= 0 and arrays[name].max() < end):
            raise ValueError(f"episodes.{name} must be 0 to {end - 1}")
    return Episodes(**arrays)


def _slices(own: Mapping[str, Any], number: int, shape: Shape) -> tuple[Slice, ...]:
    size = (_count(own, "slices"), len(Slice._fields))
    slices = tuple(Slice(*row) for row in _array(own, "slices", size, np.dtype("i8")).tolist())
    if not is_good(slices, number, shape):
        raise ValueError("slices must be the parts, steps and versions of a rollout")
    return slices


def _count(own: Mapping[str, Any], name: str) -> int:
    """Entries of an array; 0 where it is none, for `_array` to refuse."""
    found = own.get(name)
    return len(found) if isinstance(found, np.ndarray) and found.ndim else 0


def _array(
    state: Mapping[str, Any], name: str, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> np.ndarray:
    found = state.get(name)
    if not isinstance(found, np.ndarray) or found.shape != shape or found.dtype != dtype:
        what = "nothing" if found is None else f"{found.dtype} of shape {found.shape}"
        raise ValueError(f"{name} must be {dtype} of shape {shape}, got {what}")
    return found
