"""Words on a canvas."""

from __future__ import annotations

import numpy as np
import pytest

from operant.render.canvas import BLACK, Canvas
from operant.render.lettering import text_width, write


def inked(text: str, align: str = "left", x: float = 50.0) -> np.ndarray:
    """The columns of a picture that a word touches."""
    canvas = Canvas(200, 30)
    write(canvas, x, 8.0, text, 12.0, BLACK, align)
    return np.flatnonzero((canvas.to_array() < 128).any(axis=(0, 2)))


@pytest.mark.parametrize(
    ("align", "first", "last"), [("left", 50, 72), ("center", 36, 64), ("right", 28, 50)]
)
def test_a_word_stands_where_it_should(align: str, first: int, last: int) -> None:
    columns = inked("HH", align)
    assert text_width("HH", 12.0) == 20.0
    assert first - 2 <= columns.min() <= columns.max() <= last + 2
    assert columns.max() - columns.min() == pytest.approx(20.0, abs=2.0)


def test_every_sign_differs_and_others_leave_a_gap() -> None:
    signs = "ABCDEFGHIJKLMNPQRSTUVWXYZ0123456789.-+/%:"  # a 0 looks like an O
    pictures = set()
    for sign in signs:
        canvas = Canvas(20, 20)
        write(canvas, 4.0, 4.0, sign, 12.0, BLACK)
        pictures.add(canvas.to_array().tobytes())
    assert len(pictures) == len(signs)
    assert inked("é ").size == 0
    assert np.array_equal(inked("a"), inked("A"))
