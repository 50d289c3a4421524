"""Pictures without a display: anti-aliased shapes drawn into a NumPy array.

Every shape becomes one closed outline, and `_coverage` computes which share of each pixel lies
inside it. The share is exact (save where a line runs over itself, whose borders come out a little
heavier), so that thin and slow-moving shapes do not flicker.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from operant.render.colors import (
    AMBER,
    BLACK,
    BLUE,
    FOREST,
    GREEN,
    INK,
    PAPER,
    RED,
    SILVER,
    SKY,
    STEEL,
    WHITE,
    Color,
    to_rgb,
)

__all__ = ["AMBER", "BLACK", "BLUE", "FOREST", "GREEN", "INK", "PAPER", "RED", "SILVER", "SKY"]
__all__ += ["STEEL", "WHITE", "Canvas", "Color"]

Floats = NDArray[np.float64]

_FAR = 1e9  # Pixels; points farther out are moved here, where float64 still resolves a pixel.


class Canvas:
    """A picture to draw on, later shapes over earlier ones.

    Coordinates are in the units set by `view`, with y up; until then they are pixels from the
    lower left corner. Lengths (radii and line widths) are in the units of x. Shapes may lie partly
    or wholly outside. A shape with a coordinate that is not finite, or without area, draws nothing.

    A colour is three numbers from 0 to 255, a name such as ``"red"`` (all of them are in
    `operant.render.colors.COLORS`) or ``"#rrggbb"``; anything else raises ValueError.

    >>> canvas = Canvas(200, 100, "sky")
    >>> canvas.view(0.0, 20.0, 0.0, 10.0)
    >>> canvas.rectangle(0.0, 0.0, 20.0, 2.0, "forest")
    >>> canvas.circle(4.0, 3.0, 1.0, (228, 88, 84))
    >>> canvas.line(4.0, 4.0, 16.0, 8.0, "#2c3648", 0.2)
    >>> canvas.to_array().shape
    (100, 200, 3)
    """

    def __init__(self, width: int, height: int, background: Color | str = WHITE) -> None:
        """Make a picture of `width` x `height` pixels; ValueError if one of them is below 1."""
        if width < 1 or height < 1:
            raise ValueError(f"a canvas needs at least 1 x 1 pixels, got {width} x {height}")
        self.width = width
        self.height = height
        self._planes = np.empty((3, height, width), np.float32)  # Much faster than pixel by pixel.
        self.fill(background)
        self.view(0.0, width, 0.0, height)

    def view(self, x_min: float, x_max: float, y_min: float, y_max: float) -> None:
        """Set which world coordinates lie on the picture's edges, for all later shapes.

        Raises ValueError unless ``x_min < x_max`` and ``y_min < y_max`` and all are finite.
        """
        x_span, y_span = x_max - x_min, y_max - y_min
        if not (0 < x_span < math.inf and 0 < y_span < math.inf):
            raise ValueError(
                f"empty or infinite view: x {x_min} to {x_max}, y {y_min} to {y_max}; write "
                "view(x_min, x_max, y_min, y_max), the smaller of each pair first"
            )
        self._scale = self.width / x_span
        self._origin = np.array([x_min, y_max])
        self._axes = np.array([self._scale, -self.height / y_span])

    def fill(self, color: Color | str) -> None:
        """Paint the whole picture in one colour: a name, ``"#rrggbb"`` or three numbers."""
        self._planes[:] = np.array(to_rgb(color), np.float32)[:, None, None]

    def line(
        self, x0: float, y0: float, x1: float, y1: float, color: Color | str, width: float
    ) -> None:
        """Draw a straight line from (x0, y0) to (x1, y1), `width` thick in units of x.

        Its ends are round and reach half a `width` beyond the two points.
        """
        self.polyline([(x0, y0), (x1, y1)], color, width)

    def polyline(self, points: ArrayLike, color: Color | str, width: float) -> None:
        """Draw a line through `points` ([n, 2], world units), `width` thick in units of x.

        Joins and ends are round.
        """
        self._stroke(points, color, width / 2)

    def circle(self, x: float, y: float, radius: float, color: Color | str) -> None:
        """Draw a filled circle around (x, y), with its `radius` in units of x.

        It is round on the picture whatever the view's proportions.
        """
        self._stroke([(x, y)], color, radius)

    def rectangle(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        color: Color | str,
        margin: float = 0.0,
    ) -> None:
        """Draw a filled rectangle whose lower left corner is (x, y), in world units.

        A positive `margin` (units of x) grows it to all sides, which makes the corners round.
        """
        corners = [(x, y), (x + width, y), (x + width, y + height), (x, y + height)]
        self.polygon(corners, color, margin)

    def polygon(self, points: ArrayLike, color: Color | str, margin: float = 0.0) -> None:
        """Draw a filled polygon with the corners `points` ([n, 2], world units), convex or not.

        A positive `margin` (units of x) grows it to all sides, which makes the corners round.
        """
        corners = self._to_pixels(points)
        pixels = margin * self._scale
        if len(corners) >= 3 and 0 < pixels < math.inf:
            x, y = corners.T
            clockwise = x @ np.roll(y, -1) <= y @ np.roll(x, -1)
            corners = _parallel(corners if clockwise else corners[::-1], min(pixels, _FAR))
        self._paint(corners, color)

    def to_array(self) -> NDArray[np.uint8]:
        """Return the picture so far, a new uint8 array [height, width, 3] that the caller owns."""
        return np.stack(list((self._planes + 0.5).astype(np.uint8)), axis=-1)

    def __getattr__(self, name: str) -> Any:
        known = [method for method in vars(Canvas) if not method.startswith("_")]
        raise AttributeError(f"a canvas has no {name!r}; it has {', '.join(known)}")

    def _to_pixels(self, points: ArrayLike) -> Floats:
        """World to pixel coordinates [n, 2], y down; an empty array if one is not finite."""
        array = np.asarray(points, np.float64)
        if array.size and (array.ndim != 2 or array.shape[1] != 2):
            raise ValueError(f"points must have shape [n, 2], got {list(array.shape)}")
        with np.errstate(over="ignore", invalid="ignore"):
            pixels: Floats = (array.reshape(-1, 2) - self._origin) * self._axes
        if not np.isfinite(pixels).all():
            return np.empty((0, 2))
        return np.clip(pixels, -_FAR, _FAR)

    def _stroke(self, points: ArrayLike, color: Color | str, radius: float) -> None:
        """Paint all that lies within `radius` (world units) of the line through `points`."""
        path = self._to_pixels(points)
        pixels = radius * self._scale
        if len(path) and 0 < pixels < math.inf:
            self._paint(_outline(path, min(pixels, _FAR)), color)

    def _paint(self, loop: Floats, color: Color | str) -> None:
        """Mix `color` into the pixels inside the outline `loop` ([n, 2] in pixels)."""
        rgb = to_rgb(color)
        if len(loop) < 3:
            return
        size = (self.width, self.height)
        x0, y0 = np.clip(np.floor(loop.min(axis=0)), 0, size).astype(int)
        x1, y1 = np.clip(np.ceil(loop.max(axis=0)), 0, size).astype(int)
        if x0 < x1 and y0 < y1:
            share = _coverage(loop - (x0, y0), x1 - x0, y1 - y0)
            for plane, value in zip(self._planes[:, y0:y1, x0:x1], rgb, strict=True):
                plane += (value - plane) * share


def _spread(counts: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For ``counts[k]`` items of each group k, in order: their groups, and their place therein."""
    counts = counts.astype(np.int64)
    group = np.repeat(np.arange(len(counts)), counts)
    return group, np.arange(len(group)) - np.repeat(np.cumsum(counts) - counts, counts)


