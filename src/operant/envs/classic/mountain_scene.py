"""The picture that both mountain cars share."""

from __future__ import annotations

import math

from operant.render.canvas import AMBER, FOREST, GREEN, INK, RED, SKY, Canvas

_SLICES = 100


def draw_mountain(canvas: Canvas, position: float, low: float, high: float, goal: float) -> None:
    """Draw the valley from `low` to `high`, the flag at `goal` and the car at `position`.

    All are positions along the valley, in the environments' unit; sets the canvas's view.
    """
    span = high - low
    canvas.fill(SKY)
    canvas.view(low, high, 0.0, span * canvas.height / canvas.width)
    xs = [low + span * (k / _SLICES) for k in range(_SLICES + 1)]
    ridge = [(x, _height(x)) for x in xs]
    canvas.polygon([*ridge, (high, -1.0), (low, -1.0)], GREEN)
    canvas.polyline(ridge, FOREST, 0.012)
    _draw_flag(canvas, goal)
    _draw_car(canvas, position)


def _height(x: float) -> float:
    """The ground's height at `x`."""
    return math.sin(3 * x) * 0.45 + 0.55


def _draw_flag(canvas: Canvas, x: float) -> None:
    """A pennant on a pole."""
    foot = _height(x)
    top = foot + 0.15
    canvas.polygon([(x, top), (x, top - 0.04), (x + 0.075, top - 0.02)], RED, 0.003)
    canvas.line(x, foot, x, top, INK, 0.008)


def _draw_car(canvas: Canvas, position: float) -> None:
    """The car, standing on the slope at `position`."""
    slope = math.atan(1.35 * math.cos(3 * position))
    cos, sin = math.cos(slope), math.sin(slope)
    ground = _height(position)

    def place(along: float, up: float) -> tuple[float, float]:
        return position + along * cos - up * sin, ground + along * sin + up * cos

    cabin = [(-0.038, 0.055), (0.028, 0.055), (0.014, 0.082), (-0.03, 0.082)]
    body = [(-0.054, 0.028), (0.054, 0.028), (0.054, 0.05), (-0.054, 0.05)]
    canvas.polygon([place(*corner) for corner in cabin], INK, 0.006)
    canvas.polygon([place(*corner) for corner in body], AMBER, 0.008)
    for along in (-0.032, 0.032):
        canvas.circle(*place(along, 0.024), 0.022, INK)
        canvas.circle(*place(along, 0.024), 0.009, SKY)
