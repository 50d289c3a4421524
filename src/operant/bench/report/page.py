"""The page: sections by question, figures with where each number comes from."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from html import escape
from importlib import resources

from operant.bench.report.charts import Bar, Line, bars, lines
from operant.bench.report.sources import (
    Curve,
    Curves,
    Figure,
    Found,
    Source,
    Speed,
    curves,
    histories,
    solved,
    speeds,
    suite_figures,
)
from operant.toolchain.text import short

_POINTS = 60
"""Of a band: learning curves are looked at in so many places."""

Section = Iterator[str]


def page(found: Found, title: str = "Operant, measured") -> str:
    """The whole page, with its style and charts: one file that needs nothing else.

    Raises:
        ValueError: there is nothing to show.
    """
    sections = _sections(found)
    shown = [(key, name, text, list(parts)) for key, name, text, parts in sections]
    shown = [one for one in shown if one[3]]
    if not shown:
        raise ValueError("these files have nothing that the report knows how to show")
    style = resources.files("operant.bench.report").joinpath("style.css").read_text("utf-8")
    links = "".join(f'<a href="#{key}">{escape(name)}</a>' for key, name, _, _ in shown)
    body = [
        f'<section id="{key}"><h2>{escape(name)}</h2><p>{escape(text)}</p>'
        f"{''.join(parts)}</section>"
        for key, name, text, parts in shown
    ]
    files = "".join(
        f"<tr><td>{escape(one.name)}</td><td>{escape(one.date[:10])}</td>"
        f"<td>{escape(one.commit)}</td></tr>"
        for one in found.sources
    )
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title><style>{style}</style></head><body>",
            f"<h1>{escape(title)}</h1>",
            f"<p>Every figure names its file, machine, commit and date.</p><nav>{links}</nav>",
            *body,
            '<section id="files"><h2>Files</h2><div class="scroll"><table>',
            f"<tr><th>file</th><th>date</th><th>commit</th></tr>{files}</table></div></section>",
            "</body></html>\n",
        ]
    )


def _sections(found: Found) -> list[tuple[str, str, str, Section]]:
    seeds = "the median of the seeds"
    return [
        (
            "training",
            "Training",
            "Steps collected and trained on, per second; the thin line: slowest to fastest round.",
            _speeds(found, True),
        ),
        (
            "environments",
            "Environments",
            "Steps per second, with random actions.",
            _speeds(found, False),
        ),
        ("learning", "Learning", f"Return by steps: {seeds}, and all as a band.", _curves(found)),
        (
            "solved",
            "Time to a solved task",
            f"Seconds of training: {seeds}; the thin line goes from the fastest to the slowest.",
            _solved(found),
        ),
        ("suite", "The suite", "The median, with an interval of 95 %.", _suite(found)),
        (
            "history",
            "History",
            "How many times better than in the first file, on the same machine.",
            _history(found),
        ),
    ]


def _figure(source: Source, chart: str) -> str:
    caption = f"{source.name}: {source.where()}"
    caption = f"<figcaption>{escape(caption)}</figcaption>"
    return f'<figure><div class="scroll">{chart}</div>{caption}</figure>'


def _speeds(found: Found, trains: bool) -> Section:
    for source in found.sources:
        rows = [one for one in speeds(source) if one.trains == trains]
        if not rows:
            continue
        yield f"<h3>{escape(source.machine)}</h3>"
        parts = []
        for env in dict.fromkeys(one.env for one in rows):
            here = [one for one in rows if one.env == env]
            parts += [f"<h4>{escape(env)}</h4>", _by_size(here), _as_bars(here)]
        yield _figure(source, "".join(parts))


def _sizes(rows: Sequence[Speed]) -> dict[str, list[Speed]]:
    by_system: dict[str, list[Speed]] = {}
    for one in rows:
        known = by_system.setdefault(one.system, [])
        if one.num_envs not in [other.num_envs for other in known]:
            known.append(one)
    return by_system


def _by_size(rows: Sequence[Speed]) -> str:
    """A chart of those measured with three sizes or more; empty if there are none."""
    several = {
        system: sorted(sizes, key=lambda one: one.num_envs)
        for system, sizes in _sizes(rows).items()
        if len(sizes) >= 3
    }
    if not several:
        return ""
    found = [
        Line(
            system,
            [(one.num_envs, one.sps) for one in sizes],
            [(one.num_envs, one.low, one.high) for one in sizes],
        )
        for system, sizes in several.items()
    ]
    return lines(found, "environments", "steps/s", log_x=True, from_zero=True)


def _as_bars(rows: Sequence[Speed]) -> str:
    """The fastest first."""
    found = []
    for one in sorted(rows, key=lambda one: -one.sps):
        name, colour = f"{one.system}, {one.num_envs:,} envs", 0 if one.ours else 1
        found.append(Bar(name, one.sps, one.low, one.high, f"{short(one.sps)}/s", colour))
    return bars(found)


def _curves(found: Found) -> Section:
    for source in found.sources:
        groups = curves(source)
        for env in dict.fromkeys(one.env for one in groups):
            here = [one for one in groups if one.env == env]
            yield f"<h4>{escape(env)}</h4>"
            yield _figure(source, lines([_band(one) for one in here], "steps", "return"))


def _band(group: Curves) -> Line:
    """The median of several curves, and all of them as a band, as far as all go."""
    end = min(curve[-1][0] for curve in group.curves)
    start = max(curve[0][0] for curve in group.curves)
    if end <= start:  # curves that do not meet
        return Line(_seeds(group), group.curves[0])
    places = [start + (end - start) * k / (_POINTS - 1) for k in range(_POINTS)]
    values = [sorted(_at(curve, x) for curve in group.curves) for x in places]
    middle = [(x, statistics.median(ys)) for x, ys in zip(places, values, strict=True)]
    band = [(x, ys[0], ys[-1]) for x, ys in zip(places, values, strict=True)]
    return Line(_seeds(group), middle, band)


def _seeds(group: Curves) -> str:
    count = len(group.curves)
    return f"{group.what or 'PPO'} ({count} seed{'s' if count > 1 else ''})"


def _at(curve: Curve, x: float) -> float:
    """The value of a curve at `x`, on the straight line between its neighbours."""
    before = curve[0]
    for point in curve:
        if point[0] >= x:
            width = point[0] - before[0]
            share = (x - before[0]) / width if width > 0 else 1.0
            return before[1] + share * (point[1] - before[1])
        before = point
    return before[1]


def _solved(found: Found) -> Section:
    for source in found.sources:
        rows = []
        for one in solved(source):
            reached = sorted(
                seconds for seconds in one.seconds if seconds is not None and seconds > 0
            )
            if not reached:
                continue
            median = statistics.median(reached)
            rows.append(
                Bar(
                    f"{one.env}, {one.how}",
                    median,
                    reached[0],
                    reached[-1],
                    f"{median:.3g} s",
                    0,
                    f"{len(reached)} of {len(one.seconds)} seeds",
                )
            )
        if rows:
            yield _figure(source, bars(rows))


def _suite(found: Found) -> Section:
    for source in found.sources[::-1]:
        rows = suite_figures(source)
        if not rows:
            continue
        cells = "".join(
            f"<tr><td>{escape(one.name)}</td><td>{_shown(one.median)} {escape(one.unit)}</td>"
            f"<td>{_shown(one.low)} to {_shown(one.high)}</td></tr>"
            for one in rows
        )
        heads = "<tr><th>case</th><th>median</th><th>interval</th></tr>"
        yield _figure(source, f"<table>{heads}{cells}</table>")
        return  # the last one; how it came about is the history


def _shown(value: float) -> str:
    return short(value) if value >= 1000 else f"{value:.3g}"


def _history(found: Found) -> Section:
    for name, points in histories(found.sources).items():
        figures = [one for _, one in points]
        if any(min(one.median, one.low, one.high) <= 0 for one in figures):
            continue
        rows = []
        for source, one in points:
            ratios = [_better(figures[0], value) for value in (one.low, one.median, one.high)]
            low, ratio, high = sorted(ratios)
            when = f"{source.date[:10]} {source.commit}"
            rows.append(Bar(when, ratio, low, high, f"{ratio:.3f}"))
        yield f"<h4>{escape(name)}</h4>"
        yield _figure(points[-1][0], bars(rows))


def _better(first: Figure, value: float) -> float:
    """How many times better a value is than the first one's median."""
    return value / first.median if first.unit.endswith("/s") else first.median / value
