"""One client, one kind of work, in a process of its own; prints its `Run` as JSON.

By hand: python -m benchmarks.child CLIENT SERVERS TOPIC SETTINGS, the latter as `Settings.dumps` writes them.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Coroutine
from dataclasses import asdict
from typing import Any

from benchmarks.child import lag, memory, works
from benchmarks.child.watch import peak_rss_mib
from benchmarks.clients import JVM, adapter
from benchmarks.clients.base import Client
from benchmarks.figures import Run
from benchmarks.payload import window_of
from benchmarks.settings import Settings, Work

WORKS = {
    Work.CLOSED: works.closed,
    Work.FIRE: works.fire,
    Work.CALLBACKS: works.callbacks,
    Work.GATHER: works.gather,
    Work.BULK: works.bulk,
    Work.ONE_BY_ONE: works.one_by_one,
    Work.LONE: works.lone,
    Work.TRANSACTIONS: works.transactions,
    Work.LAG: lag.lag,
    Work.STEADY: works.steady,
    Work.SLOW_BROKER: works.steady,
    Work.ZONES: works.steady,
}


async def play(client: Client, settings: Settings) -> Run:
    """Start *client*, let it do its work, end it. What ends it counts neither as time nor as memory."""
    if settings.work is Work.MEMORY:
        await client.start()
        run = await memory.memory(client, settings)
    else:
        window = window_of(settings)
        await client.start()
        run = await WORKS[settings.work](client, window, settings)
        run.figures["rss_mib"] = peak_rss_mib()
        if settings.compression != "none" and client.distribution == "aioproducer":
            run.figures["compressor_us"] = works.compressor_us(window, settings, time.process_time)
    await client.close()
    return run


def on_loop(playing: Coroutine[Any, Any, Run], *, uvloop: bool) -> Run:
    """Run it on the event loop that is asked for."""
    if uvloop:
        import uvloop as loops

        return loops.run(playing)
    return asyncio.run(playing)


def main(name: str, servers: str, topic: str, text: str) -> None:
    """Do what the command line says."""
    settings = Settings.loads(text)
    if name == JVM:
        from benchmarks.clients import jvm

        run = jvm.measure(servers, topic, settings)
    else:
        run = on_loop(play(adapter(name)(servers, topic, settings), settings), uvloop=settings.uvloop)
    print(json.dumps(asdict(run)))


if __name__ == "__main__":
    main(*sys.argv[1:])
