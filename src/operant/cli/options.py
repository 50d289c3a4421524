"""Arguments and options that several commands have, said once."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Option

RunOrCheckpoint = Annotated[
    str, Argument(metavar="RUN", help="A run's name, 'latest', or a path to a checkpoint.")
]
Step = Annotated[str, Option(metavar="STEP", help="Which checkpoint: a step, 'best' or 'latest'.")]
EnvCode = Annotated[
    str, Option(metavar="file.py:name", help="Code of an environment that is not registered.")
]
Wrappers = Annotated[
    list[str] | None,
    Option(
        "--wrapper", metavar="module:Class", help="Code that the run puts around it; repeatable."
    ),
]
TimeLimit = Annotated[
    int | None, Option(min=1, metavar="N", help="Another time limit than the environment's.")
]
AsJson = Annotated[bool, Option("--json", help="Print JSON.")]
JsonFile = Annotated[str, Option("--json", metavar="FILE", help="Write JSON; '-' prints it.")]
