"""``operant play``: an environment as a game for a person."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from operant.cli.screen import UserError, mistakes, output

if TYPE_CHECKING:
    from textual.app import App

    from operant.lang.env import Env

EXAMPLE = "Example:  operant play Prospector"


def play(
    env: Annotated[
        str, Argument(metavar="ENV", help="An id, its name alone, or file.py:Class.")
    ] = "Prospector-v0",
    seed: Annotated[
        int | None, Option(min=0, help="The same seed, the same game; without: another one.")
    ] = None,
) -> None:
    """Play an environment yourself, in this terminal: a key an action, q leaves.

    Prospector has panels of its own; of others with Discrete actions you see the picture.
    """
    from operant.cli.target import load_compiled

    with mistakes():
        target = load_compiled(env, "play")
    if not hasattr(target, "render"):
        raise UserError(f"{env} has no render function, so there is nothing to see")
    with mistakes():
        app = make_app(target, seed)
    if not all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        raise UserError("a game needs a terminal; run operant play in one, without a pipe")
    app.run()
    with mistakes():
        if app.game.failure is not None:  # type: ignore[attr-defined]
            raise app.game.failure  # type: ignore[attr-defined]
    output.print(f"score {app.game.score:.2f} after {app.game.steps} steps", highlight=False)  # type: ignore[attr-defined]


def make_app(env: type[Env], seed: int | None) -> App[None]:
    """The screen for an environment.

    Raises:
        ValueError: its actions are not Discrete.
    """
    from operant.play.game import Game
    from operant.vector.registry import id_of

    game = Game(env, seed, {})
    if id_of(env) == "Prospector-v0":
        from operant.play.prospector import ProspectorApp

        return ProspectorApp(game)
    from operant.play.app import PlayApp

    return PlayApp(game, id_of(env) or env.__qualname__)
