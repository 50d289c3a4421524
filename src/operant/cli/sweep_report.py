"""What a user sees of a sweep: where it stands, and what it came to. Right at 80 columns."""

from __future__ import annotations

import math
import shlex
import time
from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, Progress, TextColumn

from operant.cli.screen import errors, literal, output
from operant.sweep.plan import RETURN, SECONDS
from operant.sweep.search import best_of
from operant.sweep.trial import LEAST_NEVER_S
from operant.toolchain.text import short

if TYPE_CHECKING:
    from operant.sweep.study import Study, Trial

_LINE_EVERY_S = 5.0
_SHOW_EVERY_S = 0.1


def introduce(study: Study, host: bool) -> None:
    """Name the sweep, and say what is searched."""
    plan = study.plan
    begun = len(study.finished())
    text = f"[bold]{literal(study.folder.name)}[/bold]: {literal(plan.env)}, {plan.metric}, "
    text += f"{len(plan.space.ranges)} options, {plan.trials} trials"
    errors.print(text, highlight=False, soft_wrap=True)
    notes = [f"{begun} are finished"] if begun else []
    notes += [] if host else ["another process trains the winner in the end; this one helps"]
    if notes:
        errors.print(literal("; ".join(notes)), style="dim", highlight=False, soft_wrap=True)


class SearchProgress:
    """A bar on standard error while it is searched; plain lines where that is no terminal.

    Args:
        study: the sweep.
        ends: when the budget is spent, on the monotonic clock; None: never.
    """

    def __init__(self, study: Study, ends: float | None) -> None:
        self._study, self._ends = study, ends
        self._began = self._last_line = time.monotonic()
        self._last = -math.inf
        self._count, self._before = 0, len(study.finished())
        self._number, self._best = -1, ""
        self._bar = Progress(
            BarColumn(bar_width=12),
            TextColumn("{task.description}", markup=False),
            console=errors,
            transient=True,
            disable=not errors.is_terminal,
        )
        self._task = self._bar.add_task("", total=study.plan.trials)

    def __enter__(self) -> SearchProgress:
        self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.stop()

    def show(self, number: int, share: float, score: float) -> None:
        """A trial has come so far, and has that mean return."""
        now = time.monotonic()
        if now - self._last < _SHOW_EVERY_S and number == self._number:
            return
        if number != self._number:
            self._number = number
            self._look()
        self._last = now
        text = self._text(share, score, now)
        self._bar.update(self._task, description=text, completed=self._count + share)
        if not errors.is_terminal and now - self._last_line >= _LINE_EVERY_S:
            self._last_line = now
            errors.print(text, markup=False, highlight=False, soft_wrap=True)

    def _look(self) -> None:
        finished = self._study.finished()
        self._count = len(finished)
        best = best_of(finished, self._study.plan)
        self._best = "" if best is None else f", best {score_text(best, self._study)}"

    def _text(self, share: float, score: float, now: float) -> str:
        trials = self._study.plan.trials
        text = f"{self._count}/{trials}{self._best}"
        reached = "" if math.isnan(score) else f" {score:.4g}"
        text += f" | trial {self._number} {share:.0%}{reached}"
        return f"{text} | {_clock(self._left(share, now))} left"

    def _left(self, share: float, now: float) -> float:
        done = self._count - self._before + share
        left = (
            (self._study.plan.trials - self._count - share) * (now - self._began) / max(done, 0.1)
        )
        return max(0.0, left if self._ends is None else min(left, self._ends - now))

    def joined(self) -> None:
        """Say that another process goes on with the sweep."""
        name = literal(self._study.folder.name)
        text = f"{name} is trained to its end by the process that began it"
        output.print(text, highlight=False, soft_wrap=True)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return (
        f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if minutes >= 60 else f"{minutes}:{rest:02}"
    )


def score_text(one: Trial, study: Study) -> str:
    """A trial's score, and which it was."""
    assert one.scores is not None
    metric = study.plan.metric
    parts = [] if metric == SECONDS else [f"{one.scores[0]:.4g}"]
    parts += [] if metric == RETURN else [seconds_text(one.scores[-1])]
    return f"{' in '.join(parts)} (#{one.number})"


