"""What to do when a record was not acknowledged. The one question is: may it be in the log all the same?

This one brings its own cluster, which fails as it is told to:

    python examples/errors.py
"""

from __future__ import annotations

import asyncio

from aioproducer import Producer, ProducerError, RecordTooLarge, TopicAuthorizationFailed
from aioproducer.testing import Cluster


async def pay(producer: Producer, payment: bytes, amount: bytes) -> str:
    """Send one payment and say what became of it."""
    try:
        # Failures that pass, like a broker that restarts, are retried in here, without doubling or reordering.
        # What gets out is final for this call.
        sent = await producer.send("payments", amount, key=payment, timeout_s=1)
    except ProducerError as error:
        if error.possibly_persisted:
            # Sent, and no answer came. To send it again could pay twice; to forget it could pay never.
            # Look it up later, or let the consumer drop payments that it has seen.
            return "unknown: ask before paying again"
        if isinstance(error, RecordTooLarge):
            return "refused: no attempt will ever succeed"
        # Surely not in the log: paying again is safe. `retriable` tells if that may help without a change.
        return "failed: safe to pay again" + ("" if error.retriable else ", once the cause is gone")
    return f"paid: offset {sent.offset}"


async def main() -> None:
    """Make four payments: one is fine, three go wrong in different ways."""
    async with Cluster(topics={"payments": 1}) as cluster, Producer(cluster.bootstrap_servers) as producer:
        print("a:", await pay(producer, b"a", b"12.00"))

        print("b:", await pay(producer, b"b", bytes(2_000_000)))

        cluster.on("produce").answer(TopicAuthorizationFailed)
        print("c:", await pay(producer, b"c", b"7.50"))

        # The broker appends the payment, and its answer is lost: no producer in the world can know.
        cluster.on("produce").delay(1.5, before_append=False)
        print("d:", await pay(producer, b"d", b"99.00"))

    keys = [record.key for record in cluster.records("payments", 0)]
    print("in the log:", b", ".join(key or b"-" for key in keys).decode())


if __name__ == "__main__":
    asyncio.run(main())
