"""Charts of a sweep: what trials came to, which options mattered, and how each one did."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from operant.render.chart import GRAY, GRID, INK, new_figure, quiet
from operant.sweep.plan import BOTH, SECONDS
from operant.sweep.search import best_of, front, values_of
from operant.sweep.space import Interval
from operant.sweep.study import Study, Trial
from operant.sweep.trial import LEAST_NEVER_S
from operant.training.config_file import toml_value

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COMPLETE, _PRUNED, _BEST = "#0072B2", "#B9C3D3", "#D55E00"
_ACROSS = 4
_PANEL_W, _PANEL_H = 2.3, 2.0  # Inches.


def charts(study: Study, shares: Mapping[str, float]) -> dict[str, Figure]:
    """The charts by the name of their file.

    Raises:
        ValueError: no matplotlib.
    """
    with quiet():
        found = {"history": _history(study), "slices": _slices(study, shares)}
        if shares:
            found["importances"] = _importances(study, shares)
        if study.plan.metric == BOTH:
            found["front"] = _front(study)
    return found


def _history(study: Study) -> Figure:
    """Scores in the order of the trials, and the best so far."""
    trials, plan = study.finished(), study.plan
    figure = new_figure(7.0, 3.6)
    axes = figure.add_axes((0.1, 0.15, 0.87, 0.73))
    _dress(axes, f"{plan.env}: {len(trials)} trials", "trial", _axis(study))
    best, line = math.nan, []
    for one in trials:
        score = _score(one, study)
        if one.scores is not None and score is not None:
            better = min if plan.metric == SECONDS else max
            best = score if math.isnan(best) else better(best, score)
        line.append(best)
    _dots(axes, study, lambda one: one.number)
    axes.step([one.number for one in trials], line, where="post", color=_BEST, lw=1.4, zorder=2)
    _legend(axes, trials)
    return figure


def _slices(study: Study, shares: Mapping[str, float]) -> Figure:
    """Scores over each option's values, those that mattered most first."""
    ranges = study.plan.space.ranges
    names = sorted(ranges, key=lambda name: -shares.get(name, 0.0))
    across = min(_ACROSS, len(names))
    down = math.ceil(len(names) / across)
    figure = new_figure(across * _PANEL_W + 0.7, down * _PANEL_H + 0.5)
    grid = figure.subplots(down, across, squeeze=False, sharey=True)
    for panel, axes in enumerate(grid.flat):
        if panel >= len(names):
            axes.set_axis_off()
            continue
        name, one = names[panel], ranges[names[panel]]
        _dress(axes, "", _short(name, names), _axis(study) if panel % across == 0 else "")
        if isinstance(one, Interval):
            if one.log:
                _logarithmic(axes)
            _dots(axes, study, lambda trial, name=name: values_of(trial, study.plan)[name])
            continue
        places = {value: place for place, value in enumerate(one.values)}
        _dots(
            axes,
            study,
            lambda trial, name=name, places=places: places.get(
                values_of(trial, study.plan)[name], math.nan
            ),
        )
        labels = [value if isinstance(value, str) else toml_value(value) for value in one.values]
        turned = sum(map(len, labels)) > 26
        axes.set_xticks(
            range(len(labels)),
            labels,
            rotation=40 if turned else 0,
            ha="right" if turned else "center",
        )
        axes.set_xlim(-0.5, len(labels) - 0.5)
    figure.suptitle(f"{study.plan.env}: what each value came to", color=INK, fontsize=10)
    figure.tight_layout(pad=0.8)
    return figure


def _importances(study: Study, shares: Mapping[str, float]) -> Figure:
    """A bar for each option."""
    names = list(shares)[::-1]
    figure = new_figure(6.0, 0.9 + 0.28 * len(names))
    inches = 1.0 / (0.9 + 0.28 * len(names))
    axes = figure.add_axes((0.3, 0.5 * inches, 0.6, 1 - 0.9 * inches))
    _dress(axes, f"{study.plan.env}: what mattered", "share of the importance", "")
    axes.barh(range(len(names)), [shares[name] for name in names], color=_COMPLETE, height=0.62)
    axes.set_yticks(range(len(names)), names)
    axes.set_xlim(0, max(max(shares.values()) * 1.15, 1e-9))
    for place, name in enumerate(names):
        axes.text(shares[name], place, f" {shares[name]:.0%}", va="center", color=INK, fontsize=8)
    return figure


