"""Interceptors receive one outcome per record they have seen, with the headers that identify it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeAlias

import pytest

from aioproducer import (
    BufferFull,
    DeliveryTimeout,
    MetadataUnavailable,
    Producer,
    ProducerError,
    ProducerRecord,
    RecordMetadata,
    RecordTooLarge,
    SendManyError,
    SerializationError,
    TopicAuthorizationFailed,
    TopicPartition,
)
from aioproducer.errors import InvalidRecord, MessageTooLarge, NotEnoughReplicas
from aioproducer.testing import Cluster
from aioproducer.types import Headers
from tests.scenarios.rig import TOPIC, producing, scenario, settle, values

Outcome: TypeAlias = int | type[ProducerError]
"""An offset, or the class of the error."""


class Ledger:
    """Interceptor that numbers the records and stores the outcome of each number."""

    def __init__(self) -> None:
        self.begun: list[Any] = []
        self.ended: dict[int, Outcome] = {}
        self.told: list[tuple[ProducerError, TopicPartition]] = []

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        number = b"%d" % len(self.begun)
        self.begun.append(record.value)
        record.headers = [*record.headers, ("number", number)]
        return record

    def on_acknowledgement(
        self,
        metadata: RecordMetadata | None,
        error: ProducerError | None,
        record: TopicPartition,
        headers: Headers,
    ) -> None:
        number = int(dict(headers)["number"] or b"-1")
        assert number not in self.ended, "told twice"
        if metadata is not None:
            self.ended[number] = metadata.offset
        elif error is not None:
            self.told.append((error, record))
            self.ended[number] = type(error)

    @property
    def outcomes(self) -> list[Outcome]:
        """Outcome of each record, in the order of the calls."""
        assert sorted(self.ended) == list(range(len(self.begun)))
        return [self.ended[number] for number in range(len(self.begun))]


async def failing(call: Awaitable[Any], kind: type[BaseException]) -> BaseException:
    with pytest.raises(kind) as raised:
        await call
    return raised.value


class TestAppended:
    @scenario
    async def test_interceptor_is_called_once_per_record(self) -> None:
        ledger = Ledger()
        async with producing(interceptors=[ledger], linger_ms=100, acquainted=False) as (producer, _):
            sent = await asyncio.gather(
                *(producer.send(TOPIC, b"v", headers={"own": b"1"}) for _ in range(5))
            )
            await producer.send_many(TOPIC, [b"v"] * 5)
            assert ledger.outcomes == [*(each.offset for each in sent), 5, 6, 7, 8, 9]

    @scenario
    async def test_outcomes_are_reported_once_after_retries_and_splits(self) -> None:
        ledger = Ledger()
        async with producing(interceptors=[ledger], linger_ms=100, acquainted=False) as (producer, cluster):
            produce = cluster.on("produce", topic=TOPIC, times=2)
            produce.answer(NotEnoughReplicas)
            cluster.on("produce", topic=TOPIC, after=2).answer(MessageTooLarge)
            await producer.send_many(TOPIC, [b"%d" % number for number in range(6)])
            assert ledger.outcomes == [0, 1, 2, 3, 4, 5]

    @scenario
    async def test_outcomes_are_reported_if_the_whole_batch_fails(self) -> None:
        ledger = Ledger()
        async with producing(interceptors=[ledger], linger_ms=100, acquainted=False) as (producer, cluster):
            cluster.on("produce", topic=TOPIC).answer(TopicAuthorizationFailed)
            await failing(producer.send_many(TOPIC, [b"v"] * 3), SendManyError)
            assert ledger.outcomes == [TopicAuthorizationFailed] * 3
            assert {where for _, where in ledger.told} == {(TOPIC, 0)}

    @scenario
    async def test_outcomes_are_reported_after_cancelled_waits(self) -> None:
        ledger = Ledger()
        async with producing(interceptors=[ledger], linger_ms=500, acquainted=False) as (producer, _):
            await producer.partitions_for(TOPIC)
            sending = asyncio.create_task(producer.send(TOPIC, b"v"))
            future = producer.send_nowait(TOPIC, b"v")
            await settle()
            sending.cancel()
            future.cancel()
            await producer.flush()
            assert ledger.outcomes == [0, 1]

    @scenario
    async def test_outcome_of_a_record_that_expires_in_flight_is_reported(self) -> None:
        ledger = Ledger()
        async with producing(
            interceptors=[ledger],
            acquainted=False,
            delivery_timeout_ms=1_000,
            request_timeout_ms=500,
            linger_ms=0,
        ) as (producer, cluster):
            cluster.on("produce", topic=TOPIC, times=9).delay(0.6)
            await failing(producer.send(TOPIC, b"v"), DeliveryTimeout)
            assert ledger.outcomes == [DeliveryTimeout]


class TestRestOfTheBatch:
    @scenario
    async def test_interceptor_receives_a_record_refused_by_index(self) -> None:
        ledger = Ledger()
        async with producing(interceptors=[ledger], acquainted=False) as (producer, cluster):
            cluster.on("produce", topic=TOPIC).answer(InvalidRecord, record_errors={1: "no"})
            await failing(producer.send_many(TOPIC, [b"a", b"b", b"c"]), SendManyError)
            assert ledger.outcomes == [0, InvalidRecord, 1]

    @scenario
    async def test_interceptor_receives_a_record_that_timed_out_unsent(self) -> None:
        ledger = Ledger()
        async with producing(interceptors=[ledger], acquainted=False, linger_ms=500) as (producer, _):
            await producer.partitions_for(TOPIC)
            first = producer.send_nowait(TOPIC, b"a")
            late = asyncio.create_task(producer.send(TOPIC, b"b", timeout_s=0.1))
            await settle()
            last = producer.send_nowait(TOPIC, b"c")
            await failing(late, DeliveryTimeout)
            await asyncio.wait([first, last])
            assert ledger.outcomes == [0, DeliveryTimeout, 1]


class TestNeverAppended:
    @scenario
    async def test_outcomes_include_refused_calls(self) -> None:
        ledger = Ledger()
        async with producing(
            interceptors=[ledger],
            acquainted=False,
            value_serializer=str.encode,
            buffer_memory=1_000,
            linger_ms=1_000,
        ) as (producer, _):
            with pytest.raises(MetadataUnavailable):
                _ = producer.send_nowait(TOPIC, "unknown yet")
            await producer.partitions_for(TOPIC)
            await failing(producer.send(TOPIC, 5), SerializationError)
            await failing(producer.send(TOPIC, "x" * 2_000), RecordTooLarge)
            future = producer.send_nowait(TOPIC, "x" * 700)
            with pytest.raises(BufferFull):
                _ = producer.send_nowait(TOPIC, "x" * 700)
            await failing(producer.send(TOPIC, "v", partition=7), ValueError)
            with pytest.raises(ValueError, match="partition=7"):
                _ = producer.send_nowait(TOPIC, "v", partition=7)
            await future
            refused = [MetadataUnavailable, SerializationError, RecordTooLarge]
            assert ledger.outcomes == [*refused, 0, BufferFull, ProducerError, ProducerError]
            error, where = ledger.told[-1]
            assert isinstance(error.__cause__, ValueError)
            assert "not appended: partition=7" in str(error)
            assert where == (TOPIC, 7)

    @scenario
    async def test_outcomes_include_wrong_arguments(self) -> None:
        ledger = Ledger()
        headers: Any = [("good", b"1"), ("bad", 5)]
        async with producing(interceptors=[ledger], acquainted=False) as (producer, _):
            await failing(producer.send(TOPIC, "text"), TypeError)
            await failing(producer.send(TOPIC, b"v", headers=headers), TypeError)
            await failing(producer.send("no topic", b"v"), ValueError)
            assert ledger.outcomes == [ProducerError] * 3
            assert [type(error.__cause__) for error, _ in ledger.told] == [TypeError, TypeError, ValueError]

    @scenario
    async def test_interceptor_receives_a_record_made_invalid(self) -> None:
        class Spoiler:
            def on_send(self, record: ProducerRecord) -> ProducerRecord:
                if record.value == b"bad":
                    record.value = 5
                if record.value == b"astray":
                    record.topic = "elsewhere"
                return record

        ledger = Ledger()
        async with producing(interceptors=[ledger, Spoiler()], acquainted=False) as (producer, cluster):
            await failing(producer.send(TOPIC, b"bad"), ProducerError)
            error = await failing(
                producer.send_many(TOPIC, [b"good", b"bad", b"astray", b"good"]), SendManyError
            )
            assert isinstance(error, SendManyError)
            assert list(error.result.failures) == [1, 2]
            assert ledger.outcomes == [ProducerError, 0, ProducerError, ProducerError, 1]
            assert values(cluster) == [b"good", b"good"]

    @scenario
    async def test_interceptor_receives_a_record_cancelled_waiting(self) -> None:
        ledger = Ledger()
        async with producing(interceptors=[ledger], acquainted=False) as (producer, cluster):
            cluster.on("metadata", topic=TOPIC).delay(0.5)
            first, second = (asyncio.create_task(producer.send(TOPIC, b"v")) for _ in range(2))
            await settle()
            first.cancel()
            second.cancel()
            await asyncio.wait([first, second])
            assert ledger.outcomes == [ProducerError] * 2
            assert isinstance(ledger.told[0][0].__cause__, asyncio.CancelledError)
            await producer.send(TOPIC, b"v")
            assert ledger.outcomes[2:] == [0]

    @scenario
    async def test_interceptor_receives_a_record_cancelled_when_appended(self) -> None:
        """A call that leaves the line appends for later calls, so the record is sent even if its call is cancelled."""
        ledger = Ledger()
        sending: list[asyncio.Task[RecordMetadata]] = []

        class CancelsTheNext:
            keyless_is_sticky = False

            def partition(self, *_: object) -> int:
                if len(ledger.begun) == 2:
                    asyncio.get_running_loop().call_soon(sending[1].cancel)
                return 0

        async with producing(
            interceptors=[ledger], acquainted=False, partitioner=CancelsTheNext(), linger_ms=100
        ) as (producer, cluster):
            sending.extend(asyncio.create_task(producer.send(TOPIC, b"%d" % number)) for number in range(2))
            await asyncio.wait(sending)
            assert sending[1].cancelled()
            await producer.flush()
            assert values(cluster) == [b"0", b"1"]
            assert ledger.outcomes == [0, 1]

    @scenario
    async def test_interceptor_receives_records_of_a_cancelled_send_many(self) -> None:
        ledger = Ledger()
        async with producing(interceptors=[ledger], acquainted=False, buffer_memory=1_000) as (
            producer,
            cluster,
        ):
            cluster.on("produce", topic=TOPIC).delay(1)
            sending = asyncio.create_task(producer.send_many(TOPIC, [b"x" * 400] * 4))
            await asyncio.sleep(0.5)
            sending.cancel()
            await asyncio.wait([sending])
            await producer.flush()
            appended = len(values(cluster))
            assert 0 < appended < 4
            assert ledger.outcomes == [*range(appended), *([ProducerError] * (4 - appended))]


class TestAround:
    @pytest.mark.parametrize("sending", ["send", "send_many"])
    def test_interceptor_chain_continues_after_a_failure(self, sending: str) -> None:
        heard: list[str] = []

        class Marks:
            def __init__(self, name: str, broken: bool = False) -> None:
                self.name, self.broken = name, broken

            def on_send(self, record: ProducerRecord) -> ProducerRecord:
                record.value += self.name.encode()
                if self.broken:
                    raise LookupError
                return record

            def on_acknowledgement(self, *_: object) -> None:
                heard.append(self.name)
                if self.broken:
                    raise LookupError

        @scenario
        async def told() -> None:
            chain = [Marks("a"), Marks("b", broken=True), Marks("c")]
            async with producing(interceptors=chain, acquainted=False) as (producer, cluster):
                call: Callable[[Producer, Cluster], Coroutine[Any, Any, Any]] = {
                    "send": lambda producer, _: producer.send(TOPIC, b"-"),
                    "send_many": lambda producer, _: producer.send_many(TOPIC, [b"-"]),
                }[sending]
                await call(producer, cluster)
                assert values(cluster) == [b"-ac"]

        told()
        assert heard == ["a", "b", "c"]


@scenario
async def test_interceptor_receives_the_latency_of_each_record() -> None:
    heard: list[float | None] = []

    class Timing:
        def on_acknowledgement(
            self, metadata: object, error: object, where: object, headers: object, latency_s: float | None
        ) -> None:
            heard.append(latency_s)

    async with producing(interceptors=[Timing()], linger_ms=500) as (producer, cluster):
        heard.clear()
        await asyncio.sleep(100)
        cluster.on("produce", topic=TOPIC).delay(1.0)
        await producer.send(TOPIC, b"v")
        assert heard == [pytest.approx(1.5, abs=0.01)]
        told = producer.metrics()["producer"]
        assert told["record_latency_avg"] == told["record_latency_max"] == pytest.approx(1_500, abs=10)
        cluster.on("produce", topic=TOPIC).delay(1.0).answer(TopicAuthorizationFailed)
        with pytest.raises(TopicAuthorizationFailed):
            await producer.send(TOPIC, b"v")
        assert heard[1:] == [pytest.approx(1.5, abs=0.01)], "of failures, too"
