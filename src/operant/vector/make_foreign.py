"""Batches of environments that operant does not compile, as a configuration describes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import FrameStackObservation

from operant.backends.foreign.choose_executor import BACKENDS
from operant.vector.arguments import checked_count, checked_mode
from operant.vector.foreign_batch import ForeignBatch
from operant.vector.foreign_env import ForeignEnv, Recipe, wrapper_named

_MOST_FRAMES, _MOST_STEPS = 1024, 2**31 - 1


def make_foreign(
    env: ForeignEnv,
    num_envs: int = 1,
    *,
    backend: str = "auto",
    impl: str | None = None,
    workers: int | None = None,
    seed: int | None = None,
    autoreset_mode: AutoresetMode | str = AutoresetMode.SAME_STEP,
    max_episode_steps: int | None = None,
    render_mode: str | None = None,
    wrappers: Sequence[str] = (),
    frame_stack: int = 1,
    on_worker_death: str = "raise",
    step_timeout_s: float = 60.0,
    context: str = "spawn",
    first_env: int = 0,
    **params: Any,
) -> ForeignBatch:
    """A batch of environments of Gymnasium's or PettingZoo's API.

    Args:
        env: which.
        num_envs: how many.
        backend: ``"serial"``, ``"threads"``, ``"processes"`` or ``"auto"``; see `ForeignBatch`.
        impl: None or ``"auto"``: there is one implementation, its own.
        workers: processes or threads; None: one for each core.
        seed: of the first ``reset``, unless that has one.
        autoreset_mode: SAME_STEP is what there is.
        max_episode_steps: a time limit: of an id instead of its own, else besides it.
        render_mode: such as ``"rgb_array"``.
        wrappers: Gymnasium wrappers around each environment, the first the innermost:
            ``"gymnasium.wrappers:ClipReward"``.
        frame_stack: how many observations, the newest last, are seen at once.
        on_worker_death: ``"raise"`` or ``"restart"``; see `ForeignBatch`.
        step_timeout_s: see `ForeignBatch`.
        context: see `ForeignBatch`.
        first_env: see `ForeignBatch`.
        params: the environment's own arguments.

    Raises:
        ValueError, TypeError: what an argument may not be.
        ForeignEnvError: an environment raised, or its spaces have no fixed size.
    """
    if backend not in BACKENDS:
        raise ValueError(
            f"backend must be one of {', '.join(map(repr, BACKENDS))} for {env.name}, which "
            f"operant does not compile; got {backend!r}"
        )
    if impl not in (None, "auto"):
        raise ValueError(f"impl is for environments that operant compiles, {env.name} is none")
    if checked_mode(autoreset_mode) != AutoresetMode.SAME_STEP:
        raise ValueError(
            f"batches of {env.name} begin new episodes in the same step: autoreset_mode must be "
            f"'SameStep', got {autoreset_mode!r}"
        )
    for name in wrappers:
        wrapper_named(name)  # said here, not by a worker
    frame_stack = checked_count("frame_stack", frame_stack, _MOST_FRAMES)
    if max_episode_steps is not None:
        max_episode_steps = checked_count("max_episode_steps", max_episode_steps, _MOST_STEPS)
    make: Any = Recipe(env, params, tuple(wrappers), max_episode_steps, render_mode)
    if frame_stack > 1:
        make = _Stacked(make, frame_stack)
    return ForeignBatch(
        make,
        num_envs,
        backend=backend,
        workers=workers,
        seed=seed,
        name=env.name,
        params=params,
        render_mode=render_mode,
        on_worker_death=on_worker_death,
        step_timeout_s=step_timeout_s,
        context=context,
        first_env=first_env,
    )


class _Stacked:
    """Makes environments that show their last observations."""

    def __init__(self, make: Recipe, count: int) -> None:
        self._make, self._count = make, count

    def __call__(self) -> Any:
        return FrameStackObservation(self._make(), self._count, padding_type="reset")
