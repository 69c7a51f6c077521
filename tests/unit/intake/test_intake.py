from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, cast

import pytest

from aioproducer import clock as clock_module
from aioproducer.batching.batch import RecordFuture
from aioproducer.batching.failure import Failure
from aioproducer.cluster.partitioner import (
    CallablePartitioner,
    Murmur2Partitioner,
    Partitioner,
    RoundRobinPartitioner,
)
from aioproducer.errors import (
    BufferFull,
    BufferTimeout,
    DeliveryTimeout,
    MetadataTimeout,
    MetadataUnavailable,
    ProducerClosed,
    ProducerError,
    RecordTooLarge,
    SerializationError,
    TopicAuthorizationFailed,
    WrongLoop,
)
from aioproducer.intake.intake import Intake
from aioproducer.intake.pending import Pending
from aioproducer.intake.settings import IntakeSettings
from aioproducer.interceptors import Interceptor, InterceptorChain
from aioproducer.serializers import Serializer, string_serializer
from aioproducer.testing import in_virtual_time
from aioproducer.types import HeadersInput, ProducerRecord, RecordMetadata, TopicPartition
from tests.unit.workbench import TOPIC, Workbench, topic_info

NOW_MS = 1_700_000_000_000
KEY_OF_2_OF_4 = b"customer-7"


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock_module, "wall_ms", lambda: NOW_MS)


class Spy(Interceptor):
    """Remembers what it sees; may change records."""

    def __init__(self, change: Callable[[ProducerRecord], ProducerRecord] = lambda record: record) -> None:
        self.change = change
        self.seen: list[ProducerRecord] = []
        self.errors: list[tuple[ProducerError | None, TopicPartition]] = []

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        self.seen.append(record)
        return self.change(record)

    def on_acknowledgement(
        self, metadata: RecordMetadata | None, error: ProducerError | None, record: TopicPartition
    ) -> None:
        assert metadata is None
        self.errors.append((error, record))


class Bench(Workbench):
    """With an intake on top."""

    def __init__(
        self,
        *,
        partitions: int = 1,
        partitioner: Partitioner | None = None,
        interceptors: Sequence[Interceptor] = (),
        key_serializer: Serializer | None = None,
        value_serializer: Serializer | None = None,
        max_block_s: float = 60.0,
        **settings: Any,
    ) -> None:
        super().__init__(partitions=partitions, **settings)
        self.intake = Intake(
            IntakeSettings(
                key_serializer=key_serializer,
                value_serializer=value_serializer,
                partitioner=partitioner or Murmur2Partitioner(),
                interceptors=InterceptorChain(interceptors),
                max_block_s=max_block_s,
            ),
            accumulator=self.accumulator,
            settler=self.settler,
            refresher=self.refresher.real,
        )

    def offer(
        self,
        value: Any = b"value",
        key: Any = None,
        *,
        topic: Any = TOPIC,
        partition: Any = None,
        headers: HeadersInput = (),
        timestamp_ms: Any = None,
    ) -> RecordFuture | Pending:
        return self.intake.offer(topic, value, key, partition, headers, timestamp_ms)

    def appended(self, value: Any = b"value", key: Any = None, **more: Any) -> RecordFuture:
        outcome = self.offer(value, key, **more)
        assert isinstance(outcome, asyncio.Future)
        return outcome

    def put(self, value: Any = b"value", key: Any = None, **more: Any) -> None:
        _ = self.appended(value, key, **more)

    def pending(self, value: Any = b"value", key: Any = None, **more: Any) -> Pending:
        outcome = self.offer(value, key, **more)
        assert isinstance(outcome, Pending)
        return outcome

    def records(self, partition: int = 0) -> list[tuple[Any, ...]]:
        """Value, key, headers and timestamp of what is queued for a partition."""
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


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


