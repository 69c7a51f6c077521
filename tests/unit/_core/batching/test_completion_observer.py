from __future__ import annotations

import asyncio

import pytest

from aioproducer._core.batching.completion import OutcomeObserver
from aioproducer._core.batching.waiters import Failure
from aioproducer._core.interceptor_chain import InterceptorChain
from aioproducer._core.metrics import WINDOW_S, Metrics
from aioproducer.errors import DeliveryTimeout, ProducerError, TimeoutReason, TopicAuthorizationFailed
from aioproducer.interceptors import Interceptor
from aioproducer.testing import in_virtual_time
from aioproducer.types import Headers, RecordMetadata, TopicPartition
from tests.unit.floor_rig import TOPIC, FloorRig

WHERE = TopicPartition(TOPIC, 0)


class Spy(Interceptor):
    def __init__(self) -> None:
        self.heard: list[tuple[RecordMetadata | None, ProducerError | None, TopicPartition]] = []

    def on_acknowledgement(
        self, metadata: RecordMetadata | None, error: ProducerError | None, record: TopicPartition
    ) -> None:
        self.heard.append((metadata, error, record))


class Fixture:
    def __init__(self, *, intercepted: bool = True) -> None:
        self.metrics, self.spy = Metrics(asyncio.get_running_loop().time), Spy()
        self.observer = OutcomeObserver(self.metrics, InterceptorChain([self.spy] if intercepted else []))
        self.batch, _ = FloorRig().sent(b"a", b"b")
        self.batch.keep_encoded(bytearray(b"12345"))

    def delivered(self, base_offset: int, log_append_time_ms: int) -> None:
        """Report the batch as acknowledged now."""
        self.observer.delivered(self.batch, base_offset, log_append_time_ms, self.metrics.clock())

    def counted(self) -> dict[str, float]:
        """Return the counters of the topic."""
        numbers = self.metrics.topics[TOPIC].numbers()
        return {name: number for name, number in numbers.items() if number}


@in_virtual_time
async def test_delivered_records_are_counted_per_topic() -> None:
    fixture = Fixture(intercepted=False)
    for _ in range(2):
        fixture.delivered(0, -1)
    assert fixture.counted() == {
        "delivered_records": 4,
        "delivered_batches": 2,
        "delivered_bytes": 10,
        "delivered_uncompressed": 2 * fixture.batch.size,
    }


@in_virtual_time
async def test_delivery_times_are_added_up() -> None:
    fixture = Fixture(intercepted=False)
    for latency_s in (2.0, 1.0):
        fixture.batch.created_at = fixture.metrics.clock() - latency_s
        fixture.delivered(0, -1)
    counters = fixture.metrics.topics[TOPIC]
    assert (counters.delivered_s, counters.delivered_s_max) == (3.0, 2.0)


@in_virtual_time
async def test_timeouts_are_counted_by_reason() -> None:
    fixture = Fixture(intercepted=False)
    late = Failure(DeliveryTimeout, "late", reason=TimeoutReason.THROTTLED)
    for _ in range(2):
        fixture.observer.failed(fixture.batch, fixture.batch.columns, late)
    assert {reason: count for reason, count in fixture.metrics.timeouts.items() if count} == {
        TimeoutReason.THROTTLED: 4
    }


class Listener(Interceptor):
    def __init__(self) -> None:
        self.heard: list[tuple[Headers, float | None]] = []

    def on_acknowledgement(
        self,
        metadata: RecordMetadata | None,
        error: ProducerError | None,
        record: TopicPartition,
        headers: Headers = (),
        latency_s: float | None = None,
    ) -> None:
        self.heard.append((headers, latency_s))


