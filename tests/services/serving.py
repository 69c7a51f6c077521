"""The services of examples/, served by a test: on its own event loop, or as a program of its own."""

from __future__ import annotations

import asyncio
import importlib
import os
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import uvicorn
from aiohttp import web

from aioproducer import Producer
from examples.aiohttp_app.serving import served

ROOT: Final = Path(__file__).parents[2]
APPS: Final = ("aiohttp_app", "fastapi_app")
AT_MOST_S: Final = 30
"""Far more than anything here takes, far less than the delivery timeout."""


def module_of(app: str) -> Any:
    return importlib.import_module(f"examples.{app}.app")


def service(app: str, producer: Producer) -> AbstractAsyncContextManager[httpx.AsyncClient]:
    """Serve one of the examples, by its name."""
    return serving(module_of(app).create_app(producer))


@asynccontextmanager
async def serving(app: Any) -> AsyncIterator[httpx.AsyncClient]:
    """Serve *app* on this event loop. Leaving ends it as SIGTERM does, and the client after it."""
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(httpx.AsyncClient(timeout=AT_MOST_S))
        server = (
            served(app, "127.0.0.1", 0, AT_MOST_S) if isinstance(app, web.Application) else on_uvicorn(app)
        )
        client.base_url = httpx.URL(await stack.enter_async_context(server))
        yield client


@asynccontextmanager
async def on_uvicorn(app: Any) -> AsyncIterator[str]:
    server = uvicorn.Server(uvicorn.Config(app, lifespan="on", log_config=None))
    listener = socket.create_server(
        ("127.0.0.1", 0)
    )  # clients that connect before the start are served after it
    async with asyncio.TaskGroup() as group:
        group.create_task(server.serve([listener]))
        yield "http://{}:{}".format(*listener.getsockname())
        server.should_exit = True


class Program:
    """A service that runs as `python -m examples.….app`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        self._process = process
        self._output = process.stdout
        self._reading = asyncio.create_task(self._read())
        self._url_or_end = asyncio.Event()
        self.base_url = ""
        self.said = ""

    async def _read(self) -> None:
        """Read the output of the program at once, because a full pipe would block it."""
        async for line in self._output:
            self.said += line.decode()
            if not self.base_url and (found := re.search(r"http://127\.0\.0\.1:\d+", self.said)):
                self.base_url = found[0]
                self._url_or_end.set()
        self._url_or_end.set()

    async def serves(self) -> None:
        """Return when it does."""
        async with asyncio.timeout(AT_MOST_S):
            await self._url_or_end.wait()
        assert self.base_url, "it has ended"

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        host, port = self.base_url.removeprefix("http://").split(":")
        return host, int(port)

    def terminate(self) -> None:
        """Ask it to end, as an orchestrator does (SIGTERM)."""
        self._process.send_signal(signal.SIGTERM)

    async def stops_accepting(self) -> None:
        """Return when no new connection is taken any more."""
        async with asyncio.timeout(AT_MOST_S):
            while True:
                try:
                    _, writer = await asyncio.open_connection(*self.address)
                    writer.close()
                    await writer.wait_closed()
                except ConnectionResetError:
                    pass  # taken by the kernel, and not by the service any more
                except ConnectionRefusedError:
                    return
                await asyncio.sleep(0.01)  # only another try can detect the start

    async def ended(self) -> tuple[int, str]:
        """Wait for its end; return its exit code and all that it has said."""
        async with asyncio.timeout(AT_MOST_S):
            await self._reading
            return await self._process.wait(), self.said

    async def end(self, number: signal.Signals) -> None:
        """End it with that signal, if it has not ended yet."""
        if self._process.returncode is None:
            self._process.send_signal(number)
        await self.ended()


@asynccontextmanager
async def program(app: str, bootstrap_servers: str) -> AsyncIterator[Program]:
    """Run *app* as a program, on any free port; it serves when the body begins, and is gone after it.

    If the body fails, the error has a note of what the program said, and of where it was.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        f"examples.{app}.app",
        cwd=ROOT,
        env={
            **os.environ,
            "BOOTSTRAP_SERVERS": bootstrap_servers,
            "PORT": "0",
            "PYTHONUNBUFFERED": "1",
            "PYTHONFAULTHANDLER": "1",
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    running = Program(process)
    try:
        await running.serves()
        yield running
    except Exception as error:
        await running.end(signal.SIGABRT)  # its fault handler writes the stack
        error.add_note(f"{app} has said:\n{running.said}")
        raise
    finally:
        await running.end(signal.SIGKILL)
