"""Add-ons: what a trainer does besides its algorithm, such as an intrinsic reward.

An add-on is given to the trainer (``PPO(env, add_ons=[Curiosity()])``), and again when a checkpoint
is loaded: its code is the user's, its state is in the checkpoint.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from operant.runs.checkpoint import CheckpointError
from operant.training.guard import NonFiniteError
from operant.utils.hooks import refuse_unknown_hooks

_GROUP = "add_on_"
_NAME = re.compile(r"[a-z][a-z_]{0,40}")


class AddOn:
    """Override what you need. A rollout does not begin before the add-ons have seen the last."""

    name = ""
    """Lower-case; unique in a trainer. Names its metrics and its file in a checkpoint."""
    metrics: tuple[str, ...] = ()
    """Figures that `update` returns; the files call them ``NAME/FIGURE``."""

    _before: Mapping[str, np.ndarray] = {}
    needs_next_obs: bool = False
    """Whether it calls ``buffer.next_obs()``: rollouts then keep all final observations."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Refuse a method that is meant to be a hook and is none."""
        super().__init_subclass__(**kwargs)
        refuse_unknown_hooks(cls, AddOn)

    def begin(self, trainer: Any) -> None:
        """The trainer was made: environments, policy and engine are there. Called once, before a
        state is restored."""

    def parameters(self) -> Iterable[nn.Parameter]:
        """What `update` trains, for the NaN guard to look at."""
        return ()

    def after_collect(self, trainer: Any, buffer: Any) -> None:
        """A rollout was collected: rewards and values may be changed, before callbacks see them."""

    def update(self, trainer: Any, buffer: Any) -> dict[str, float]:
        """The policy was updated: train on the same rollout; a figure for each of `metrics`."""
        return {}

    def back_up(self) -> None:
        """An iteration begins: remember what `roll_back` puts back, if the NaN guard finds
        something. By default the whole state; one on a GPU may have copies there."""
        self._before = self.state()

    def roll_back(self) -> None:
        """Put back what `back_up` remembered."""
        self.set_state(self._before)

    def state(self) -> dict[str, np.ndarray]:
        """Everything its future depends on, as copies; saved with each checkpoint."""
        return {}

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from there.

        Raises:
            ValueError: a missing entry or a wrong shape.
        """


class AddOns:
    """The add-ons of a trainer, in order.

    Raises:
        TypeError, ValueError: something else than an add-on, or names that are bad or not unique.
    """

    def __init__(self, add_ons: Sequence[AddOn]) -> None:
        for one in add_ons:
            if not isinstance(one, AddOn):
                raise TypeError(f"add_ons must be objects of operant.training.add_on, got {one!r}")
            if not _NAME.fullmatch(one.name):
                raise ValueError(
                    f"an add-on's name must be lower-case letters and _, {one!r} has {one.name!r}"
                )
        names = [one.name for one in add_ons]
        if len(set(names)) < len(names):
            raise ValueError(f"add-ons must have names of their own, got {', '.join(names)}")
        self._all = tuple(add_ons)

    def __iter__(self) -> Any:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    @property
    def metrics(self) -> tuple[str, ...]:
        """The names of all their figures."""
        return tuple(f"{one.name}/{name}" for one in self._all for name in one.metrics)

    def update(self, trainer: Any, guarded: bool) -> dict[str, float]:
        """Let each train; their figures.

        Raises:
            NonFiniteError: a parameter of one is not finite afterwards, and `guarded`.
        """
        figures: dict[str, float] = {}
        for one in self._all:
            found = one.update(trainer, trainer.buffer)
            figures |= {f"{one.name}/{name}": float(found[name]) for name in one.metrics}
            if guarded and not _all_finite(one.parameters()):
                detail = "after its own update"
                raise NonFiniteError(f"add-on {one.name}", trainer.iteration, None, detail)
        return figures

    @property
    def need_next_obs(self) -> bool:
        """Whether one does."""
        return any(one.needs_next_obs for one in self._all)

    def begin(self, trainer: Any) -> None:
        """Tell them that the trainer was made."""
        for one in self._all:
            one.begin(trainer)

    def back_up(self) -> None:
        """Remember their states, for `roll_back`."""
        for one in self._all:
            one.back_up()

    def roll_back(self) -> None:
        """Put back what `back_up` remembered."""
        for one in self._all:
            one.roll_back()

    def state(self) -> dict[str, dict[str, np.ndarray]]:
        """Their states, by the name of the file in a checkpoint."""
        return {f"{_GROUP}{one.name}": one.state() for one in self._all}

    def set_state(self, groups: Mapping[str, Mapping[str, np.ndarray]], where: Any) -> None:
        """Continue from a checkpoint at `where`.

        Raises:
            CheckpointError: it was written with other add-ons, or a state does not fit.
        """
        saved = {name.removeprefix(_GROUP) for name in groups if name.startswith(_GROUP)}
        ours = {one.name for one in self._all}
        if saved != ours:
            raise CheckpointError(
                f"{where} was written with the add-ons {sorted(saved)}, but add_ons has "
                f"{sorted(ours)}; pass the same ones"
            )
        for one in self._all:
            try:
                one.set_state(groups[f"{_GROUP}{one.name}"])
            except (ValueError, KeyError) as error:
                file = where / f"{_GROUP}{one.name}.safetensors"
                raise CheckpointError(f"{file}: {error}") from None


def _all_finite(parameters: Iterable[nn.Parameter]) -> bool:
    """Whether all are; of a GPU with one wait."""
    found = [torch.isfinite(parameter).all() for parameter in parameters]
    return not found or bool(torch.stack(found).all())
