"""An intake on top of the floor rig, and an interceptor that records its calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

from aioproducer._core.batching.batch import RecordFuture
from aioproducer._core.batching.bulk import Rows
from aioproducer._core.batching.waiters import acknowledgement_on
from aioproducer._core.intake.appending import PendingAppend
from aioproducer._core.intake.intake import Intake
from aioproducer._core.intake.rows import check_rows
from aioproducer._core.interceptor_chain import InterceptorChain
from aioproducer._core.partitioning import Murmur2Partitioner, Partitioner
from aioproducer._core.settings import IntakeSettings
from aioproducer.errors import ProducerError
from aioproducer.interceptors import Interceptor
from aioproducer.serializers import AnySerializer
from aioproducer.types import HeadersInput, ProducerRecord, RecordMetadata, TopicPartition
from tests.unit.floor_rig import TOPIC, FloorRig, late

NOW_MS = 1_700_000_000_000
"""What the wall clock shows in every test of this directory."""


def checked(values: Any, **arguments: Any) -> Rows:
    """Return the rows of a `send_many` with nothing but these arguments."""
    defaults: dict[str, Any] = {
        "keys": None,
        "headers": None,
        "common_headers": (),
        "timestamps_ms": None,
        "partition": None,
        "partitions": None,
        "serialized_later": (False, False),
    }
    return check_rows(arguments.pop("topic", TOPIC), values, **(defaults | arguments))


class Spy(Interceptor):
    """Interceptor that stores the records and outcomes it receives, and may change records."""

    def __init__(self, change: Callable[[ProducerRecord], ProducerRecord] = lambda record: record) -> None:
        self.change = change
        self.seen: list[ProducerRecord] = []
        self.errors: list[tuple[ProducerError, TopicPartition]] = []

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        self.seen.append(copy(record))  # a change may be one in place
        return self.change(record)

    def on_acknowledgement(
        self, metadata: RecordMetadata | None, error: ProducerError | None, record: TopicPartition
    ) -> None:
        assert metadata is None
        assert error is not None
        self.errors.append((error, record))


class Rig(FloorRig):
    """With an intake on top."""

    def __init__(
        self,
        *,
        partitions: int = 1,
        partitioner: Partitioner | None = None,
        interceptors: Sequence[Interceptor] = (),
        key_serializer: AnySerializer | None = None,
        value_serializer: AnySerializer | None = None,
        max_block_s: float = 60.0,
        **settings: Any,
    ) -> None:
        super().__init__(partitions=partitions, **settings)
        self.unreachable: ProducerError | None = None
        self.intake = Intake(
            IntakeSettings(
                key_serializer=key_serializer,
                value_serializer=value_serializer,
                partitioner=partitioner or Murmur2Partitioner(),
                interceptors=InterceptorChain(interceptors),
                max_block_s=max_block_s,
                on_refused=lambda count, error: None,  # noqa: ARG005 - scenarios look at what is counted
            ),
            accumulator=self.accumulator,
            completion=self.completion,
            updater=self.updater.real,
            awaits=acknowledgement_on(self.loop),
            receipts=self.receipts,
            expired=lambda batch, timeout_s, due_at: late(
                batch, f"timeout_s={timeout_s:g} due_at={due_at:g}: {self.unreachable}", self.unreachable
            ),
        )

    def try_append(
        self,
        value: Any = b"value",
        key: Any = None,
        *,
        topic: Any = TOPIC,
        partition: Any = None,
        headers: HeadersInput = (),
        timestamp_ms: Any = None,
    ) -> RecordFuture | PendingAppend:
        return self.intake.front.append(self.receipts, topic, value, key, partition, headers, timestamp_ms)

    def appended(self, value: Any = b"value", key: Any = None, **more: Any) -> RecordFuture:
        outcome = self.try_append(value, key, **more)
        assert isinstance(outcome, asyncio.Future)
        return outcome

    def put(self, value: Any = b"value", key: Any = None, **more: Any) -> None:
        _ = self.appended(value, key, **more)

    def pending(self, value: Any = b"value", key: Any = None, **more: Any) -> PendingAppend:
        outcome = self.try_append(value, key, **more)
        assert isinstance(outcome, PendingAppend)
        return outcome

    def records(self, partition: int = 0) -> list[tuple[Any, ...]]:
        """Value, key, headers and timestamp of the records queued for a partition."""
        return [
            row
            for batch in self.queue(partition).batches
            for row in zip(
                batch.columns.values,
                batch.columns.keys or [None] * len(batch),
                batch.columns.headers or [()] * len(batch),
                batch.columns.timestamps,
                strict=True,
            )
        ]

    @property
    def queued(self) -> int:
        return sum(len(batch) for batch in self.accumulator.unresolved)

    def use_up_memory(self) -> None:
        self.accumulator.memory.free = 0
