"""``operant train --resume`` and ``--replay``: what a run that is there already goes on as."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from operant.cli.screen import UserError, printable
from operant.cli.train_ranks import session_type

if TYPE_CHECKING:
    from operant.cli.train import Given
    from operant.ppo.session import Session
    from operant.runs.directory import Run


def resumed(given: Given, values: dict[str, Any], resume: str) -> Any:
    """A session that continues the run `resume`."""
    from operant.cli.target import load_env, load_wrappers
    from operant.runs.directory import find_run

    run = find_run(resume)
    chosen = load_env(given.env) if given.env else None
    load_wrappers(values.get("env.wrappers", ()))
    with _asking_for_code(run, f"--resume {shlex.quote(resume)}", resume, chosen is None):
        return session_type().resume(run, chosen, values, checkpoint=given.checkpoint)


def replayed(given: Given, values: dict[str, Any], replay: str, run_id: str) -> Session:
    """A session of a new run that repeats the run `replay`."""
    from operant.cli.target import load_env, load_wrappers
    from operant.ppo.session import Session
    from operant.runs.directory import check_run_id, find_run

    if run_id:
        check_run_id(run_id)
    run = find_run(replay)
    chosen = load_env(given.env) if given.env else None
    load_wrappers(values.get("env.wrappers", ()))
    with _asking_for_code(run, f"--replay {shlex.quote(replay)}", replay, chosen is None):
        return Session.replay(run, chosen, values, run_id)


@contextmanager
def _asking_for_code(run: Run, switch: str, name: str, unnamed: bool) -> Iterator[None]:
    """Say how to name code that a run wants, and that is not run unasked; `unnamed`: the user named
    no environment."""
    from operant.cli.target import code_to_name, is_registered
    from operant.runs.summary import summary
    from operant.training.foreign import UntrustedWrapperError

    try:
        yield
    except UntrustedWrapperError as error:
        again = shlex.quote(f"env.wrappers={json.dumps(error.all_wrappers)}")
        raise UserError(
            f"env.wrappers of {name} names code, which is not imported unless you name it too; "
            f"if you trust it, add --set {printable(again)}"
        ) from None
    except ValueError:
        named = summary(run).env
        if not unnamed or named is None or is_registered(named):
            raise
        raise UserError(
            f"the environment {named!r} of {name} is not registered; its code is not run "
            f"unless you name it; if you trust it: operant train {code_to_name(named)} {switch}"
        ) from None
