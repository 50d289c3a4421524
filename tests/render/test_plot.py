"""Charts: what is drawn, where its texts lie, and what is refused."""

from __future__ import annotations

import itertools
import logging
import os
import subprocess
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.transforms import Bbox
from PIL import Image

from operant.render import chart, plot
from operant.render.chart import short_number
from operant.render.plot import Curve, draw_runs, plot_runs


def curve(label: str = "run", count: int = 200, **changes: Any) -> Curve:
    """Returns that rise from 20 to 500 over a million steps, with noise."""
    rng = np.random.default_rng(len(label))
    steps = np.linspace(1e6 / count, 1e6, count)
    mean_return = 20 + 480 / (1 + np.exp(-12e-6 * (steps - 4e5))) + rng.normal(0, 5, count)
    fields = {
        "label": label,
        "steps": steps,
        "mean_return": mean_return,
        "seconds": np.linspace(0, 12, count),
        "threshold": 475.0,
    }
    return Curve(**(fields | changes))


def texts(figure: Figure) -> dict[int, tuple[str, Bbox]]:
    """All texts on the page and the rectangles they take, in pixels."""
    figure.canvas.draw()
    axes = figure.axes[0]
    outside = set()
    for axis in (axes.xaxis, axes.yaxis):
        low, high = axis.get_view_interval()
        for tick in axis.get_major_ticks():
            if not low <= tick.get_loc() <= high:
                outside.update({tick.label1, tick.label2})
    found = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text()]
    return {
        index: (text.get_text(), text.get_window_extent())
        for index, text in enumerate(found)
        if text not in outside
    }


def words(figure: Figure) -> list[str]:
    return [word for word, _ in texts(figure).values()]


def drawn(figure: Figure) -> list[Line2D]:
    """The lines of more than one point inside the axes, without thresholds."""
    lines = figure.axes[0].get_lines()
    return [line for line in lines if len(line.get_xdata()) > 2]


def strong(figure: Figure) -> list[Line2D]:
    return [line for line in drawn(figure) if line.get_alpha() is None]


# --- The page ----------------------------------------------------------------------------------

PAGES: dict[str, tuple[Sequence[Curve], str]] = {
    "one": ([curve()], "PPO on CartPole-v1"),
    "no title": ([curve()], ""),
    "three equal": ([curve(f"seed{i}") for i in range(3)], "Three"),
    "eight long": (
        [curve(f"runs/CartPole-v1/2026-01-01_10-00-0{i}_seed{i}") for i in range(8)],
        "",
    ),
    "twenty": ([curve(f"run {i}", 30) for i in range(20)], "Twenty"),
    "one point": ([curve("point", 1)], "One point"),
    "small values": ([curve(mean_return=np.linspace(-1e-3, 3.1e-3, 200), threshold=None)], "Small"),
    "wide ticks": ([curve(mean_return=np.linspace(-2.7e-4, 0, 200), threshold=None)], ""),
    "large values": ([curve(mean_return=np.linspace(-2.5e6, 1e4, 200), threshold=None)], "Large"),
    "wide": ([curve("W" * 60), curve("M" * 60)], "W" * 120),
    "flat": ([curve(mean_return=np.zeros(200), threshold=None)], "Flat"),
    "two thresholds": ([curve("a"), curve("b", threshold=478.0)], "Two"),
}


@pytest.mark.parametrize("page", PAGES)
def test_texts_neither_overlap_nor_leave_the_page(page: str) -> None:
    curves, title = PAGES[page]
    figure = draw_runs(curves, title=title)
    found = texts(figure)
    assert len(found) > 2 * len(curves) + 4
    for word, box in found.values():
        assert box.x0 >= 0, word
        assert box.y0 >= 0, word
        assert box.x1 <= figure.bbox.width, word
        assert box.y1 <= figure.bbox.height, word
    for (one, box), (other, second) in itertools.combinations(found.values(), 2):
        assert not box.padded(-1).overlaps(second.padded(-1)), (one, other)
    pixels = np.asarray(figure.canvas.buffer_rgba())[..., :3]
    for edge in (pixels[:8], pixels[-8:], pixels[:, :8], pixels[:, -8:]):
        assert (edge == 255).all()
    assert figure.axes[0].get_window_extent().width > 0.35 * figure.bbox.width


def test_each_run_has_one_label_beside_the_end_of_its_curve() -> None:
    ends = {"low": 100.0, "high": 400.0, "middle": 250.0}
    curves = [
        curve(name, 30, mean_return=np.linspace(0, end, 30), threshold=None)
        for name, end in ends.items()
    ]
    figure = draw_runs(curves)
    boxes = dict(texts(figure).values())
    axes = figure.axes[0]
    for name, end in ends.items():
        x, y = axes.transData.transform((1e6, end))
        assert boxes[name].x0 > x
        assert boxes[name].y0 - 8 < y < boxes[name].y1  # Between the name and the line below.
    assert words(figure).count("1\xa0M steps in 12\xa0s") == 3


