"""``operant check``: is this environment ready to train on?"""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.markup import escape

from operant.cli.screen import errors, output, short

EXAMPLE = "Example:  operant check examples/lander.py:Lander"


def check(
    targets: Annotated[
        list[str],
        typer.Argument(metavar="ENV...", help="module:Class, file.py:Class, libgame.so or an id."),
    ],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON instead of the report.")
    ] = False,
    speed: Annotated[bool, typer.Option(help="Measure steps per second on each backend.")] = True,
) -> None:
    """Validate environments: parity across backends, determinism, spaces, NaN, autoreset, speed.

    Exit code 0 if everything passed, 1 if a check failed, 2 if an environment was not found.
    """
    reports = [_report(target, as_json, speed) for target in targets]
    if as_json:
        print(json.dumps({"checks": reports}, indent=2))
    if not all(report["passed"] for report in reports):
        raise typer.Exit(1)


def _report(target: str, quiet: bool, measured: bool) -> dict[str, Any]:
    from operant.check import check_env
    from operant.check_plays import throughput
    from operant.cli.target import load_env
    from operant.envs.native_rules import is_native
    from operant.lang import LanguageError
    from operant.vector.author_mistake import env_mistake
    from operant.vector.backends import available_backends
    from operant.vector.native_abi import NativeError

    findings: list[dict[str, Any]] = []
    sps: dict[str, float] = {}
    num_envs: dict[str, int] = {}

    def report(passed: bool) -> dict[str, Any]:
        known = {"env": target, "passed": passed, "findings": findings}
        return {**known, "sps": sps, "num_envs": num_envs}

    def add(name: str, passed: bool, detail: str, note: bool = False) -> None:
        findings.append({"name": name, "passed": passed, "detail": detail, "note": note})
        if not quiet:
            mark = (
                "[red]FAIL[/red]"
                if not passed
                else "[yellow]note[/yellow]"
                if note
                else "[green]ok[/green]  "
            )
            output.print(f"  {mark} {name:<12} {escape(detail)}", soft_wrap=True, highlight=False)

    if not quiet:
        output.print(f"[bold]{escape(target)}[/bold]", highlight=False)
    with errors.status("") as status:
        try:
            env = load_env(target)
        except (LanguageError, NativeError) as error:
            add("definition", False, str(error))
            return report(False)
        sound = "keeps to operant_env.h" if is_native(env) else "keeps to the language"
        add("definition", True, f"{env.__qualname__} {sound}")
        status.update(f"checking {target}: whole episodes on every backend")
        for finding in check_env(env):
            add(finding.name, finding.passed, finding.detail, finding.note)
        passed = all(finding["passed"] for finding in findings)
        if measured and passed:
            for backend in available_backends(env):
                status.update(f"measuring {backend}")
                try:
                    speed = throughput(env, backend)
                except Exception as error:
                    text = env_mistake(error)
                    if text is None:
                        raise
                    add("speed", False, text)
                    return report(False)
                sps[backend], num_envs[backend] = round(speed.sps), speed.num_envs
    if not quiet and sps:
        figures = ", ".join(f"{name} {short(value)}" for name, value in sps.items())
        counts = list(map(str, num_envs.values()))
        sizes = counts[0] if len(set(counts)) == 1 else f"{', '.join(counts[:-1])} and {counts[-1]}"
        output.print(
            f"       speed        {figures} steps/s ({sizes} environments)", highlight=False
        )
    if not quiet:
        failed = sum(not finding["passed"] for finding in findings)
        verdict = "[green]passed[/green]" if passed else f"[red]{failed} failed[/red]"
        output.print(f"  {verdict}")
    return report(passed)
