"""How much memory does a client take when more is handed to it than it can send at once?"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from benchmarks.child.watch import MemoryWatch, Watch, peak_rss_mib
from benchmarks.clients.base import Client
from benchmarks.figures import Run
from benchmarks.settings import Settings

LOOK_EVERY: Final = 5_000


async def memory(client: Client, settings: Settings) -> Run:
    """Hand over distinct values as fast as the client takes them; drop their Futures as they resolve."""
    unresolved: set[asyncio.Future[Any]] = set()
    errors: list[BaseException] = []

    def resolved(future: asyncio.Future[Any]) -> None:
        unresolved.discard(future)
        error = future.exception()
        if error is not None:
            errors.append(error)

    watch, seen = Watch(), MemoryWatch()
    filler = b"." * settings.value_bytes
    for number in range(settings.records):
        future = await client.enqueue((b"%d:%b" % (number, filler))[: settings.value_bytes])
        unresolved.add(future)
        future.add_done_callback(resolved)
        if number % LOOK_EVERY == 0:
            seen.look()
    while unresolved:
        await asyncio.wait([next(iter(unresolved))])
        seen.look()
    if errors:
        raise errors[0]
    figures = watch.figures(settings.records) | {"rss_mib": peak_rss_mib()}
    return Run(sent=settings.records, figures=figures, series=seen.series)
