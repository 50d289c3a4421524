"""The pictures of environments: what moves where, measured in the pixels."""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from operant.envs.classic.acrobot import Acrobot
from operant.envs.classic.cartpole import CartPole
from operant.envs.classic.mountain_car import MountainCar
from operant.envs.classic.mountain_car_continuous import MountainCarContinuous
from operant.envs.classic.pendulum import Pendulum
from operant.render.canvas import AMBER, BLUE, GREEN, INK, RED, SKY, WHITE, Canvas
from operant.render.colors import COLORS

Picture = NDArray[np.uint8]

TWO_STATES: list[tuple[Any, tuple[float, ...], tuple[float, ...]]] = [
    (CartPole, (0.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.02, 0.0)),
    (MountainCar, (-0.5, 0.0), (-0.48, 0.0)),
    (MountainCarContinuous, (-0.5, 0.0), (-0.48, 0.0)),
    (Pendulum, (1.0, 0.0), (1.02, 0.0)),
    (Acrobot, (0.1, 0.2, 0.0, 0.0), (0.1, 0.22, 0.0, 0.0)),
]


def picture(env: Any, *state: float, **params: float) -> Picture:
    canvas = Canvas(*env.render_size)
    env.render(env.State(*state), canvas, env.Params(**params))
    frame: Picture = canvas.to_array()
    return frame


def centre(frame: Picture, color: tuple[int, int, int]) -> tuple[float, float]:
    """The mean (x, y) of the pixels of exactly this colour, from the lower left corner."""
    rows, columns = (frame[::-1] == color).all(axis=2).nonzero()
    assert len(rows), "the colour is not in the picture"
    return float(columns.mean() + 0.5), float(rows.mean() + 0.5)


def color_at(frame: Picture, x: float, y: float) -> tuple[int, ...]:
    """The colour of the pixel around (x, y), from the lower left corner."""
    return tuple(int(value) for value in frame[len(frame) - 1 - math.floor(y), math.floor(x)])


@pytest.mark.parametrize(("env", "one", "other"), TWO_STATES)
def test_picture_has_the_promised_kind_and_shows_the_state(
    env: Any, one: tuple[float, ...], other: tuple[float, ...]
) -> None:
    width, height = env.render_size
    first = picture(env, *one)
    assert first.shape == (height, width, 3)
    assert first.dtype == np.uint8
    assert np.array_equal(first, picture(env, *one))
    assert not np.array_equal(first, picture(env, *other))


@pytest.mark.parametrize(("env", "one", "_other"), TWO_STATES)
def test_state_that_is_not_a_number_leaves_the_scenery(
    env: Any, one: tuple[float, ...], _other: tuple[float, ...]
) -> None:
    lost = picture(env, *(math.nan for _ in one))
    differs = (lost != picture(env, *one)).any(axis=2)
    assert 0 < differs.mean() < 0.1