def test_labels_of_equal_curves_keep_their_order() -> None:
    curves = [curve(f"seed{i}", 30, mean_return=np.linspace(0, 500 - i, 30)) for i in (2, 0, 1)]
    boxes = dict(texts(draw_runs(curves)).values())
    assert boxes["seed2"].y0 > boxes["seed0"].y1
    assert boxes["seed0"].y0 > boxes["seed1"].y1


def test_apart_moves_as_little_as_it_must() -> None:
    def apart(*targets: float) -> list[float]:
        return chart.apart(np.array(targets), 10.0, 0.0, 100.0).round(6).tolist()

    assert apart(20, 50, 80) == [20, 50, 80]
    assert apart(50, 50) == [55, 45]
    assert apart(50, 10, 56, 48) == [51.333333, 10, 61.333333, 41.333333]
    assert apart(100, 100, 100) == [100, 90, 80]
    assert apart(-20, 300) == [0, 100]


def test_runs_are_told_apart_by_colour_and_dashes() -> None:
    lines = strong(draw_runs([curve(f"a{i}") for i in range(20)]))
    styles = {(to_hex(line.get_color()), str(line._unscaled_dash_pattern)) for line in lines}
    assert len(lines) == len(styles) == 20
    assert len({to_hex(line.get_color()) for line in lines[:7]}) == 7


def test_label_has_a_sample_of_its_line() -> None:
    figure = draw_runs([curve(f"a{i}") for i in range(8)])
    samples = [line for line in figure.get_children() if isinstance(line, Line2D)]
    samples = [line for line in samples if line.get_alpha() is None]
    for sample, line in zip(samples, strong(figure), strict=True):
        assert sample.get_color() == line.get_color()
        assert sample._unscaled_dash_pattern == line._unscaled_dash_pattern


def test_thin_lines_lead_to_labels_that_are_near() -> None:
    def leaders(runs: list[Curve]) -> int:
        children = draw_runs(runs).get_children()
        return sum(isinstance(line, Line2D) and line.get_alpha() is not None for line in children)

    assert leaders([curve()]) == 1
    assert leaders([curve(), curve("short", steps=np.linspace(1, 5e5, 200))]) == 1
    assert 1 <= leaders([curve(f"{i}") for i in range(8)]) <= 4


# --- The curves --------------------------------------------------------------------------------


def test_few_points_are_drawn_as_they_are() -> None:
    run = curve(count=59)
    (line,) = drawn(draw_runs([run]))
    np.testing.assert_array_equal(line.get_xdata(), run.steps)
    np.testing.assert_array_equal(line.get_ydata(), run.mean_return)


def test_many_points_are_faint_and_their_trend_is_strong() -> None:
    run = curve(count=400)
    faint, line = drawn(draw_runs([run]))
    np.testing.assert_array_equal(faint.get_ydata(), run.mean_return)
    assert faint.get_alpha() < 0.3
    assert faint.get_linewidth() < line.get_linewidth()
    truth = 20 + 480 / (1 + np.exp(-12e-6 * (run.steps - 4e5)))
    rough = np.abs(np.asarray(line.get_ydata()) - truth)
    assert rough.mean() < 0.5 * np.abs(run.mean_return - truth).mean()
    assert rough.max() < 15


def test_smoothing_keeps_a_constant_to_its_ends() -> None:
    np.testing.assert_allclose(plot._smooth(np.full(80, 7.0)), 7.0)


def test_iterations_without_an_episode_are_left_out() -> None:
    run = curve(count=90)
    gaps = run.mean_return.copy()
    gaps[np.arange(90) % 6 != 5] = np.nan
    gaps[5] = np.inf
    (line,) = drawn(draw_runs([curve(count=90, mean_return=gaps)]))
    np.testing.assert_array_equal(line.get_xdata(), run.steps[11::6])
    np.testing.assert_array_equal(line.get_ydata(), run.mean_return[11::6])


def test_one_point_is_a_dot() -> None:
    figure = draw_runs([curve(count=1, steps=np.array([0.0]))])
    dots = [line for line in figure.axes[0].get_lines() if line.get_marker() == "o"]
    assert len(dots) == 1
    assert dots[0].get_xdata().tolist() == [0.0]
    assert not dots[0].get_clip_on()


