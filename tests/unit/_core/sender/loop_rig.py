"""A running sender between fakes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any, Self

import pytest

from aioproducer._core.batching.batch import Batch
from aioproducer._core.batching.waiters import TaskWaker
from aioproducer._core.clock import Wakeup
from aioproducer._core.metrics import Metrics
from aioproducer._core.protocol.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from aioproducer._core.records.decode import decode_batches
from aioproducer._core.sender.loop import Sender
from aioproducer._core.sender.requests import COMPRESS_OFF_LOOP_BYTES, Encoder
from aioproducer.errors import BrokerError
from tests.fakes import FakeConnection, FakePool
from tests.unit.floor_rig import NODE, TOPIC, FloorRig, sender_settings, settle

LINGER_S = 0.005
LARGE = b"x" * COMPRESS_OFF_LOOP_BYTES


class Rig(FloorRig):
    """A sender that runs from `async with` on; its pool is connected to node 1."""

    def __init__(
        self, *, connected: tuple[int, ...] = (NODE,), batching: dict[str, Any] | None = None, **settings: Any
    ) -> None:
        idempotent = settings.get("idempotent", True)
        identified = settings.pop("identified", True)
        partitions = settings.pop("partitions", 1)
        transaction = settings.pop("transaction", None)
        super().__init__(
            partitions=partitions,
            identified=identified,
            **(
                {"idempotent": idempotent, "batch_bytes": 200_000, "max_request_bytes": 400_000}
                | (batching or {})
            ),
        )
        self.recognise(partitions)
        self.pool = FakePool(*connected)
        self.metrics = Metrics(self.loop.time)
        self.wakeup = Wakeup(self.loop)
        self.sender = Sender(
            sender_settings(**settings),
            accumulator=self.accumulator,
            completion=self.completion,
            pool=self.pool.real,
            updater=self.updater.real,
            wakeup=self.wakeup,
            waker=TaskWaker(self.loop),
            metrics=self.metrics,
            transaction=transaction,
        )

    def _wake(self) -> None:
        super()._wake()
        if hasattr(self, "wakeup"):
            self.wakeup.ring()

    def _wake_at(self, until: float) -> None:
        super()._wake_at(until)
        if hasattr(self, "wakeup"):
            self.wakeup.ring_at(until)

    async def __aenter__(self) -> Self:
        self.running = self.loop.create_task(self.sender.run())
        await settle()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.running.cancel()
        await asyncio.wait([self.running])

    @property
    def connection(self) -> FakeConnection:
        return self.pool.connections[NODE]

    def sent_values(self) -> list[list[bytes | None]]:
        """The values of each produce request that waits for its answer."""
        return [
            [
                record.value
                for topic in call.request.topic_data
                for data in topic.partition_data
                for batch in decode_batches(data.records, limit=10_000_000)
                for record in batch.records
            ]
            for call in self.connection.calls
        ]

    def accept(self, *partitions: int, base_offset: int = 0, read_s_ago: float = 0.0) -> None:
        """Acknowledge the oldest request."""
        self.connection.answer(
            ProduceResponse(
                responses=[
                    TopicProduceResponse(
                        name=TOPIC,
                        partition_responses=[
                            PartitionProduceResponse(index=each, error_code=0, base_offset=base_offset)
                            for each in partitions or (0,)
                        ],
                    )
                ]
            ),
            read_s_ago=read_s_ago,
        )

    def refuse(self, kind: type[BrokerError]) -> None:
        """Answer the oldest request with the error *kind*."""
        refusal = PartitionProduceResponse(index=0, error_code=kind.code, base_offset=-1)
        self.connection.answer(
            ProduceResponse(responses=[TopicProduceResponse(name=TOPIC, partition_responses=[refusal])])
        )


class Told:
    """A transaction that stores its notifications."""

    def __init__(self, at_most: int | None = None) -> None:
        self.at_most = at_most
        self.may_send = True
        self.looks = 0
        self.written: list[Sequence[Batch]] = []
        self.took: list[float] = []

    def fail_unsendable(self) -> None:
        self.looks += 1

    def write(self, batches: Sequence[Batch]) -> int | None:
        self.written.append(batches)
        return self.at_most

    def answered(self, took_s: float) -> None:
        self.took.append(took_s)


async def advance(seconds: float) -> None:
    await asyncio.sleep(seconds)
    await settle()


class Thread:
    """Thread that delays the encoding of batches with *value* first until `release` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, value: bytes = LARGE) -> None:
        self.release = threading.Event()
        encode = Encoder.encode

        def waiting(encoder: Encoder, batch: Batch) -> None:
            if batch.columns.values[0] == value:
                assert self.release.wait(10)
            encode(encoder, batch)

        monkeypatch.setattr(Encoder, "encode", waiting)

    async def ends(self, rig: Rig) -> None:
        preparing = preparing_of(rig)
        self.release.set()
        await asyncio.wait(preparing)
        await settle()


def preparing_of(rig: Rig) -> list[asyncio.Task[None]]:
    """Return the tasks of the requests that are not written yet, in the order of the drain."""
    [preparing] = rig.sender._preparing.values()
    return list(preparing)