class TestOffer:
    @pytest.mark.parametrize("headers", [None, "", b"", 0, False])
    async def test_headers_that_are_none_at_all_are_refused_like_other_wrong_ones(self, headers: Any) -> None:
        """Also where nothing else is to be checked: whether a topic is known already is no reason to be lenient."""
        bench = Bench()
        with pytest.raises(TypeError, match="headers must be pairs"):
            bench.offer(headers=headers)
        assert bench.queued == 0

    async def test_a_plain_record_is_appended_at_once(self) -> None:
        bench = Bench()
        value = b"value"
        future = bench.appended(value)
        assert not future.done()
        [(kept, key, headers, timestamp_ms)] = bench.records()
        assert kept is value
        assert (key, headers, timestamp_ms) == (None, (), NOW_MS)

    async def test_a_record_with_everything_is_appended_at_once(self) -> None:
        bench = Bench(partitions=3)
        bench.put(b"v", b"k", partition=2, headers={"h": b"1"}, timestamp_ms=7)
        assert bench.records(2) == [(b"v", b"k", (("h", b"1"),), 7)]

    async def test_a_null_is_a_value(self) -> None:
        bench = Bench()
        bench.put(None, b"k")
        assert bench.records() == [(None, b"k", (), NOW_MS)]

    async def test_what_could_change_is_copied(self) -> None:
        bench = Bench()
        value, key = bytearray(b"value"), bytearray(b"key")
        bench.put(value, key)
        value[:], key[:] = b"other", b"odd"
        assert bench.records() == [(b"value", b"key", (), NOW_MS)]

    async def test_a_key_goes_where_kafka_puts_it(self) -> None:
        bench = Bench(partitions=4)
        bench.put(b"v", KEY_OF_2_OF_4)
        bench.put(b"w", KEY_OF_2_OF_4, timestamp_ms=1)
        chosen = Murmur2Partitioner().partition(TOPIC, KEY_OF_2_OF_4, 4, ())
        assert chosen is not None
        assert [value for value, *_ in bench.records(chosen)] == [b"v", b"w"]

    async def test_records_without_a_key_stick_together(self) -> None:
        bench = Bench(partitions=4)
        for _ in range(3):
            bench.put()
        assert sorted(len(bench.records(partition)) for partition in range(4)) == [0, 0, 0, 3]

    async def test_a_large_record_is_measured_with_care(self) -> None:
        bench = Bench()
        bench.put(b"x" * 20_000)
        [batch] = bench.accumulator.unresolved
        assert batch.size >= 20_000 + 61

    async def test_a_record_that_could_never_be_sent_is_refused(self) -> None:
        bench = Bench(max_request_bytes=1_000)
        with pytest.raises(RecordTooLarge, match=r"more than max_request_size=1,000"):
            bench.offer(b"x" * 1_000)
        with pytest.raises(RecordTooLarge):
            bench.offer(b"x" * 940)
        bench.put(b"x" * (1_000 - 61 - 14))
        assert bench.queued == 1

    async def test_a_topic_that_is_known_need_not_have_been_written_to(self) -> None:
        bench = Bench(partitions=0)
        bench.refresher.knows(TOPIC, 1, 1)
        bench.put()
        assert len(bench.accumulator.topics[TOPIC].leaders) == 2

    @pytest.mark.parametrize(
        ("arguments", "error", "told"),
        [
            ({"topic": None}, TypeError, "topic must be str"),
            ({"topic": ["unhashable"]}, TypeError, "topic must be str"),
            ({"topic": "no such name"}, ValueError, "topic 'no such name'"),
            ({"value": "text"}, TypeError, "value must be bytes.*value_serializer"),
            ({"key": "text"}, TypeError, "key must be bytes.*key_serializer"),
            ({"partition": -1}, ValueError, "partition must be 0 to 2"),
            ({"partition": "0"}, TypeError, "partition must be int"),
            ({"headers": {"h": 1}}, TypeError, "headers: the value of 'h'"),
            ({"headers": 5}, TypeError, "headers must be pairs"),
            ({"timestamp_ms": -1}, ValueError, "timestamp_ms must be milliseconds"),
            ({"timestamp_ms": 1.5}, TypeError, "timestamp_ms must be int"),
        ],
    )
    async def test_a_wrong_argument_is_named_and_nothing_appended(
        self, arguments: dict[str, Any], error: type[Exception], told: str
    ) -> None:
        bench = Bench()
        with pytest.raises(error, match=told):
            bench.offer(**arguments)
        assert bench.queued == 0
        assert list(bench.accumulator.topics) == [TOPIC]


