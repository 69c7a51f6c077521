"""Memory of a client while records are appended faster than sent, and afterwards."""

from __future__ import annotations

from typing import Final

from benchmarks.child.watch import MemoryWatch, Watch, peak_rss_mib
from benchmarks.clients.base import Client
from benchmarks.figures import Run
from benchmarks.settings import Settings

CHECK_EVERY: Final = 5_000


async def memory(client: Client, settings: Settings) -> Run:
    """Append distinct values at the maximum rate of the client and drop their Futures."""
    watch, seen = Watch(), MemoryWatch()
    filler = b"." * settings.value_bytes
    for number in range(settings.records):
        _ = await client.enqueue((b"%d:%b" % (number, filler))[: settings.value_bytes])
        if number % CHECK_EVERY == 0:
            seen.look()
    await client.settle()
    figures = watch.figures(settings.records)
    seen.look()
    (_, at_start), (_, afterwards) = seen.series[0], seen.series[-1]
    figures |= {"rss_mib": peak_rss_mib(), "kept_mib": afterwards - at_start}
    return Run(sent=settings.records, figures=figures, series=seen.series)
