"""The NaN guard: finds the first number that is not finite and says where it came from."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from operant.buffers.rollout import RolloutBuffer


class NonFiniteError(ArithmeticError):
    """Training met NaN or infinity. The message says what, where and when.

    ``what`` is ``"observation"``, ``"reward"``, ``"value"``, ``"action"``, ``"loss"`` or
    ``"gradient"``; ``env_index`` is None where no environment is to blame.
    """

    def __init__(self, what: str, iteration: int, env_index: int | None, detail: str) -> None:
        self.what, self.iteration, self.env_index = what, iteration, env_index
        where = "" if env_index is None else f" of environment {env_index}"
        super().__init__(f"iteration {iteration}: the {what}{where} is not finite: {detail}")


def check_rollout(buffer: RolloutBuffer, iteration: int) -> None:
    """Raise `NonFiniteError` for the earliest bad observation, reward or value of a rollout."""
    arrays = buffer.arrays
    names = ("obs", "value", "reward")
    if all(_all_finite(arrays[name]) for name in names) and _all_finite(buffer.final_obs):
        return
    found = []
    for order, name in enumerate(names):  # within a step: observation, then value, then reward
        bad = ~np.isfinite(arrays[name])
        steps = bad.reshape(len(bad), -1).any(1).nonzero()[0]
        if len(steps):
            found.append((int(steps[0]), order, name))
    if not found:
        _blame_final_obs(buffer, iteration)
    t, _, name = min(found)
    rows = arrays[name][t].reshape(buffer.num_envs, -1)
    env = int((~np.isfinite(rows)).any(1).nonzero()[0][0])
    what = "observation" if name == "obs" else name
    shown = rows[env].tolist()
    detail = f"{shown if name == 'obs' else shown[0]} at step {t} of the rollout"
    if name == "obs" and t > 0:
        detail += f", after action {arrays['action'][t - 1, env].tolist()}"
    if name == "reward":
        detail += f", for action {arrays['action'][t, env].tolist()}"
    raise NonFiniteError(what, iteration, env, detail)


def _blame_final_obs(buffer: RolloutBuffer, iteration: int) -> None:
    rows = buffer.final_obs.reshape(len(buffer.final_place), -1)
    first = int((~np.isfinite(rows)).any(1).nonzero()[0][0])
    t, env = divmod(int(buffer.final_place[first]), buffer.num_envs)
    detail = f"{rows[first].tolist()} at step {t} of the rollout, the last of its episode"
    raise NonFiniteError("observation", iteration, env, detail)


def _all_finite(array: np.ndarray) -> bool:
    if array.dtype.kind != "f":
        return True
    # One pass without a temporary. A sum of finite numbers may overflow: then look at each.
    with np.errstate(over="ignore", invalid="ignore"):
        total = array.sum(dtype=np.float64)
    return bool(np.isfinite(total)) or bool(np.isfinite(array).all())


def check_action(action: Tensor, iteration: int, t: int) -> None:
    """Raise `NonFiniteError` if one of the actions ``[N, ...]`` is not finite."""
    bad = ~torch.isfinite(action).reshape(len(action), -1).all(1)
    if bad.any():
        env = int(bad.nonzero()[0])
        detail = f"{action[env].tolist()} at step {t} of the rollout: the policy's own output"
        raise NonFiniteError("action", iteration, env, detail)