class TestWrongLoop:
    async def test_another_loop_is_refused(self) -> None:
        bench = Bench()

        async def elsewhere() -> None:
            with pytest.raises(WrongLoop, match="run_coroutine_threadsafe"):
                bench.offer()

        await asyncio.to_thread(asyncio.run, elsewhere())

    async def test_a_thread_without_a_loop_is_refused(self) -> None:
        bench = Bench()
        errors: list[Exception] = []

        def elsewhere() -> None:
            try:
                bench.offer()
            except WrongLoop as error:
                errors.append(error)

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        assert len(errors) == 1
        assert bench.queued == 0


class TestWhoHasToWait:
    async def test_records_for_an_unknown_topic(self) -> None:
        pending = Bench(partitions=0).pending(bytearray(b"v"), b"k", headers={"h": b"1"})
        assert pending == Pending(TOPIC, b"v", b"k", None, (("h", b"1"),), NOW_MS, None)

    async def test_records_behind_one_that_waits(self) -> None:
        bench = Bench()
        bench.accumulator.topics[TOPIC].line.length = 1
        assert bench.pending().ready is None
        assert bench.pending(b"v", b"k", timestamp_ms=1).ready is None
        assert bench.queued == 0

    async def test_records_for_a_partition_that_is_not_known(self) -> None:
        assert Bench(partitions=1).pending(partition=1).partition == 1

    @pytest.mark.parametrize("timestamp_ms", [None, 5])
    async def test_records_without_memory_and_their_partition_is_chosen_once(
        self, timestamp_ms: int | None
    ) -> None:
        chosen = []

        def choose(key: bytes | None, partitions: Sequence[int], available: Sequence[int]) -> int:
            chosen.append(key)
            return 1

        bench = Bench(partitions=2, partitioner=CallablePartitioner(choose))
        bench.use_up_memory()
        pending = bench.pending(b"v", b"k", timestamp_ms=timestamp_ms)
        assert pending.ready is not None
        assert pending.ready.queue is bench.queue(1)
        assert chosen == [b"k"]


class TestSerializers:
    async def test_they_make_bytes_of_anything(self) -> None:
        bench = Bench(key_serializer=string_serializer, value_serializer=lambda value: b"%d" % value)
        bench.put(5, "key")
        assert bench.records() == [(b"5", b"key", (), NOW_MS)]

    async def test_what_they_return_is_copied_if_it_could_change(self) -> None:
        buffer = bytearray(b"before")
        bench = Bench(value_serializer=lambda _: buffer)
        bench.put("anything")
        buffer[:] = b"after!"
        assert bench.records()[0][0] == b"before"

    @pytest.mark.parametrize("argument", ["key", "value"])
    async def test_what_they_raise_is_told(self, argument: str) -> None:
        bench = Bench(**{f"{argument}_serializer": int.to_bytes})  # type: ignore[arg-type]
        with pytest.raises(
            SerializationError,
            match=rf"the {argument} of a record for 'orders' \(str\) could not be serialized",
        ) as raised:
            bench.offer(**cast("Any", {"value": b"v", argument: "text"}))
        assert isinstance(raised.value.__cause__, TypeError)
        assert bench.queued == 0

    async def test_they_have_to_return_bytes(self) -> None:
        bench = Bench(value_serializer=cast("Serializer", str))
        with pytest.raises(
            SerializationError, match=r"what value_serializer returned must be bytes.* not str"
        ):
            bench.offer(5)


