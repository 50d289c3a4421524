"""Names that generated text might use itself: words of ours, of Numba, Triton and C++."""

from __future__ import annotations

import io
import random
import re
import tokenize

_FREE = """
    u8 u32 u64 i32 i64 f32 bool_ tl triton numba njit cfunc inf nan select philox draw draw_0
    begin v_1 v_x s_x s_0 s_0_x p_x a_0 u_0 u_8 o_1 m_3 e_0 b_2 f_1 f_1_step f_ c_0_T
    t_0_action w_1 x_ state_x state_f_ rule_f rule_step new_x n_x r_x o_0 k0 end0 part0_3
    parts0 kept1 cell v0 v12 table control stream trouble stride row here lo hi now_us finished
    counts seed index episode table_address limit mode steps done over late gained taken fresh
    ended some words record char auto template new this register asm long double const goto
    struct union unsigned NULL main OBS OBS_SIZE DEVICE Args EXACT FAST STEP RULE LINE JOB STOP
    FIRST WORK INT FLOAT constants floats ints flags records report clock bad chosen host_ns
    num_envs BLOCK WIDE KEEP PASS least most pick inside shifted whole32 whole64 absolute
    floor_divide floor_mod shift_left bits_of float_of fabs load store at sin_exact exp_exact
    minimum_ uniforms ticks unit added
"""
FREE = _FREE.split()
"""An author may give them to anything."""
_TAKEN = "len range floor ceil sqrt sin abs min max where clip random state"
TAKEN = _TAKEN.split()
"""Words of the language, which an attribute may be called all the same."""


def renamed(text: str, names: list[str], attributes: list[str], seed: int) -> str:
    """A program in which `names`, and `attributes` of the state, are called something hostile."""
    chance = random.Random(seed)
    free = chance.sample(FREE, len(FREE))
    new = {name: free.pop() for name in names}
    pool = chance.sample([*free, *TAKEN], len(attributes))
    new |= dict(zip(attributes, pool, strict=True))
    tokens = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        known = token.type == tokenize.NAME and token.string in new
        tokens.append((token.type, new[token.string] if known else token.string))
    return tokenize.untokenize(tokens)


def variables(text: str, pattern: str) -> list[str]:
    """The identifiers of a text that look like `pattern`, in order."""
    return list(dict.fromkeys(re.findall(rf"(?<![\w.])({pattern})\b", text)))
