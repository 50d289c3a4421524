"""The monitor's page answers its own visitors, and nobody else's pages."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("textual_serve")
from aiohttp import ClientSession, WSServerHandshakeError, web

from operant.monitor.web import MonitorServer


async def served(port: int, visit: Any) -> None:
    server = MonitorServer("", port)
    server.command = "false"  # what a visitor would start
    runner = web.AppRunner(await server._make_app())
    await runner.setup()
    site = web.TCPSite(runner, "localhost", port)
    await site.start()
    try:
        async with ClientSession() as session:
            await visit(session, f"http://localhost:{port}")
    finally:
        await runner.cleanup()


def test_only_its_own_page_is_answered(unused_port: int) -> None:
    async def visit(session: ClientSession, url: str) -> None:
        async with session.get(url) as answer:
            assert answer.status == 200
            assert "operant monitor" in await answer.text()
        for headers in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}):
            async with session.get(url, headers=headers) as answer:
                assert answer.status == 403
        for origin in (None, "http://evil.example", "null", url.replace("http", "https")):
            headers = {} if origin is None else {"Origin": origin}
            with pytest.raises(WSServerHandshakeError, match="403"):
                await session.ws_connect(f"{url}/ws", headers=headers)

    asyncio.run(served(unused_port, visit))


@pytest.fixture
def unused_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return int(probe.getsockname()[1])