class TestPartitioners:
    async def test_one_without_stickiness_is_asked_for_records_without_a_key_too(self) -> None:
        bench = Bench(partitions=3, partitioner=RoundRobinPartitioner())
        for _ in range(3):
            bench.put()
        assert [len(bench.records(partition)) for partition in range(3)] == [1, 1, 1]

    async def test_a_partition_that_is_given_is_not_asked_about(self) -> None:
        bench = Bench(partitions=2, partitioner=CallablePartitioner(lambda *_: pytest.fail("asked")))
        bench.put(partition=1)

    @pytest.mark.parametrize("headers", [(), {"h": b"1"}])
    async def test_what_it_raises_is_told(self, headers: HeadersInput) -> None:
        error = LookupError("no idea")

        def fail(*_: object) -> int:
            raise error

        bench = Bench(partitions=2, partitioner=CallablePartitioner(fail))
        with pytest.raises(ProducerError, match=r"the partitioner failed .* 'orders': no idea") as raised:
            bench.offer(b"v", b"k", headers=headers)
        assert raised.value.__cause__ is error
        assert bench.queued == 0

    @pytest.mark.parametrize("chosen", [-1, 2, "0"])
    async def test_it_has_to_choose_a_partition_that_exists(self, chosen: Any) -> None:
        class Odd:
            keyless_is_sticky: ClassVar[bool] = False

            def partition(self, *_: object) -> int | None:
                return cast("int", chosen)

        bench = Bench(partitions=2, partitioner=Odd())
        with pytest.raises(ProducerError, match="the partitioner failed"):
            bench.offer()
        assert bench.queued == 0


class TestInterceptors:
    async def test_they_see_what_was_given_and_may_change_it(self) -> None:
        def change(record: ProducerRecord) -> ProducerRecord:
            return ProducerRecord(
                record.topic, b"new", key=b"key", partition=1, headers={"h": bytearray(b"1")}, timestamp_ms=9
            )

        spy = Spy(change)
        bench = Bench(partitions=2, interceptors=[spy])
        bench.put(b"old")
        assert spy.seen == [ProducerRecord(TOPIC, b"old")]
        assert bench.records(1) == [(b"new", b"key", (("h", b"1"),), 9)]

    async def test_they_come_before_the_serializers(self) -> None:
        spy = Spy(lambda record: ProducerRecord(record.topic, record.value + 1))
        bench = Bench(interceptors=[spy], value_serializer=lambda value: b"%d" % value)
        bench.put(5)
        assert bench.records()[0][0] == b"6"

    async def test_they_may_choose_another_topic(self) -> None:
        bench = Bench(interceptors=[Spy(lambda record: ProducerRecord("audit", record.value))])
        bench.learn("audit", 1)
        bench.put()
        assert bench.queued == 1
        assert bench.queue(0).idle

    async def test_what_they_make_of_it_is_checked(self) -> None:
        spy = Spy(lambda record: ProducerRecord(record.topic, "text"))
        bench = Bench(interceptors=[spy])
        with pytest.raises(
            ProducerError, match="an interceptor spoilt a record for 'orders': value must be bytes"
        ):
            bench.offer()
        assert [type(error) for error, _ in spy.errors] == [ProducerError]

    async def test_a_wrong_argument_stays_the_fault_of_the_caller(self) -> None:
        bench = Bench(interceptors=[Spy()])
        with pytest.raises(TypeError, match=r"^value must be bytes"):
            bench.offer("text")

    async def test_they_hear_of_a_record_that_fails_before_it_is_appended(self) -> None:
        spy = Spy()
        bench = Bench(partitions=2, interceptors=[spy], value_serializer=string_serializer)
        for partition in (None, 1):
            with pytest.raises(SerializationError):
                bench.offer(5, partition=partition)
        assert [(type(error), where) for error, where in spy.errors] == [
            (SerializationError, (TOPIC, -1)),
            (SerializationError, (TOPIC, 1)),
        ]