@pytest.mark.parametrize(("env", "one", "_other"), TWO_STATES)
def test_picture_fits_other_sizes(
    env: Any, one: tuple[float, ...], _other: tuple[float, ...]
) -> None:
    width, height = env.render_size
    canvas = Canvas(width // 2, height // 2)
    env.render(env.State(*one), canvas, env.Params())
    large = picture(env, *one).astype(np.float64)
    shrunk = large.reshape(height // 2, 2, width // 2, 2, 3).mean(axis=(1, 3))
    assert np.abs(shrunk - canvas.to_array()).mean() < 0.1


@pytest.mark.parametrize("x", [-1.5, 0.0, 0.7, 2.0])
def test_cart_is_drawn_at_its_place(x: float) -> None:
    frame = picture(CartPole, x, 0.0, 0.0, 0.0)
    pixels = 600 / 4.8
    assert centre(frame, BLUE)[0] == pytest.approx(300 + x * pixels, abs=1)
    columns = (frame == BLUE).all(axis=2).any(axis=0).nonzero()[0]
    assert columns[-1] - columns[0] == pytest.approx(50, abs=2)


def test_cart_moves_right_as_x_grows() -> None:
    places = [centre(picture(CartPole, x, 0.0, 0.0, 0.0), BLUE)[0] for x in (-2.0, -1.0, 0.5, 2.0)]
    assert places == sorted(places)
    assert places[-1] - places[0] == pytest.approx(4 * 125, abs=2)


@pytest.mark.parametrize("theta", [-0.5, -0.2, 0.0, 0.2, 0.5])
@pytest.mark.parametrize("length", [0.5, 0.3])
def test_pole_ends_where_its_angle_and_length_say(theta: float, length: float) -> None:
    frame = picture(CartPole, 0.0, 0.0, theta, 0.0, length=length)

    def at(distance: float) -> tuple[int, ...]:
        """The colour on the pole's axis, in metres from the axle; positive angles lean right."""
        x = distance * math.sin(theta) * 125
        y = distance * math.cos(theta) * 125
        return color_at(frame, 300 + x, 107.5 + y)

    assert at(2 * length - 0.02) == AMBER
    assert at(0.2) == AMBER
    assert at(2 * length + 0.02) == color_at(frame, 1, 399)


@pytest.mark.parametrize("env", [MountainCar, MountainCarContinuous])
def test_hill_follows_the_sine(env: Any) -> None:
    frame = picture(env, -0.5, 0.0)
    pixels = 600 / 1.8
    for x in (-1.1, -0.8, -0.2, 0.0, 0.3, 0.55):
        column, height = (x + 1.2) * pixels, (math.sin(3 * x) * 0.45 + 0.55) * pixels
        assert color_at(frame, column, height - 8) == GREEN
        assert color_at(frame, column, height + 8) == SKY


@pytest.mark.parametrize("env", [MountainCar, MountainCarContinuous])
@pytest.mark.parametrize("position", [-1.1, -0.7, -0.3, 0.1, 0.4])
def test_car_stands_on_the_slope(env: Any, position: float) -> None:
    pixels = 600 / 1.8
    slope = math.atan(1.35 * math.cos(3 * position))
    x = (position + 1.2) * pixels
    y = (math.sin(3 * position) * 0.45 + 0.55) * pixels
    up = 0.04 * pixels  # About the middle of the body, measured at right angles to the slope.
    car = centre(picture(env, position, 0.0), AMBER)
    assert car == pytest.approx((x - up * math.sin(slope), y + up * math.cos(slope)), abs=2)


@pytest.mark.parametrize("env", [MountainCar, MountainCarContinuous])
def test_flag_stands_at_the_goal(env: Any) -> None:
    pixels = 600 / 1.8
    for goal in (env.Params().goal_position, 0.2):
        frame = picture(env, -0.5, 0.0, goal_position=goal)
        columns = (frame == RED).all(axis=2).any(axis=0).nonzero()[0]
        assert columns[0] == pytest.approx((goal + 1.2) * pixels, abs=3)
        top = (math.sin(3 * goal) * 0.45 + 0.55) * pixels + 50
        assert centre(frame, RED)[1] == pytest.approx(top - 6.5, abs=2)


@pytest.mark.parametrize("theta", [0.0, 0.6, 1.5, math.pi, -0.6, -2.0])
def test_rod_is_upright_at_zero_and_turns_counter_clockwise(theta: float) -> None:
    frame = picture(Pendulum, theta, 0.0)
    half = 0.5 * 500 / 4.4
    expected = (250 - half * math.sin(theta), 250 + half * math.cos(theta))
    x, y = centre(frame, RED)
    # The axle hides some of the rod's lower end, which moves the centre outwards a little.
    assert math.hypot(x - expected[0], y - expected[1]) < 4
    assert color_at(frame, *(250 + 2 * (v - 250) for v in expected)) == RED
    assert color_at(frame, *(250 + 2.4 * (v - 250) for v in expected)) != RED


@pytest.mark.parametrize(
    ("theta1", "theta2"), [(0.0, 0.0), (0.5, 0.0), (1.2, 0.8), (-1.0, 2.0), (2.8, -0.4)]
)
def test_links_hang_at_zero_and_end_where_the_angles_say(theta1: float, theta2: float) -> None:
    frame = picture(Acrobot, theta1, theta2, 0.0, 0.0)
    pixels = 500 / 4.4
    elbow = np.array([math.sin(theta1), -math.cos(theta1)])
    tip = elbow + np.array([math.sin(theta1 + theta2), -math.cos(theta1 + theta2)])
    assert color_at(frame, *(250 + pixels * elbow * 0.5)) == BLUE
    assert color_at(frame, *(250 + pixels * (elbow + tip) / 2)) == AMBER
    assert color_at(frame, *(250 + pixels * tip)) == AMBER
    beyond = tip + 0.13 * (tip - elbow)
    assert color_at(frame, *(250 + pixels * beyond)) not in (AMBER, BLUE)


def test_target_line_is_one_above_the_pivot() -> None:
    frame = picture(Acrobot, 0.0, 0.0, 0.0, 0.0)
    rows = (frame[::-1, 100] != frame[0, 0]).any(axis=1).nonzero()[0]
    assert rows.mean() + 0.5 == pytest.approx(250 + 500 / 4.4, abs=0.6)
    assert len(rows) <= 4


# The examples -------------------------------------------------------------------------------------
@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "examples")

    def imported(name: str) -> Any:
        monkeypatch.delitem(sys.modules, name, raising=False)  # another test's file of that name
        return importlib.import_module(name)

    return imported


def test_the_lander_is_drawn_at_its_height(example: Callable[[str], Any]) -> None:
    lander = example("lander").Lander

    def drawn(height: float, speed: float) -> Picture:
        canvas = Canvas(*lander.render_size)
        lander.render(lander.State(height, speed), canvas)
        frame: Picture = canvas.to_array()
        return frame

    pixels = 600 / 81
    ground = centre(drawn(0.0, 0.0), WHITE)[1]
    for height in (5.0, 20.0, 40.0):
        assert centre(drawn(height, 0.0), WHITE)[1] == pytest.approx(
            ground + height * pixels, abs=1
        )
    fast, slow = drawn(20.0, -3.0), drawn(20.0, -0.5)
    assert (fast == COLORS["red"]).all(axis=2).sum() > 50
    assert not (slow == COLORS["red"]).all(axis=2).any()
    assert (drawn(-1.0, 0.0) == drawn(0.0, 0.0)).all()  # it stands on the ground, not in it


def test_the_snake_is_drawn_where_it_is(example: Callable[[str], Any]) -> None:
    snake = example("snake").Snake
    body = np.zeros(64, np.int32)
    body[[18, 19, 27]] = 1, 2, 3
    parts = (np.array([value], np.int32) for value in (44, 3))
    state = snake.State(body, np.array([3, 3], np.int32), *parts)
    canvas = Canvas(*snake.render_size)
    snake.render(state, canvas)
    frame = canvas.to_array()
    unit = 400 / 8.4

    def middle(cell: int) -> tuple[float, float]:
        return (cell % 8 + 0.7) * unit, (7 - cell // 8 + 0.7) * unit

    assert color_at(frame, *middle(27)) == COLORS["lime"]
    assert {color_at(frame, *middle(cell)) for cell in (18, 19)} == {COLORS["green"]}
    assert color_at(frame, *middle(44)) == COLORS["red"]
    assert color_at(frame, *middle(0)) == (0x36, 0x42, 0x58)
    assert color_at(frame, 0, 0) == INK
