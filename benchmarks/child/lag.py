"""Delay of the event loop's timers while a client sends, compared with an idle process at the same time.

The idle process is the control: its delay is caused by the machine. The client causes the rest of the delay. The
control alone: python -m benchmarks.child.lag SECONDS
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import replace
from typing import Final

from benchmarks.child.workloads import closed
from benchmarks.clients.base import Client
from benchmarks.figures import Run
from benchmarks.payload import Window
from benchmarks.percentiles import latency_figures
from benchmarks.settings import Settings

BEAT_S: Final = 0.001
WARM_UP_S: Final = 0.1
"""Warm-up, in seconds, in which the client opens connections and creates compressors."""


async def heartbeat(late: list[float]) -> None:
    """Append the delay of one timer after another to *late*, in seconds, until cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        due_at = loop.time() + BEAT_S
        await asyncio.sleep(BEAT_S)
        late.append(max(0.0, loop.time() - due_at))


async def lag(client: Client, window: Window, settings: Settings) -> Run:
    """Send from 256 tasks, and measure the delay of timers in this process and in an idle process."""
    before = await closed(client, window, replace(settings, seconds=WARM_UP_S))
    control = await asyncio.create_subprocess_exec(
        sys.executable, "-m", __spec__.name, str(settings.seconds), stdout=asyncio.subprocess.PIPE
    )
    late: list[float] = []
    beating = asyncio.create_task(heartbeat(late))
    run = await closed(client, window, settings)
    beating.cancel()
    await asyncio.wait([beating])
    said, _ = await control.communicate()
    here, there = latency_figures(late), json.loads(said)
    run.sent += before.sent
    run.figures |= {"control_ms": there["p999_ms"], "lag_ms": max(0.0, here["p999_ms"] - there["p999_ms"])}
    return run


async def main(seconds: float) -> None:
    """Run the control and print its delays as JSON."""
    late: list[float] = []
    beating = asyncio.create_task(heartbeat(late))
    await asyncio.wait([beating], timeout=seconds)
    beating.cancel()
    await asyncio.wait([beating])
    print(json.dumps(latency_figures(late)))


if __name__ == "__main__":
    asyncio.run(main(float(sys.argv[1])))