class TestRefusal:
    async def test_of_an_unknown_topic_it_is_being_asked_for(self) -> None:
        bench = Bench(partitions=0)
        error = bench.intake.refusal(bench.pending())
        assert isinstance(error, MetadataUnavailable)
        assert bench.refresher.touched == [TOPIC]
        bench.accumulator.topic(TOPIC)  # somebody else waits for it
        assert isinstance(bench.intake.refusal(bench.pending()), MetadataUnavailable)

    async def test_a_partition_that_does_not_exist_may_be_new(self) -> None:
        bench = Bench(partitions=2)
        error = bench.intake.refusal(bench.pending(partition=2))
        assert isinstance(error, ValueError)
        assert str(error) == "partition=2: 'orders' has 2 partitions, 0 to 1"
        assert bench.refresher.refreshes == [frozenset({TOPIC})]

    async def test_earlier_calls_may_not_be_overtaken(self) -> None:
        bench = Bench()
        bench.accumulator.topics[TOPIC].line.length = 3
        error = bench.intake.refusal(bench.pending(partition=0))
        assert isinstance(error, BufferFull)
        assert "3 earlier calls for 'orders' are waiting" in str(error)

    async def test_without_memory_it_tells_how_much_there_is(self) -> None:
        bench = Bench()
        bench.use_up_memory()
        error = bench.intake.refusal(bench.pending())
        assert isinstance(error, BufferFull)
        assert str(error) == "buffer_memory=1,000,000 bytes are in use but 0, and 0 calls wait for some"

    async def test_interceptors_hear_of_it(self) -> None:
        spy = Spy()
        bench = Bench(interceptors=[spy])
        bench.use_up_memory()
        error = bench.intake.refusal(bench.pending())
        assert spy.errors == [(error, (TOPIC, -1))]


