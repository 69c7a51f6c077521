"""Serve an aiohttp app, and end so that everything that was accepted is answered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler

QUIET_S: Final = 0.1


class Running:
    """The requests that are running, so that the end can wait for them.

    aiohttp's own shutdown waits for them, too, but reads no more from its first moment on: a request whose body is
    still on its way then is never answered, and holds up the end for the whole timeout.
    """

    def __init__(self) -> None:
        self._came = 0
        self._number = 0
        self._none = asyncio.Event()
        self._none.set()
        self._ending = False

    @web.middleware
    async def count(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Count a request, from its head on. Once the end has begun, its answer is the last one of its connection."""
        self._came += 1
        self._number += 1
        self._none.clear()
        try:
            response = await handler(request)
        finally:
            self._number -= 1
            if not self._number:
                self._none.set()
        if self._ending:
            response.force_close()
        return response

    async def end(self) -> None:
        """Return when none is running and none has come for a moment: who was just answered may send the next one."""
        self._ending = True
        quiet = False
        while not quiet:
            await self._none.wait()
            before = self._came
            await asyncio.sleep(QUIET_S)
            quiet = self._came == before


@asynccontextmanager
async def served(app: web.Application, host: str, port: int, requests_timeout_s: float) -> AsyncIterator[str]:
    """Serve *app* at the URL that is yielded.

    Leaving takes no more connections, then answers what has come in, then cleans up the app. What still runs after
    *requests_timeout_s* seconds is cancelled.
    """
    running = Running()
    app.middlewares.insert(0, running.count)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=requests_timeout_s)
    try:
        await runner.setup()
        site = web.TCPSite(runner, host, port)
        await site.start()
        yield site.name
        await site.stop()
        with suppress(TimeoutError):
            async with asyncio.timeout(requests_timeout_s):
                await running.end()
    finally:
        await runner.cleanup()
