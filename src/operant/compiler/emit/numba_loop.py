"""The loop over environments at the heart of a step, as source for Numba."""

from __future__ import annotations

from operant.compiler.emit.numba_arguments import STEP_SCOPES, inputs, read, stored
from operant.compiler.emit.numba_program import program_source
from operant.compiler.spec.rules import TracedRules


class _Loop:
    """The body of the loop over environments, whose buffers never overlap."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def load(self, buffer: str) -> str:
        return f"load({STEP_SCOPES}.{buffer}, {buffer}, i)"

    def store(self, buffer: str, value: str, index: str = "i") -> None:
        self.lines.append(f"store({STEP_SCOPES}.{buffer}, {buffer}, {index}, {value})")


def step_loop(rules: TracedRules) -> str:
    """Load state and action, rules, observation, time limit, statistics, store."""
    loop = _Loop()
    values = inputs(rules.step, s="state_{}", a="action_{}", u="draw_{}")
    for name, buffer in values.items():
        kind, _, field = name.partition("_")
        if kind != "p":
            text = loop.load(buffer)
            loop.lines.append(f"{name} = {read(rules, field, text) if kind == 's' else text}")
    lines, outputs = program_source(rules.step, {name: name for name in values})
    loop.lines += lines
    for name, output in zip(rules.fields, outputs, strict=False):
        loop.lines.append(f"new_{name} = {output}")
        loop.store(f"state_{name}", f"new_{name}")
    loop.lines += [f"gained = {outputs[-2]}", f"over = {outputs[-1]}"]
    lines, seen = program_source(rules.observe, inputs(rules.observe, s="new_{}"), "o_")
    loop.lines += lines
    for k, output in enumerate(seen):
        loop.store("obs", stored(rules, output), f"{len(seen)} * i + {k}")
    loop.lines += [f"taken = i32({loop.load('steps')} + i32(1))", "late = taken >= limit"]
    loop.store("steps", "taken")
    loop.store("episode_return", f"{loop.load('episode_return')} + gained")
    loop.store("reward", "gained")
    loop.store("terminated", "over")
    loop.store("truncated", "late")
    loop.store("done", "over | late")
    return "\n    ".join(["for i in range(lo, hi):", *loop.lines])
