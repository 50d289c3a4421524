"""Words on a `Canvas`: capitals, digits and a few signs, drawn as lines."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from operant.render.canvas import Canvas, Color

Floats = NDArray[np.float64]

_STROKES = {
    "A": "002640 1232", "B": "00063645443303 3342413000", "C": "4536160501103041",
    "D": "00062644422000", "E": "40000646 0333", "F": "000646 0333", "G": "45361605011030414323",
    "H": "0006 4046 0343", "I": "2026", "J": "4641301001", "K": "0006 460340", "L": "060040",
    "M": "0006234640", "N": "00064046", "O": "103041453616050110", "P": "00063645443303",
    "Q": "103041453616050110 2240", "R": "00063645443303 2340", "S": "453616050413334241301001",
    "T": "0646 2026", "U": "060110304146", "V": "062046", "W": "0610233046", "X": "0046 0640",
    "Y": "062346 2320", "Z": "06460040", "0": "103041453616050110", "1": "152620",
    "2": "05163645440040", "3": "05163645443313 334241301001", "4": "30360242",
    "5": "460603334241301001", "6": "36160501103041423303", "7": "064620",
    "8": "13040516364544331302011030414233", "9": "10304145361605041343", ".": "2021",
    "-": "1333", "+": "1333 2224", "/": "0046", "%": "0046 0515 3141", ":": "2122 2425",
}  # fmt: skip
"""Points of each line on a grid of 5 x 7, two digits a point."""
_ADVANCE = 6.0


def _lines(strokes: str) -> Floats:
    """The straight pieces [n, 2, 2] of a letter: from where to where, x and y."""
    pieces = []
    for stroke in strokes.split():
        points = [(int(stroke[k]), int(stroke[k + 1])) for k in range(0, len(stroke), 2)]
        pieces += list(itertools.pairwise(points))
    return np.array(pieces, np.float64)


_LINES = {sign: _lines(strokes) for sign, strokes in _STROKES.items()}


def text_width(text: str, height: float) -> float:
    """How wide `text` is, in the units of its `height`."""
    return max(0.0, (len(text) * _ADVANCE - 2.0) * height / 6.0)


def write(
    canvas: Canvas,
    x: float,
    y: float,
    text: str,
    height: float,
    color: Color | str,
    align: str = "left",
) -> None:
    """Write `text` in capitals with its lower left corner at (x, y).

    Args:
        canvas: with a view whose units are as wide as they are high.
        x, y: where; with `align` "right" the lower right corner, with "center" the lower middle.
        text: letters, digits and ``. - + / % :``; anything else leaves a gap.
        height: of a letter, in world units.
        color: of the lines: three numbers, a name or ``"#rrggbb"``.
        align: "left", "right" or "center".
    """
    unit = height / 6.0
    x -= text_width(text, height) * {"left": 0.0, "center": 0.5, "right": 1.0}[align]
    pieces = [
        _LINES[sign] + (place * _ADVANCE, 0.0)
        for place, sign in enumerate(text.upper())
        if sign in _LINES
    ]
    if pieces:
        lines = np.concatenate(pieces) * unit + (x, y)
        canvas.polygon(_one_outline(lines, 0.55 * unit), color)


def _one_outline(lines: Floats, radius: float) -> Floats:
    """All lines ([n, 2, 2]) with square ends as one outline [m, 2]: a word is one shape to paint.

    It goes around one rectangle after the other, all in the same sense, and back over the corners
    it jumped from, so that the jumps enclose nothing.
    """
    start, end = lines[:, 0], lines[:, 1]
    ahead = end - start
    ahead *= radius / np.hypot(*ahead.T)[:, None]
    aside = ahead[:, ::-1] * (-1.0, 1.0)
    start, end = start - ahead, end + ahead
    loops = np.stack([start - aside, start + aside, end + aside, end - aside, start - aside], 1)
    return np.concatenate([loops.reshape(-1, 2), loops[-2::-1, 0]])
