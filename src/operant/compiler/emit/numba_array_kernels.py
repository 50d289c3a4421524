"""The compiled kernels of an environment with a state of arrays, as Python source for Numba.

They are the kernels of `compiler.emit.numba_kernels`, called and working on buffers the same way;
but an environment is stepped whole, one after the other, by the author's functions as printed in
`compiler.parsing.functions`. An environment's arrays lie in one row each, so that it stays in the
cache.
"""

from __future__ import annotations

from textwrap import indent
from typing import Any

import numpy as np

from operant.compiler.emit.dialects import PythonText
from operant.compiler.emit.numba_kernels import (
    EPISODE_BEGINS,
    HEADER,
    OBSERVE,
    RESET,
    STEP_BLOCK,
    WORK,
    kernel,
    take_actions,
)
from operant.compiler.emit.numba_program import expression
from operant.compiler.emit.program_source import composed_words, print_word, word_program
from operant.compiler.errors import EndlessLoopError, RulesError, RulesOverflowError
from operant.compiler.parsing.endless import ADVICE, MOST_PASSES
from operant.compiler.parsing.functions import Place
from operant.compiler.recording.trace import INT
from operant.compiler.runtime.numba_jobs import work_source
from operant.compiler.spec.array_rules import ArrayRules, arguments
from operant.lang.arrays import outside, too_large

STREAM_WORDS = 16
"""Of memory for the random numbers of an environment: a cache line."""

_WORDS = """
from numpy import array, bool_ as flags, float32, int64

from operant.compiler.runtime.intrinsics import shifted
from operant.compiler.runtime.array_words import *

RULE = {"error_model": "numpy", "fastmath": False}
"""
_NORMAL = '''
@njit(**RULE)
def draw_normal(stream):
    """A standard normal number."""
    first = draw(stream)
    second = draw(stream)
    radius = sqrt(f32(-2.0) * log_exact(f32(1.0) - first))
    return radius * cos_exact(f32(2.0 * 3.141592653589793) * second)
'''


def array_kernels_source(rules: ArrayRules, version: str) -> tuple[str, list[Place]]:
    """The whole module, and the places that are looked at; equal rules, equal text."""
    library, compiled = rules.library(PythonText())
    name = rules.env.__qualname__
    parts = [HEADER.format(name=name, version=version), _WORDS]
    words = with_inner(library.words)
    parts += [f"\n@njit(**EXACT)\n{print_word(expression, word, '_exact')}" for word in words]
    if {"log", "cos"} <= library.words:
        parts.append(_NORMAL)
    parts += [_table(name, values) for name, values in library.tables.items()]
    parts += [f"\n@njit(**RULE)\n{text}" for text in library.texts]
    calls = {name: _call(rules, name, entry.name) for name, entry in compiled.items()}
    parts += [
        kernel(rules, RESET, _reset(rules, calls)),
        kernel(rules, STEP_BLOCK, _step(rules, calls)),
        kernel(rules, WORK, work_source(take_actions(rules))),
        kernel(rules, OBSERVE, f"for i in range(num_envs):\n{_inner(_observe(rules, calls))}"),
    ]
    return "\n".join(parts), library.places


def with_inner(words: set[str]) -> list[str]:
    """Composed words and those they call, which come first."""
    ordered: list[str] = []
    for word in sorted(words):
        inner = composed_words([word_program(word)])
        ordered += [part for part in (*inner, word) if part not in ordered]
    return ordered


def noted_error(
    word: int, places: list[Place]
) -> RulesError | RulesOverflowError | EndlessLoopError:
    """What `inside`, `fitting` or `endless` noted: the place above 40 bits of the number."""
    number = (word & ((1 << 40) - 1)) - ((word >> 39 & 1) << 40)
    line, label, size, dtype = places[(word >> 40) - 1]
    if dtype:
        beyond = abs(number) == (1 << 39) - 1
        value = f"a number beyond {number}" if beyond else str(number)
        return RulesOverflowError(f"{line}: {too_large(value, label, dtype)}")
    if size:
        return RulesError(f"{line}: {outside(number, label, size)}")
    return EndlessLoopError(f"{line}: {label} did not end within {MOST_PASSES} passes; {ADVICE}")


def _table(name: str, values: np.ndarray) -> str:
    kind = {"f": "float32", "b": "flags"}.get(values.dtype.kind, "int64")
    inner = ", ".join(repr(value) for value in np.ravel(values).tolist())
    return f"{name} = array([{inner}], {kind})"


