"""Callbacks: code of the user's that runs between the parts of an iteration, on whole batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from operant.utils.hooks import refuse_unknown_hooks
from operant.utils.windows import Window, WindowMetrics

if TYPE_CHECKING:
    from operant.buffers.rollout import RolloutBuffer
    from operant.training.episodes import Episodes


class Callback:
    """Override what you need. ``trainer.stop()`` ends training after the iteration."""

    watches_only = False
    """True: a promise that nothing but `on_update` is overridden, and that it uses nothing but its
    metrics, the figures of `trainer`, ``trainer.stop()`` and ``trainer.save()``; not the policy,
    environments or buffer. So a GPU need not wait for it: where all callbacks promise that, the
    next iteration has begun by then. It is taken back where training stops or is saved."""
    metrics: tuple[str, ...] = ()
    """What its `on_update` adds to the figures, now and then; for a file with fixed columns."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Refuse a method that is meant to be a hook and is none."""
        super().__init_subclass__(**kwargs)
        refuse_unknown_hooks(cls, Callback)

    def on_rollout(self, trainer: Any, buffer: RolloutBuffer) -> None:
        """A rollout was collected. The buffer may be changed: rewards, for instance, before
        advantages are computed from them."""

    def on_episodes(self, trainer: Any, episodes: Episodes) -> None:
        """Episodes finished in this rollout: arrays, one entry each. Not called for none."""

    def on_update(self, trainer: Any, metrics: dict[str, float]) -> None:
        """An iteration is complete; `metrics` has a figure for each name in
        ``trainer.metric_names``. Whatever is added to it reaches the callbacks after this one."""


_HOOKS = ("on_rollout", "on_episodes", "on_update")


class WindowCallback(Callback):
    """Calls `on_window` with the figures of every `size` steps; see `operant.utils.windows`.

    Rewards are the environment's own, or what an earlier callback made of them.
    """

    def __init__(self, size: int, on_window: Callable[[Window], object]) -> None:
        self.windows = WindowMetrics(size)
        self._on_window = on_window

    def on_rollout(self, trainer: Any, buffer: RolloutBuffer) -> None:
        """Note the steps; their episodes come next."""
        parts = (buffer.reward, buffer.terminated, buffer.truncated)
        self._steps = tuple(part.cpu().numpy() for part in parts)
        self._returns = np.zeros(self._steps[0].shape, np.float32)
        self._lengths = np.zeros(self._steps[0].shape, np.int32)

    def on_episodes(self, trainer: Any, episodes: Episodes) -> None:
        """Note returns and lengths where they belong."""
        self._returns[episodes.step, episodes.env_index] = episodes.returns
        self._lengths[episodes.step, episodes.env_index] = episodes.lengths

    def on_update(self, trainer: Any, metrics: dict[str, float]) -> None:
        """Hand out the windows that ended."""
        info = {"episode": {"r": self._returns, "l": self._lengths}}
        reward, terminated, truncated = self._steps
        for window in self.windows.update(reward, terminated, truncated, info):
            self._on_window(window)


def checked(callbacks: Iterable[Callback] | Callback) -> list[Callback]:
    """The callbacks that `learn` was given, one or several.

    Raises:
        TypeError: something else: a class, a function, or another library's callback.
    """
    alone = isinstance(callbacks, Callback) or not isinstance(callbacks, Iterable)
    found: list[Any] = [callbacks] if alone else list(callbacks)  # type: ignore[arg-type]
    for one in found:
        if isinstance(one, type) or not all(hasattr(one, name) for name in _HOOKS):
            instead = "class Mine(Callback) with on_update(self, trainer, metrics), and Mine()"
            if isinstance(one, type) and issubclass(one, Callback):
                instead = f"{one.__name__}()"
            raise TypeError(
                f"callbacks are objects of operant.Callback, got {one!r}; write {instead}"
            )
    return found


def overrides(callback: Callback, name: str) -> bool:
    """Whether a callback has a method of its own."""
    return getattr(getattr(callback, name), "__func__", None) is not getattr(Callback, name)


def only_watches(callback: Callback) -> bool:
    """Whether the next iteration need not wait for a callback. Its promise does not hold for an
    ``on_update`` that a subclass wrote anew."""
    if not getattr(callback, "watches_only", False):
        return False
    for kind in (callback, *type(callback).__mro__):
        own = getattr(kind, "__dict__", {})
        if "watches_only" in own:
            break
        if "on_update" in own:
            return False
    return not any(overrides(callback, name) for name in ("on_rollout", "on_episodes"))
