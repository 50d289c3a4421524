"""float32 mathematics, written in the language itself.

Straight-line arithmetic with no calls, no tables and no branches: a compiler turns it into SIMD,
which it cannot do with the C library's ``sinf``. The ``reference`` backend runs these functions on
NumPy arrays, the ``cpu`` backend records and compiles them: without fused multiply-adds the two
agree to the bit.

Coefficients: the minimax polynomials published with Cephes (S. Moshier). Range reduction: Cody and
Waite, with constants short enough that the products with ``|k| <= 2**13`` are exact.
"""

from __future__ import annotations

import math
from typing import Any

from operant.lang.words import (
    abs,
    bits_of,
    clip,
    float_of,
    maximum,
    to_float,
    where,
)

# pi/2 and ln(2) in parts of few bits; the last part of each holds what is left.
_PI_2_A, _PI_2_B, _PI_2_C = 1.5703125, 4.837512969970703125e-4, 7.549789948768648e-8
_LN2_A, _LN2_B = 0.693359375, -2.12194440e-4
_MAGIC = 12582912.0
"""1.5 * 2**23: the sum with a number below 2**22 is rounded to a whole number, whose low bits are
those of the sum. Defined for every float, and quicker than floor() and to_int()."""
_LIMIT = 0.79  # bounds the reduced angle where `x` is too large to reduce; see `_reduced`


def _reduced(x: Any) -> tuple[Any, Any]:
    """The quadrant of angle `x` in the low bits of an int, and the angle within it, in
    [-pi/4, pi/4].

    `k` is rounded from a float32, so for ``|x|`` near 1e4 the angle passes pi/4 by up to 8e-4: it
    must not be cut there, the polynomials are as good at 0.79.
    """
    shifted = x * 0.6366197723675814 + _MAGIC
    k = shifted - _MAGIC
    r = ((x - k * _PI_2_A) - k * _PI_2_B) - k * _PI_2_C
    return bits_of(shifted), clip(r, -_LIMIT, _LIMIT)


def _sin_small(r: Any) -> Any:
    z = r * r
    return r + r * z * (-1.6666654611e-1 + z * (8.3321608736e-3 + z * -1.9515295891e-4))


def _cos_small(r: Any) -> Any:
    z = r * r
    tail = 4.166664568298827e-2 + z * (-1.388731625493765e-3 + z * 2.443315711809948e-5)
    return 1.0 - 0.5 * z + z * z * tail


def sin(x: Any) -> Any:
    """sin(x); absolute error at most 5e-7 for ``|x| <= 1e4``, bounded by 1 for any finite x."""
    quadrant, r = _reduced(x)
    value = where((quadrant & 1) != 0, _cos_small(r), _sin_small(r))
    return where((quadrant & 2) != 0, -value, value)


def cos(x: Any) -> Any:
    """cos(x); absolute error at most 5e-7 for ``|x| <= 1e4``, bounded by 1 for any finite x."""
    quadrant, r = _reduced(x)
    value = where((quadrant & 1) != 0, _sin_small(r), _cos_small(r))
    return where(((quadrant + 1) & 2) != 0, -value, value)


def tan(x: Any) -> Any:
    """tan(x) as the quotient of the two polynomials."""
    quadrant, r = _reduced(x)
    s, c = _sin_small(r), _cos_small(r)
    odd = (quadrant & 1) != 0
    return where(odd, -c, s) / where(odd, s, c)


def exp(x: Any) -> Any:
    """exp(x); relative error at most 5e-7 where the result is a normal float."""
    limited = clip(x, -104.0, 89.0)
    shifted = limited * 1.4426950408889634 + _MAGIC
    k = shifted - _MAGIC
    r = (limited - k * _LN2_A) - k * _LN2_B
    p = 1.9875691500e-4
    for coefficient in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 0.5):
        p = p * r + coefficient
    value = p * r * r + r + 1.0
    # 2**k in two factors: 2**128 is no float, yet exp(88.7) is.
    power = bits_of(shifted) - 0x4B400000
    half = power >> 1
    rest = power - half
    scaled = value * float_of((half + 127) << 23) * float_of((rest + 127) << 23)
    return where(x < -87.33654, 0.0, scaled)


def log(x: Any) -> Any:
    """log(x); relative error at most 5e-7 for normal floats; -inf at 0, NaN below 0."""
    tiny = x < 1.17549435e-38
    bits = bits_of(where(tiny, x * 8388608.0, x))
    exponent = (bits >> 23) - 126 - where(tiny, 23, 0)
    m = float_of((bits & 0x007FFFFF) | 0x3F000000)  # in [0.5, 1)
    low = m < 0.70710678
    e = to_float(exponent) - where(low, 1.0, 0.0)
    r = where(low, m + m, m) - 1.0
    p = 7.0376836292e-2
    for coefficient in (
        -1.1514610310e-1,
        1.1676998740e-1,
        -1.2420140846e-1,
        1.4249322787e-1,
        -1.6668057665e-1,
        2.0000714765e-1,
        -2.4999993993e-1,
        3.3333331174e-1,
    ):
        p = p * r + coefficient
    z = r * r
    value = (r + (p * r * z + e * _LN2_B - 0.5 * z)) + e * _LN2_A
    value = where(x < math.inf, value, x)  # log(inf) = inf; NaN compares false and stays NaN
    return where(x > 0.0, value, where(x < 0.0, math.nan, where(x == 0.0, -math.inf, x)))


def tanh(x: Any) -> Any:
    """tanh(x); relative error at most 5e-7."""
    size = abs(x)
    z = x * x
    p = -5.70498872745e-3
    for coefficient in (2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1):
        p = p * z + coefficient
    small = p * z * x + x
    large = 1.0 - 2.0 / (exp(size + size) + 1.0)
    return where(size < 0.625, small, where(x < 0.0, -large, large))


def atan(x: Any) -> Any:
    """atan(x); relative error at most 5e-7."""
    return _atan_of_quotient(x, 1.0)


def atan2(y: Any, x: Any) -> Any:
    """The angle of the point (x, y) in [-pi, pi]; 0 at the origin; relative error at most 5e-7."""
    size = maximum(abs(x), abs(y))  # scaled where a sum would overflow or a product lose its digits
    scale = where(size > 1e30, 0.125, where(size < 1e-30, 16777216.0, 1.0))
    angle = _atan_of_quotient(y * scale, abs(x) * scale)
    return where(x < 0.0, where(y < 0.0, -3.14159265358979, 3.14159265358979) - angle, angle)


def _atan_of_quotient(y: Any, x: Any) -> Any:
    """atan(y / x) for x >= 0, in [-pi/2, pi/2]."""
    height = abs(y)
    steep = height > 2.414213562373095 * x  # above tan(3 pi / 8): turn by pi/2
    middle = height > 0.4142135623730950 * x  # above tan(pi / 8): turn by pi/4
    top = where(steep, -x, where(middle, height - x, height))
    bottom = where(steep, height, where(middle, height + x, x))
    r = top / where(bottom == 0.0, 1.0, bottom)
    z = r * r
    p = ((8.05374449538e-2 * z - 1.38776856032e-1) * z + 1.99777106478e-1) * z - 3.33329491539e-1
    base = where(steep, 1.5707963267948966, where(middle, 0.7853981633974483, 0.0))
    angle = base + (p * z * r + r)
    return where(y < 0.0, -angle, angle)
