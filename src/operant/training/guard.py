"""The NaN guard: finds the first number that is not finite and says where it came from."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from operant.buffers.gpu import GpuBuffer
from operant.buffers.rollout import RolloutBuffer


class NonFiniteError(ArithmeticError):
    """Training met NaN or infinity. The message says what, where and when.

    ``what`` is ``"observation"``, ``"value"``, ``"log-probability"``, ``"reward"``, ``"action"``,
    ``"loss"``, ``"gradient"``, or a bonus or an add-on by its name; ``env_index`` is None where no
    environment is to blame.
    """

    def __init__(self, what: str, iteration: int, env_index: int | None, detail: str) -> None:
        self.what, self.iteration, self.env_index, self.detail = what, iteration, env_index, detail
        where = "" if env_index is None else f" of environment {env_index}"
        super().__init__(f"iteration {iteration}: the {what}{where} is not finite: {detail}")

    def moved(self, first_row: int) -> NonFiniteError:
        """The same of a batch that begins at row `first_row` of all environments."""
        env = self.env_index
        moved = None if env is None else first_row + env
        return NonFiniteError(self.what, self.iteration, moved, self.detail)


class _Culprit(NamedTuple):
    """A number that is not finite; the smallest is the earliest."""

    t: int
    order: int  # within a step
    env: int
    what: str
    detail: str


_ORDER = ("obs", "value", "log_prob", "reward", "final_obs", "final_value")
"""What comes about in a step of a rollout, in that order."""
_WHAT = {"obs": "observation", "final_obs": "observation", "final_value": "value"}
_SHOWN = 16
"""Entries of an observation that a message shows; of a longer one only the first bad entry."""


def check_rollout(buffer: RolloutBuffer, iteration: int) -> None:
    """Raise `NonFiniteError` for the earliest number of a rollout that is not finite.

    Looked at are observations, final ones too if their episode was truncated, their values,
    log-probabilities and rewards; all are to be in the buffer.
    """
    arrays = buffer.arrays
    found = [_first("obs", leaf, buffer) for leaf in buffer.leaves(arrays["obs"]).values()]
    found += [_first(name, arrays[name], buffer) for name in ("value", "log_prob", "reward")]
    found.append(_first("value", arrays["last_value"][None], buffer, buffer.num_steps))
    finals = buffer.leaves(buffer.final_obs)
    found += [_first_final("final_obs", leaf, buffer) for leaf in finals.values()]
    values = arrays["final_value"].reshape(-1)[buffer.final_place]
    found.append(_first_final("final_value", values, buffer))
    culprits = [culprit for culprit in found if culprit is not None]
    if culprits:
        first = min(culprits)
        raise NonFiniteError(first.what, iteration, first.env, first.detail)


def check_device_rollout(buffer: GpuBuffer, iteration: int) -> None:
    """`check_rollout` for a rollout on a GPU; copies it to the host."""
    b = buffer
    host = RolloutBuffer(
        b.num_steps,
        b.num_envs,
        tuple(b.obs.shape[2:]),
        tuple(b.action.shape[2:]),
        obs_dtype=b.obs.dtype,
        action_dtype=b.action.dtype,
    )
    for name in host.arrays:
        if name != "action_mask":
            getattr(host, name).copy_(getattr(b, name))
    place = np.flatnonzero((host.arrays["truncated"] & ~host.arrays["terminated"]).reshape(-1))
    host.set_final_obs(place, b.final_obs.flatten(0, 1).cpu().numpy()[place])
    if host.action.is_floating_point():
        for t in range(b.num_steps):
            check_action(host.action[t], iteration, t)
    check_rollout(host, iteration)


def _first(
    name: str, array: np.ndarray, buffer: RolloutBuffer, first_step: int = 0
) -> _Culprit | None:
    """The first bad entry of an array ``[T, N, ...]`` that begins at `first_step`."""
    if _all_finite(array):
        return None
    rows = array.reshape(-1, *array.shape[2:])
    k = _first_bad_row(rows)
    return _culprit(name, first_step * buffer.num_envs + k, rows[k], buffer)


def _first_final(name: str, rows: np.ndarray, buffer: RolloutBuffer) -> _Culprit | None:
    """The first bad row of ``[K, ...]``, which belong to truncated episodes."""
    if _all_finite(rows):
        return None
    k = _first_bad_row(rows)
    return _culprit(name, int(buffer.final_place[k]), rows[k], buffer)


def _culprit(name: str, place: int, row: np.ndarray, buffer: RolloutBuffer) -> _Culprit:
    t, env = divmod(place, buffer.num_envs)
    detail = f"{_shown(row)} at step {t} of the rollout"
    arrays = buffer.arrays
    if name == "obs" and t > 0:
        if arrays["terminated"][t - 1, env] or arrays["truncated"][t - 1, env]:
            detail += ", the first of its episode"
        else:
            detail += f", after action {arrays['action'][t - 1, env].tolist()}"
    elif name in ("log_prob", "reward"):
        detail += f", for action {arrays['action'][t, env].tolist()}"
    elif name == "final_obs":
        detail += f", the last of its episode, after action {arrays['action'][t, env].tolist()}"
    elif name == "final_value":
        detail += ", of the last observation of its episode"
    what = _WHAT.get(name, name.replace("log_prob", "log-probability"))
    return _Culprit(t, _ORDER.index(name), env, what, detail)


def _shown(row: np.ndarray) -> str:
    if row.size <= _SHOWN:
        return str(row.tolist())
    index = tuple(int(k) for k in np.argwhere(~np.isfinite(row))[0])
    return f"{row[index]} in entry {index[0] if len(index) == 1 else index}"


def _first_bad_row(rows: np.ndarray) -> int:
    return int((~np.isfinite(rows)).reshape(len(rows), -1).any(1).argmax())


def _all_finite(array: np.ndarray) -> bool:
    return array.dtype.kind != "f" or bool(np.isfinite(array).all())


def check_action(action: Tensor, iteration: int, t: int) -> None:
    """Raise `NonFiniteError` for the first of the actions ``[N, ...]`` that is not finite."""
    bad = ~torch.isfinite(action).reshape(len(action), -1).all(1)
    if bad.any():
        env = int(bad.nonzero()[0])
        detail = f"{action[env].tolist()} at step {t} of the rollout: the policy's own output"
        raise NonFiniteError("action", iteration, env, detail)
