"""Finding the trained policy a user names on the command line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from operant.cli.screen import UserError, mistakes

if TYPE_CHECKING:
    from operant.envs.env import Env
    from operant.ppo.agent import Agent
    from operant.ppo.config import Config


@dataclass(frozen=True)
class Opened:
    """An agent, and what it was trained on."""

    agent: Agent
    config: Config
    env: type[Env] | str
    checkpoint: Path


def open_agent(name: str, checkpoint: str = "latest", env: str = "") -> Opened:
    """The agent of a run (by name, ``"latest"`` or path) or of a checkpoint at a path.

    Raises:
        UserError: there is none, or it is damaged.
    """
    from operant.cli.target import load_env
    from operant.ppo.snapshot import load_agent, locate
    from operant.runs.directory import find_run

    with mistakes():
        path = Path(name)
        if name != "latest" and (path / "manifest.json").is_file() and checkpoint != "latest":
            raise UserError(f"{name} is itself a checkpoint; leave out --checkpoint")
        if name == "latest" or not _is_checkpoint_folder(path):
            path = find_run(name).path
        found = locate(path, checkpoint)
        agent, config, chosen = load_agent(found, load_env(env) if env else None)
    return Opened(agent, config, chosen, found)


def _is_checkpoint_folder(path: Path) -> bool:
    """Whether `path` is a checkpoint, or a folder that `PPO.save` wrote to."""
    return (path / "manifest.json").is_file() or (path / "latest").is_file()