def seconds_text(seconds: float | None) -> str:
    """Seconds to the threshold."""
    never = seconds is None or seconds >= LEAST_NEVER_S
    return "never" if never else f"{seconds:.3g} s"


# The end ------------------------------------------------------------------------------------
def print_report(found: dict[str, Any]) -> None:
    """Trials, the best and its values, unseen seeds, importances, files, what to type next."""
    text = f"{found['trials']} trials in {found['trial_seconds']:.0f} s of training: "
    text += ", ".join(f"{found[name]} {name}" for name in ("complete", "pruned", "failed"))
    output.print(text, highlight=False, soft_wrap=True)
    for why in found["failures"][:3]:
        output.print(f"failed: {literal(why)}", style="dim", highlight=False, soft_wrap=True)
    if found["best"] is None:
        text = "no trial came to its end; give more --budget or --trials"
        output.print(text, style="yellow", highlight=False)
        return
    _print_best(found)
    if found["verification"] is not None:
        _print_unseen(found["verification"], found["choosing_seeds"])
    for file in found["files"].values():
        output.print(literal(file), highlight=False, soft_wrap=True)
    config = shlex.quote(found["files"]["config"])
    text = f"next: operant train {shlex.quote(found['env'])} --config {config}"
    output.print(literal(text), style="dim", highlight=False, soft_wrap=True)


def _print_best(found: dict[str, Any]) -> None:
    from operant.cli.bench import print_figures

    best, start = found["best"], found["start"]
    if start is not None and best["trial"] == start["trial"]:
        text = f"best: trial {best['trial']}, the configuration it began with"
    else:
        text = f"best: trial {best['trial']}"
    output.print(f"[bold]{literal(text)}[/bold]: {_scored(best)}", highlight=False)
    if start is not None and best["trial"] != start["trial"]:
        output.print(f"the configuration it began with: {_scored(start)}", highlight=False)
    for one in found["front"] or []:
        output.print(f"front: trial {one['trial']}: {_scored(one)}", highlight=False)
    before = (start or best)["values"]
    rows = [
        [
            literal(name),
            _figure(value),
            _figure(before[name]),
            f"{found['importances'][name]:.0%}" if name in found["importances"] else "",
        ]
        for name, value in best["values"].items()
    ]
    print_figures(["option", "best", "began with", "importance"], rows)


def _scored(one: dict[str, Any]) -> str:
    if one["state"] != "complete":
        return str(one["state"])
    parts = [f"return {one['return']:.4g}"] if one.get("return") is not None else []
    if "seconds_to_threshold" in one:
        parts.append(f"{seconds_text(one['seconds_to_threshold'])} to the threshold")
    return ", ".join(parts)


def _print_unseen(found: dict[str, Any], choosing: list[int]) -> None:
    """Both configurations on the unseen seeds."""
    seeds = found["unseen_seeds"]
    text = f"unseen seeds {_listed(seeds)} (those that chose: {_listed(choosing)})"
    output.print(text, highlight=False)
    for name, label in (("best", "best"), ("start", "began with")):
        if name in found:
            output.print(f"  {label:<10} {_unseen(found[name], len(seeds))}", highlight=False)
    if "difference" in found and found["difference"]["mean"] is not None:
        text = f"  {'difference':<10} {_interval(found['difference'], 'mean')}"
        output.print(text, highlight=False)


def _unseen(one: dict[str, Any], count: int) -> str:
    text = f"return {_interval(one, 'mean_return')}"
    if one["solved"] is not None:
        text += f", {one['solved']}/{count} solved"
    if one["seconds_to_threshold"] is not None:
        text += f", in {seconds_text(one['seconds_to_threshold'])}"
    return text


def _interval(one: dict[str, Any], mean: str) -> str:
    if one[mean] is None:
        return "none"
    around = one["interval"]
    return f"{one[mean]:.4g}" + (f" ({around[0]:.4g} to {around[1]:.4g})" if around else "")


def _listed(seeds: list[int]) -> str:
    return f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 2 else ", ".join(map(str, seeds))


def _figure(value: Any) -> str:
    if isinstance(value, bool | str):
        return literal(str(value))
    if isinstance(value, float):
        return f"{value:.4g}"
    return literal(short(value) if isinstance(value, int) and value >= 100_000 else str(value))
