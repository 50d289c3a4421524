"""A side of ``operant bench compare``: a process that measures one source tree when asked to."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from operant.bench.trees import Tree
from operant.toolchain.child import python_command

_CHILD = Path(__file__).with_name("side_child.py")


class SideError(ValueError):
    """A side ended, or does not start; one sentence."""


class RequestError(SideError):
    """A side cannot do what it is asked, but goes on."""


class Side:
    """A process that imports `operant` from a tree, and answers; see `operant.bench.side_child`.

    It has the Python, the libraries and the variables of this process, and a home of its own.

    Raises:
        SideError: it ended, or imported something else.
    """

    def __init__(self, tree: Tree) -> None:
        tree.home.mkdir(exist_ok=True)
        self._name = tree.name[:12] if tree.is_commit else tree.name
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the process)
        self._process = subprocess.Popen(
            python_command(str(_CHILD)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=_variables(tree),
            cwd=tree.home,  # nothing can be imported from there
        )
        try:
            self.started = self._answer()
            """Its first answer."""
            file = Path(self.started["file"])
            if not file.is_relative_to(tree.source.resolve()):
                raise SideError(f"{self._name} imported {file}, which is not its own")
        except BaseException:
            self.close()
            raise

    def ask(self, do: str, **more: Any) -> dict[str, Any]:
        """The answer to a request.

        Raises:
            RequestError: the side cannot do that.
            SideError: it ended.
        """
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended: there is no answer
            self._process.stdin.write(json.dumps({"do": do, **more}).encode() + b"\n")
            self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.endswith(b"\n"):
            code = self._process.wait()
            self._errors.seek(0)
            said = self._errors.read().decode(errors="replace").strip().splitlines() or ["silent"]
            raise SideError(f"{self._name} ended with exit code {code}: {said[-1]}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise RequestError(f"{self._name}: {answer['error']}")
        return answer

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        with suppress(BrokenPipeError):
            self._process.communicate()
        self._errors.close()

    def __enter__(self) -> Side:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _variables(tree: Tree) -> dict[str, str]:
    others = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    path = [str(tree.source), *(one for one in others if os.path.isabs(one))]
    own = {"OPERANT_HOME": str(tree.home), "PYTHONPATH": os.pathsep.join(path)}
    # Both sides keep their bytecode, or a start would compile it.
    return {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"} | own
