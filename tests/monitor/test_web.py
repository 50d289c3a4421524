"""The monitor's page: who is answered, what a visitor may send, and that processes end with it."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

pytest.importorskip("textual_serve")
from aiohttp import ClientSession, ClientWebSocketResponse, WSServerHandshakeError, web

from operant.monitor import web as module
from operant.monitor.web import MonitorServer

ECHO = r"""
import os, sys
def tell(data):
    sys.stdout.buffer.write(b"D" + len(data).to_bytes(4, "big") + data)
    sys.stdout.buffer.flush()
sys.stdout.buffer.write(b"__GANGLION__\n")
tell(f"{os.getpid()} {os.environ['COLUMNS']}x{os.environ['ROWS']}".encode())
while kind := sys.stdin.buffer.read(1):
    size = int.from_bytes(sys.stdin.buffer.read(4), "big")
    tell(kind + sys.stdin.buffer.read(size))
"""
"""A visitor's process that says its number and size, then what it is told."""

Visit = Callable[[ClientSession, str], Awaitable[None]]


def serve(port: int, visit: Visit, **options: Any) -> None:
    async def play() -> None:
        server = MonitorServer("", port, **options)
        server.command = [sys.executable, "-c", ECHO]
        runner = web.AppRunner(server.app())
        await runner.setup()
        await web.TCPSite(runner, "localhost", port).start()
        try:
            async with ClientSession() as session:
                await asyncio.wait_for(visit(session, f"http://localhost:{port}"), 120)
        finally:
            await runner.cleanup()

    asyncio.run(play())


async def connect(session: ClientSession, url: str, query: str = "") -> ClientWebSocketResponse:
    return await session.ws_connect(f"{url}/ws{query}", headers={"Origin": url})


async def first(websocket: ClientWebSocketResponse) -> tuple[psutil.Process, str]:
    """The visitor's process, and the size it was given."""
    pid, size = (await websocket.receive_bytes()).decode().split()
    return psutil.Process(int(pid)), size


async def gone(process: psutil.Process) -> None:
    for _ in range(3000):
        if not process.is_running() or process.status() == psutil.STATUS_ZOMBIE:
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"{process} is still there")


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return int(probe.getsockname()[1])


def test_only_its_own_page_is_answered(port: int) -> None:
    async def visit(session: ClientSession, url: str) -> None:
        async with session.get(url) as answer:
            assert answer.status == 200
            assert "operant monitor" in await answer.text()
        for path in ("/", "/static/js/textual.js"):
            for headers in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}):
                async with session.get(url + path, headers=headers) as answer:
                    assert answer.status == 403
        for origin in (None, "http://evil.example", "null", url.replace("http", "https")):
            headers = {} if origin is None else {"Origin": origin}
            with pytest.raises(WSServerHandshakeError, match="403"):
                await session.ws_connect(f"{url}/ws", headers=headers)

    serve(port, visit)


def test_every_answer_says_what_a_page_may_do(port: int) -> None:
    async def visit(session: ClientSession, url: str) -> None:
        for path in ("/", "/static/js/textual.js", "/static/css/xterm.css", "/nothing", "/static/"):
            async with session.get(url + path) as answer:
                rules = answer.headers["Content-Security-Policy"]
                assert answer.headers["X-Frame-Options"] == "DENY"
                assert answer.headers["X-Content-Type-Options"] == "nosniff"
                assert "default-src 'none'" in rules
                assert "frame-ancestors 'none'" in rules
                scripts = re.search("script-src ([^;]*)", rules)
                assert scripts
                assert "unsafe" not in scripts[1]

    serve(port, visit)


def test_the_page_keeps_to_its_rules(port: int) -> None:
    """Looked at with a browser too: the terminal draws, and the console has no complaint."""

    async def visit(session: ClientSession, url: str) -> None:
        nonces = set()
        for query in ("", "?fontsize=20", '?fontsize="><script>alert(1)</script>'):
            async with session.get(url + "/" + query) as answer:
                text, rules = await answer.text(), answer.headers["Content-Security-Policy"]
            (nonce,) = re.findall("'nonce-([^']+)'", rules)
            nonces.add(nonce)
            assert re.findall("<script([^>]*)>", text) == [
                ' src="/static/js/textual.js"',
                f' nonce="{nonce}"',
            ]
            assert not re.search(r"\son\w+\s*=", text)  # a handler in an attribute would not run
            assert not re.search(r"https?://", text)
            assert f'data-session-websocket-url="ws{url[4:]}/ws"' in text
            assert f'data-font-size="{20 if "20" in query else 16}"' in text
            for path in re.findall(r'(?:src|href)="(/[^"]+)"|url\("(/[^"]+)"\)', text):
                async with session.get(url + "".join(path)) as answer:
                    assert answer.status == 200
        assert len(nonces) == 3

    serve(port, visit)


