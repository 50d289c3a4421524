"""Colours of pictures: red, green and blue, a name, or ``"#rrggbb"``."""

from __future__ import annotations

import difflib
import re
import warnings

import numpy as np

Color = tuple[int, int, int]
"""Red, green and blue, each from 0 to 255."""

WHITE: Color = (255, 255, 255)
BLACK: Color = (0, 0, 0)
# The palette of the library's own environments.
PAPER: Color = (247, 248, 251)
SILVER: Color = (221, 226, 234)
STEEL: Color = (150, 161, 178)
INK: Color = (44, 54, 72)
BLUE: Color = (72, 126, 214)
SKY: Color = (226, 238, 250)
GREEN: Color = (92, 178, 136)
FOREST: Color = (62, 138, 104)
AMBER: Color = (245, 166, 66)
RED: Color = (228, 88, 84)

COLORS: dict[str, Color] = {
    "white": WHITE,
    "paper": PAPER,
    "silver": SILVER,
    "gray": (128, 136, 150),
    "steel": STEEL,
    "ink": INK,
    "black": BLACK,
    "red": RED,
    "crimson": (176, 42, 66),
    "brown": (140, 98, 68),
    "orange": (240, 133, 52),
    "amber": AMBER,
    "gold": (222, 177, 58),
    "yellow": (248, 214, 72),
    "lime": (156, 204, 82),
    "green": GREEN,
    "forest": FOREST,
    "teal": (48, 152, 152),
    "cyan": (84, 196, 214),
    "sky": SKY,
    "blue": BLUE,
    "navy": (34, 52, 104),
    "purple": (134, 96, 196),
    "magenta": (204, 82, 168),
    "pink": (240, 158, 178),
}
"""The names of colours, soft enough to stand side by side; ``"#ff0000"`` is pure red."""
_ALIASES = {"grey": "gray", "violet": "purple", "turquoise": "teal"}


def to_rgb(color: Color | str) -> Color:
    """A colour as three numbers from 0 to 255.

    Args:
        color: three numbers from 0 to 255; a name of `COLORS`, ``"grey"``, ``"violet"`` or
            ``"turquoise"``, in capitals or not; or the six digits of ``"#rrggbb"``.

    Three floats from 0 to 1, as other libraries have them, are nearly black here: a warning.

    Raises:
        ValueError: it is none of them.
    """
    if isinstance(color, str):
        return _from_text(color)
    rgb = np.asarray(color)
    numbers = rgb.shape == (3,) and rgb.dtype.kind in "iuf"
    if not numbers or not ((rgb >= 0) & (rgb <= 255)).all():
        raise ValueError(
            f"a colour is a name such as 'red', '#e45854', or three numbers from 0 to 255, got "
            f"{color!r}"
        )
    if rgb.dtype.kind == "f" and 0 < rgb.max() <= 1:
        scaled = tuple(round(255 * part) for part in rgb.tolist())
        text = (
            f"the numbers of a colour go from 0 to 255, so {color!r} is black; write {scaled}, or "
            "round() each of them where black is meant"
        )
        warnings.warn(text, stacklevel=3)
    red, green, blue = rgb.tolist()
    return red, green, blue


def _from_text(text: str) -> Color:
    name = text.strip().lower()
    name = _ALIASES.get(name, name)
    if name in COLORS:
        return COLORS[name]
    if re.fullmatch("#[0-9a-f]{6}", name):
        return int(name[1:3], 16), int(name[3:5], 16), int(name[5:7], 16)
    if name.startswith("#"):
        raise ValueError(f"a colour in digits is '#rrggbb', six of 0-9 and a-f, got {text!r}")
    known = [*COLORS, *_ALIASES]
    close = difflib.get_close_matches(name, known, 3, 0.5)
    guess = f"did you mean {' or '.join(close)}? " if close else ""
    raise ValueError(f"no colour is called {text!r}; {guess}there are {', '.join(known)}")
