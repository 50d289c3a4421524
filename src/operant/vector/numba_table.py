"""What a kernel works on: the table it is called with, and the names of the buffers in it."""

from __future__ import annotations

import re

from operant.envs.rules import Rules
from operant.lang.trace import BOOL, FLOAT, INT, Program
from operant.vector.numba_jobs import LINE

SETTINGS = ("num_envs", "lanes", "mode", "max_steps", "workers", "block")
"""Whole numbers in the table. Mode: 0 NEXT_STEP, 1 SAME_STEP, 2 DISABLED."""
TYPES = {FLOAT: "f32", INT: "i32", BOOL: "bool_"}
KEYS = ("key_step", "key_episode", "key_high", "key_low", "key_index")


def table_layout(rules: Rules) -> dict[str, tuple[str, str]]:
    """What a kernel works on: Numba type and length of each buffer, by name.

    A kernel is called with one table, the `SETTINGS` and then the addresses of the buffers in this
    order: passing 23 arrays to a Numba function took 3.4 us a call, a table takes 0.5.
    """
    obs = "i64" if rules.observation.dtype == INT else "f32"
    layout = {"params": ("f32", str(len(rules.float_params)))}
    layout |= {f"state_{name}": (TYPES[kind], "lanes") for name, kind in rules.fields.items()}
    layout |= {
        f"action_{k}": (TYPES[rules.action.dtype], "lanes") for k in range(rules.action.size)
    }
    layout |= {f"draw_{k}": ("f32", "lanes") for k in range(draw_rows(rules))}
    layout |= dict.fromkeys(KEYS, ("u32", "lanes"))
    size = f"{rules.observation.size} * lanes"
    return layout | {
        "obs": (obs, size),
        "final_obs": (obs, size),
        "reward": ("f32", "lanes"),
        "terminated": ("bool_", "lanes"),
        "truncated": ("bool_", "lanes"),
        "done": ("bool_", "lanes"),
        "done_words": ("u64", "lanes >> 3"),
        "episode_return": ("f32", "lanes"),
        "steps": ("i32", "lanes"),
        "start_us": ("i64", "lanes"),
        "report_return": ("f32", "lanes"),
        "report_length": ("i32", "lanes"),
        "report_time_s": ("f32", "lanes"),
        "seed": ("u64", "lanes"),
        "index": ("u32", "lanes"),
        "episode": ("u32", "lanes"),
        "finished": ("i64", "lanes"),
        "counts": ("i64", "lanes >> 6"),
        "bounds": ("i64", "workers + 1"),
        "control": ("i64", f"{LINE} * (workers + 2)"),
    }


def draw_rows(rules: Rules) -> int:
    """Uniform numbers are made in whole blocks of four."""
    numbers: int = rules.env.random_numbers
    return -(-numbers // 4) * 4


def used(rules: Rules, text: str) -> str:
    """The buffers that `text` names, as an argument list. Fewer compile sooner."""
    words = set(re.findall(r"\w+", text))
    return ", ".join(name for name in table_layout(rules) if name in words)


def arguments(program: Program, **values: str) -> str:
    """The arguments of a call of a recorded program.

    `values` has a template for each kind of input: ``s`` (state), ``a`` (action), ``u`` (random),
    with the input's name for ``{}``. Parameters are variables ``p_<name>``.
    """
    texts = []
    for name in program.inputs:
        kind, _, field = name.partition("_")
        if kind == "p":
            texts.append(name)
        elif kind == "s":
            texts.append(values["s"].format(field))
        else:
            texts.append(values[kind[0]].format(kind[1:]))
    return ", ".join(texts)
