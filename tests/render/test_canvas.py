"""Canvas against geometry: areas, centroids, and a brute-force sampler as a second opinion."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from operant.render.canvas import BLACK, WHITE, Canvas
from operant.render.colors import COLORS

Draw = Callable[[Canvas], None]
Shares = NDArray[np.float64]

WIDTH, HEIGHT = 120, 80
STAR = [
    (60 + r * math.cos(a), 40 + r * math.sin(a))
    for k in range(10)
    for r, a in [((35.3, 14.2)[k % 2], 0.3 + k * math.pi / 5)]
]
U_SHAPE = [(20, 10), (100, 10), (100, 70), (80, 70), (80, 30), (40, 30), (40, 70), (20, 70)]
NAN, INF = math.nan, math.inf


def shares(draw: Draw, width: int = WIDTH, height: int = HEIGHT) -> Shares:
    """The share [height, width] of each pixel that `draw` covers, with row 0 at the bottom."""
    canvas = Canvas(width, height, BLACK)
    draw(canvas)
    picture = canvas.to_array()
    assert (picture == picture[:, :, :1]).all()
    return np.asarray(picture[::-1, :, 0] / 255.0)


def centroid(picture: Shares) -> tuple[float, float]:
    """The centre of mass (x, y) in pixels from the lower left corner."""
    rows, columns = np.indices(picture.shape) + 0.5
    total = picture.sum()
    return float((columns * picture).sum() / total), float((rows * picture).sum() / total)


def sampled(inside: Callable[[Shares, Shares], NDArray[np.bool_]], samples: int = 16) -> Shares:
    """The same shares as `shares`, by testing `samples` x `samples` points of each pixel."""
    x = (np.arange(WIDTH * samples) + 0.5) / samples
    y = (np.arange(HEIGHT * samples) + 0.5) / samples
    hits = inside(x[None, :], y[:, None])
    return np.asarray(hits.reshape(HEIGHT, samples, WIDTH, samples).mean(axis=(1, 3)))


def in_polygon(points: list[tuple[float, float]]) -> Callable[[Shares, Shares], NDArray[np.bool_]]:
    def inside(x: Shares, y: Shares) -> NDArray[np.bool_]:
        result = np.zeros(np.broadcast_shapes(x.shape, y.shape), np.bool_)
        for (x0, y0), (x1, y1) in zip(points, points[1:] + points[:1], strict=True):
            if y0 != y1:
                result ^= ((y0 > y) != (y1 > y)) & (x < x0 + (y - y0) * (x1 - x0) / (y1 - y0))
        return result

    return inside


def near_path(
    points: list[tuple[float, float]], radius: float
) -> Callable[[Shares, Shares], NDArray[np.bool_]]:
    def inside(x: Shares, y: Shares) -> NDArray[np.bool_]:
        result = np.zeros(np.broadcast_shapes(x.shape, y.shape), np.bool_)
        for (x0, y0), (x1, y1) in itertools.pairwise(points):
            dx, dy = x1 - x0, y1 - y0
            along = np.clip(((x - x0) * dx + (y - y0) * dy) / (dx * dx + dy * dy), 0, 1)
            result |= np.hypot(x - x0 - along * dx, y - y0 - along * dy) < radius
        return result

    return inside


def shoelace(points: list[tuple[float, float]]) -> float:
    pairs = zip(points, points[1:] + points[:1], strict=True)
    return abs(sum(x0 * y1 - x1 * y0 for (x0, y0), (x1, y1) in pairs)) / 2


@pytest.mark.parametrize("radius", [0.4, 1.0, 2.5, 7.0, 30.0])
def test_circle_has_its_area_and_centre(radius: float) -> None:
    picture = shares(lambda c: c.circle(50.3, 41.8, radius, WHITE))
    assert picture.sum() == pytest.approx(math.pi * radius**2, rel=0.02, abs=0.02)
    # Pixel centres say little about where within a pixel a tiny circle lies.
    tolerance = 0.02 if radius > 2 else 0.3
    assert centroid(picture) == pytest.approx((50.3, 41.8), abs=tolerance)


def test_circle_is_symmetric() -> None:
    picture = shares(lambda c: c.circle(WIDTH / 2, HEIGHT / 2, 20.3, WHITE))
    assert np.abs(picture - picture[::-1]).max() < 0.01
    assert np.abs(picture - picture[:, ::-1]).max() < 0.01
    square = picture[:, 20:100]
    assert np.abs(square - square.T).max() < 0.01


def test_circle_matches_sampling() -> None:
    picture = shares(lambda c: c.circle(50.3, 41.8, 12.7, WHITE))
    truth = sampled(lambda x, y: np.hypot(x - 50.3, y - 41.8) < 12.7)
    assert np.abs(picture - truth).max() < 0.04


@pytest.mark.parametrize("points", [STAR, U_SHAPE, [(10.25, 5.5), (90.75, 20.1), (33.3, 77.7)]])
def test_polygon_has_the_shoelace_area_and_matches_sampling(
    points: list[tuple[float, float]],
) -> None:
    picture = shares(lambda c: c.polygon(points, WHITE))
    assert picture.sum() == pytest.approx(shoelace(points), rel=1e-3)
    assert np.abs(picture - sampled(in_polygon(points))).max() < 0.06
    backwards = shares(lambda c: c.polygon(points[::-1], WHITE))
    assert np.array_equal(picture, backwards)


@pytest.mark.parametrize("seed", range(8))
def test_random_star_shaped_polygons_match_sampling(seed: int) -> None:
    random = np.random.default_rng(seed)
    angles = np.sort(random.uniform(0, 2 * math.pi, random.integers(5, 15)))
    radii = random.uniform(5, 60, len(angles))  # Up to 20 pixels outside.
    x, y = 60 + radii * np.cos(angles), 40 + radii * np.sin(angles)
    points = [(float(a), float(b)) for a, b in zip(x, y, strict=True)]
    picture = shares(lambda c: c.polygon(points, WHITE))
    assert np.abs(picture - sampled(in_polygon(points))).max() < 0.08


def test_notch_of_a_nonconvex_polygon_stays_empty() -> None:
    picture = shares(lambda c: c.polygon(U_SHAPE, WHITE))
    assert (picture[30:70, 40:80] == 0).all()
    assert (picture[10:30, 20:100] == 1).all()
    assert (picture[30:70, 20:40] == 1).all()


def test_share_of_a_pixel_is_exact() -> None:
    quarter = shares(lambda c: c.polygon([(3.5, 4.5), (4, 4.5), (4, 5), (3.5, 5)], WHITE))
    assert quarter[4, 3] == pytest.approx(0.25, abs=0.002)
    assert quarter.sum() == quarter[4, 3]


def test_margin_grows_a_polygon_with_round_corners() -> None:
    box = [(40.0, 30.0), (70.0, 30.0), (70.0, 50.0), (40.0, 50.0)]
    picture = shares(lambda c: c.polygon(box, WHITE, 4.0))
    expected = 30 * 20 + 2 * (30 + 20) * 4 + math.pi * 4**2
    assert picture.sum() == pytest.approx(expected, rel=1e-3)
    assert picture[40, 36] == picture[26, 55] == 1.0
    assert picture[26, 36] == 0.0
    backwards = shares(lambda c: c.polygon(box[::-1], WHITE, 4.0))
    assert np.abs(picture - backwards).max() < 0.01


def test_line_has_the_area_of_its_rectangle_and_round_ends() -> None:
    picture = shares(lambda c: c.line(20.2, 15.1, 99.7, 60.3, WHITE, 5.0))
    length = math.hypot(79.5, 45.2)
    assert picture.sum() == pytest.approx(length * 5 + math.pi * 2.5**2, rel=2e-3)
    assert centroid(picture) == pytest.approx(((20.2 + 99.7) / 2, (15.1 + 60.3) / 2), abs=0.02)
    assert np.array_equal(picture, shares(lambda c: c.line(99.7, 60.3, 20.2, 15.1, WHITE, 5.0)))


def test_thin_line_is_faint_and_not_lost() -> None:
    picture = shares(lambda c: c.line(10, 40.5, 110, 40.5, WHITE, 0.2))
    assert picture[40, 20:100] == pytest.approx(np.full(80, 0.2), abs=0.003)


@pytest.mark.parametrize(
    "points",
    [
        [(10.0, 10.0), (60.5, 65.0), (110.0, 10.0)],  # Sharp, and both ways round.
        [(110.0, 10.0), (60.5, 65.0), (10.0, 10.0)],
        [(15.0, 60.0), (40.0, 20.0), (42.0, 22.0), (44.0, 20.0), (100.0, 65.0)],  # Short pieces.
        [(20.0, 20.0), (100.0, 60.0), (100.0, 20.0), (20.0, 60.0)],  # Crosses itself.
        [(20.0, 20.0), (20.0, 20.0), (90.0, 25.0), (90.0, 25.0)],  # Repeated points.
    ],
)
def test_polyline_covers_what_is_near_its_path(points: list[tuple[float, float]]) -> None:
    picture = shares(lambda c: c.polyline(points, WHITE, 8.0))
    distinct = [p for k, p in enumerate(points) if k == 0 or p != points[k - 1]]
    truth = sampled(near_path(distinct, 4.0))
    assert np.abs(picture - truth).mean() < 5e-4
    assert (picture[truth == 1] > 0.96).all()
    assert (picture[truth == 0] < 0.05).all()


def test_smooth_polyline_has_no_bumps_at_its_points() -> None:
    x = np.linspace(-5, 125, 66)
    points = [(float(a), 40 + 10 * math.sin(a / 20)) for a in x]
    picture = shares(lambda c: c.polyline(points, WHITE, 3.0))
    assert np.abs(picture - sampled(near_path(points, 1.5))).max() < 0.08


def test_view_maps_world_to_pixels_with_y_up() -> None:
    def draw(canvas: Canvas) -> None:
        canvas.view(-3.0, 3.0, -1.0, 3.0)  # 20 pixels a unit.
        canvas.circle(1.0, 2.0, 0.5, WHITE)

    picture = shares(draw)
    assert centroid(picture) == pytest.approx((80, 60), abs=0.02)
    assert picture.sum() == pytest.approx(math.pi * 10**2, rel=2e-3)


def test_lengths_follow_the_x_scale() -> None:
    def draw(canvas: Canvas) -> None:
        canvas.view(0.0, 12.0, 0.0, 1.0)  # 10 pixels a unit of x, 80 a unit of y.
        canvas.circle(6.0, 0.5, 1.0, WHITE)

    picture = shares(draw)
    assert picture.sum() == pytest.approx(math.pi * 10**2, rel=2e-3)
    assert picture.max(axis=1).nonzero()[0].tolist() == list(range(30, 50))


def test_default_view_is_pixels_from_the_lower_left() -> None:
    canvas = Canvas(10, 6)
    canvas.polygon([(0, 0), (2, 0), (2, 1), (0, 1)], (10, 20, 30))
    picture = canvas.to_array()
    assert (picture[5, :2] == (10, 20, 30)).all()
    assert picture.sum() == 255 * 180 - 2 * (3 * 255 - 60)


def test_shapes_partly_outside_keep_the_part_inside() -> None:
    corner = shares(lambda c: c.circle(0, 0, 20, WHITE))
    assert corner.sum() == pytest.approx(math.pi * 20**2 / 4, rel=2e-3)
    assert corner[0, 0] == 1.0
    assert corner[30, 30] == 0.0
    right = shares(lambda c: c.circle(WIDTH, 40, 20, WHITE))
    assert right.sum() == pytest.approx(math.pi * 20**2 / 2, rel=2e-3)
    across = shares(lambda c: c.line(-1e6, 40, 1e6, 40, WHITE, 4.0))
    assert across.sum() == pytest.approx(4 * WIDTH)
    around = shares(lambda c: c.polygon([(-9, -9), (999, -9), (999, 999), (-9, 999)], WHITE))
    assert (around == 1).all()


@pytest.mark.parametrize(
    "draw",
    [
        lambda c: c.circle(-50, 40, 20, WHITE),
        lambda c: c.circle(500, 40, 20, WHITE),
        lambda c: c.circle(50, -40, 20, WHITE),
        lambda c: c.line(-10, 0, -10, 80, WHITE, 5.0),
        lambda c: c.line(200, 100, 300, 400, WHITE, 5.0),
        lambda c: c.polygon([(130, 10), (190, 10), (160, 70)], WHITE),
    ],
)
def test_shapes_outside_draw_nothing(draw: Draw) -> None:
    assert shares(draw).sum() == 0


@pytest.mark.parametrize(
    "draw",
    [
        lambda c: c.circle(NAN, 40, 20, WHITE),
        lambda c: c.circle(60, INF, 20, WHITE),
        lambda c: c.circle(60, 40, NAN, WHITE),
        lambda c: c.circle(60, 40, INF, WHITE),
        lambda c: c.circle(60, 40, 0.0, WHITE),
        lambda c: c.circle(60, 40, -3.0, WHITE),
        lambda c: c.line(10, 10, NAN, 40, WHITE, 5.0),
        lambda c: c.line(10, 10, 60, 40, WHITE, 0.0),
        lambda c: c.line(10, 10, 60, 40, WHITE, NAN),
        lambda c: c.polyline([(10, 10), (60, NAN), (90, 40)], WHITE, 5.0),
        lambda c: c.polyline([], WHITE, 5.0),
        lambda c: c.polygon([(10, 10), (60, NAN), (90, 40)], WHITE),
        lambda c: c.polygon([(10, 10), (60, -INF), (90, 40)], WHITE, 2.0),
        lambda c: c.polygon([], WHITE),
        lambda c: c.polygon([(10, 10), (60, 40)], WHITE),
        lambda c: c.polygon([(10, 10), (60, 40), (110, 70)], WHITE),
        lambda c: c.polygon([(10, 10), (10, 10), (10, 10)], WHITE),
    ],
)
def test_not_a_number_and_no_area_draw_nothing(draw: Draw) -> None:
    assert shares(draw).sum() == 0


def test_enormous_shapes_are_drawn() -> None:
    assert (shares(lambda c: c.circle(60, 40, 1e12, WHITE)) == 1).all()
    assert shares(lambda c: c.line(-1e200, 40, 1e200, 40, WHITE, 4.0)).sum() == 4 * WIDTH


def test_line_of_no_length_is_a_dot() -> None:
    dot = shares(lambda c: c.line(60, 40, 60, 40, WHITE, 10.0))
    assert np.array_equal(dot, shares(lambda c: c.circle(60, 40, 5.0, WHITE)))


def test_later_shapes_cover_earlier_ones() -> None:
    canvas = Canvas(20, 20, (1, 2, 3))
    canvas.circle(10, 10, 8, (200, 0, 0))
    canvas.circle(10, 10, 4, (0, 0, 200))
    picture = canvas.to_array()
    assert picture[10, 10].tolist() == [0, 0, 200]
    assert picture[10, 4].tolist() == [200, 0, 0]
    assert picture[0, 0].tolist() == [1, 2, 3]
    canvas.fill((7, 8, 9))
    assert (canvas.to_array() == (7, 8, 9)).all()


def test_array_is_a_copy_of_the_right_kind() -> None:
    canvas = Canvas(7, 5)
    first = canvas.to_array()
    assert first.shape == (5, 7, 3)
    assert first.dtype == np.uint8
    assert first.flags.c_contiguous
    first[:] = 0
    assert (canvas.to_array() == 255).all()


@pytest.mark.parametrize("size", [(0, 5), (5, 0), (-1, 5)])
def test_canvas_without_pixels_is_refused(size: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="at least 1 x 1"):
        Canvas(*size)


@pytest.mark.parametrize(
    "view", [(0, 0, 0, 1), (1, 0, 0, 1), (0, 1, 2, 2), (0, NAN, 0, 1), (0, 1, -INF, 1)]
)
def test_empty_or_infinite_view_is_refused(view: tuple[float, float, float, float]) -> None:
    with pytest.raises(ValueError, match="view"):
        Canvas(5, 5).view(*view)


@pytest.mark.parametrize("color", [(256, 0, 0), (0, -1, 0), (0, 0)])
def test_wrong_colour_is_refused(color: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="colour"):
        Canvas(5, 5).circle(2, 2, 1, color)


def test_points_of_the_wrong_shape_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\[n, 2\]"):
        Canvas(5, 5).polygon([(0, 0, 0), (1, 1, 1)], WHITE)


def test_a_rectangle_is_the_polygon_of_its_corners() -> None:
    corners = [(10.5, 20), (40.5, 20), (40.5, 32), (10.5, 32)]
    for margin in (0.0, 3.0):
        drawn = shares(lambda c, m=margin: c.rectangle(10.5, 20, 30, 12, WHITE, m))  # type: ignore[misc]
        wanted = shares(lambda c, m=margin: c.polygon(corners, WHITE, m))  # type: ignore[misc]
        assert np.array_equal(drawn, wanted)
    assert drawn.sum() > wanted.size * 0.03


def test_every_shape_takes_names_of_colours() -> None:
    canvas = Canvas(40, 40, "navy")
    canvas.rectangle(0, 0, 40, 10, "Red")
    canvas.circle(10, 20, 5, "#a1B2c3")
    canvas.line(0, 35, 40, 35, "grey", 4)
    picture = canvas.to_array()
    assert tuple(picture[15, 30]) == COLORS["navy"]
    assert tuple(picture[35, 5]) == COLORS["red"]
    assert tuple(picture[20, 10]) == (0xA1, 0xB2, 0xC3)
    assert tuple(picture[5, 20]) == COLORS["gray"]
    canvas.fill("white")
    assert (canvas.to_array() == 255).all()


def test_an_unknown_method_says_which_there_are() -> None:
    with pytest.raises(AttributeError, match="a canvas has no 'rect'; it has view, fill, line, "):
        Canvas(5, 5).rect(0, 0, 1, 1)


@pytest.mark.parametrize("color", [(1.0, 0.2, 0.0), (0.5, 0, 0)])
def test_floats_that_are_nearly_black_are_told(color: tuple[float, float, float]) -> None:
    with pytest.warns(UserWarning, match="so .* is black; write"):
        Canvas(5, 5).circle(2, 2, 1, color)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Canvas(5, 5).circle(2, 2, 1, (1, 0, 0))
        Canvas(5, 5).circle(2, 2, 1, (0.0, 0.0, 0.0))
