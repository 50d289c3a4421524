"""What the printed functions of a state of arrays call: random numbers, and indices and loops that
are looked at.

An environment's random numbers are a stream: word after word of `operant.compiler.philox`, from
block 0 of its episode and step on. The stream is ten words of memory: three of the counter, two of
the key, how many numbers were drawn, and the four words of the block at hand.
"""

# mypy: disable-error-code="no-untyped-call, call-arg, var-annotated"

from __future__ import annotations

from typing import Any

from numba import float32, int64, njit, uint32, uint64

from operant.compiler.parsing.endless import MOST_PASSES
from operant.compiler.runtime.intrinsics import sqrt
from operant.compiler.runtime.numba_philox import philox

_EXACT: Any = {"error_model": "numpy", "fastmath": False}


@njit(**_EXACT)
def begin(stream, step, episode, seed, index):  # type: ignore[no-untyped-def]
    """Put a stream at the beginning of a step."""
    stream[0] = uint32(step)
    stream[1] = uint32(episode)
    stream[2] = uint32(seed >> uint64(32))
    stream[3] = uint32(seed)
    stream[4] = uint32(index)
    stream[5] = uint32(0)


@njit(**_EXACT)
def draw(stream):  # type: ignore[no-untyped-def]
    """The next uniform number in [0, 1), a multiple of 2**-24."""
    drawn = int64(stream[5])
    if drawn & 3 == 0:
        block = uint32(drawn >> 2)
        words = philox(stream[0], stream[1], stream[2], block, stream[3], stream[4])
        stream[6] = words[0]
        stream[7] = words[1]
        stream[8] = words[2]
        stream[9] = words[3]
    stream[5] = uint32(drawn + 1)
    return float32(int64(stream[6 + (drawn & 3)]) >> 8) * float32(2.0**-24)


@njit(**_EXACT)
def draw_uniform(stream, low, high):  # type: ignore[no-untyped-def]
    """A number from low to high."""
    return low + (high - low) * draw(stream)


@njit(**_EXACT)
def draw_integers(stream, low, high):  # type: ignore[no-untyped-def]
    """An int from low to high - 1."""
    count = max(int64(uint64(high) - uint64(low)), 1)
    drawn = min(int64(draw(stream) * float32(count)), count - 1)
    return int64(uint64(low) + uint64(drawn))


@njit(**_EXACT)
def draw_chance(stream, probability):  # type: ignore[no-untyped-def]
    """True with this probability."""
    return draw(stream) < probability


@njit(**_EXACT)
def least(a, b):  # type: ignore[no-untyped-def]
    """The smaller of two ints."""
    return a if a < b else b


@njit(**_EXACT)
def most(a, b):  # type: ignore[no-untyped-def]
    """The larger of two ints."""
    return a if a > b else b


@njit(**_EXACT)
def pick(condition, a, b):  # type: ignore[no-untyped-def]
    """One of two values, both computed."""
    return a if condition else b


@njit(**_EXACT)
def inside(index, size, place, trouble):  # type: ignore[no-untyped-def]
    """`index` if it is one of an array of `size`, else 0; the first such place is noted."""
    if uint64(index) < uint64(size):
        return index
    if trouble[0] == 0:  # one word, so that threads do not mix two of them
        trouble[0] = (place << 40) | (index & ((1 << 40) - 1))
    return int64(0)


@njit(**_EXACT)
def fitting(value, low, high, place, trouble):  # type: ignore[no-untyped-def]
    """`value`; the first place where it is outside low..high is noted, with it as far as 40 bits
    can tell."""
    if (value < low or value > high) and trouble[0] == 0:
        limit = int64((1 << 39) - 1)
        trouble[0] = (place << 40) | (max(min(value, limit), -limit) & ((1 << 40) - 1))
    return value


@njit(**_EXACT)
def endless(passes, place, trouble):  # type: ignore[no-untyped-def]
    """Whether to leave a loop after so many passes: it, or another one, made too many."""
    if trouble[1] != 0:
        return True
    if passes < MOST_PASSES:
        return False
    trouble[1] = 1
    if trouble[0] == 0:
        trouble[0] = place << 40
    return True


@njit(**_EXACT)
def whole64(x):  # type: ignore[no-untyped-def]
    """A float rounded towards zero; 0 if it is beyond 64 bits or not a number."""
    return int64(x) if abs(x) < float32(2.0**63) else int64(0)


@njit(**_EXACT)
def absolute(a):  # type: ignore[no-untyped-def]
    """``abs(a)`` of an int; the least int is its own."""
    return int64(uint64(0) - uint64(a)) if a < 0 else a


@njit(**_EXACT)
def floor_divide(a, b):  # type: ignore[no-untyped-def]
    """``a // b``; 0 for a division by 0. Divided by -1 the least int wraps around to itself."""
    if b == 0:
        return int64(0)
    return int64(uint64(0) - uint64(a)) if b == -1 else a // b


@njit(**_EXACT)
def floor_mod(a, b):  # type: ignore[no-untyped-def]
    """``a % b``; 0 for a division by 0."""
    return int64(0) if b == 0 or b == -1 else a % b


@njit(**_EXACT)
def shift_left(a, n):  # type: ignore[no-untyped-def]
    """``a << n``; 0 if n is not 0 to 63."""
    return a << (n & 63) if uint64(n) < uint64(64) else int64(0)


@njit(**_EXACT)
def shift_right(a, n):  # type: ignore[no-untyped-def]
    """``a >> n``; 0 if n is not 0 to 63."""
    return a >> (n & 63) if uint64(n) < uint64(64) else int64(0)


__all__ = ["absolute", "begin", "draw", "draw_chance", "draw_integers", "draw_uniform"]
__all__ += [
    "endless",
    "fitting",
    "floor_divide",
    "floor_mod",
    "inside",
    "least",
    "most",
    "philox",
    "pick",
]
__all__ += ["shift_left", "shift_right", "sqrt", "whole64"]