def test_axes_start_at_zero_and_hold_everything() -> None:
    runs = [curve(), curve("b", steps=np.linspace(5e5, 2e6, 200), threshold=900.0)]
    axes = draw_runs(runs).axes[0]
    assert axes.get_xlim() == (0.0, 2e6)
    low, high = axes.get_ylim()
    assert low < min(run.mean_return.min() for run in runs)
    assert high > 900


def test_threshold_is_a_dashed_line_called_solved() -> None:
    figure = draw_runs([curve("a"), curve("b")])
    (line,) = [line for line in figure.axes[0].get_lines() if len(line.get_xdata()) == 2]
    assert list(line.get_ydata()) == [475.0, 475.0]
    assert line.is_dashed()
    assert words(figure).count("solved") == 1
    box = next(box for word, box in texts(figure).values() if word == "solved")
    y = figure.axes[0].transData.transform((0, 475.0))[1]
    assert y < box.y0 < y + 12


def test_solved_evades_the_curve() -> None:
    # It starts solved, which puts the line where the word would be.
    run = curve(mean_return=np.concatenate([np.full(100, 485.0), np.linspace(480, 20, 100)]))
    figure = draw_runs([run])
    box = next(box for word, box in texts(figure).values() if word == "solved")
    points = figure.axes[0].transData.transform(strong(figure)[0].get_xydata())
    assert box.count_contains(points) == 0


@pytest.mark.parametrize(
    ("thresholds", "lines", "called"),
    [
        ((None, None), 0, 0),
        ((float("nan"), None), 0, 0),
        ((100.0, 475.0), 2, 2),
        ((475, 476), 2, 1),
    ],
)
def test_thresholds_of_several_tasks(
    thresholds: tuple[float | None, ...], lines: int, called: int
) -> None:
    runs = [curve(f"run {t}", threshold=t) for t in thresholds]
    figure = draw_runs(runs)
    levels = [line for line in figure.axes[0].get_lines() if len(line.get_xdata()) == 2]
    assert len(levels) == lines
    assert words(figure).count("solved") == called


# --- Words -------------------------------------------------------------------------------------


def test_markup_is_taken_literally(tmp_path: Path) -> None:
    title = "loss_$x^{2$ \\frac"
    labels = ["_hidden", "$x^{2$", "a_b^c", "50 % & #1"]
    figure = draw_runs([curve(label) for label in labels], title=title)
    assert {*labels, title} <= set(words(figure))
    plot_runs([curve(label) for label in labels], tmp_path / "a.svg", title=title)


def test_unknown_characters_do_not_warn(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plot_runs([curve("漢字")], tmp_path / "a.png", title="\U0001f680")


def test_labels_of_one_text_are_numbered() -> None:
    names = words(draw_runs([curve("a"), curve("b\n c"), curve("a")]))
    assert {"a (1)", "b c", "a (2)"} <= set(names)


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["runs/CartPole-v1/2026-01-01_seed1", "runs/CartPole-v1/2026-01-01_seed12"],
         ["…seed1", "…seed12"]),
        (["a" * 40, "b"], ["a" * 15 + "…" + "a" * 14, "b"]),
        (["x" * 31], ["x" * 15 + "…" + "x" * 14]),
        (["y" * 30], ["y" * 30]),
        (["c" * 20 + "1" + "c" * 20, "c" * 20 + "2" + "c" * 20],
         [f"{'c' * 15}…{'c' * 14} (1)", f"{'c' * 15}…{'c' * 14} (2)"]),
    ],
)  # fmt: skip
def test_long_labels_are_shortened(labels: list[str], expected: list[str]) -> None:
    assert plot._names([curve(label) for label in labels]) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, "0"), (0.25, "0.25"), (-1250, "−1250"), (9999, "9999"), (1e4, "10 k"),
        (100_000, "100 k"), (999_999.99999999, "1 M"), (1e6, "1 M"), (1.5e6, "1.5 M"),
        (-2.5e4, "−25 k"), (3e9, "3 B"),
    ],
)  # fmt: skip
def test_short_number(value: float, expected: str) -> None:
    assert short_number(value).replace("\xa0", " ") == expected


def test_the_caption_says_what_the_return_is() -> None:
    assert "Mean return of the last 100 episodes" in words(draw_runs([curve()]))


def test_ticks_are_short_numbers() -> None:
    found = words(draw_runs([curve()]))
    assert {"0", "200\xa0k", "800\xa0k", "1\xa0M", "500"} <= set(found)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0.42, "0.4 s"),
        (5, "5 s"),
        (119, "119 s"),
        (120, "2 min"),
        (3600, "60 min"),
        (9000, "2.5 h"),
    ],
)
def test_duration(seconds: float, expected: str) -> None:
    assert plot._duration(seconds).replace("\xa0", " ") == expected


