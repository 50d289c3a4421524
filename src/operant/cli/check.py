"""``operant check``: is this environment ready to train on?"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.status import Status
from rich.table import Table
from rich.text import Text

from operant.cli.screen import UserError, errors, mistakes, output, printable, short

if TYPE_CHECKING:
    from operant.lang.env import Env
    from operant.vector.foreign_env import ForeignEnv, Recipe

EXAMPLE = "Example:  operant check examples/lander.py:Lander"
_OF_ONE_ENV = ("env.params", "env.wrappers", "env.max_episode_steps")
"""Options that say what one environment is."""


def check(
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="ENV...", help="An id, module:Class, file.py:Class or function, or libgame.so."
        ),
    ],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON instead of the report.")
    ] = False,
    speed: Annotated[bool, typer.Option(help="Measure steps per second on each backend.")] = True,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="env.params, env.wrappers or env.max_episode_steps of another library's "
            "environment; repeatable.",
        ),
    ] = None,
) -> None:
    """Validate environments: parity across backends, determinism, spaces, NaN, autoreset, speed.

    Gymnasium's and PettingZoo's are played in a process of their own, with the wrappers and
    parameters they are trained with.

    Exit code 0 if everything passed, 1 if a check failed, 2 if an environment was not found.
    """
    reports = []
    for target in targets:
        report = _Report(target, settings or [], quiet=as_json)
        with mistakes():
            report.fill(measured=speed)
        reports.append(report.to_dict())
    if as_json:
        print(json.dumps({"checks": reports}, indent=2))
    if not all(report["passed"] for report in reports):
        raise typer.Exit(1)


class _Report:
    """What was found about one environment, printed as it is found unless `quiet`."""

    def __init__(self, target: str, settings: list[str], quiet: bool) -> None:
        self.target, self.settings, self.quiet = target, settings, quiet
        self.env: type[Env] | None = None
        """What operant compiles; None: another's, or nothing."""
        self.findings: list[dict[str, Any]] = []
        self.sps: dict[str, float] = {}
        self.num_envs: dict[str, int] = {}

    @property
    def passed(self) -> bool:
        return all(finding["passed"] for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        known = {"env": self.target, "passed": self.passed, "findings": self.findings}
        return {**known, "sps": self.sps, "num_envs": self.num_envs}

    def fill(self, measured: bool) -> None:
        """Check, and measure what passed."""
        # The console that prints the lines: two of them would write into each other's.
        screen = output if output.is_terminal and not self.quiet else errors
        if not self.quiet:
            output.print(Text(printable(self.target), style="bold"), soft_wrap=True)
        with screen.status(_doing(f"loading {self.target}")) as status:
            self._check(status, measured)
            if measured and self.passed and self.env is not None:
                self._measure(status, self.env)
        if not self.quiet:
            self._print_end()

    def _check(self, status: Status, measured: bool) -> None:
        from operant.check.env_check import check_env
        from operant.check.foreign_check import check_foreign
        from operant.cli.target import load_env
        from operant.compiler.spec.native_abi import NativeError
        from operant.compiler.spec.native_rules import is_native
        from operant.lang import LanguageError
        from operant.vector.foreign_env import ForeignEnv

        try:
            env = load_env(self.target)
        except (LanguageError, NativeError) as error:
            self._add("definition", False, str(error))
            return
        if isinstance(env, ForeignEnv):
            status.update(_doing(f"checking {self.target}: whole episodes in a process"))
            findings = check_foreign(_as_trained(env, self.settings), measured=measured)
        elif self.settings:
            raise UserError(
                f"--set is for other libraries' environments; {self.target} is checked as its "
                "class defines it"
            )
        else:
            self.env = env
            sound = "keeps to operant_env.h" if is_native(env) else "keeps to the language"
            self._add("definition", True, f"{env.__qualname__} {sound}")
            status.update(_doing(f"checking {self.target}: whole episodes on every backend"))
            findings = check_env(env)
        for finding in findings:
            self._add(finding.name, finding.passed, finding.detail, finding.note)

    def _measure(self, status: Status, env: type[Env]) -> None:
        from operant.backends.author_mistake import env_mistake
        from operant.check.plays import throughput
        from operant.vector.choose_backend import available_backends

        for backend in available_backends(env):
            status.update(_doing(f"measuring {backend}"))
            try:
                speed = throughput(env, backend)
            except Exception as error:
                text = env_mistake(error)
                if text is None:
                    raise
                self._add("speed", False, text)
                return
            self.sps[backend], self.num_envs[backend] = round(speed.sps), speed.num_envs

    def _add(self, name: str, passed: bool, detail: str, note: bool = False) -> None:
        self.findings.append({"name": name, "passed": passed, "detail": detail, "note": note})
        if not self.quiet:
            mark = ("note", "yellow") if note else ("ok", "green")
            _print_line(mark if passed else ("FAIL", "red"), name, detail)

    def _print_end(self) -> None:
        if self.sps:
            figures = ", ".join(f"{name} {short(value)}" for name, value in self.sps.items())
            *most, last = dict.fromkeys(map(str, self.num_envs.values()))
            sizes = f"{', '.join(most)} and {last}" if most else last
            _print_line(("", ""), "speed", f"{figures} steps/s ({sizes} environments)")
        failed = sum(not finding["passed"] for finding in self.findings)
        verdict = f"[red]{failed} failed[/red]" if failed else "[green]passed[/green]"
        output.print(f"  {verdict}")


def _as_trained(env: ForeignEnv, settings: list[str]) -> Recipe:
    """`env` with the shipped parameters and wrappers of its id, and what the user sets."""
    from operant.cli.target import load_wrappers
    from operant.ppo.config_file import parsed_settings, resolved
    from operant.vector.foreign_env import Recipe

    given = parsed_settings(settings)
    for name in given:
        if not name.startswith(_OF_ONE_ENV):
            raise UserError(f"check can set {', '.join(_OF_ONE_ENV)}, got {name}")
    values = resolved(env.name, given).env
    load_wrappers(values.wrappers)
    return Recipe(env, values.params, values.wrappers, values.max_episode_steps or None)


def _doing(text: str) -> Text:
    """What a spinner says: one line, cut where the terminal ends."""
    return Text(printable(text), no_wrap=True, overflow="ellipsis")


def _print_line(mark: tuple[str, str], name: str, detail: str) -> None:
    """One finding. Long ones go on below themselves in a terminal, and are one line in a file."""
    head = Text.assemble("  ", (f"{mark[0]:<4}", mark[1]), f" {name:<12} ")
    text = Text(printable(" ".join(detail.split())))  # a large Box has line breaks
    if not output.is_terminal:
        output.print(Text.assemble(head, text), soft_wrap=True)
        return
    line = Table.grid()
    line.add_column(width=len(head), no_wrap=True)
    line.add_column(overflow="fold")
    line.add_row(head, text)
    output.print(line)
