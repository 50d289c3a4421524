"""The monitor in a browser on this machine: the same screens, in a page.

A page of any site may open connections to this machine, and the screens can stop runs. So only a
page that this server served itself is answered, under the name it was told to use.
"""

from __future__ import annotations

import logging
import shlex

from aiohttp import web
from textual_serve.server import Server

from operant.child import python_command

HOST = "localhost"


class MonitorServer(Server):
    """Serves ``operant monitor`` on this machine alone; a process for each visitor."""

    def __init__(self, run_id: str = "", port: int = 8000) -> None:
        words = python_command("-m", "operant", "monitor", *([run_id] if run_id else []))
        super().__init__(shlex.join(words), host=HOST, port=port, title="operant monitor")

    def own(self, request: web.Request) -> bool:
        """Whether a request is for this server, and comes from a page of its own, or from none."""
        here = f"{HOST}:{self.port}"
        return request.host == here and request.headers.get("Origin", f"http://{here}") in (
            f"http://{here}",
        )

    def initialize_logging(self) -> None:
        """Only what is wrong."""
        logging.basicConfig(level="WARNING", format="%(message)s")

    async def on_startup(self, app: web.Application) -> None:
        """Without words; the command has said where."""

    async def handle_index(self, request: web.Request) -> web.StreamResponse:
        """The page."""
        if not self.own(request):
            raise web.HTTPForbidden(text=f"open {self.public_url}")
        return await super().handle_index(request)

    async def handle_websocket(self, request: web.Request) -> web.WebSocketResponse:
        """A visitor's connection."""
        if not self.own(request) or "Origin" not in request.headers:
            raise web.HTTPForbidden(text=f"open {self.public_url}")
        return await super().handle_websocket(request)
