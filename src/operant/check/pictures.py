"""A check of ``render``: it draws, in whole episodes, and raises and warns of nothing."""

from __future__ import annotations

import warnings

from operant.backends.author_mistake import env_mistake
from operant.check.finding import CheckFailed
from operant.check.plays import play, steps_of
from operant.compiler.env_functions import place
from operant.lang.env import Env
from operant.vector.choose_backend import available_backends
from operant.vector.env import VecEnv

PICTURES = 8
"""How many are drawn, spread over the steps that are played: 5 to 10 ms each."""
ENVS = 2
_NAME = "render"  # which not every environment has


def check_render(env: type[Env]) -> str:
    """Draw some of what two environments show; backends do not differ, ``render`` is plain Python.

    Raises:
        CheckFailed: it raised, or every picture is of one colour.
    """
    hosts = [name for name in available_backends(env) if name != "cuda"]
    batch = VecEnv(env, ENVS, backend=hosts[-1])
    apart = max(1, steps_of(env) // PICTURES)
    drawn = 0
    for step, *_ in play(batch):
        if step % apart:
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", UserWarning)
                pictures = [batch.render_one(index) for index in range(ENVS)]
        except Exception as error:
            said = env_mistake(error)
            if said is None:
                raise
            raise CheckFailed(f"{said} (in the picture after step {step + 1})") from error
        drawn += sum(bool((picture != picture[0, 0]).any()) for picture in pictures)
    batch.close()
    width, height = env.render_size
    if not drawn:
        raise CheckFailed(
            f"{place(getattr(env, _NAME))}: render() leaves every picture empty: it draws on "
            "`canvas` (what it returns is not used), within canvas.view(x_min, x_max, y_min, y_max)"
        )
    return f"render() draws pictures of {width} x {height} pixels"
