"""The NaN guard: every culprit with environment and step, the earliest first, no false alarm."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

from operant.buffers.rollout import RolloutBuffer
from operant.training.guard import NonFiniteError, check_action, check_rollout

NAN = math.nan
T, N = 5, 3


def rollout(obs_shape: tuple[int, ...] = (2,), dtype: torch.dtype = torch.float32) -> RolloutBuffer:
    """A good one; environment 1 was truncated at steps 1 and 3."""
    buffer = RolloutBuffer(T, N, obs_shape, obs_dtype=dtype)
    for name, array in buffer.arrays.items():
        if name not in ("terminated", "truncated"):
            array[...] = 1
    buffer.arrays["action"][:] = np.arange(T * N).reshape(T, N)
    for t in (1, 3):
        buffer.arrays["truncated"][t, 1] = True
        buffer.store_final_obs(t, np.array([1]), np.ones((1, *obs_shape), np.float32))
    return buffer


def caught(buffer: RolloutBuffer, iteration: int = 7) -> NonFiniteError:
    with pytest.raises(NonFiniteError) as error:
        check_rollout(buffer, iteration)
    assert error.value.iteration == iteration
    assert str(error.value).startswith(f"iteration {iteration}: the {error.value.what} of environ")
    return error.value


def test_a_good_rollout_passes() -> None:
    check_rollout(rollout(), 0)


def spoil(
    name: str, index: tuple[int, ...], number: float = NAN
) -> Callable[[RolloutBuffer], None]:
    def change(buffer: RolloutBuffer) -> None:
        array = {**buffer.arrays, "final_obs": buffer.final_obs}[name]
        array[index] = number

    return change


# what is spoilt -> what, environment, detail
CULPRITS = {
    "the first observation": (
        spoil("obs", (0, 2, 1)),
        ("observation", 2, "[1.0, nan] at step 0 of the rollout"),
    ),
    "a later observation": (
        spoil("obs", (2, 0, 0), math.inf),
        ("observation", 0, "[inf, 1.0] at step 2 of the rollout, after action 3"),
    ),
    "the last observation": (
        spoil("obs", (T, 1, 0), -math.inf),
        ("observation", 1, "[-inf, 1.0] at step 5 of the rollout, after action 13"),
    ),
    "an observation after a reset": (
        spoil("obs", (2, 1, 0)),
        ("observation", 1, "[nan, 1.0] at step 2 of the rollout, the first of its episode"),
    ),
    "a reward": (
        spoil("reward", (3, 2)),
        ("reward", 2, "nan at step 3 of the rollout, for action 11"),
    ),
    "a value": (spoil("value", (4, 0), math.inf), ("value", 0, "inf at step 4 of the rollout")),
    "the last value": (
        spoil("last_value", (2,)),
        ("value", 2, "nan at step 5 of the rollout"),
    ),
    "a log-probability": (
        spoil("log_prob", (1, 2), -math.inf),
        ("log-probability", 2, "-inf at step 1 of the rollout, for action 5"),
    ),
    "a final observation": (
        spoil("final_obs", (1, 1)),
        (
            "observation",
            1,
            "[1.0, nan] at step 3 of the rollout, the last of its episode, after action 10",
        ),
    ),
    "the value of a final observation": (
        spoil("final_value", (1, 1)),
        ("value", 1, "nan at step 1 of the rollout, of the last observation of its episode"),
    ),
}


@pytest.mark.parametrize("name", CULPRITS)
def test_each_culprit_is_named(name: str) -> None:
    change, (what, env, detail) = CULPRITS[name]
    buffer = rollout()
    change(buffer)
    error = caught(buffer)
    assert (error.what, error.env_index) == (what, env)
    assert str(error) == f"iteration 7: the {what} of environment {env} is not finite: {detail}"


EARLIEST = [  # of two neighbours the first is to blame
    (("obs", (0, 2, 0)), ("value", (0, 0))),
    (("value", (0, 0)), ("log_prob", (0, 0))),
    (("log_prob", (0, 0)), ("reward", (0, 0))),
    (("reward", (1, 2)), ("final_obs", (0, 0))),
    (("final_obs", (0, 0)), ("final_value", (1, 1))),
    (("final_value", (1, 1)), ("obs", (2, 0, 0))),
    (("obs", (2, 0, 0)), ("obs", (2, 1, 0))),
    (("reward", (2, 0)), ("obs", (3, 0, 0))),
    (("final_obs", (0, 0)), ("value", (4, 0))),
    (("reward", (4, 0)), ("obs", (5, 0, 0))),
    (("obs", (5, 2, 0)), ("last_value", (0,))),
]


@pytest.mark.parametrize(("first", "second"), EARLIEST)
def test_the_earliest_is_to_blame(
    first: tuple[str, tuple[int, ...]], second: tuple[str, tuple[int, ...]]
) -> None:
    alone, both = rollout(), rollout()
    spoil(*first)(alone)
    spoil(*first)(both)
    spoil(*second)(both)
    assert str(caught(both)) == str(caught(alone))
    other = rollout()
    spoil(*second)(other)
    assert str(caught(other)) != str(caught(alone))


def test_integers_cannot_be_bad() -> None:
    buffer = rollout((), torch.int64)
    buffer.arrays["obs"][...] = np.iinfo(np.int64).max
    check_rollout(buffer, 0)
    buffer.arrays["reward"][2, 1] = NAN
    assert caught(buffer).what == "reward"


def test_huge_numbers_are_finite() -> None:
    """Their sum is not."""
    for dtype in (torch.float32, torch.float64):
        buffer = rollout(dtype=dtype)
        buffer.arrays["obs"][...] = np.finfo(buffer.arrays["obs"].dtype).max
        buffer.arrays["reward"][...] = np.finfo(np.float32).max
        check_rollout(buffer, 0)
    buffer.arrays["obs"][1, 1, 1] = math.inf
    assert caught(buffer).env_index == 1


def test_a_final_value_that_no_one_reads_may_be_anything() -> None:
    buffer = rollout()
    buffer.arrays["final_value"][0, :] = NAN
    buffer.arrays["advantage"][:] = NAN
    check_rollout(buffer, 0)


def test_large_observations_are_not_printed_whole() -> None:
    buffer = rollout((6, 7))
    buffer.arrays["obs"][1, 0, 3, 5] = NAN
    assert "is not finite: nan in entry (3, 5) at step 1" in str(caught(buffer))
    buffer = rollout((100,))
    buffer.arrays["obs"][1, 0, 42] = NAN
    assert "is not finite: nan in entry 42 at step 1" in str(caught(buffer))


def test_scalar_observations() -> None:
    buffer = rollout(())
    buffer.arrays["obs"][4, 2] = NAN
    assert "environment 2 is not finite: nan at step 4" in str(caught(buffer))


def test_actions() -> None:
    check_action(torch.tensor([[0.0, 1e38], [2.0, -3.0]]), 1, 2)
    check_action(torch.tensor([1, 2, 3]), 1, 2)
    bad = torch.tensor([[0.0, 1.0], [NAN, 1.0], [math.inf, 1.0]])
    with pytest.raises(NonFiniteError) as error:
        check_action(bad, iteration=4, t=9)
    assert (error.value.what, error.value.env_index, error.value.iteration) == ("action", 1, 4)
    assert str(error.value) == (
        "iteration 4: the action of environment 1 is not finite: [nan, 1.0] at step 9 of the "
        "rollout: the policy's own output"
    )


def test_no_environment_to_blame() -> None:
    error = NonFiniteError("loss", 3, None, "it is nan")
    assert str(error) == "iteration 3: the loss is not finite: it is nan"
    assert isinstance(error, ArithmeticError)
