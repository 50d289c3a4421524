"""The check of `action_mask`."""

from __future__ import annotations

from typing import Any

import numpy as np

from operant.check.finding import CheckFailed
from operant.check.plays import batch_of, count_of, random_actions, steps_of
from operant.compiler.spec.native_rules import is_native
from operant.lang.env import Env
from operant.vector.choose_backend import available_backends
from operant.vector.env import VecEnv


def check_masks(env: type[Env]) -> str:
    """Masks of all states met, also the last of an episode: NEXT_STEP shows it to the policy."""
    reference = VecEnv(env, count_of(env), backend=available_backends(env)[0])
    reference.reset(seed=0)
    masked = 0
    for name in available_backends(env):
        batch = batch_of(env, count_of(env), name)
        batch.reset(seed=0)
        for step in range(steps_of(env) + 1):
            masks = _masks(batch)
            _require_choice(batch, masks, step)
            masked += int((~masks).sum())
            reference.set_state(batch.get_state())
            different = np.argwhere(masks != _masks(reference))
            if len(different):
                index, action = different[0]
                raise CheckFailed(
                    f"action_mask() differs between reference and {name} {_when(step)} "
                    f"(environment {index}, value {action}) from the same state"
                )
            batch.step(random_actions(batch.rules.action, batch.num_envs, step))
    if not masked:
        return "every action was allowed in every state met"
    where = f"on {' and '.join(available_backends(env))}"
    if is_native(env):
        where = "after a step and from the state alone"
    return f"the same {where}; every state met allows some action"


def _masks(batch: Any) -> np.ndarray:
    masks: np.ndarray = batch.action_masks()
    return masks


def _require_choice(batch: Any, masks: np.ndarray, step: int) -> None:
    """Raise unless every component of every environment has an allowed action."""
    layout = batch.rules.action
    starts = np.cumsum((0, *layout.choices[:-1]))
    none = ~np.logical_or.reduceat(masks, starts, axis=1)
    if none.any():
        index, component = np.argwhere(none)[0]
        part = "" if layout.scalar else f" of component {component}"
        last = ", the last state of an episode" if batch.get_state()["done"][index] else ""
        raise CheckFailed(
            f"action_mask() allows no action{part} {_when(step)} (environment {index}{last}); "
            "allow at least one in every state"
        )


def _when(steps: int) -> str:
    return f"at step {steps}" if steps else "after reset()"