def _outline(path: Floats, radius: float) -> Floats:
    """The outline [m, 2] of all within `radius` of `path` ([n, 2], n >= 1), all in pixels."""
    there_and_back = np.concatenate([path, path[-2:0:-1]])
    return _parallel(there_and_back, radius)


def _parallel(walk: Floats, distance: float) -> Floats:
    """The outline [m, 2] at the left hand, at `distance`, of someone on the round trip `walk`.

    Where the walk turns, the outline turns too, on an arc around the corner. Around a walk that is
    clockwise or there and back it goes around every point inside at least once, and never the
    other way round, which is what `_coverage` asks for.
    """
    step = min(max(0.2 / math.sqrt(distance), 0.006), 0.8)  # Arcs are flat within 0.005 pixels.
    moves = (walk != np.roll(walk, -1, axis=0)).any(axis=1)
    if not moves.any():
        angle = np.linspace(0.0, 2 * math.pi, math.ceil(2 * math.pi / step), endpoint=False)
        return walk[:1] + distance * np.column_stack([np.cos(angle), np.sin(angle)])

    walk = walk[moves]
    ahead = np.roll(walk, -1, axis=0) - walk
    leaving = np.arctan2(ahead[:, 1], ahead[:, 0])
    arriving = np.roll(leaving, 1)
    half_turn = math.pi + 1e-9  # About-turns are to the right, whichever way they were rounded.
    turn = (leaving - arriving + half_turn) % (2 * math.pi) - half_turn

    steps = np.maximum(np.ceil(np.abs(turn) / step), 1)
    corner, index = _spread(steps + 1)
    angle = (arriving + math.pi / 2)[corner] + (turn / steps)[corner] * index
    return walk[corner] + distance * np.column_stack([np.cos(angle), np.sin(angle)])


