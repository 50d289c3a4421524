"""What ``operant train`` says at the end: what was reached, and what to type next."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from operant.cli.screen import literal, output, short

if TYPE_CHECKING:
    from operant.ppo.session import Session


@dataclass(frozen=True)
class Advice:
    """What to type next."""

    resume: str
    evaluate: str

    @classmethod
    def of(cls, session: Session, env: str, resume: str) -> Advice:
        """From what the user typed: `resume` may be a path, `env` code that must be named again."""
        from operant.cli.target import is_registered

        run = shlex.quote(session.run.id if resume in ("", "latest") else resume)
        env = "" if not env or is_registered(env) else shlex.quote(env)
        return cls(
            f"continue with: operant train {env and env + ' '}--resume {run}",
            f"next: operant eval {run}{env and ' --env ' + env}",
        )


def saved(session: Session) -> str:
    """Up to where a run is safe."""
    return f"{session.run.id} is saved up to step {session.recorder.saved_step or 0:,}"


def figure(value: float) -> str:
    """A return: two decimals where it is small."""
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def reached(report: dict[str, Any]) -> str:
    """The returns of a report: greedy and sampled, or of training where it was not evaluated."""
    if report["eval_return"] is not None:
        greedy, sampled = (
            f"{figure(report[f'{name}_return'])} +- {figure(report[f'{name}_std'])}"
            for name in ("eval", "eval_sampled")
        )
        return f"return {greedy} greedy, {sampled} sampled"
    if report["mean_return"] is not None:
        return f"not evaluated; mean return {figure(report['mean_return'])} of the last episodes"
    return "not evaluated; no episode has ended"


def print_report(report: dict[str, Any], advice: Advice) -> None:
    """Of one run: three lines, of which the first two fit 80 columns."""
    speed = (
        f"{report['steps']:,} steps in {report['seconds']:.1f} s ({short(report['sps'])} steps/s)"
    )
    if not report["finished"]:
        output.print(f"[yellow]stopped[/yellow] and saved: {speed}", highlight=False)
        output.print(literal(advice.resume), highlight=False, soft_wrap=True)
        return
    text = reached(report)
    if report["solved"] is not None:
        word = "[green]solved[/green]" if report["solved"] else "[yellow]not solved[/yellow]"
        text = f"{word}: {text} ({report['reward_threshold']:g} needed)"
    if report["eval_episodes"]:
        speed = f"over {report['eval_episodes']} episodes each; {speed}"
    output.print(text, highlight=False, soft_wrap=True)
    output.print(speed, highlight=False, soft_wrap=True)
    output.print(literal(advice.evaluate), style="dim", highlight=False, soft_wrap=True)
