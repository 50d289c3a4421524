"""``operant monitor``: any run, live or finished, seen from another process."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from operant.cli.screen import UserError, mistakes, output

EXAMPLE = "Example:  operant monitor --latest"


def monitor(
    run_id: Annotated[
        str, Argument(metavar="[RUN]", help="A run by name, or 'latest'; without: a list.")
    ] = "",
    latest: Annotated[bool, Option("--latest", help="The run started last.")] = False,
    once: Annotated[bool, Option("--once", help="Print one frame and end.")] = False,
    as_json: Annotated[bool, Option("--json", help="Print the figures as JSON and end.")] = False,
    web: Annotated[bool, Option("--web", help="In the browser, on this machine only.")] = False,
    port: Annotated[int, Option(min=1, max=65535, help="With --web.")] = 8000,
    allow_control: Annotated[
        bool, Option("--allow-control", help="With --web: the page may stop runs, save pictures.")
    ] = False,
    read_only: Annotated[
        bool, Option("--read-only", help="No key stops a run or writes a file; so is --web.")
    ] = False,
    home: Annotated[
        Path | None, Option(metavar="DIR", help="Instead of $OPERANT_HOME or ~/.operant.")
    ] = None,
) -> None:
    """Watch runs: figures, curves, log. It only reads; the training does not notice.

    Keys: ? shows them all, q leaves.
    """
    if home is not None:
        if not home.is_dir():
            raise UserError(f"there is no folder {home}")
        os.environ["OPERANT_HOME"] = str(home)
    if latest and run_id not in ("", "latest"):
        raise UserError("name a run or say --latest, not both")
    name = "latest" if latest or (not run_id and (once or as_json)) else run_id
    if web:
        if once or as_json:
            raise UserError("--web serves a page; leave out --once and --json")
        if allow_control and read_only:
            raise UserError("say --allow-control or --read-only, not both")
        serve(name, port, allow_control)
        return
    if allow_control:
        raise UserError("--allow-control goes with --web; in a terminal all keys work")
    if not once and not as_json:
        show(name, read_only)
        return
    from operant.monitor.source import Source
    from operant.runs.directory import find_run

    with mistakes():
        view = Source(find_run(name)).read()
    if as_json:
        print(json.dumps(view.to_dict(), indent=2))
        return
    from operant.monitor.frame import frame

    output.print(frame(view, output.width), highlight=False)


def show(name: str, read_only: bool = False) -> None:
    """The monitor in this terminal: of one run, or for ``""`` a list of all."""
    from operant.monitor.app import MonitorApp
    from operant.runs.directory import find_run

    with mistakes():
        run = find_run(name) if name else None
    server = os.environ.get("OPERANT_MONITOR_SERVER", "")
    if server.isdecimal():
        end_with(int(server))
    MonitorApp(run, read_only).run()


def end_with(server: int) -> None:
    """End this process when `server`, which started it to draw a page, is gone."""

    def watch() -> None:
        while os.getppid() == server:
            time.sleep(0.5)
        os._exit(0)  # whatever it is doing: it only reads

    threading.Thread(target=watch, name="server-watch", daemon=True).start()


def serve(name: str, port: int, control: bool = False) -> None:
    """The monitor as a page, until Ctrl-C. `control`: visitors may stop runs."""
    from operant.runs.directory import find_run, runs_folder

    with mistakes():
        run = find_run(name) if name else None
    first = ""
    if run is not None:
        first = run.id if run.path.parent == runs_folder() else str(run.path)
    try:
        from operant.monitor.web import HOST, MonitorServer
    except ImportError:
        raise UserError(
            "the browser needs textual-serve; install it with: pip install 'operant[web]'"
        ) from None
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise UserError(f"port {port}: {error.strerror}; choose another --port") from None
    output.print(f"http://{HOST}:{port}  (Ctrl-C ends it)", highlight=False)
    MonitorServer(first, port, control).serve()