def _crossings(start: Floats, end: Floats, last: int) -> tuple[NDArray[np.int64], Floats]:
    """Where edges from `start` to `end` ([n] each) cross the integers 0 to `last`.

    Returns for each crossing the number of its edge and its place there, between 0 and 1.
    """
    first = np.maximum(np.floor(np.minimum(start, end)) + 1, 0)
    final = np.minimum(np.ceil(np.maximum(start, end)) - 1, last)
    edge, index = _spread(np.maximum(final - first + 1, 0))
    return edge, (first[edge] + index - start[edge]) / (end - start)[edge]


def _coverage(loop: Floats, columns: int, rows: int) -> NDArray[np.float32]:
    """The share of each pixel [rows, columns] inside the closed outline `loop` ([n, 2], pixels).

    The edges are cut at the borders of pixels. A piece that goes down by dy inside a pixel adds dy
    to the share of all pixels to its right, and of its own pixel the part to its right; the
    running sum along the row is then the share. Pieces outside are moved to the nearest border.
    The sum counts how often the outline goes around, with a sign; once or more is inside.
    """
    edges = np.roll(loop, -1, axis=0) - loop
    crossed_x, at_x = _crossings(loop[:, 0], loop[:, 0] + edges[:, 0], columns)
    crossed_y, at_y = _crossings(loop[:, 1], loop[:, 1] + edges[:, 1], rows)
    edge = np.concatenate([np.arange(len(loop)), crossed_x, crossed_y])
    start = np.concatenate([np.zeros(len(loop)), at_x, at_y])
    order = np.lexsort((start, edge))
    edge, start = edge[order], start[order]
    end = np.where(np.append(edge[1:] == edge[:-1], False), np.append(start[1:], 1.0), 1.0)

    low, high = loop[edge] + start[:, None] * edges[edge], loop[edge] + end[:, None] * edges[edge]
    low, high = np.clip(low, 0, (columns, rows)), np.clip(high, 0, (columns, rows))
    down = high[:, 1] - low[:, 1]
    middle = (low + high) / 2
    column = np.floor(middle[:, 0])
    row = np.minimum(np.floor(middle[:, 1]), rows - 1)
    after = down * (middle[:, 0] - column)  # The part that is missing from the piece's own pixel.

    stride = columns + 2  # One more column for pieces at the right border, one for what follows it.
    cell = (row * stride + column).astype(np.int64)
    share = np.bincount(
        np.concatenate([cell, cell + 1]), np.concatenate([down - after, after]), rows * stride
    ).reshape(rows, stride)
    np.cumsum(share, axis=1, out=share)  # In place: new arrays would take most of the time.
    np.abs(share, out=share)
    np.minimum(share, 1.0, out=share)
    return share[:, :columns].astype(np.float32)
