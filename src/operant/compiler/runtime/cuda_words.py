"""Functions that generated C++ calls; ``DEVICE`` is what they are declared with.

Philox4x32-10 is that of `operant.compiler.philox`, and a uniform number a multiple of 2**-24.
"""

from __future__ import annotations

RANDOM = """
DEVICE void philox(unsigned (&c)[4], unsigned k0, unsigned k1) {
    for (int round = 0; round < 10; round++) {
        const unsigned long long p0 = c[0] * 0xD2511F53ull, p1 = c[2] * 0xCD9E8D57ull;
        c[0] = (unsigned)(p1 >> 32) ^ c[1] ^ k0;
        c[1] = (unsigned)p1;
        c[2] = (unsigned)(p0 >> 32) ^ c[3] ^ k1;
        c[3] = (unsigned)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}
DEVICE float unit(unsigned word) { return (float)(word >> 8) * (1.0f / 16777216.0f); }
"""
CHOICES = """
DEVICE float minimum(float a, float b) { return (a < b || a != a) ? a : b; }
DEVICE float maximum(float a, float b) { return (a > b || a != a) ? a : b; }
DEVICE int whole32(float x) { return fabsf(x) < 2147483648.0f ? (int)x : -2147483647 - 1; }
"""
WHOLE = """
template <typename T> DEVICE T where(bool test, T a, T b) { return test ? a : b; }
DEVICE int added(int a, int b) { return (int)((unsigned)a + (unsigned)b); }
DEVICE int subtracted(int a, int b) { return (int)((unsigned)a - (unsigned)b); }
DEVICE int multiplied(int a, int b) { return (int)((unsigned)a * (unsigned)b); }
DEVICE int shifted_left(int a, int n) { return (int)((unsigned)a << n); }
DEVICE int size_of(int a) { return a < 0 ? subtracted(0, a) : a; }
DEVICE int floor_divide(int a, int b) {
    if (b == 0) return 0;
    if (b == -1) return subtracted(0, a);  // the only quotient that may not fit
    const int quotient = a / b;
    return quotient - (quotient * b != a && (a < 0) != (b < 0));
}
DEVICE int floor_mod(int a, int b) {
    return b == 0 ? 0 : subtracted(a, multiplied(floor_divide(a, b), b));
}
"""
WORDS = RANDOM + CHOICES + WHOLE
"""What programs of `operant.compiler.emit.cuda_program` call."""
