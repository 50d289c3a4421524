"""What a kernel works on: the table it is called with, and the names of the buffers in it."""

from __future__ import annotations

import re

from operant.compiler.recording.trace import BOOL, FLOAT, INT, Program
from operant.compiler.spec.native_rules import NativeRules
from operant.compiler.spec.rules import Rules, TracedRules

SETTINGS = (
    "num_envs",
    "mode",
    "max_steps",
    "workers",
    "block",
    "total",
    "reset_address",
    "step_address",
)
"""Whole numbers in the table. Mode: 0 NEXT_STEP, 1 SAME_STEP, 2 DISABLED. Blocks: size, how many.
Addresses of the compiled functions that begin episodes and step."""
TYPES = {FLOAT: "f32", INT: "i32", BOOL: "u8"}
_MEMORY = {"float32": "f32", "int32": "i32", "uint8": "u8", "bool": "u8"}
STEP_SCOPES, DRAW_SCOPES, MASK_SCOPES = "STEP_SCOPES", "DRAW_SCOPES", "MASK_SCOPES"
"""Names in a kernel's source of the alias scopes of its vectorised loops."""
KEYS = ("key_step", "key_episode", "key_high", "key_low", "key_index")


def table_layout(rules: Rules) -> dict[str, str]:
    """What a kernel works on: the Numba type of each buffer, by name.

    A kernel is called with the address of one table, the `SETTINGS` and then the addresses of the
    buffers in this order: passing 23 arrays to a Numba function took 3.4 us a call, a table 0.5.
    """
    obs = "i64" if rules.observation.dtype == INT else "f32"
    layout = {"params": "f32"}
    layout |= {f"state_{name}": _MEMORY[kept.dtype.name] for name, kept in rules.memory.items()}
    if isinstance(rules, NativeRules):
        obs = "i32"  # words: the same text for every library
        layout |= {"action_rows": TYPES[rules.action.dtype], "action_columns": "u64"}
        layout |= {"choices": "i64", "streams": "u64", "library": "i64", "trouble": "i64"}
        layout |= {"action_mask": "u8"}
    else:
        layout |= {f"action_{k}": TYPES[rules.action.dtype] for k in range(rules.action.size)}
        if isinstance(rules, TracedRules):
            layout |= {f"draw_{k}": "f32" for k in range(draw_rows(rules))}
            layout |= dict.fromkeys(KEYS, "u32")
        else:
            layout |= {"stream": "u32", "trouble": "i64"}
        layout |= {"action_mask": "u8"} if rules.mask_size else {}
    return layout | {
        "obs": obs,
        "final_obs": obs,
        "reward": "f32",
        "terminated": "u8",
        "truncated": "u8",
        "done": "u8",
        "episode_return": "f32",
        "steps": "i32",
        "start_us": "i64",
        "report_return": "f32",
        "report_length": "i32",
        "report_time_s": "f32",
        "seed": "u64",
        "index": "u32",
        "episode": "u32",
        "finished": "i64",
        "counts": "i64",
        "bounds": "i64",
        "blocks": "i64",
        "control": "i64",
    }


def scope_declarations(rules: TracedRules) -> str:
    """Alias scopes for each vectorised loop: all buffers of the table, none of which overlap."""
    loops = {STEP_SCOPES: "step", DRAW_SCOPES: "draws"}
    loops |= {MASK_SCOPES: "mask"} if rules.mask is not None else {}
    lines = [f"BUFFERS = {tuple(table_layout(rules))!r}"]
    lines += [
        f'{scopes} = AliasScopes(__name__, "{loop}", BUFFERS)' for scopes, loop in loops.items()
    ]
    return "\n".join(lines)


def draw_rows(rules: TracedRules) -> int:
    """Uniform numbers are made in whole blocks of four."""
    numbers: int = rules.env.random_numbers
    return -(-numbers // 4) * 4


def unpack(rules: Rules, body: str) -> str:
    """Lines that take out of the table what `body` names."""
    words = set(re.findall(r"\w+", body))
    params = [
        f"p_{name} = params[{k}]"
        for k, name in enumerate(rules.float_params)
        if f"p_{name}" in words
    ]
    words |= {"params"} if params else set()
    lines = ["table = at(table_address, u64)"]
    for k, name in enumerate(SETTINGS):
        if name in words:
            lines.append(f"{name} = i64(table[{k}])")
    for k, (name, dtype) in enumerate(table_layout(rules).items(), len(SETTINGS)):
        if name in words:
            lines.append(f"{name} = at(table[{k}], {dtype})")
    return "\n".join(lines + params)


def inputs(program: Program, **values: str) -> dict[str, str]:
    """Expressions for the inputs of a recorded program.

    `values` has a template for each kind of input: ``s`` (state), ``a`` (action), ``u`` (random),
    with the input's name for ``{}``. Parameters are variables ``p_<name>``.
    """
    texts = {}
    for name in program.inputs:
        kind, _, field = name.partition("_")
        texts[name] = name if kind == "p" else values[kind].format(field)
    return texts


def read(rules: TracedRules, field: str, text: str) -> str:
    """A field of the state as read from its buffer; truth values are kept as bytes."""
    return f"bool_({text})" if rules.fields[field] == BOOL else text


def stored(rules: TracedRules, text: str) -> str:
    """A component of the observation as it is kept."""
    return f"i64({text})" if rules.observation.dtype == INT else text
