"""Colours: names, digits and numbers, and what is said of anything else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from operant.render.colors import COLORS, RED, to_rgb


@pytest.mark.parametrize("name", COLORS)
def test_every_name_is_a_colour_of_its_own(name: str) -> None:
    rgb = to_rgb(name)
    assert rgb == COLORS[name]
    assert all(isinstance(part, int) and 0 <= part <= 255 for part in rgb)
    assert list(COLORS.values()).count(rgb) == 1
    assert to_rgb(f" {name.upper()} ") == rgb


def test_digits_and_numbers() -> None:
    assert to_rgb("#e45854") == RED == to_rgb("#E45854")
    assert to_rgb((1, 2, 3)) == (1, 2, 3)
    assert to_rgb(np.array([1.5, 2.0, 255.0])) == (1.5, 2.0, 255.0)  # type: ignore[arg-type]
    assert to_rgb("grey") == to_rgb("gray")


ALL = f"there are {', '.join(COLORS)}, grey, violet, turquoise"
WRONG: dict[Any, str] = {
    "rad": f"no colour is called 'rad'; did you mean red or gray? {ALL}",
    "purpel": f"no colour is called 'purpel'; did you mean purple or paper? {ALL}",
    "xyzzy": f"no colour is called 'xyzzy'; {ALL}",
    "": f"no colour is called ''; {ALL}",
    "#fff": "a colour in digits is '#rrggbb', six of 0-9 and a-f, got '#fff'",
    "#12345g": "a colour in digits is '#rrggbb', six of 0-9 and a-f, got '#12345g'",
    (256, 0, 0): "'red', '#e45854', or three numbers from 0 to 255, got (256, 0, 0)",
    (
        0,
        0,
    ): "a colour is a name such as 'red', '#e45854', or three numbers from 0 to 255, got (0, 0)",
    (0, 0, 0, 255): "three numbers from 0 to 255, got (0, 0, 0, 255)",
    (0.0, float("nan"), 0.0): "three numbers from 0 to 255, got (0.0, nan, 0.0)",
    ("a", "b", "c"): "three numbers from 0 to 255, got ('a', 'b', 'c')",
    7: "three numbers from 0 to 255, got 7",
    None: "three numbers from 0 to 255, got None",
}


@pytest.mark.parametrize(("color", "message"), WRONG.items(), ids=map(repr, WRONG))
def test_anything_else_is_refused(color: Any, message: str) -> None:
    with pytest.raises(ValueError) as found:
        to_rgb(color)
    assert str(found.value).endswith(message)
