"""The loop over environments at the heart of a step, as source for Numba."""

from __future__ import annotations

from operant.envs.rules import Rules
from operant.lang.trace import INT
from operant.vector.numba_table import arguments


class _Loop:
    """The body of the loop over environments, with its buffers numbered for `load` and `store`."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._lines: list[str] = []

    def load(self, buffer: str) -> str:
        return f"load({self._number(buffer)}, {buffer}_, i)"

    def store(self, buffer: str, value: str, index: str = "i") -> None:
        self._lines.append(f"store({self._number(buffer)}, {buffer}_, {index}, {value})")

    def let(self, line: str) -> None:
        self._lines.append(line)

    def _number(self, buffer: str) -> int:
        return self._numbers.setdefault(buffer, len(self._numbers))

    def source(self, sizes: dict[str, int]) -> str:
        """The loop over slices of the buffers, with `sizes` (or 1) elements per environment."""
        slices = "".join(
            f"    {name}_ = {name}[{sizes.get(name, 1)} * lo : {sizes.get(name, 1)} * hi]\n"
            for name in self._numbers
        )
        body = "".join(f"        {line}\n" for line in self._lines)
        return f"{slices}    for i in range(hi - lo):\n{body}"


def step_loop(rules: Rules) -> str:
    """Load state and action, rules, observation, time limit, statistics, store."""
    loop = _Loop()
    names = [f"state_{name}" for name in rules.fields]
    loads = {name: loop.load(name) for name in names}
    loads |= {f"action_{k}": loop.load(f"action_{k}") for k in range(rules.action.size)}
    loads |= {f"draw_{k}": loop.load(f"draw_{k}") for k in range(rules.step_draws)}
    texts = []
    for name in rules.step.inputs:
        kind, _, field = name.partition("_")
        if kind == "p":
            texts.append(name)
        else:
            full = {"s": f"state_{field}", "a": f"action_{kind[1:]}", "u": f"draw_{kind[1:]}"}
            texts.append(loads[full[kind[0]]])
    loop.let(f"out = step_rules({', '.join(texts)})")
    for k, name in enumerate(names):
        loop.store(name, f"out[{k}]")
        loop.let(f"{name}_new = out[{k}]")
    loop.let(f"gained, over = out[{len(names)}], out[{len(names) + 1}]")
    loop.let(f"seen = observe_rules({arguments(rules.observe, s='state_{}_new')})")
    size = rules.observation.size
    convert = "i64({})" if rules.observation.dtype == INT else "{}"
    for k in range(size):
        loop.store("obs", convert.format(f"seen[{k}]"), f"{size} * i + {k}")
    loop.let(f"taken = i32({loop.load('steps')} + i32(1))")
    loop.let("late = taken >= max_steps")
    loop.store("steps", "taken")
    loop.store("episode_return", f"{loop.load('episode_return')} + gained")
    loop.store("reward", "gained")
    loop.store("terminated", "over")
    loop.store("truncated", "late")
    loop.store("done", "over | late")
    return loop.source({"obs": size})