@pytest.mark.parametrize(
    ("query", "size"),
    [
        ("", "80x24"),
        ("?width=120&height=40", "120x40"),
        ("?width=99999999&height=99999999", "500x200"),
        ("?width=" + "9" * 300 + "&height=-3", "80x24"),
        ("?width=1e9&height=0", "80x1"),
    ],
)
def test_the_first_size_is_bounded(port: int, query: str, size: str) -> None:
    async def visit(session: ClientSession, url: str) -> None:
        async with await connect(session, url, query) as websocket:
            assert (await first(websocket))[1] == size

    serve(port, visit)


def test_what_a_visitor_sends_is_bounded(port: int) -> None:
    async def visit(session: ClientSession, url: str) -> None:
        async with await connect(session, url) as websocket:
            await first(websocket)
            for nonsense in ("", "x", "[]", "{}", "[1,2]", '["quit",0]', '["stdin",7]', "[" * 9999):
                await websocket.send_str(nonsense)
            await websocket.send_bytes(b"[]")
            for given, width, height in (
                ({"width": 10**9, "height": 10**9}, 500, 200),
                ({"width": -1, "height": 1.5}, 1, 24),
                ({"width": True, "height": "7"}, 80, 7),
                ({}, 80, 24),
            ):
                await websocket.send_json(["resize", given])
                told = await websocket.receive_bytes()
                assert (
                    told == f'M{{"type": "resize", "width": {width}, "height": {height}}}'.encode()
                )
            await websocket.send_json(["stdin", "qä"])
            assert await websocket.receive_bytes() == "Dqä".encode()
            await websocket.send_json(["ping", "12"])
            assert await websocket.receive_json() == ["pong", "12"]
            await websocket.send_json(["stdin", "x" * 70_000])
            assert (await websocket.receive()).type.name in ("CLOSE", "CLOSED")

    serve(port, visit)


@pytest.mark.parametrize("how", ["closed", "cut", "process"])
def test_visitors_are_few_and_end_with_their_connection(
    port: int, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_SESSIONS", 2)

    async def visit(session: ClientSession, url: str) -> None:
        one, two = await connect(session, url), await connect(session, url)
        processes = [(await first(visitor))[0] for visitor in (one, two)]
        with pytest.raises(WSServerHandshakeError, match="503"):
            await connect(session, url)
        if how == "closed":
            await one.close()
        elif how == "cut":
            assert one._response.connection is not None
            assert one._response.connection.transport is not None
            one._response.connection.transport.abort()
            await one.close()
        else:
            processes[0].kill()
            assert (await one.receive()).type.name in ("CLOSE", "CLOSED")
        await gone(processes[0])
        for _ in range(3000):
            try:
                three = await connect(session, url)
                break
            except WSServerHandshakeError:
                await asyncio.sleep(0.02)
        processes += [(await first(three))[0]]
        assert processes[1].is_running()
        await asyncio.gather(two.close(), three.close())
        await asyncio.gather(*map(gone, processes))

    serve(port, visit)


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_processes_end_with_the_server(
    port: int, end: signal.Signals, tmp_path: Path, unmeasured: Callable[[], dict[str, str]]
) -> None:
    """The real ones: they draw first."""
    command = [sys.executable, "-m", "operant", "monitor", "--web", "--port", str(port)]
    environ = {**unmeasured(), "OPERANT_HOME": str(tmp_path)}
    server = subprocess.Popen(command, stdout=subprocess.PIPE, env=environ)

    async def visit() -> list[psutil.Process]:
        url = f"http://localhost:{port}"
        async with ClientSession() as session:
            for _ in range(3000):
                try:
                    websocket = await connect(session, url)
                    break
                except OSError:
                    await asyncio.sleep(0.02)
            async with websocket:
                assert b"\x1b[?1049h" in await websocket.receive_bytes()
                children = psutil.Process(server.pid).children(recursive=True)
                os.kill(server.pid, end)
                await asyncio.gather(*map(gone, children))
        return children

    try:
        children = asyncio.run(visit())
        server.communicate(timeout=60)
    finally:
        server.kill()
    assert len(children) == 1
    assert server.returncode == (-signal.SIGKILL if end == signal.SIGKILL else 0)


def test_visitors_only_look_unless_allowed() -> None:
    assert MonitorServer("one").command[-2:] == ["one", "--read-only"]
    assert MonitorServer("one", control=True).command[-1] == "one"
