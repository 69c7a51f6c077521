"""Callbacks of done Futures that run their event loop again, as after `nest_asyncio.apply()`."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from aioproducer._core.batching.receipts import FutureKind
from tests.cases import for_each
from tests.unit._core.batching.receipts_rig import Records, receipts, run, turns


class Reentrant(asyncio.SelectorEventLoop):
    """An event loop that a callback may run again."""

    def _run_once(self) -> None:
        ready: deque[asyncio.Handle] = self._ready  # type: ignore[attr-defined]
        for _ in range(len(ready)):
            if ready and not (handle := ready.popleft()).cancelled():
                handle._run()


@for_each("end", ["deliver", "cancel"])
@for_each("runs", [(0,), (0, 1), (1, 2, 4), (5,)])
def test_callback_that_runs_the_loop_again_runs_other_callbacks(runs: tuple[int, ...], end: str) -> None:
    async def add(on: Records) -> Any:
        loop: Any = on.loop

        def run_again(future: Any) -> None:
            on.note("begin")(future)
            loop._run_once()
            on.note("end")(future)

        for each in on.futures:
            on.deliver() if end == "deliver" else each.cancel()
        for number in range(6):
            on.futures[number % 3].add_done_callback(run_again if number in runs else on.note(number))
        loop.call_soon(on.log.append, "handle")
        await turns()
        return on.log, len(loop._ready)

    log, left = run(Reentrant, add, receipts)
    assert (log, left) == run(Reentrant, add, FutureKind)
    assert log.index("handle") > 5
