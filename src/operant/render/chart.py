"""What every chart shares: a page, colours, numbers, labels that keep apart, and a file."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from operant.toolchain.files import export_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]

DPI = 150
INK, GRAY, GRID = "#2C3648", "#66718A", "#E8ECF2"
# Okabe and Ito's colours, which the colour-blind tell apart, without the yellow: too light a line.
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#2C3648")
_DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (6, 1.5, 1.5, 1.5)))


def new_figure(width: float, height: float) -> Figure:
    """A white page of so many inches, tied to no window and to no pyplot state.

    Raises:
        ValueError: no matplotlib.
    """
    with quiet():
        try:
            from matplotlib.backends.backend_agg import FigureCanvasAgg
            from matplotlib.figure import Figure
        except ImportError as error:
            raise ValueError("plotting needs matplotlib: pip install matplotlib") from error
        figure = Figure(figsize=(width, height), dpi=DPI, facecolor="white")
        FigureCanvasAgg(figure)
    return figure


def check_suffix(path: Path) -> None:
    """Raise ValueError unless `path` names a kind of file that charts are written to."""
    if Path(path).suffix.lower() not in (".png", ".svg", ".pdf"):
        raise ValueError(f"a chart's name must end in .png, .svg or .pdf, got {Path(path).name!r}")


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure; missing folders are made, and the file appears when it is complete.

    Raises:
        ValueError: another suffix, or a place that cannot be written.
    """
    path = Path(path)
    check_suffix(path)
    image = io.BytesIO()
    with quiet():
        figure.savefig(image, format=path.suffix.lower()[1:], dpi=figure.dpi)
    export_file(path, image.getvalue())


@contextmanager
def quiet() -> Iterator[None]:
    """No word on the font cache that the first import builds, nor on characters without a glyph.

    And no LaTeX, which matplotlib would run with whatever text a ``matplotlibrc`` in the working
    directory gives it.
    """
    logger = logging.getLogger("matplotlib")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
            with _plain_text():
                yield
    finally:
        logger.setLevel(level)


def _plain_text() -> AbstractContextManager[Any]:
    try:
        from matplotlib import rc_context
    except ImportError:  # whoever draws says so
        return nullcontext()
    return rc_context({"text.usetex": False})


def line_style(index: int) -> dict[str, Any]:
    """Colour and dashes of the line of that number; 28 differ."""
    return {
        "color": _COLORS[index % len(_COLORS)],
        "linestyle": _DASHES[index // len(_COLORS) % len(_DASHES)],
    }


def short_number(value: float) -> str:
    """``1.5 M`` for 1 500 000, and so on: k, M, B. Below 10 000 as it is."""
    for unit, letter in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= max(unit, 1e4) * (1 - 1e-9):  # A tick may be off by a rounding.
            return f"{value / unit:.6g}\N{NO-BREAK SPACE}{letter}".replace("-", "\N{MINUS SIGN}")
    return f"{value:.6g}".replace("-", "\N{MINUS SIGN}")


def apart(targets: Floats, gap: float, low: float, high: float) -> Floats:
    """The heights [n] nearest to `targets` that lie `gap` apart, within `low` and `high`.

    Targets that are as good as equal stay in their order, the first on top.
    """
    order = np.lexsort((-np.arange(len(targets)), np.round(targets / gap * 3)))
    shift = gap * np.arange(len(targets))
    # With y = z + shift the gap means that z does not decrease: pool the neighbours that do.
    pools: list[tuple[float, int]] = []
    for value in targets[order] - shift:
        pool = (float(value), 1)
        while pools and pools[-1][0] > pool[0]:
            mean, count = pools.pop()
            pool = ((mean * count + pool[0] * pool[1]) / (count + pool[1]), count + pool[1])
        pools.append(pool)
    pooled = np.repeat([mean for mean, _ in pools], [count for _, count in pools])
    heights = np.empty(len(targets))
    heights[order] = np.clip(pooled, low, max(low, high - shift[-1])) + shift
    return heights