class TestWait:
    """What happens to a record that could not be appended at once."""

    @staticmethod
    def wait(bench: Bench, pending: Pending, timeout_s: float | None = None) -> asyncio.Task[RecordFuture]:
        return asyncio.create_task(bench.intake.wait(pending, bench.loop.time(), timeout_s))

    @in_virtual_time
    async def test_it_is_appended_once_the_topic_is_known(self) -> None:
        bench = Bench(partitions=0, key_serializer=string_serializer)
        waiting = self.wait(bench, bench.pending(b"v", "key"))
        await settle()
        bench.refresher.asked[0][2].set_result(topic_info(TOPIC, 1))
        assert not (await waiting).done()
        assert bench.records() == [(b"v", b"key", (), NOW_MS)]

    @in_virtual_time
    async def test_it_is_appended_once_there_is_memory(self) -> None:
        bench = Bench()
        bench.use_up_memory()
        waiting = self.wait(bench, bench.pending(b"v", b"k"))
        await settle()
        assert bench.queued == 0
        bench.accumulator.memory.give_back(1_000)
        _ = await waiting
        assert bench.records() == [(b"v", b"k", (), NOW_MS)]
        [batch] = bench.accumulator.unresolved
        assert bench.accumulator.memory.free == 1_000 - batch.size

    @in_virtual_time
    async def test_memory_that_is_there_by_then_is_not_waited_for(self) -> None:
        bench = Bench()
        waiting = [self.wait(bench, bench.intake.pend(TOPIC, b"v", None, None, (), None)) for _ in range(2)]
        for each in waiting:
            _ = await each
        assert bench.queued == 2

    @in_virtual_time
    async def test_metadata_and_memory_share_one_deadline(self) -> None:
        bench = Bench(partitions=0, max_block_s=3.0)
        bench.use_up_memory()
        waiting = self.wait(bench, bench.pending())
        await asyncio.sleep(2)
        bench.refresher.asked[0][2].set_result(topic_info(TOPIC, 1))
        with pytest.raises(BufferTimeout):
            _ = await waiting
        assert bench.loop.time() == 3

    @pytest.mark.parametrize(
        ("max_block_s", "delivery_timeout_s", "timeout_s"),
        [(2.0, 9.0, None), (9.0, 2.0, None), (9.0, 9.0, 2.0), (2.0, 9.0, 9.0)],
    )
    @in_virtual_time
    async def test_the_shortest_of_the_limits_ends_the_waiting(
        self, max_block_s: float, delivery_timeout_s: float, timeout_s: float | None
    ) -> None:
        bench = Bench(max_block_s=max_block_s, delivery_timeout_s=delivery_timeout_s)
        bench.use_up_memory()
        with pytest.raises(BufferTimeout):
            _ = await self.wait(bench, bench.pending(), timeout_s)
        assert bench.loop.time() == 2

    @in_virtual_time
    async def test_an_unknown_topic_is_not_waited_for_longer_either(self) -> None:
        bench = Bench(partitions=0, max_block_s=2.0)
        first, second = self.wait(bench, bench.pending()), self.wait(bench, bench.pending())
        with pytest.raises(MetadataTimeout):
            _ = await second
        assert bench.loop.time() == 2
        await asyncio.wait([first])
        assert isinstance(first.exception(), TimeoutError)

    @in_virtual_time
    async def test_what_could_not_be_checked_before_is_checked_then(self) -> None:
        spy = Spy()
        bench = Bench(partitions=0, interceptors=[spy], value_serializer=string_serializer)
        waiting = self.wait(bench, bench.pending(5))
        await settle()
        bench.refresher.asked[0][2].set_result(topic_info(TOPIC, 1))
        with pytest.raises(SerializationError):
            _ = await waiting
        assert [type(error) for error, _ in spy.errors] == [SerializationError]

    @in_virtual_time
    async def test_interceptors_hear_of_metadata_that_did_not_come(self) -> None:
        spy = Spy()
        bench = Bench(partitions=0, interceptors=[spy])
        waiting = self.wait(bench, bench.pending())
        await settle()
        error = TopicAuthorizationFailed("no")
        bench.refresher.asked[0][2].set_exception(error)
        with pytest.raises(TopicAuthorizationFailed):
            _ = await waiting
        assert spy.errors == [(error, (TOPIC, -1))]

    @in_virtual_time
    async def test_a_topic_that_goes_away_meanwhile_keeps_the_record_waiting_for_a_leader(self) -> None:
        bench = Bench()
        bench.use_up_memory()
        waiting = self.wait(bench, bench.pending())
        await settle()
        bench.accumulator.update_topic(TOPIC, ())
        bench.accumulator.memory.give_back(1_000)
        _ = await waiting
        assert bench.queue(0).leader == -1
        assert bench.queued == 1

    @in_virtual_time
    async def test_cancelled_it_leaves_nothing_behind(self) -> None:
        bench = Bench()
        bench.use_up_memory()
        waiting = self.wait(bench, bench.pending())
        await settle()
        waiting.cancel()
        await asyncio.wait([waiting])
        assert bench.queued == 0
        assert not bench.accumulator.memory.waiters
        bench.accumulator.memory.give_back(1_000)
        bench.put()

    @in_virtual_time
    async def test_closed_meanwhile_it_is_not_appended(self) -> None:
        bench = Bench()
        bench.use_up_memory()
        waiting = self.wait(bench, bench.pending())
        await settle()
        bench.accumulator.close(Failure(ProducerClosed, "closed"))
        with pytest.raises(ProducerClosed):
            _ = await waiting
        assert bench.queued == 0


