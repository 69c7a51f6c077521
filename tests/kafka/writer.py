"""A process that writes one transaction, prints its steps, and waits at a step to be killed.

python -m tests.kafka.writer SERVERS ID TOPIC STEP[!] abort|commit|prepare

With "!" it goes on once its standard input ends.
"""

from __future__ import annotations

import asyncio
import sys

from aioproducer import Producer, ProducerError
from tests.kafka.ledger import Ledger


def say(what: object) -> None:
    """Say it at once."""
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


async def write(servers: str, name: str, topic: str, last: str, end: str) -> None:
    """Write until the step *last*."""

    async def at(step: str) -> None:
        say(step)
        if f"{step}!" == last:
            await asyncio.to_thread(sys.stdin.read)
        if step == last:
            await asyncio.Event().wait()

    ledger = Ledger(servers, topic)
    # Nothing that was only taken is sent: it would lie in wait for more.
    linger_ms = 60_000 if last == "taken" else 0
    async with Producer(servers, transactional_id=name, linger_ms=linger_ms) as producer:
        await at("started")
        if end == "prepare":
            async with producer.transaction() as transaction:
                await asyncio.gather(*await ledger.fill(producer, ledger.open()))
                say(await transaction.prepare())
                await asyncio.Event().wait()
        outcome = await ledger.transact(producer, abort=end == "abort", at=at)
        say(f"{outcome.value} {ledger.errors}")


async def run(arguments: list[str]) -> None:
    """Print the error if the process fails."""
    try:
        await write(*arguments)
    except ProducerError as error:
        say(f"{type(error).__name__}: {error}")
        raise


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1:]))
