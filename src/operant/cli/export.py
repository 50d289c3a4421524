"""``operant export``: a policy for other programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from typer import Option

from operant.cli.agent import open_agent
from operant.cli.options import AsJson, EnvCode, RunOrCheckpoint, Step, Wrappers
from operant.cli.screen import errors, literal, mistakes, output

EXAMPLE = "Example:  operant export latest --onnx policy.onnx"


def export(
    run: RunOrCheckpoint,
    onnx: Annotated[Path, Option(metavar="FILE", help="Where to write the ONNX file.")] = Path(
        "policy.onnx"
    ),
    checkpoint: Step = "latest",
    env: EnvCode = "",
    wrappers: Wrappers = None,
    as_json: AsJson = False,
) -> None:
    """Write a policy as ONNX, normalisation included, and compare it with the original.

    Input ``obs``, outputs ``action`` (the most probable one), ``head`` and ``value``.
    """
    with errors.status("loading"):
        opened = open_agent(run, checkpoint, env, wrappers)
    with errors.status("exporting"), mistakes():
        from operant.training.export import export_agent

        difference = export_agent(opened.agent, opened.env, opened.config, onnx)
    if as_json:
        print(json.dumps({"file": str(onnx), "largest_difference": difference}))
        return
    output.print(
        f"{literal(onnx)}: same actions in onnxruntime; "
        f"head and value differ by {difference:.1e} at most",
        highlight=False,
        soft_wrap=True,
    )