class TestServedByAnother:
    """The call before appends for those behind it, before their tasks run again."""

    @staticmethod
    async def served(bench: Bench, *, after_s: float = 0.0) -> asyncio.Task[RecordFuture]:
        """Return a call that waited for so long behind another, whose record is in a batch, and that has not run since."""
        pending = bench.intake.pend(TOPIC, b"v", None, None, (), None)
        async with bench.intake.turn(bench.accumulator.topics[TOPIC], 1e9):
            waiting = asyncio.create_task(bench.intake.wait(pending, bench.loop.time(), None))
            await asyncio.sleep(after_s)
            await settle()
        assert bench.queued == 1
        assert not waiting.done()
        return waiting

    @in_virtual_time
    async def test_it_gets_the_future_of_its_record(self) -> None:
        bench = Bench(delivery_timeout_s=10.0)
        future = await (await self.served(bench, after_s=4.0))
        [batch] = bench.drain()
        assert batch.deadline == 10, "it counts from the call"
        bench.settler.deliver(batch, 5)
        assert future.result().offset == 5

    @in_virtual_time
    async def test_closed_before_it_runs_it_is_counted_once(self) -> None:
        bench = Bench()
        waiting = await self.served(bench)
        closed = Failure(ProducerClosed, "closed")
        arriving = bench.accumulator.arriving
        bench.accumulator.close(closed)
        assert arriving + bench.settler.fail_everything(closed) == 1
        assert isinstance((await waiting).exception(), ProducerClosed)

    @in_virtual_time
    async def test_a_batch_that_has_ended_before_it_runs_expires_no_more(self) -> None:
        bench = Bench(delivery_timeout_s=10.0)
        waiting = await self.served(bench, after_s=4.0)
        [batch] = bench.drain()
        bench.settler.deliver(batch, 0)
        assert (await waiting).result().offset == 0
        assert bench.accumulator.deadlines.next_due() is None

    @in_virtual_time
    async def test_cancelled_before_it_runs_the_record_goes_on(self) -> None:
        bench = Bench()
        waiting = await self.served(bench)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled()
        assert bench.queued == 1
        assert bench.accumulator.callers == 0


class TestDeadlines:
    @in_virtual_time
    async def test_the_delivery_timeout_counts_from_the_call(self) -> None:
        bench = Bench(delivery_timeout_s=10.0)
        bench.use_up_memory()
        pending, called_at = bench.pending(), bench.loop.time()
        waiting = asyncio.create_task(bench.intake.wait(pending, called_at, None))
        await asyncio.sleep(4)
        bench.accumulator.memory.give_back(1_000)
        _ = await waiting
        [batch] = bench.accumulator.unresolved
        assert batch.deadline == 10

    @in_virtual_time
    async def test_a_shorter_timeout_fails_the_record_at_its_time(self) -> None:
        bench = Bench()
        await asyncio.sleep(1)
        future = await bench.intake.wait(bench.intake.pend(TOPIC, b"v", None, None, (), None), 1.0, 2.5)
        await asyncio.sleep(2.4)
        assert not future.done()
        await asyncio.sleep(0.1)
        error = future.exception()
        assert isinstance(error, DeliveryTimeout)
        assert str(error) == "orders-0: not acknowledged within the call's timeout_s=2.5"
        assert not error.possibly_persisted
        assert bench.queued == 0

    @in_virtual_time
    async def test_once_it_is_sent_only_the_waiter_fails(self) -> None:
        bench = Bench()
        future = await bench.intake.wait(bench.intake.pend(TOPIC, b"v", None, None, (), None), 0.0, 2.0)
        [batch] = bench.drain()
        await asyncio.sleep(2)
        error = future.exception()
        assert isinstance(error, DeliveryTimeout)
        assert error.possibly_persisted
        assert list(bench.accumulator.unresolved) == [batch]

    @in_virtual_time
    async def test_a_timeout_that_is_no_shorter_needs_no_timer(self) -> None:
        bench = Bench(delivery_timeout_s=10.0)
        future = await bench.intake.wait(bench.intake.pend(TOPIC, b"v", None, None, (), None), 0.0, 10.0)
        await asyncio.sleep(11)
        assert not future.done(), "the sender would have expired it"

    @in_virtual_time
    async def test_an_outcome_takes_the_timer_along(self) -> None:
        bench = Bench()
        future = await bench.intake.wait(bench.intake.pend(TOPIC, b"v", None, None, (), None), 0.0, 2.0)
        [batch] = bench.drain()
        bench.settler.deliver(batch, 5)
        await asyncio.sleep(3)
        assert future.result().offset == 5
        assert bench.witness.failures == []
