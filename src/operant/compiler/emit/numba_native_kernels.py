"""The compiled kernels around a library that follows ``operant_env.h``, as Python source for Numba.

They are the kernels of `compiler.emit.numba_kernels`, called and working on buffers the same way;
rules, observations and masks are calls into the library, by address. Nothing in the text depends on
the library but whether its actions are whole numbers, so it is compiled once a machine.
"""

from __future__ import annotations

import re
from textwrap import indent

import numpy as np

from operant.compiler.emit.numba_array_kernels import episodes_step
from operant.compiler.emit.numba_kernels import (
    EPISODE_BEGINS,
    HEADER,
    OBSERVE,
    RESET,
    STEP_BLOCK,
    WORK,
    kernel,
)
from operant.compiler.recording.trace import INT
from operant.compiler.runtime.numba_jobs import work_source
from operant.compiler.spec.buffers import Arena, Buffers
from operant.compiler.spec.native_rules import NativeRules

LIBRARY = (
    "reset_many",
    "step_many",
    "observe_many",
    "states_address",
    "actions_address",
    "obs_address",
    "rewards_address",
    "terminated_address",
    "masks_address",
    "obs_words",
    "action_size",
    "state_size",
    "mask_size",
)
"""Words of the array ``library``: addresses of functions and of first rows (0 for no masks), then
sizes of a row; of observations in words of four bytes."""

_RESET = f"""\
for j in range(lo, hi):
    i = chosen[j]
    streams[2 * j] = seed[i]  # an operant_stream, as little-endian machines keep it
    streams[2 * j + 1] = u64(episode[i]) << u64(32) | u64(index[i])
    for cell in range(i * state_size, (i + 1) * state_size):
        state_bytes[cell] = 0
{indent(EPISODE_BEGINS, "    ")}
call_address(u64(reset_many), (
    hi - lo,
    address_at(chosen, lo),
    address_at(streams, 2 * lo),
    states_address,
    obs_address,
    masks_address,
))"""

# The library steps whole runs of games; one that awaits its reset (NEXT_STEP) is left out.
_BEFORE = """\
if action_size > 1:
    for part in range(action_size):
        column = at(action_columns[part], {kind})
        for i in range(lo, hi):
            action_rows[i * action_size + part] = column[i]
first = lo
for i in range(lo, hi + 1):
    if i == hi or (mode == 0 and done[i] != 0):
        if i > first:
            call_address(u64(step_many), (
                i - first,
                states_address + first * state_size,
                actions_address + first * action_size * 4,
                obs_address + first * obs_words * 4,
                rewards_address + first * 4,
                terminated_address + first,
                masks_address + first * mask_size,
            ))
        first = i + 1
"""
_RULE = [
    "gained, over = reward[i], terminated[i] != 0",
    "if terminated[i] > 1:",
    "    trouble[0] = terminated[i]",
]


def native_kernels_source(rules: NativeRules, version: str) -> str:
    """The whole module; equal kinds of actions give equal text."""
    kind = "i32" if rules.action.dtype == INT else "f32"
    head = HEADER.format(name="libraries", version=version)
    step = episodes_step(_BEFORE.format(kind=kind), _RULE, "obs_words")
    given = "(num_envs, states_address, obs_address, masks_address)"
    observe = f"call_address(u64(observe_many), {given})"
    return "\n".join(
        [
            head,
            kernel(rules, RESET, _with_library(_RESET)),
            kernel(rules, STEP_BLOCK, _with_library(step)),
            kernel(rules, WORK, work_source(_with_library(_take_actions(rules)))),
            kernel(rules, OBSERVE, _with_library(observe)),
        ]
    )


def native_arrays(rules: NativeRules, buffers: Buffers) -> dict[str, np.ndarray]:
    """The arrays that these kernels have besides a batch's; see `compiler.emit.numba_arguments`."""
    size, b, scratch = rules.action.size, buffers, Arena(buffers.lanes)
    rows = b.action[0] if size == 1 else scratch.zeros(b.action[0].dtype, (size,))
    library = rules.library.addresses | {
        "states_address": b.state["bytes"].ctypes.data,
        "actions_address": rows.ctypes.data,
        "obs_address": b.obs.ctypes.data,
        "rewards_address": b.reward.ctypes.data,
        "terminated_address": b.terminated.ctypes.data,
        "masks_address": b.action_mask.ctypes.data if rules.mask_size else 0,
        "obs_words": rules.observation.size * b.obs.itemsize // 4,
        "action_size": size,
        "state_size": b.state["bytes"].shape[1],
        "mask_size": rules.mask_size,
    }
    return {
        "library": np.array([library[name] for name in LIBRARY], np.int64),
        "action_rows": rows,
        "action_columns": np.array([column.ctypes.data for column in b.action], np.uint64),
        "choices": np.array(rules.action.choices, np.int64),
        "streams": scratch.zeros(np.uint64, (2,)),
    }


def _with_library(body: str) -> str:
    """`body`, after lines that take out of the array ``library`` what it names."""
    words = set(re.findall(r"\w+", body))
    lines = [f"{name} = library[{k}]" for k, name in enumerate(LIBRARY) if name in words]
    return "\n".join([*lines, body])


def _take_actions(rules: NativeRules) -> str:
    """Copy the actions of environments lo..hi; `wrong` if one of them is not valid."""

    def loops(kind: str, kept: str, bad: str) -> str:
        return f"""\
values = at(control[ADDRESS], {kind})
for part in range(action_size):
    column = at(action_columns[part], {kept})
    for i in range(lo, hi):
        value = values[action_size * i + part]
        wrong |= {bad}
        column[i] = {kept}(value)"""

    head = "wrong = False\nif hi > num_envs:\n    hi = num_envs\n"
    if rules.action.dtype != INT:  # NaN and infinity: x - x is zero for every other number
        return head + loops("f32", "f32", "(value - value) != f32(0.0)")
    bad = "(value < 0) | (value >= choices[part])"
    wide, narrow = (indent(loops(kind, "i32", bad), "    ") for kind in ("i64", "i32"))
    return f"{head}if control[WIDE] != 0:\n{wide}\nelse:\n{narrow}"
