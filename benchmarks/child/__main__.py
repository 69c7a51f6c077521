"""Run one workload with one client in a child process, and print the `Run` as JSON.

By hand: python -m benchmarks.child CLIENT SERVERS TOPIC SETTINGS, with SETTINGS as JSON of `Settings.dumps`.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Coroutine
from dataclasses import asdict
from typing import Any

from benchmarks.child import lag, memory, workloads
from benchmarks.child.watch import peak_rss_mib
from benchmarks.clients import JVM, adapter
from benchmarks.clients.base import Client
from benchmarks.figures import Run
from benchmarks.payload import window_of
from benchmarks.settings import Settings, Work

WORKLOADS = {
    Work.CLOSED: workloads.closed,
    Work.FIRE: workloads.fire,
    Work.CALLBACKS: workloads.callbacks,
    Work.GATHER: workloads.gather,
    Work.BULK: workloads.bulk,
    Work.ONE_BY_ONE: workloads.one_by_one,
    Work.LONE: workloads.lone,
    Work.TRANSACTIONS: workloads.transactions,
    Work.LAG: lag.lag,
    Work.STEADY: workloads.steady,
    Work.SLOW_BROKER: workloads.steady,
    Work.ZONES: workloads.steady,
}


async def run_workload(client: Client, settings: Settings) -> Run:
    """Start *client*, run its workload and close it. The figures exclude the close."""
    if settings.work is Work.MEMORY:
        await client.start()
        run = await memory.memory(client, settings)
    else:
        window = window_of(settings)
        await client.start()
        run = await WORKLOADS[settings.work](client, window, settings)
        run.figures["rss_mib"] = peak_rss_mib()
        if settings.compression != "none" and client.distribution == "aioproducer":
            run.figures["compressor_us"] = workloads.compressor_us(window, settings, time.process_time)
    await client.close()
    return run


def on_loop(playing: Coroutine[Any, Any, Run], *, uvloop: bool) -> Run:
    """Run *playing* on asyncio's event loop or on uvloop."""
    if uvloop:
        import uvloop as loops

        return loops.run(playing)
    return asyncio.run(playing)


def main(name: str, servers: str, topic: str, text: str) -> None:
    """Run the workload of the command line."""
    settings = Settings.loads(text)
    if name == JVM:
        from benchmarks.clients import jvm

        run = jvm.measure(servers, topic, settings)
    else:
        run = on_loop(run_workload(adapter(name)(servers, topic, settings), settings), uvloop=settings.uvloop)
    print(json.dumps(asdict(run)))


if __name__ == "__main__":
    main(*sys.argv[1:])
