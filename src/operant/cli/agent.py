"""Finding the trained policy a user names on the command line."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from operant.cli.screen import UserError, mistakes, printable

if TYPE_CHECKING:
    from operant.lang.env import Env
    from operant.runs.directory import Run
    from operant.training.agent import Agent
    from operant.training.config import BaseConfig
    from operant.vector.foreign_env import ForeignEnv


@dataclass(frozen=True)
class Opened:
    """An agent, and what it was trained on."""

    agent: Agent
    config: BaseConfig
    env: type[Env] | ForeignEnv
    checkpoint: Path


def open_agent(
    name: str,
    checkpoint: str = "latest",
    env: str = "",
    wrappers: Sequence[str] | None = None,
) -> Opened:
    """The agent of a run (by name, ``"latest"`` or path) or of a checkpoint at a path.

    `env` and `wrappers` are code that the user names: what a run names itself is not imported.

    Raises:
        UserError: there is none, or it is damaged.
    """
    from operant.cli.target import code_to_name, load_env, load_wrappers
    from operant.training.foreign import UntrustedWrapperError
    from operant.training.snapshot import UnregisteredEnvError, load_agent

    with mistakes():
        run, found = find_policy(name, checkpoint)
        try:
            given = load_env(env) if env else None
            load_wrappers(wrappers or ())
            agent, config, chosen = load_agent(found, given, wrappers=wrappers or ())
        except UnregisteredEnvError as error:
            raise UserError(
                f"the environment {error.env_id!r} of {run} is not registered; its code is not run "
                f"unless you name it; if you trust it, add --env {code_to_name(error.env_id)}"
            ) from None
        except UntrustedWrapperError as error:
            again = " ".join(f"--wrapper {shlex.quote(one)}" for one in error.wrappers)
            raise UserError(
                f"env.wrappers of {run} names code, which is not imported unless you name it too; "
                f"if you trust it, add {printable(again)}"
            ) from None
    return Opened(agent, config, chosen, found)


def find_policy(name: str, checkpoint: str = "latest") -> tuple[str, Path]:
    """The run, by its own name, and the checkpoint that `name` means; see `open_agent`.

    Raises:
        UserError, ValueError: there is none.
    """
    from operant.training.snapshot import locate

    path = Path(name)
    if name != "latest" and (path / "manifest.json").is_file() and checkpoint != "latest":
        raise UserError(f"{name} is itself a checkpoint; leave out --checkpoint")
    if name != "latest" and _is_checkpoint_folder(path):
        return name, locate(path, checkpoint)
    run = _find_run(name)
    return run.id, locate(run.path, checkpoint)


def _find_run(name: str) -> Run:
    """As `find_run`; who names an environment is told which run of it there is."""
    from operant.cli.target import env_name, is_registered
    from operant.runs.directory import find_run, list_runs
    from operant.runs.summary import config_tables

    try:
        return find_run(name)
    except ValueError:
        env = env_name(name)
        if is_registered(env):
            ids = ((run.id, config_tables(run)) for run in reversed(list_runs()))
            newest = next((one for one, c in ids if c.get("env", {}).get("id") == env), None)
            hint = f"train it first: operant train {env}"
            hint = f"its newest run is {newest}" if newest else hint
            raise UserError(f"{name} is an environment, not a run; {hint}") from None
        raise


def _is_checkpoint_folder(path: Path) -> bool:
    """Whether `path` is a checkpoint, or a folder that `PPO.save` wrote to."""
    return (path / "manifest.json").is_file() or (path / "latest").is_file()
