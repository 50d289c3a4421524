"""Charts of speed: texts have room, and show what they should."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from operant.bench import heat_map
from operant.bench.compare import Line, Point
from operant.bench.grid import Axis
from operant.bench.heat_map import draw_heat_map, main_effects
from operant.bench.rounds import Rounds
from operant.bench.trend_chart import draw_trend


def words(figure: Figure) -> list[str]:
    return [text for text, _ in texts(figure)]


def texts(figure: Figure) -> list[tuple[str, Any]]:
    """All texts on the page and the rectangles they take, in pixels."""
    figure.canvas.draw()
    outside = set()
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            low, high = axis.get_view_interval()
            for tick in axis.get_major_ticks():
                if not low <= tick.get_loc() <= high:
                    outside.update({tick.label1, tick.label2})
    found = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text()]
    return [(one.get_text(), one.get_window_extent()) for one in found if one not in outside]


def assert_room(figure: Figure, slanted: bool = False) -> None:
    """No text leaves the page or lies on another (slanted ones have rectangles that do)."""
    found = texts(figure)
    for word, box in found:
        assert box.x0 >= 0, word
        assert box.y0 >= 0, word
        assert box.x1 <= figure.bbox.width + 1, word
        assert box.y1 <= figure.bbox.height + 1, word
    if not slanted:
        for (one, box), (other, second) in itertools.combinations(found, 2):
            assert not box.padded(-1).overlaps(second.padded(-1)), (one, other)


# --- The trend ---------------------------------------------------------------------------------


def line(mode: str, speeds: list[float], cpu: str = "Xeon", env: str = "CartPole-v1") -> Line:
    points = [
        Point(k, f"2026-11-{k + 1:02}T00:00:00+00:00", f"{k:07x}-dirty", sps, 0.9 * sps, 1.2 * sps)
        for k, sps in enumerate(speeds)
    ]
    return Line(env, mode, cpu[:12], cpu, tuple(points))


PAGES = {
    "one point": [line("trainer", [3e5])],
    "three modes": [
        line("env_only", [3e7, 4e7]),
        line("trainer", [4e5, 5e5]),
        line("x", [1e5] * 2),
    ],
    "many": [line("trainer", list(np.linspace(1e5, 9e5, 80)), f"machine {k}") for k in range(12)],
    "long": [line("trainer", [1.0, 2.0], "W" * 300, "W" * 300), line("b", [5.0, 6.0], "\n")],
}


@pytest.mark.parametrize("page", PAGES)
def test_trend_has_room(page: str) -> None:
    figure = draw_trend(PAGES[page])
    assert_room(figure, slanted=True)
    assert figure.axes[0].get_window_extent().width > 0.3 * figure.bbox.width
    labels = [box for word, box in texts(figure) if "steps/s" in word]
    assert len(labels) == len(PAGES[page])
    for one, other in itertools.combinations(labels, 2):
        assert not one.padded(-1).overlaps(other.padded(-1))


def test_trend_shows_medians_and_ranges() -> None:
    figure = draw_trend([line("trainer", [100.0, 300.0, 200.0])])
    axes = figure.axes[0]
    drawn = next(one for one in axes.get_lines() if one.get_marker() == "o")
    assert drawn.get_ydata().tolist() == [100.0, 300.0, 200.0]
    (bars,) = axes.collections
    ends = [segment[:, 1].tolist() for segment in bars.get_segments()]
    assert ends == [
        pytest.approx([90.0, 120.0]),
        pytest.approx([270.0, 360.0]),
        pytest.approx([180.0, 240.0]),
    ]
    shown = words(figure)
    assert "0000001-dirty" in shown
    assert "CartPole-v1 trainer" in shown
    assert axes.get_yscale() == "linear"
    assert axes.get_ylim()[0] == 0


def test_speeds_far_apart_are_drawn_by_logarithm() -> None:
    figure = draw_trend([line("env_only", [3e7]), line("trainer", [4e5])])
    assert figure.axes[0].get_yscale() == "log"
    with pytest.raises(ValueError, match="nothing to draw"):
        draw_trend([])


def test_few_of_many_commits_are_named() -> None:
    figure = draw_trend([line("trainer", [1.0] * 100)])
    shown = [word for word in words(figure) if word.endswith("-dirty")]
    assert 15 <= len(shown) <= 25
    assert f"{99:07x}-dirty" in shown  # the newest is


# --- The heat map ------------------------------------------------------------------------------

ENVS = Axis("num_envs", "env.num_envs", (64, 256, 1024))
STEPS = Axis("rollout_steps", "ppo.num_steps", (32, 128))
LONG = Axis("rollout_steps", "ppo.num_steps", (100_000, 200_000))
WORKERS = Axis("num_workers", "run.threads", (1, 2))
PARTS = Axis("num_minibatches", "ppo.minibatches", (2, 4))


def cell(sps: float | None, status: str = "stable", **values: Any) -> dict[str, Any]:
    record = None if sps is None else Rounds((0.9 * sps, sps, 1.1 * sps)).record()
    return {"values": values, "status": status, "sps": record, "relative_iqr": 0.1}


def grid(*axes: Axis) -> list[dict[str, Any]]:
    """Speed grows with environments, and a little with every other axis."""
    found = []
    for values in itertools.product(*(axis.values for axis in axes)):
        named = dict(zip((axis.name for axis in axes), values, strict=True))
        speed = 1000.0 * named.get("num_envs", 1)
        for axis in axes:
            if axis is not ENVS:
                speed *= 1 + 0.1 * axis.values.index(named[axis.name])
        found.append(cell(speed, **named))
    return found


@pytest.mark.parametrize(
    "axes",
    [
        [ENVS],
        [ENVS, STEPS],
        [STEPS, WORKERS, ENVS],
        [WORKERS, STEPS, PARTS, ENVS],
        [Axis("num_envs", "env.num_envs", (64,)), WORKERS, STEPS, PARTS],
        [Axis("num_envs", "env.num_envs", (64, 256)), WORKERS, PARTS, LONG],  # narrow panels
    ],
)
def test_heat_map_has_room(axes: list[Axis]) -> None:
    figure = draw_heat_map(axes, grid(*axes), grid(*axes)[0]["values"], [grid(*axes)[-1]["values"]])
    assert_room(figure)
    panels = 1
    for axis in axes:
        panels *= len(axis.values)
    panels //= len(figure.axes[0].get_xticks()) * len(figure.axes[0].get_yticks())
    assert len(figure.axes) == panels


def test_the_axes_that_matter_most_are_drawn() -> None:
    axes = [PARTS, WORKERS, ENVS]
    records = grid(*axes)
    for record in records:
        if record["values"]["num_workers"] == 2:
            record["sps"]["median"] *= 3
    effects = main_effects(axes, records)
    assert effects["num_envs"] == pytest.approx(16)
    assert effects["num_workers"] == pytest.approx(3.3)
    figure = draw_heat_map(axes, records)
    first = figure.axes[0]
    assert (first.get_xlabel(), first.get_ylabel()) == ("num_envs", "num_workers")
    assert [panel.get_title() for panel in figure.axes] == [
        "num_minibatches 2",
        "num_minibatches 4",
    ]


def test_an_axis_with_one_value_is_the_last_to_be_drawn() -> None:
    axes = [Axis("num_envs", "env.num_envs", (64,)), WORKERS, STEPS]
    figure = draw_heat_map(axes, grid(*axes))
    assert {figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel()} == {
        "num_workers",
        "rollout_steps",
    }


def frames(figure: Figure) -> dict[str, tuple[float, float]]:
    """Where cells are framed, by colour."""
    patches = [p for p in figure.axes[0].patches if isinstance(p, Rectangle) and not p.get_fill()]
    return {to_hex(p.get_edgecolor()).upper(): (p.get_x(), p.get_y()) for p in patches}


def test_marks_of_cells() -> None:
    records = grid(ENVS, STEPS)
    records[1] = cell(2000.0, "noisy", num_envs=64, rollout_steps=128)
    records[2] = cell(None, "skipped", num_envs=256, rollout_steps=32)
    beside = cell(9.0, num_envs=128, rollout_steps=32)  # the base, not on the grid
    chosen, failed = records[3]["values"], records[5]["values"]
    figure = draw_heat_map([ENVS, STEPS], [*records, beside], chosen, [failed])
    shown = words(figure)
    for word in ("noisy", "skipped", "no convergence", "chosen", "did not converge", "±5%"):
        assert word in shown
    assert sum(patch.get_fill() for patch in figure.axes[0].patches) == 6
    assert frames(figure) == {
        heat_map._CHOSEN: pytest.approx((0.53, 0.53)),
        heat_map._FAILED: pytest.approx((1.53, 0.53)),
    }
    assert "chosen" not in words(draw_heat_map([ENVS, STEPS], records))


def test_faster_is_darker_and_text_stands_out() -> None:
    shades = [sum(heat_map._shade(value, (1.0, 3.0))) for value in (1.0, 2.0, 3.0)]
    assert shades[0] > shades[1] > shades[2]
    assert heat_map._is_dark(heat_map._shade(3.0, (1.0, 3.0)))
    assert not heat_map._is_dark(heat_map._shade(1.0, (1.0, 3.0)))
    assert len(heat_map._shade(1.0, (1.0, 1.0))) == 3  # all equally fast


def test_nothing_measured() -> None:
    with pytest.raises(ValueError, match="no cell was measured"):
        draw_heat_map([ENVS], [cell(None, num_envs=64)])
