"""The monitor in a browser on this machine: the same screens, in a page.

A page of any site may open connections to this machine. So only a page that this server served
itself is answered, under the name it was told to use, and what a visitor sends is bounded: keys and
a size, a few visitors at a time. A visitor's process reads runs and nothing else, unless it is
started with ``--allow-control``, and ends with the connection or with this server.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
from pathlib import Path
from typing import Any

import textual_serve
from aiohttp import WSMsgType, web

from operant.monitor.web_page import page, policy
from operant.toolchain.child import python_command, python_environment

HOST = "localhost"
MOST_SESSIONS = 8
"""Visitors at a time; each is a process of 60 to 100 MB."""
MOST_COLUMNS, MOST_LINES = 500, 200
"""Cells of a terminal; what a client asks for beyond that is cut."""
_MOST_MESSAGE_BYTES = 1 << 16
_HEADERS = {
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_STATIC = Path(textual_serve.__file__).parent / "static"


class MonitorServer:
    """Serves ``operant monitor`` on this machine alone; a process for each visitor.

    Args:
        run: id or path of the run that is shown first; a list of all for ``""``.
        port: where it listens.
        control: whether visitors may stop runs and save pictures.
    """

    def __init__(self, run: str = "", port: int = 8000, control: bool = False) -> None:
        words = [*([run] if run else []), *([] if control else ["--read-only"])]
        self.command = python_command("-m", "operant", "monitor", *words)
        self.address = HOST if port == 80 else f"{HOST}:{port}"
        self.port = port
        self._sessions: set[web.WebSocketResponse] = set()

    def app(self) -> web.Application:
        """The routes, with a check of who asks before each and headers on each answer."""
        app = web.Application(middlewares=[self._check])
        app.add_routes(
            [
                web.get("/", self._page),
                web.get("/ws", self._session),
                web.static("/static", _STATIC),
            ]
        )
        app.on_response_prepare.append(self._protect)
        app.on_shutdown.append(self._end_sessions)
        return app

    def serve(self) -> None:
        """Answer until Ctrl-C or SIGTERM."""
        web.run_app(self.app(), host=HOST, port=self.port, print=None, access_log=None)

    @web.middleware
    async def _check(self, request: web.Request, handler: Any) -> web.StreamResponse:
        """Refuse what is not for this server, or comes from a page of another."""
        origin = request.headers.get("Origin")
        strange = origin is not None and origin != f"http://{self.address}"
        # A browser names the origin of every page that opens a websocket.
        nameless = origin is None and request.path == "/ws"
        if request.host != self.address or strange or nameless:
            raise web.HTTPForbidden(text=f"open http://{self.address}")
        answer: web.StreamResponse = await handler(request)
        return answer

    async def _protect(self, request: web.Request, response: web.StreamResponse) -> None:
        response.headers.setdefault("Content-Security-Policy", policy(self.address))
        response.headers.update(_HEADERS)

    async def _page(self, request: web.Request) -> web.Response:
        nonce = secrets.token_urlsafe(16)
        size = _within(request.query.get("fontsize"), 8, 40, 16)
        rules = {
            "Content-Security-Policy": policy(self.address, nonce),
            "Cache-Control": "no-store",
        }
        text = page(self.address, nonce, size)
        return web.Response(text=text, content_type="text/html", headers=rules)

    async def _session(self, request: web.Request) -> web.WebSocketResponse:
        """A visitor's connection, and the process that draws for it."""
        if len(self._sessions) >= MOST_SESSIONS:
            raise web.HTTPServiceUnavailable(text=f"{MOST_SESSIONS} visitors are here already")
        # A client that does not answer a close is cut off after two seconds, or after a heartbeat.
        websocket = web.WebSocketResponse(
            timeout=2.0, heartbeat=15.0, max_msg_size=_MOST_MESSAGE_BYTES
        )
        self._sessions.add(websocket)
        try:
            await websocket.prepare(request)
            columns = _within(request.query.get("width"), 1, MOST_COLUMNS, 80)
            lines = _within(request.query.get("height"), 1, MOST_LINES, 24)
            await _draw(self.command, websocket, columns, lines)
            await websocket.close()
        finally:
            self._sessions.discard(websocket)
        return websocket

    async def _end_sessions(self, app: web.Application) -> None:
        await asyncio.gather(*(one.close() for one in self._sessions), return_exceptions=True)


