"""`PopArtFigures`: reports what a `PopArtValueHead` has seen."""

from __future__ import annotations

from typing import Any

from operant.models.popart import popart_head
from operant.training.add_on import AddOn


class PopArtFigures(AddOn):
    """Mean and deviation of the targets; of several tasks their means."""

    name = "popart"
    metrics = ("mean", "deviation")

    def update(self, trainer: Any, buffer: Any) -> dict[str, float]:
        """See `AddOn`."""
        head = popart_head(trainer.policy)
        assert head is not None
        return {"mean": float(head.mean.mean()), "deviation": float(head.deviation().mean())}