def _call(rules: ArrayRules, entry: str, function: str) -> str:
    """The call of an author's function for environment i."""
    given: dict[str, list[str]] = {
        "state": [
            f"shifted(state_{name}, i * {int(np.prod(memory.shape))})"
            for name, memory in rules.memory.items()
        ],
        "random": [f"shifted(stream, i * {STREAM_WORDS})"],
        "params": ["params"],
        "action": [
            f"{'i64' if rules.action.dtype == INT else 'f32'}(action_{k}[i])"
            for k in range(rules.action.size)
        ],
        "obs": [f"shifted(obs, i * {rules.observation.size})"],
        "mask": [f"shifted(action_mask, i * {rules.mask_size})"],
    }
    names = arguments(rules.functions[entry])
    values = [text for name in names for text in given[name]]
    return f"{function}({', '.join([*values, 'trouble'])})"


def _inner(lines: list[str], depth: int = 1) -> str:
    return indent("\n".join(lines), "    " * depth)


def _filled(buffer: str, size: int, value: str) -> list[str]:
    return [f"for cell in range({size}):", f"    {buffer}[i * {size} + cell] = {value}"]


def _observe(rules: ArrayRules, calls: dict[str, Any]) -> list[str]:
    """Write the observation, and mask, of environment i."""
    zero = "i64(0)" if rules.observation.dtype == INT else "f32(0.0)"
    lines = [*_filled("obs", rules.observation.size, zero), calls["observe"]]
    if rules.mask_size:
        lines += [*_filled("action_mask", rules.mask_size, "u8(1)"), calls["action_mask"]]
    return lines


def _reset(rules: ArrayRules, calls: dict[str, Any]) -> str:
    zeros: list[str] = []
    for name, memory in rules.memory.items():
        zeros += _filled(f"state_{name}", int(np.prod(memory.shape)), "0")
    return f"""\
for j in range(lo, hi):
    i = chosen[j]
    begin(shifted(stream, i * {STREAM_WORDS}), u32(0), episode[i], seed[i], index[i])
{_inner(zeros)}
    {calls["reset"]}
{indent(EPISODE_BEGINS, "    ")}
{_inner(_observe(rules, calls))}"""


def _step(rules: ArrayRules, calls: dict[str, Any]) -> str:
    """Step environments lo..hi; those that finished are listed in finished[lo:]."""
    stream = f"shifted(stream, i * {STREAM_WORDS})"
    rule = [
        f"begin({stream}, u32(taken), u32(episode[i] - u32(1)), seed[i], index[i])",
        f"gained, over = {calls['step']}",
        *_observe(rules, calls),
    ]
    return episodes_step("", rule, str(rules.observation.size))


def episodes_step(before: str, rule: list[str], obs_size: str) -> str:
    """Step environments lo..hi, each by itself; those that finished are listed in finished[lo:].

    `before` comes first, for all of them. `rule` takes step number `taken` of environment i, writes
    its observation and finds the reward, `gained`, and whether it is `over`. One that awaits its
    reset (NEXT_STEP) is reset instead.
    """
    return f"""\
if hi > num_envs:
    hi = num_envs
{before}ended = 0
for i in range(lo, hi):
    if done[i] != 0:
        done[i] = 0
        report_return[i] = f32(0.0)
        report_length[i] = 0
        report_time_s[i] = f32(0.0)
        if mode == 0:
            finished[lo + ended] = i
            reward[i] = f32(0.0)
            terminated[i] = 0
            truncated[i] = 0
            call_reset(
                reset_address, lo + ended, lo + ended + 1, finished, now_us, table_address
            )
            continue
    taken = i32(steps[i] + i32(1))
{_inner(rule)}
    steps[i] = taken
    late = taken >= i32(max_steps)
    episode_return[i] = episode_return[i] + gained
    reward[i] = gained
    terminated[i] = u8(over)
    truncated[i] = u8(late)
    if over or late:
        done[i] = 1
        report_return[i] = episode_return[i]
        report_length[i] = steps[i]
        report_time_s[i] = f32(now_us - start_us[i]) * f32(1e-6)
        finished[lo + ended] = i
        ended += 1
        if mode == 1:
            for k in range(i * {obs_size}, (i + 1) * {obs_size}):
                final_obs[k] = obs[k]
            call_reset(
                reset_address, lo + ended - 1, lo + ended, finished, now_us, table_address
            )
            done[i] = 1  # reported, not pending
return ended"""
