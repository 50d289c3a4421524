"""What ``operant profile`` prints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from operant.cli.screen import literal, output, short

_PARTS = ("env", "policy", "advantages", "update", "eval", "other")


def _say(text: str, style: str = "") -> None:
    output.print(literal(text), style=style, highlight=False, soft_wrap=True)


def _figures(heads: list[str], rows: list[list[str]]) -> None:
    from operant.cli.bench import print_figures

    print_figures(heads, [[literal(cell) for cell in row] for row in rows])


def _delta(share: float) -> str:
    return f"{share:+.0%}" if share < 10 else f"x{1 + share:.0f}"


def print_profile(found: dict[str, Any], path: Path, calibrated: Path | None) -> None:
    """An artifact as a table, and where it is."""
    modes, machine = found["modes"], found["machine"]
    _say(f"{found['env']} on {machine.get('gpu', machine['cpu'])}, {machine['usable_cores']} cores")
    shown = [part for part in _PARTS if any(part in mode["split"] for mode in modes)]
    names = ["adv" if part == "advantages" else part for part in shown]
    heads = ["mode", "engine", "envs", "threads", "steps/s", "min", "max", "iqr", *names, "target"]
    floors = found["floor"] is not None
    heads += ["floor"] if floors else []
    rows = []
    for mode in modes:
        sps, split = mode["sps"], mode["split"]
        row = [mode["mode"], mode["engine"] or mode["backend"], str(mode["num_envs"])]
        row += [str(mode["threads"]), short(sps["median"]), short(sps["min"]), short(sps["max"])]
        row.append(f"{sps['iqr'] / sps['median']:.0%}")
        row += [f"{split[part]:.1%}" if part in split else "" for part in shown]
        row.append(_delta(mode["target"]["delta"]))
        rows.append(row + ([_delta(mode["floor"]["delta"])] if floors else []))
    _figures(heads, rows)
    times = found["measurement"]
    _say(
        f"median of {times['repeats']} rounds of {times['seconds']:g} s, taking turns; target "
        f"{found['target']['steps_per_sec']:,.0f} steps/s",
        "dim",
    )
    for mode in modes:
        if mode["evaluation"] is not None:
            plan = mode["evaluation"]
            text = f"eval: {plan['episodes']} episodes every {plan['every_steps']:,} training steps"
            _say(f"{text}; only the latter count", "dim")
        if mode["env_split"] == "estimated":
            _say(f"{mode['mode']}: env is estimated from steps of the batch alone", "dim")
    if calibrated is not None:
        _say(f"{calibrated}: floors of this run, for this machine")
    _say(str(path))


def print_comparison(found: dict[str, Any]) -> None:
    """Two artifacts, a row a mode."""
    a, b = (f"{found[key]['commit'][:7]} {found[key]['date'][:19]}" for key in "ab")
    _say(f"{found['env']}: {a} -> {b}")
    rows = []
    for mode in found["modes"]:
        if not mode["exceeds_spread"]:
            word = "within the spread"
        else:
            word = "faster" if mode["ratio"] > 1 else "slower"
        row = [mode["mode"], word, short(mode["a"]), f"{mode['a_spread']:.0%}"]
        rows.append([*row, short(mode["b"]), f"{mode['b_spread']:.0%}", f"{mode['ratio']:.3f}"])
    _figures(["mode", "", "before", "spread", "after", "spread", "ratio"], rows)
    if not found["same_machine"]:
        _say("the machines differ: the ratio is not of the code alone", "yellow")
    for name, (before, after) in list(found["config_changes"].items())[:8]:
        _say(f"{name} differs: {before} -> {after}", "yellow")
    _say("faster or slower: every round of one beats every round of the other", "dim")


def print_trend(records: list[dict[str, Any]]) -> None:
    """A row for each line of the chart; what all lines have in common stands above."""
    common = {key: {line[key] for line in records} for key in ("env", "machine")}
    named = [key for key, values in common.items() if len(values) > 1]
    above = [next(iter(values)) for values in common.values() if len(values) == 1]
    if above:
        _say(" on machine ".join(above) if len(above) == 2 else above[0])
    rows = []
    for line in records:
        first, last = line["points"][0], line["points"][-1]
        row = [line["mode"], *(line[key] for key in named), str(len(line["points"]))]
        row += [_commit(first["commit"]), short(first["sps"])]
        row += [_commit(last["commit"]), short(last["sps"])]
        rows.append([*row, f"{line['change']:+.1%}"])
    _figures(["mode", *named, "runs", "first", "steps/s", "last", "steps/s", "change"], rows)
    if any(cell.endswith("*") for row in rows for cell in row):
        _say("*: with changes that were not committed", "dim")


def _commit(name: str) -> str:
    """Seven digits, and a star for what was not committed."""
    digits, dirty, _ = name.partition("-dirty")
    return digits[:7] + ("*" if dirty else "")