def _front(study: Study) -> Figure:
    """Return over seconds, and the trials that no other is better than in both."""
    figure = new_figure(6.0, 4.0)
    axes = figure.add_axes((0.13, 0.13, 0.84, 0.77))
    _dress(axes, f"{study.plan.env}: return and speed", "seconds to the threshold", "return")
    done = [one.scores for one in study.finished() if one.scores is not None]
    solved = [one for one in done if one[1] < LEAST_NEVER_S]
    axes.scatter(*_columns([one[::-1] for one in solved]), s=16, color=_COMPLETE, label="trial")
    best = [one.scores for one in front(study.finished()) if one.scores is not None]
    best = [one for one in best if one[1] < LEAST_NEVER_S]
    axes.plot(
        *_columns([one[::-1] for one in best]), "o-", color=_BEST, ms=5, lw=1.2, label="front"
    )
    axes.legend(frameon=False, fontsize=8, labelcolor=INK)
    return figure


def _columns(points: list[Any]) -> tuple[Any, Any]:
    return tuple(np.array(points, float).reshape(-1, 2).T)  # type: ignore[return-value]


def _score(one: Trial, study: Study) -> float | None:
    """What a trial is drawn at; None where it has nothing on this axis."""
    if one.scores is not None:
        found = one.scores[0]
        return found if study.plan.metric != SECONDS or found < LEAST_NEVER_S else None
    if study.plan.metric == SECONDS or not one.reported:
        return None
    return one.reported[-1][1]


def _dots(axes: Axes, study: Study, place: Any) -> None:
    trials = study.finished()
    best = best_of(trials, study.plan)
    for one in sorted(trials, key=lambda one: (one.scores is not None, one == best)):
        score = _score(one, study)
        if score is None:
            continue
        color = _COMPLETE if one.scores is not None else _PRUNED
        size, color = (34, _BEST) if one == best else (16, color)
        axes.scatter([place(one)], [score], s=size, color=color, linewidths=0, zorder=3)


def _legend(axes: Axes, trials: list[Trial]) -> None:
    """Below the title, what the dots are."""
    kinds = [
        ("complete", _COMPLETE),
        ("pruned: as far as it came", _PRUNED),
        ("best so far", _BEST),
    ]
    if not any(one.state == "pruned" for one in trials):
        del kinds[1]
    for label, color in kinds:
        axes.scatter([], [], s=20, color=color, label=label)
    axes.legend(
        frameon=False, fontsize=8, labelcolor=INK, ncols=3, loc="lower right",
        bbox_to_anchor=(1.0, 0.99), borderpad=0, handletextpad=0.2, columnspacing=1.2,
    )  # fmt: skip


def _axis(study: Study) -> str:
    return "seconds to the threshold" if study.plan.metric == SECONDS else "mean return"


def _logarithmic(axes: Axes) -> None:
    """A scale of 1, 2, 5, 10: a range may be less than a power of ten."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.minorticks_off()


def _short(name: str, names: list[str]) -> str:
    """The last part of a dotted name, if no other option has it."""
    last = name.rpartition(".")[2]
    return last if sum(other.rpartition(".")[2] == last for other in names) == 1 else name


def _dress(axes: Axes, title: str, below: str, beside: str) -> None:
    axes.set_title(title, loc="left", fontsize=10, color=INK)
    axes.set_xlabel(below, fontsize=9, color=INK)
    axes.set_ylabel(beside, fontsize=9, color=INK)
    axes.grid(color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=GRAY, labelsize=8, length=0)
    for side in axes.spines.values():
        side.set_visible(False)