async def _draw(
    command: list[str], websocket: web.WebSocketResponse, columns: int, lines: int
) -> None:
    """Run a monitor for a visitor until either goes; afterwards the process is gone."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=_environment(columns, lines),
    )
    assert process.stdin is not None
    assert process.stdout is not None
    halves = [
        asyncio.create_task(_to_page(process.stdout, websocket)),
        asyncio.create_task(_to_process(websocket, process.stdin)),
    ]
    try:
        await asyncio.wait(halves, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for half in halves:
            half.cancel()
        if process.returncode is None:
            process.kill()  # it only reads: there is nothing to tidy up
        await asyncio.gather(*halves, return_exceptions=True)
        process.stdin.close()
        await process.stdout.read()  # to its end, or the pipe is not closed
        await process.wait()


def _environment(columns: int, lines: int) -> dict[str, str]:
    return python_environment() | {
        "TEXTUAL_DRIVER": "textual.drivers.web_driver:WebDriver",
        "TEXTUAL_COLOR_SYSTEM": "truecolor",
        "COLUMNS": str(columns),
        "ROWS": str(lines),
        "OPERANT_MONITOR_SERVER": str(os.getpid()),  # the process ends with this one
    }


async def _to_page(output: asyncio.StreamReader, websocket: web.WebSocketResponse) -> None:
    """What the process draws: after a first line packets of a letter, a length and data."""
    try:
        while await output.readline() != b"__GANGLION__\n":
            if output.at_eof():
                return
        while True:
            kind = await output.readexactly(1)
            data = await output.readexactly(int.from_bytes(await output.readexactly(4), "big"))
            if kind == b"D":
                await websocket.send_bytes(data)
            elif kind == b"M" and json.loads(data).get("type") == "exit":
                return
    except (asyncio.IncompleteReadError, ConnectionError, ValueError):
        return


async def _to_process(websocket: web.WebSocketResponse, keys: asyncio.StreamWriter) -> None:
    """What a visitor types, and the size of the page. Everything else is ignored."""
    async for message in websocket:
        if message.type != WSMsgType.TEXT:
            continue
        try:
            kind, given = message.json()
        except (ValueError, TypeError, RecursionError):
            continue
        if kind == "ping":
            await websocket.send_json(["pong", given])  # no longer than what came
            continue
        packet = _packet(kind, given)
        if packet:
            keys.write(packet)
            await keys.drain()


def _packet(kind: Any, given: Any) -> bytes:
    """A message as the process reads it; nothing for one that is not understood."""
    if kind == "stdin" and isinstance(given, str):
        data = given.encode(errors="replace")
        return b"D" + len(data).to_bytes(4, "big") + data
    if kind == "resize" and isinstance(given, dict):
        size = {
            "width": _within(given.get("width"), 1, MOST_COLUMNS, 80),
            "height": _within(given.get("height"), 1, MOST_LINES, 24),
        }
        data = json.dumps({"type": "resize", **size}).encode()
    elif kind in ("focus", "blur"):
        data = json.dumps({"type": kind}).encode()
    else:
        return b""
    return b"M" + len(data).to_bytes(4, "big") + data


def _within(given: Any, least: int, most: int, otherwise: int) -> int:
    """A number that a stranger sent, cut to its bounds."""
    if isinstance(given, str) and len(given) <= 9 and given.isascii() and given.isdigit():
        given = int(given)
    if not isinstance(given, int) or isinstance(given, bool):
        return otherwise
    return min(max(given, least), most)
