"""Records whose Futures are receipts, or asyncio Futures, for tests that compare their behaviour."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable
from typing import Any

from aioproducer._core.batching.receipts import ReceiptKind, receipts_on
from aioproducer._core.batching.waiters import Delivered, Failure, TaskWaker
from aioproducer.errors import DeliveryTimeout
from tests.unit._core.batching.batch_rig import added

Behaviour = Callable[["Records"], Awaitable[Any]]
LATE = Failure(DeliveryTimeout, "late")
VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("VARIABLE", default="outside")


class Records:
    """Three records of one batch, each with its Future."""

    def __init__(self, of: Callable[[asyncio.AbstractEventLoop], ReceiptKind]) -> None:
        self.loop = asyncio.get_running_loop()
        self.kind = of(self.loop)
        self.stretch = self.kind.stretch()
        self.futures = [added(self.kind, self.stretch) for _ in range(3)]
        self.first: Any = self.futures[0]
        self.log: list[Any] = []
        self.context = contextvars.Context()

    def deliver(self) -> None:
        self.stretch.resolve(Delivered("orders", 3, 40, [1, 2, 3], log_append_time=False))

    def fail(self) -> None:
        self.stretch.fail(LATE)

    def soon(self, what: Callable[[], object] | None = None) -> None:
        self.loop.call_soon(what or self.deliver)

    def note(self, what: object) -> Callable[[asyncio.Future[Any]], None]:
        return lambda future: self.log.append((what, self.futures.index(future), future.done()))


def receipts(loop: asyncio.AbstractEventLoop) -> ReceiptKind:
    return receipts_on(TaskWaker(loop))


def raised(call: Callable[[], object]) -> tuple[str, str]:
    try:
        return ("returned", repr(call()))
    except BaseException as error:  # noqa: BLE001 - any kind is compared
        return (type(error).__name__, str(error))


async def outcome(awaitable: Awaitable[Any]) -> tuple[str, str]:
    try:
        return ("returned", repr(await awaitable))
    except BaseException as error:  # noqa: BLE001 - any kind is compared
        return (type(error).__name__, str(error))


async def turns(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def run(
    new_loop: Callable[[], Any],
    what: Behaviour,
    of: Callable[[Any], ReceiptKind],
    *,
    debug: bool = False,
) -> Any:
    """Run *what* in an empty context and return its result."""

    async def main() -> Any:
        return await what(Records(of))

    def run_loop() -> Any:
        with asyncio.Runner(loop_factory=new_loop, debug=debug) as runner:
            return runner.run(main())

    return contextvars.Context().run(run_loop)
