"""The demo itself: send, measure, read back, check."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import KW_ONLY, dataclass
from time import perf_counter
from typing import Final

from aioproducer._topic_client import Client
from aioproducer.cli.demo.events import Check, Events
from aioproducer.cli.demo.measure import Measured, send_in_bulk, send_one_by_one
from aioproducer.config import ProducerConfig
from aioproducer.producer import Producer
from aioproducer.testing import Cluster

BROKERS: Final = 3
"""How many there are if they are ours."""

Follow = Callable[[str, int, Callable[[], int]], AbstractAsyncContextManager[None]]
"""Shows how far something has come while the `async with` block runs: what it is, the total, and how many are done."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do."""

    config: ProducerConfig | None
    """Of a cluster; None: one in this process."""
    _: KW_ONLY
    records: int
    partitions: int
    compression: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What was done, and found."""

    plan: Plan
    config: ProducerConfig
    topic: str
    warm_up: Measured
    """The first records: they wait for connections and the producer id."""
    one_by_one: Measured
    in_bulk: Measured
    records_read: int
    seconds_reading: float
    flaws: dict[str, int]


async def run(plan: Plan, follow: Follow) -> Outcome:
    """Do what *plan* says.

    Raises: ProducerError if the cluster cannot be used, or a record was not acknowledged.
    """
    events = Events.load(plan.records)
    warm_up = plan.records // 100
    one_by_one_until = warm_up + plan.records // 4
    topic = f"aioproducer-demo-{secrets.token_hex(4)}"
    async with AsyncExitStack() as stack:
        config = plan.config
        if config is None:
            cluster = await stack.enter_async_context(Cluster(BROKERS))
            config = ProducerConfig.from_mapping(
                {"bootstrap.servers": cluster.bootstrap_servers, "compression.type": plan.compression}
            )
        producer = await stack.enter_async_context(Producer.from_config(config))
        client = await stack.enter_async_context(Client(config))
        await client.create_topic(topic, plan.partitions)

        def delivered() -> int:
            return int(producer.metrics()["producer"]["records_delivered"])

        async with follow("sending", plan.records, delivered):
            first = await send_in_bulk(producer, topic, events.part(0, warm_up))
            one_by_one = await send_one_by_one(producer, topic, events.part(warm_up, one_by_one_until))
            in_bulk = await send_in_bulk(producer, topic, events.part(one_by_one_until, plan.records))
        check = Check(events, first.acknowledged + one_by_one.acknowledged + in_bulk.acknowledged)
        began = perf_counter()
        async with follow("reading back", plan.records, lambda: check.seen):
            async for partition, records in client.read(topic):
                check.see(partition, records)
        return Outcome(
            plan=plan,
            config=config,
            topic=topic,
            warm_up=first,
            one_by_one=one_by_one,
            in_bulk=in_bulk,
            records_read=check.seen,
            seconds_reading=perf_counter() - began,
            flaws=check.flaws(),
        )
