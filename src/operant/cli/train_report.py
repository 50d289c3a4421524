"""What ``operant train`` says at the end: what was reached, and what to type next."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from operant.cli.screen import literal, output, short

if TYPE_CHECKING:
    from operant.ppo.session import Session

_EVALUATIONS = ("eval", "eval_sampled")


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


def figure(value: float, like: float | None = None) -> str:
    """A return: one decimal, or two where it is small; as many as `like` has, beside that."""
    return f"{value:.1f}" if abs(value if like is None else like) >= 10 else f"{value:.2f}"


def reached(report: dict[str, Any]) -> str:
    """The returns of a report: greedy and sampled, or of training where it was not evaluated."""
    if report["eval_return"] is not None:
        pairs = [(report[f"{name}_return"], report[f"{name}_std"]) for name in _EVALUATIONS]
        greedy, sampled = (f"{figure(mean)} +- {figure(std, mean)}" for mean, std in pairs)
        return f"return {greedy} greedy, {sampled} sampled"
    if report["mean_return"] is not None:
        return f"not evaluated; mean return {figure(report['mean_return'])} of the last episodes"
    return "not evaluated; no episode has ended"


def _was_better(report: dict[str, Any]) -> bool:
    """Whether an earlier checkpoint than the last did better."""
    final = report["eval_return"]
    return final is None or bool(report["best_return"] > final)


def print_report(report: dict[str, Any], advice: Advice, evaluated: bool = False) -> None:
    """Of one run: a few lines that fit 80 columns, but for a command to be copied.

    `evaluated`: it was evaluated while it trained, so that it is known which policy was best.
    """
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
    if evaluated and report["best_step"] is not None and _was_better(report):
        text = f"best {figure(report['best_return'])} at step {report['best_step']:,}"
        output.print(f"{text}: --checkpoint best", highlight=False)
    output.print(literal(advice.evaluate), style="dim", highlight=False, soft_wrap=True)
