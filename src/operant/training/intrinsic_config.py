"""The section ``[intrinsic]`` of a configuration: bonuses for exploration."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from operant.models.names import BONUS_NAMES, COUNT_FORMS
from operant.training.config import SCHEDULES
from operant.training.section import Section, option


@dataclass(frozen=True)
class IntrinsicConfig(Section, table="intrinsic"):
    """Which bonuses, and how they are paid."""

    short_names = False  # hidden and lr mean the policy's and PPO's

    kind: tuple[str, ...] = option((), 'none, rnd, icm, count, or several: ["rnd", "count"]')
    coef: float = option(0.5, "weight of the bonus", least=0.0)
    coef_schedule: str = option("constant", "of it, towards 0 at the end", choices=SCHEDULES)
    extrinsic_coef: float = option(1.0, "weight of the environment's rewards", least=0.0)
    combine: str = option("sum", "of several bonuses", choices=("sum", "product"))
    gamma: float = option(0.99, "discount of bonuses", least=0.0, most=1.0)
    separate_value: bool = option(False, "values of its own for the bonus, across episodes")
    lr: float = option(1e-3, "Adam's step size of what a bonus trains", above=0.0)
    share: float = option(0.25, "of a rollout's samples, that it trains on", above=0.0, most=1.0)
    minibatches: int = option(4, "updates with these", least=1)
    hidden: tuple[int, ...] = option((64, 64), "rnd, icm: sizes of the hidden layers", least=1)
    features: int = option(64, "rnd, icm: numbers that are predicted", least=1)
    random_steps: int = option(
        4096, "rnd, icm: random steps first, for statistics of observations", least=0
    )
    icm_beta: float = option(0.2, "weight of the forward loss", least=0.0, most=1.0)
    count_form: str = option("sqrt", "1 / sqrt(visits), or 1 for the first", choices=COUNT_FORMS)
    count_leaves: tuple[str, ...] = option((), "leaves of an observation that count; empty: all")
    count_resolution: float = option(
        0.0, "floats are rounded down to multiples of this; 0: not", least=0.0
    )
    count_capacity: int = option(
        4096, "observations of an episode that are told apart", least=1, most=1 << 20
    )

    def __post_init__(self) -> None:
        """Check the names; a single one need not be in a list."""
        kind = (self.kind,) if isinstance(self.kind, str) else self.kind
        object.__setattr__(self, "kind", () if kind in (("none",), ["none"]) else kind)
        super().__post_init__()
        for name in self.kind:
            if name not in BONUS_NAMES:
                near = difflib.get_close_matches(name, BONUS_NAMES, 1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                known = ", ".join(BONUS_NAMES)
                raise ValueError(f"intrinsic.kind must be none or of {known}, got {name!r}{hint}")
        if len(set(self.kind)) < len(self.kind):
            raise ValueError(f"intrinsic.kind has a bonus twice: {', '.join(self.kind)}")
