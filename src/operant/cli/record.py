"""``operant record``: see what a policy does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from operant.cli.agent import Opened, open_agent
from operant.cli.options import AsJson, EnvCode, RunOrCheckpoint, Step, TimeLimit, Wrappers
from operant.cli.screen import UserError, errors, literal, mistakes, output

if TYPE_CHECKING:
    import numpy as np

EXAMPLE = "Example:  operant record latest --out agent.gif"
_USUAL_FPS = 30.0
"""Of an environment that does not say."""


def record(
    run: RunOrCheckpoint,
    out: Annotated[
        Path, Option(metavar="FILE", help="agent.gif, agent.mp4 (needs ffmpeg) or agent.png.")
    ] = Path("agent.gif"),
    episodes: Annotated[int, Option(min=1, metavar="N", help="Episodes, one after the other.")] = 1,
    seconds: Annotated[
        float, Option(min=0.1, max=3600, metavar="S", help="At most so long a film.")
    ] = 20.0,
    deterministic: Annotated[
        bool,
        Option("--deterministic/--stochastic", help="The most probable actions, or samples."),
    ] = True,
    seed: Annotated[int, Option(min=0, metavar="N", help="Which episodes.")] = 0,
    max_episode_steps: TimeLimit = None,
    checkpoint: Step = "latest",
    env: EnvCode = "",
    wrappers: Wrappers = None,
    as_json: AsJson = False,
) -> None:
    """Film a trained policy: a GIF, an MP4, or a strip of pictures as PNG."""
    from operant.render.film import write_film

    with errors.status("loading"):
        opened = open_agent(run, checkpoint, env, wrappers)
    if isinstance(opened.env, type) and not hasattr(opened.env, "render"):
        raise UserError(
            f"{opened.config.env.id} has no render function, so there is nothing to film"
        )
    film = _Film(opened, episodes, seconds, deterministic, seed, max_episode_steps)
    with errors.status(f"filming {literal(opened.config.env.id)}"), mistakes():
        frames = write_film(out, film, film.fps)
    if as_json:
        played = [float(value) for value in film.returns]
        print(json.dumps({"file": str(out), "frames": frames, "fps": film.fps, "returns": played}))
        return
    played_text = ", ".join(f"{value:.1f}" for value in film.returns) or "not finished"
    output.print(
        f"{literal(out)}: {frames} frames; return {played_text}", highlight=False, soft_wrap=True
    )


class _Film:
    """Frames of some episodes, drawn as they are asked for; the returns as they become known."""

    def __init__(
        self,
        opened: Opened,
        episodes: int,
        seconds: float,
        deterministic: bool,
        seed: int,
        max_episode_steps: int | None,
    ) -> None:
        from gymnasium.vector import AutoresetMode

        from operant.backends.foreign.errors import ForeignEnvError
        from operant.training.evaluate import evaluation_env

        self._opened, self._episodes, self._seconds = opened, episodes, seconds
        self._deterministic, self._seed = deterministic, seed
        with mistakes():
            try:
                self._batch = evaluation_env(
                    opened.env, opened.config.env, 1, max_episode_steps, render_mode="rgb_array"
                )
            except ForeignEnvError as error:
                raise UserError(
                    f"{opened.config.env.id} cannot be filmed, for which it is made with "
                    f'render_mode="rgb_array": {error}'
                ) from error
        self._same_step = self._batch.autoreset_mode == AutoresetMode.SAME_STEP
        self.fps = float(self._batch.metadata.get("render_fps", _USUAL_FPS))
        self.returns: list[float] = []

    def __iter__(self) -> Iterator[np.ndarray]:
        from operant.training.evaluate import steps

        opened, batch = self._opened, self._batch
        left = max(1, round(self._seconds * self.fps))
        for ends in steps(opened.agent, batch, self._deterministic, self._seed):
            if ends is not None:
                self.returns.append(float(ends.returns[0]))
            done = len(self.returns) == self._episodes
            if not (done and self._same_step):  # else it shows the beginning of another episode
                yield batch.render_one(0)
            left -= 1
            if left == 0 or done:
                break
        batch.close()