@pytest.mark.parametrize("headers", [(), (("trace", b"1"),)])
@pytest.mark.parametrize("delivered", [False, True])
@in_virtual_time
async def test_interceptors_receive_headers_and_latency(delivered: bool, headers: Headers) -> None:
    listener, rig = Listener(), FloorRig()
    metrics = Metrics(rig.loop.time)
    observer = OutcomeObserver(metrics, InterceptorChain([listener]))
    await asyncio.sleep(1.0)
    for _ in range(2):
        _ = rig.append(headers=headers)
    [batch] = rig.accumulator.unresolved
    await asyncio.sleep(0.5)
    if delivered:
        observer.delivered(batch, 0, -1, rig.loop.time())
    else:
        observer.failed(batch, batch.columns, Failure(ProducerError, "no"))
    assert listener.heard == [(headers, 0.5)] * 2


@in_virtual_time
async def test_delivery_advances_the_metric_windows() -> None:
    fixture = Fixture(intercepted=False)
    fixture.delivered(0, -1)
    await asyncio.sleep(WINDOW_S)
    fixture.delivered(0, -1)
    await asyncio.sleep(WINDOW_S)
    fixture.delivered(0, -1)
    recent = fixture.metrics.topics[TOPIC].recent(fixture.metrics.clock())
    assert (recent.numbers["delivered_batches"], recent.totals["delivered_batches"]) == (2, 3)


@in_virtual_time
async def test_batch_without_encoded_bytes_counts_no_bytes() -> None:
    fixture = Fixture(intercepted=False)
    fixture.batch.release()
    fixture.delivered(0, -1)
    assert "delivered_bytes" not in fixture.counted()


@in_virtual_time
async def test_interceptors_receive_the_metadata_of_each_record() -> None:
    fixture = Fixture()
    fixture.delivered(7, -1)
    assert fixture.spy.heard == [
        (RecordMetadata(TOPIC, 0, 7, 1_000, log_append_time=False), None, WHERE),
        (RecordMetadata(TOPIC, 0, 8, 1_000, log_append_time=False), None, WHERE),
    ]


@in_virtual_time
async def test_unknown_offset_is_reported_for_each_record() -> None:
    fixture = Fixture()
    fixture.delivered(-1, -1)
    assert [metadata.offset for metadata, _, _ in fixture.spy.heard if metadata] == [-1, -1]


@pytest.mark.parametrize("log_append_time_ms", [0, 5])
@in_virtual_time
async def test_log_append_time_is_reported_to_interceptors(log_append_time_ms: int) -> None:
    fixture = Fixture()
    fixture.delivered(0, log_append_time_ms)
    assert [metadata for metadata, _, _ in fixture.spy.heard] == [
        RecordMetadata(TOPIC, 0, offset, log_append_time_ms, log_append_time=True) for offset in (0, 1)
    ]


@in_virtual_time
async def test_failed_records_are_counted_and_get_an_error_each() -> None:
    fixture = Fixture()
    fixture.observer.failed(fixture.batch, fixture.batch.columns, Failure(TopicAuthorizationFailed, "no"))
    assert fixture.counted() == {"failed_records": 2}
    fixture.observer.failed(
        fixture.batch, fixture.batch.columns.take([0]), Failure(TopicAuthorizationFailed, "no")
    )
    assert fixture.counted() == {"failed_records": 3}
    [(metadata, first, where), (_, second, _), _] = fixture.spy.heard
    assert (metadata, where) == (None, WHERE)
    assert isinstance(first, TopicAuthorizationFailed)
    assert first is not second


@in_virtual_time
async def test_failure_without_interceptors_is_only_counted() -> None:
    fixture = Fixture(intercepted=False)
    fixture.observer.failed(
        fixture.batch, fixture.batch.columns.take([0]), Failure(TopicAuthorizationFailed, "no")
    )
    assert fixture.counted() == {"failed_records": 1}


@in_virtual_time
async def test_retried_records_and_split_batches_are_counted() -> None:
    fixture = Fixture()
    for _ in range(2):
        fixture.observer.retried(fixture.batch)
        fixture.observer.split(fixture.batch)
    assert fixture.counted() == {"retried_records": 4, "splits": 2}
    assert fixture.spy.heard == [], "that is no outcome"
