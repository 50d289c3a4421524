"""Figures over windows of steps, from whole batches: no Python loop over environments.

The steps of a batch are counted one by one, environment after environment: step t of environment i
is number ``t * num_envs + i``. A window is so many steps in a row, so it may end in the middle of a
batch. Sums are added up in that order in double precision: they are what a loop over the
environments would have summed, to the bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Window:
    """What happened in `steps` steps in a row, the last of which is number `last_step` - 1."""

    number: int
    steps: int
    last_step: int
    reward: float
    """The sum."""
    episodes: int
    """That ended in the window, whenever they began."""
    truncated: int
    """Of those, how many reached a time limit."""
    return_sum: float
    return_min: float
    """NaN if no episode ended; so are `return_max` and the means."""
    return_max: float
    length_sum: int
    sums: dict[str, float]
    """Of the other figures that were given."""

    @property
    def mean_reward(self) -> float:
        """Of a step."""
        return self.reward / self.steps

    @property
    def mean_return(self) -> float:
        """Of an episode that ended."""
        return self.return_sum / self.episodes if self.episodes else float("nan")

    @property
    def mean_length(self) -> float:
        """Of an episode that ended, in steps."""
        return self.length_sum / self.episodes if self.episodes else float("nan")


@dataclass
class _Open:
    """What is known of the window that has not ended yet."""

    reward: float = 0.0
    episodes: int = 0
    truncated: int = 0
    return_sum: float = 0.0
    return_min: float = float("nan")
    return_max: float = float("nan")
    length_sum: int = 0
    sums: dict[str, float] = field(default_factory=dict)


class WindowMetrics:
    """Cuts what a batch of environments does into windows of `size` steps.

    >>> windows = WindowMetrics(size=4)
    >>> ended = np.zeros(3, bool)
    >>> for _ in range(2):
    ...     closed = windows.update(np.ones(3), ended, ended)
    >>> closed[0].number, closed[0].reward
    (0, 4.0)

    Args:
        size: steps of a window, those of all environments counted.

    Raises:
        ValueError: less than one step.
    """

    def __init__(self, size: int) -> None:
        if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 1:
            raise ValueError(f"a window has at least one step, got {size!r}")
        self.size = int(size)
        self.steps = 0
        """Counted so far."""
        self._open = _Open()

    def update(
        self,
        reward: Any,
        terminated: Any,
        truncated: Any,
        info: Mapping[str, Any] | None = None,
        **figures: Any,
    ) -> list[Window]:
        """Add a step of the batch, or several; the windows that ended in it.

        Args:
            reward, terminated, truncated: as a step returned them, ``[num_envs]``, or stacked,
                ``[steps, num_envs]``.
            info: of the step: return and length of the episodes that ended are in its
                ``"episode"``, entries ``"r"`` and ``"l"``. Without it they count as 0.
            figures: other numbers of every environment, of the same shape, to be summed.

        Raises:
            ValueError: a shape differs, or other figures were given before.
        """
        rewards = np.asarray(_on_host(reward), np.float64)
        shape = rewards.shape
        late = _flat("truncated", truncated, shape) != 0
        over = (_flat("terminated", terminated, shape) != 0) | late
        report = (info or {}).get("episode", {})
        returns = _flat("episode return", report.get("r", 0), shape)
        lengths = _flat("episode length", report.get("l", 0), shape)
        others = {name: _flat(name, values, shape) for name, values in figures.items()}
        if self.steps and set(others) != set(self._open.sums):
            known = ", ".join(sorted(self._open.sums)) or "none"
            raise ValueError(f"the figures are {known}; got {', '.join(sorted(others)) or 'none'}")
        ends = np.flatnonzero(over)
        return self._add(
            rewards.reshape(-1), ends, late[ends], returns[ends], lengths[ends], others
        )

    def _add(
        self,
        reward: np.ndarray,
        ends: np.ndarray,
        late: np.ndarray,
        returns: np.ndarray,
        lengths: np.ndarray,
        others: dict[str, np.ndarray],
    ) -> list[Window]:
        """`ends`: where episodes ended; `late`, `returns` and `lengths` are theirs alone."""
        first = self.steps // self.size
        which = (self.steps + np.arange(len(reward))) // self.size - first
        count = int(which[-1]) + 1 if len(which) else 1
        whose = which[ends]
        rewards = _sums(self._open.reward, which, reward, count)
        return_sums = _sums(self._open.return_sum, whose, returns, count)
        length_sums = _sums(self._open.length_sum, whose, lengths, count)
        sums = {
            name: _sums(self._open.sums.get(name, 0.0), which, values, count)
            for name, values in others.items()
        }
        episodes = np.bincount(whose, minlength=count)
        truncated = np.bincount(whose, late, count)
        bounds = np.concatenate(([0], np.cumsum(episodes)))
        self.steps += len(reward)
        closed = []
        for k in range(count):  # windows, of which there is one in most steps
            seen = returns[bounds[k] : bounds[k + 1]]
            if k:
                self._open = _Open()
            now = self._open
            now.reward, now.return_sum = float(rewards[k]), float(return_sums[k])
            now.length_sum = round(float(length_sums[k]))
            now.episodes += int(episodes[k])
            now.truncated += int(truncated[k])
            now.sums = {name: float(values[k]) for name, values in sums.items()}
            if len(seen):
                now.return_min = float(np.fmin(now.return_min, seen.min()))
                now.return_max = float(np.fmax(now.return_max, seen.max()))
            if (first + k + 1) * self.size <= self.steps:
                closed.append(self._closed(first + k))
        if closed and self.steps % self.size == 0:
            self._open = _Open(sums=dict.fromkeys(others, 0.0))
        return closed

    def _closed(self, number: int) -> Window:
        now = self._open
        return Window(
            number=number, steps=self.size, last_step=(number + 1) * self.size, **vars(now)
        )


def _on_host(values: Any) -> Any:
    """A tensor on a GPU as an array; anything else as it is."""
    return values.cpu().numpy() if hasattr(values, "cpu") else values


def _flat(name: str, values: Any, shape: tuple[int, ...]) -> np.ndarray:
    array = np.asarray(_on_host(values), np.float64)
    if array.ndim and array.shape != shape:
        raise ValueError(f"{name} must have the shape {shape} of the reward, got {array.shape}")
    return np.broadcast_to(array, shape).reshape(-1)


def _sums(before: float, which: np.ndarray, values: np.ndarray, count: int) -> np.ndarray:
    """Sums by window, `before` being the first's so far; added up one after the other."""
    first = np.concatenate(([0], which))
    return np.bincount(first, np.concatenate(([before], values)), count)


def chosen_infos(
    info: Mapping[str, Any], terminated: Any, truncated: Any, sample: Sequence[int] = ()
) -> Iterable[dict[str, Any]]:
    """What a step's ``info`` says of the environments that finished, and of those in `sample`.

    For code that wants a dict for each environment, without making one for all of them: entries are
    taken out of the arrays for these few, those that Gymnasium's masks (``"_name"``) leave out are
    left out. Each dict also has ``"env"``, the environment's index.
    """
    done = np.asarray(_on_host(terminated), np.bool_) | np.asarray(_on_host(truncated), np.bool_)
    wanted = np.union1d(np.flatnonzero(done), np.asarray(sample, np.int64))
    for index in wanted.tolist():
        yield {"env": index, **_entries(info, index)}


def _entries(info: Mapping[str, Any], index: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, values in info.items():
        mask = info.get(f"_{name}")
        if name.startswith("_") or (mask is not None and not mask[index]):
            continue
        found[name] = _entries(values, index) if isinstance(values, Mapping) else values[index]
    return found