def test_unknown_time_is_not_told() -> None:
    run = curve(seconds=np.full(200, np.nan))
    assert "1\xa0M steps" in words(draw_runs([run]))


# --- Files -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "magic"), [("a.svg", b"<?xml"), ("b/a.PDF", b"%PDF")])
def test_vector_formats(tmp_path: Path, name: str, magic: bytes) -> None:
    plot_runs([curve()], tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(magic)


def test_png_shows_the_curve_in_its_colour(tmp_path: Path) -> None:
    plot_runs([curve(), curve("other")], tmp_path / "a.png", title="T")
    with Image.open(tmp_path / "a.png") as image:
        pixels = np.array(image.convert("RGB"))
    assert pixels.shape == (720, 1260, 3)
    for color in ((0x00, 0x72, 0xB2), (0xD5, 0x5E, 0x00)):
        assert (pixels == color).all(axis=2).sum() > 300
    assert (pixels == 255).all(axis=2).mean() > 0.8
    assert os.listdir(tmp_path) == ["a.png"]


def test_no_global_state_and_no_output(tmp_path: Path) -> None:
    program = """
import sys, numpy as np
from pathlib import Path
from operant.render.plot import Curve, plot_runs
assert "matplotlib" not in sys.modules
import matplotlib
def settings():  # All but the backend: to ask for it is to choose one.
    return {k: matplotlib.rcParams[k] for k in matplotlib.rcParams if k != "backend"}
before = settings()
x = np.arange(1.0, 4.0)
plot_runs([Curve("a", x, x, x, 2.0)], Path(sys.argv[1]))
assert "matplotlib.pyplot" not in sys.modules
assert settings() == before
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program, str(tmp_path / "a.png")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_settings_in_the_working_directory_run_no_latex(tmp_path: Path) -> None:
    (tmp_path / "matplotlibrc").write_text("text.usetex: True\n")
    (tmp_path / "latex").write_text(f"#!/bin/sh\ntouch {tmp_path / 'RAN'}\nexit 1\n")
    (tmp_path / "latex").chmod(0o755)
    program = """
import matplotlib, numpy as np
from pathlib import Path
from operant.render.plot import Curve, plot_runs
assert matplotlib.rcParams["text.usetex"]
x = np.arange(1.0, 4.0)
for name in ("a.png", "a.svg", "a.pdf"):
    plot_runs([Curve("a", x, x, x, 2.0)], Path(name))
assert matplotlib.rcParams["text.usetex"]
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=os.environ | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "RAN").exists()


def test_matplotlib_has_nothing_to_say(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    font_manager = logging.getLogger("matplotlib.font_manager")
    logger = logging.getLogger("matplotlib")
    monkeypatch.setattr(logger, "level", logging.INFO)
    with chart.quiet():
        font_manager.warning("building the font cache")
    assert not caplog.records
    assert logger.level == logging.INFO


# --- What is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a.jpg", "a"])
def test_unknown_suffix(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match=rf"must end in \.png, \.svg or \.pdf, got '{name}'"):
        plot_runs([curve()], tmp_path / name)


@pytest.mark.parametrize("values", [[], [float("nan")] * 3])
def test_run_without_episodes(tmp_path: Path, values: list[float]) -> None:
    bad = Curve("seed 3", *[np.array(values)] * 3, None)
    with pytest.raises(ValueError, match=r"^run seed 3 has no finished episodes yet$"):
        plot_runs([curve(), bad], tmp_path / "a.png")
    assert os.listdir(tmp_path) == []


def test_arrays_of_unequal_length() -> None:
    with pytest.raises(ValueError, match=r"run x: .* \[n\] each, got \[200\], \[3\], \[200\]"):
        draw_runs([curve("x", mean_return=np.zeros(3))])
    with pytest.raises(ValueError, match=r"got \[2, 2\], \[2, 2\], \[2, 2\]"):
        draw_runs([Curve("x", *[np.zeros((2, 2))] * 3, None)])


def test_no_runs() -> None:
    with pytest.raises(ValueError, match="no runs to plot"):
        draw_runs([])


def test_unwritable_places(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"cannot write .*a\.png.*writable folder"):
        plot_runs([curve()], tmp_path / "file" / "a.png")
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(ValueError, match=r"cannot write .*folder\.png.*writable folder"):
        plot_runs([curve()], tmp_path / "folder.png")
    assert sorted(os.listdir(tmp_path)) == ["file", "folder.png"]


def test_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ValueError, match="plotting needs matplotlib: pip install matplotlib"):
        draw_runs([curve()])
