from __future__ import annotations

import asyncio
import threading
from typing import Any, Self

import pytest

from aioproducer.backoff import Backoff
from aioproducer.batching.batch import Batch
from aioproducer.batching.failure import Failure
from aioproducer.batching.state import BatchState
from aioproducer.cluster.snapshot import Snapshot
from aioproducer.cluster.source import ANSWER_PATIENCE_S, CONNECT_STAGGER_S
from aioproducer.errors import (
    ClusterAuthorizationFailed,
    CoordinatorNotAvailable,
    DeliveryTimeout,
    ProducerError,
    UnsupportedVersion,
)
from aioproducer.net.dial import Address
from aioproducer.protocol.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from aioproducer.protocol.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from aioproducer.records.compression import Codec
from aioproducer.records.decode import decode_batches
from aioproducer.sender.answers import AnswerHandler
from aioproducer.sender.loop import Sender
from aioproducer.sender.requests import COMPRESS_OFF_LOOP_BYTES, Encoder
from aioproducer.sender.wakeup import Wakeup
from aioproducer.testing import in_virtual_time
from tests.unit.workbench import NODE, TOPIC, FakeConnection, FakePool, Workbench, lost, sender_settings

LINGER_S = 0.005
LARGE = b"x" * COMPRESS_OFF_LOOP_BYTES


class Bench(Workbench):
    """A sender that runs from `async with` on; its pool is connected to node 1."""

    def __init__(
        self, *, connected: tuple[int, ...] = (NODE,), batching: dict[str, Any] | None = None, **settings: Any
    ) -> None:
        idempotent = settings.get("idempotent", True)
        identified = settings.pop("identified", True)
        partitions = settings.pop("partitions", 1)
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
        self.wakeup = Wakeup(self.loop)
        self.sender = Sender(
            sender_settings(**settings),
            accumulator=self.accumulator,
            settler=self.settler,
            pool=self.pool.real,
            refresher=self.refresher.real,
            wakeup=self.wakeup,
        )

    def _wake(self) -> None:
        super()._wake()
        if hasattr(self, "wakeup"):
            self.wakeup.ring()

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

    def accept(self, *partitions: int, base_offset: int = 0) -> None:
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
            )
        )


async def settle() -> None:
    """Let everything happen that can happen now."""
    for _ in range(20):
        await asyncio.sleep(0)


async def pass_time(seconds: float) -> None:
    await asyncio.sleep(seconds)
    await settle()


class TestWhatGoesWhen:
    @in_virtual_time
    async def test_a_record_goes_once_it_has_lingered(self) -> None:
        async with Bench() as bench:
            bench.fill(b"a")
            await pass_time(LINGER_S / 2)
            bench.fill(b"b")
            assert bench.sent_values() == []
            await pass_time(LINGER_S / 2)
            assert bench.sent_values() == [[b"a", b"b"]]

    @in_virtual_time
    async def test_a_full_batch_goes_at_once(self) -> None:
        async with Bench(batching={"batch_bytes": 100}) as bench:
            bench.fill(b"a" * 30)
            bench.fill(b"b" * 30)
            await settle()
            assert bench.sent_values() == [[b"a" * 30]]

    @in_virtual_time
    async def test_nothing_lingers_while_somebody_flushes(self) -> None:
        async with Bench() as bench:
            bench.fill(b"a")
            flushing = asyncio.create_task(bench.accumulator.flush())
            await settle()
            assert bench.sent_values() == [[b"a"]]
            bench.accept()
            await flushing
            assert bench.loop.time() == 0

    @in_virtual_time
    async def test_nothing_lingers_once_it_is_to_finish(self) -> None:
        async with Bench() as bench:
            bench.fill(b"a")
            bench.sender.finish()
            await settle()
            assert bench.sent_values() == [[b"a"]]

    @in_virtual_time
    async def test_what_has_expired_fails_without_taking_a_sequence(self) -> None:
        async with Bench(connected=(), batching={"delivery_timeout_s": 1.0}) as bench:
            bench.pool.errors[NODE] = lost()
            future = bench.append()
            await pass_time(1)
            error = future.exception()
            assert isinstance(error, DeliveryTimeout)
            assert error.__cause__ is bench.pool.errors[NODE]
            bench.pool.connections[NODE] = FakeConnection()
            batch = bench.fill(b"b")
            await pass_time(LINGER_S)
            assert batch.stamp is not None
            assert batch.stamp.base_sequence == 0

    @in_virtual_time
    async def test_several_partitions_share_a_request(self) -> None:
        async with Bench(partitions=3) as bench:
            for partition in range(3):
                bench.fill(b"%d" % partition, partition=partition)
            await pass_time(LINGER_S)
            assert len(bench.connection.calls) == 1
            assert sorted(*bench.sent_values()) == [b"0", b"1", b"2"]  # type: ignore[type-var]

    @in_virtual_time
    async def test_no_more_requests_are_in_flight_than_allowed(self) -> None:
        async with Bench(max_in_flight=2, batching={"batch_bytes": 100}) as bench:
            for number in range(4):
                bench.fill(b"%d" % number * 40)
            await settle()
            assert bench.sent_values() == [[b"0" * 40], [b"1" * 40]]
            bench.accept()
            await settle()
            assert bench.sent_values() == [[b"1" * 40], [b"2" * 40]]

    @in_virtual_time
    async def test_a_throttled_node_is_left_alone_for_as_long(self) -> None:
        async with Bench() as bench:
            bench.connection.mute_until(3.0)
            bench.fill(b"a")
            await pass_time(2.9)
            assert bench.connection.calls == []
            await pass_time(0.1)
            assert bench.sent_values() == [[b"a"]]

    @in_virtual_time
    async def test_a_retry_goes_when_its_backoff_is_over(self) -> None:
        async with Bench() as bench:
            bench.fill(b"a")
            await pass_time(LINGER_S)
            bench.connection.answer(lost())
            await pass_time(0.09)
            assert bench.connection.calls == []
            await pass_time(0.02)
            assert bench.sent_values() == [[b"a"]]


class TestWithoutConnection:
    @in_virtual_time
    async def test_the_leader_is_connected_to(self) -> None:
        async with Bench(connected=()) as bench:
            bench.fill()
            await pass_time(LINGER_S)
            assert bench.pool.wanted[-1] == (NODE, Address("b1", 9092))
            bench.pool.connections[NODE] = FakeConnection()
            bench.wakeup.ring()
            await settle()
            assert len(bench.connection.calls) == 1

    @in_virtual_time
    async def test_it_tries_again_when_the_pause_after_a_failure_is_over(self) -> None:
        async with Bench(connected=()) as bench:
            bench.pool.backing_off_until[NODE] = 1.0
            bench.fill()
            await pass_time(LINGER_S)
            tried = len(bench.pool.wanted)
            await pass_time(0.9)
            assert len(bench.pool.wanted) == tried
            bench.pool.backing_off_until.clear()
            await pass_time(0.1)
            assert len(bench.pool.wanted) == tried + 1

    @in_virtual_time
    async def test_a_leader_that_is_gone_is_looked_up_again(self) -> None:
        async with Bench(connected=()) as bench:
            bench.refresher.snapshot = Snapshot()
            bench.fill()
            await pass_time(LINGER_S)
            assert bench.pool.wanted == []
            assert bench.refresher.refreshes[-1] is None

    @in_virtual_time
    async def test_a_partition_without_a_leader_has_its_topic_looked_up(self) -> None:
        async with Bench() as bench:
            bench.learn("lost", -1)
            queues = bench.accumulator.topics["lost"]
            _ = bench.accumulator.append(queues, queues[0], b"v", None, (), 1, 20)
            await pass_time(LINGER_S)
            assert bench.refresher.refreshes[-1] == frozenset({"lost"})
            assert bench.connection.calls == []

    @in_virtual_time
    async def test_a_connection_lost_by_writing_gets_nothing_more(self) -> None:
        """Without a backoff the batch is due again at once: to try the same connection would never end."""
        async with Bench(retry_backoff=Backoff(0.0, 0.0)) as bench:

            def break_off(*_: object) -> None:
                bench.connection.closed = True
                raise lost(written=False)

            bench.connection.call = break_off  # type: ignore[method-assign, assignment]
            batch = bench.fill()
            await pass_time(LINGER_S)
            assert batch.state is BatchState.BACKOFF
            assert not batch.possibly_persisted
            assert bench.pool.wanted == [(NODE, Address("b1", 9092))]

    @in_virtual_time
    async def test_a_broker_that_is_too_old_fails_the_batch(self) -> None:
        async with Bench() as bench:
            bench.connection.error = UnsupportedVersion("Produce: too old")
            future = bench.append()
            await pass_time(LINGER_S)
            error = future.exception()
            assert isinstance(error, UnsupportedVersion)
            assert not error.possibly_persisted


class TestCompression:
    """No time passes while a thread is out, so nothing may linger here."""

    @in_virtual_time
    async def test_nothing_overtakes_a_batch_that_is_compressed_in_a_thread(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        thread = Thread(monkeypatch)
        async with Bench(codec=Codec.GZIP, partitions=2) as bench:
            bench.accumulator.flushing = 1
            bench.fill(LARGE)
            await settle()
            bench.fill(b"small")
            bench.fill(b"of another partition", partition=1)
            await settle()
            assert bench.sent_values() == []
            await thread.ends(bench)
            first, second = bench.sent_values()
            assert first == [LARGE]
            assert set(second) == {b"small", b"of another partition"}

    @in_virtual_time
    async def test_what_expires_meanwhile_is_not_written(self, monkeypatch: pytest.MonkeyPatch) -> None:
        thread = Thread(monkeypatch)
        async with Bench(codec=Codec.GZIP) as bench:
            bench.accumulator.flushing = 1
            batch = bench.fill(LARGE)
            await settle()
            assert batch.state is BatchState.IN_FLIGHT
            bench.settler.fail_everything(Failure(ProducerError, "enough"))
            await thread.ends(bench)
            assert bench.connection.calls == []
            assert bench.sender._preparing == {}

    @in_virtual_time
    async def test_what_cannot_be_compressed_fails_alone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        thread = Thread(monkeypatch)
        async with Bench(codec=Codec.GZIP, partitions=2) as bench:
            bench.accumulator.flushing = 1
            good, bad = bench.append(LARGE), bench.append(LARGE, partition=1)
            spoil(bench.queue(1).batches[0])
            await settle()
            await thread.ends(bench)
            assert isinstance(bad.exception(), ProducerError)
            bench.accept()
            assert good.result().offset == 0

    @in_virtual_time
    async def test_what_cannot_be_encoded_fails_alone_on_the_loop_too(self) -> None:
        async with Bench(partitions=2) as bench:
            good, bad = bench.append(b"good"), bench.append(b"bad", partition=1)
            spoil(bench.queue(1).batches[0])
            await pass_time(LINGER_S)
            assert isinstance(bad.exception(), ProducerError)
            bench.accept()
            assert good.result().offset == 0

    @in_virtual_time
    async def test_what_fails_meanwhile_and_cannot_be_encoded_either_has_failed_once(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        thread = Thread(monkeypatch)
        async with Bench(codec=Codec.GZIP, partitions=2) as bench:
            bench.accumulator.flushing = 1
            bench.fill(LARGE)
            spoil(bench.fill(b"bad", partition=1))
            await settle()
            bench.settler.fail_everything(Failure(ProducerError, "enough"))
            await thread.ends(bench)
            assert len(bench.witness.failures) == 2
            assert not bench.running.done()


class TestUnacknowledged:
    @in_virtual_time
    async def test_written_is_delivered(self) -> None:
        async with Bench(acks=0, idempotent=False) as bench:
            future = bench.append(b"a")
            await pass_time(LINGER_S)
            assert future.result().offset == -1
            [request] = bench.connection.unanswered
            assert request.acks == 0

    @in_virtual_time
    async def test_the_next_goes_when_the_socket_has_taken_it(self) -> None:
        async with Bench(acks=0, idempotent=False) as bench:
            bench.fill(b"a")
            await pass_time(LINGER_S)
            bench.fill(b"b")
            await pass_time(LINGER_S)
            assert len(bench.connection.unanswered) == 1
            bench.connection.drains[0].set_result(None)
            await settle()
            assert len(bench.connection.unanswered) == 2

    @in_virtual_time
    async def test_a_connection_lost_while_draining_is_the_pools_affair(self) -> None:
        async with Bench(acks=0, idempotent=False) as bench:
            bench.fill(b"a")
            await pass_time(LINGER_S)
            bench.connection.drains[0].set_exception(lost())
            await settle()
            assert not bench.running.done()
            bench.fill(b"b")
            await pass_time(LINGER_S)
            assert len(bench.connection.unanswered) == 2

    @in_virtual_time
    async def test_what_could_not_be_written_is_sent_again(self) -> None:
        async with Bench(acks=0, idempotent=False) as bench:
            bench.connection.error = lost(written=False)
            future = bench.append(b"a")
            await pass_time(LINGER_S)
            assert not future.done()
            bench.connection.error = None
            bench.connection.drains[0].set_result(None)
            await pass_time(0.1)
            assert future.result().offset == -1


class TestIdentity:
    @in_virtual_time
    async def test_it_is_asked_for_before_anything_is_sent(self) -> None:
        async with Bench(identified=False) as bench:
            [asked] = bench.connection.calls
            assert isinstance(asked.request, InitProducerIdRequest)
            batch = bench.fill(b"a")
            await pass_time(LINGER_S)
            assert len(bench.connection.calls) == 1
            bench.connection.answer(InitProducerIdResponse(error_code=0, producer_id=5, producer_epoch=0))
            await settle()
            assert bench.sent_values() == [[b"a"]]
            assert batch.stamp is not None
            assert batch.stamp.identity == (5, 0)

    @in_virtual_time
    async def test_without_idempotence_nobody_asks(self) -> None:
        async with Bench(identified=False, idempotent=False) as bench:
            bench.fill(b"a")
            await pass_time(LINGER_S)
            assert bench.sent_values() == [[b"a"]]

    @in_virtual_time
    async def test_a_silent_node_is_passed_over_after_a_while(self) -> None:
        async with Bench(identified=False, connected=(1, 2)) as bench:
            bench.refresher.knows(TOPIC, 1, nodes=(1, 2))
            bench.wakeup.ring()
            await settle()
            asked = [len(connection.calls) for connection in bench.pool.connections.values()]
            assert sum(asked) == 1
            await pass_time(ANSWER_PATIENCE_S)
            asked = [len(connection.calls) for connection in bench.pool.connections.values()]
            assert asked == [1, 1]

    @in_virtual_time
    async def test_when_all_are_silent_nothing_is_to_be_done_but_wait(self) -> None:
        async with Bench(identified=False) as bench:
            await pass_time(10 * ANSWER_PATIENCE_S)
            assert len(bench.connection.calls) == 1
            assert bench.pool.wanted == []

    @in_virtual_time
    async def test_without_a_connection_one_after_the_other_is_dialled(self) -> None:
        async with Bench(identified=False, connected=()) as bench:
            bench.refresher.knows(TOPIC, 1, nodes=(1, 2, 3))
            for _ in range(3):
                bench.wakeup.ring()  # whatever else happens, they are dialled no faster
                await pass_time(0.8 * CONNECT_STAGGER_S)
            assert {node for node, _ in bench.pool.wanted} == {1, 2, 3}
            assert len(bench.pool.wanted) == 3

    @in_virtual_time
    async def test_a_new_connection_is_asked_at_once(self) -> None:
        async with Bench(identified=False, connected=()) as bench:
            bench.pool.connections[NODE] = FakeConnection()
            bench.wakeup.ring()
            await settle()
            assert len(bench.connection.calls) == 1
            assert bench.loop.time() == 0

    @in_virtual_time
    async def test_before_any_broker_is_known_nothing_happens(self) -> None:
        async with Bench(identified=False, connected=(), partitions=0) as bench:
            await pass_time(10)
            assert bench.pool.wanted == []

    @in_virtual_time
    async def test_a_failure_that_may_pass_is_asked_again(self) -> None:
        async with Bench(identified=False) as bench:
            future = bench.append()
            await pass_time(LINGER_S)
            bench.connection.answer(
                InitProducerIdResponse(
                    error_code=CoordinatorNotAvailable.code, producer_id=-1, producer_epoch=-1
                )
            )
            await settle()
            assert bench.connection.calls == []
            await pass_time(0.1)
            assert len(bench.connection.calls) == 1
            assert not future.done()

    @in_virtual_time
    async def test_a_refusal_fails_what_was_to_be_sent_and_no_more(self) -> None:
        async with Bench(identified=False, partitions=2, batching={"linger_s": 1.0}) as bench:
            due = bench.append(partition=0)
            await pass_time(0.5)
            lingering = bench.append(partition=1)
            await pass_time(0.5)
            bench.connection.answer(
                InitProducerIdResponse(
                    error_code=ClusterAuthorizationFailed.code, producer_id=-1, producer_epoch=-1
                )
            )
            await settle()
            error = due.exception()
            assert isinstance(error, ClusterAuthorizationFailed)
            assert not error.possibly_persisted
            assert not lingering.done()


class TestEnd:
    @in_virtual_time
    async def test_it_ends_once_everything_has_its_outcome(self) -> None:
        async with Bench() as bench:
            bench.fill()
            bench.sender.finish()
            await pass_time(1)
            assert not bench.running.done()
            bench.accept()
            await settle()
            assert bench.running.done()
            assert bench.running.exception() is None

    @in_virtual_time
    async def test_it_waits_for_calls_that_have_not_appended_yet(self) -> None:
        async with Bench() as bench:
            bench.accumulator.callers += 1
            bench.sender.finish()
            await pass_time(1)
            assert not bench.running.done()
            bench.accumulator.callers -= 1
            bench.wakeup.ring()
            await settle()
            assert bench.running.done()

    @in_virtual_time
    async def test_cancelled_it_leaves_no_task_behind(self, monkeypatch: pytest.MonkeyPatch) -> None:
        thread = Thread(monkeypatch)
        async with Bench(codec=Codec.GZIP) as bench:
            bench.accumulator.flushing = 1
            batch = bench.fill(LARGE)
            await settle()
            [preparing] = bench.sender._preparing.values()
            bench.running.cancel()
            thread.release.set()
            await asyncio.wait([bench.running])
            assert preparing.done()
            assert batch.state is BatchState.IN_FLIGHT


class TestBugs:
    @in_virtual_time
    async def test_one_while_an_answer_is_taken_ends_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*_: object) -> None:
            raise LookupError("a bug")

        monkeypatch.setattr(AnswerHandler, "take", fail)
        async with Bench() as bench:
            bench.fill()
            await pass_time(LINGER_S)
            with pytest.raises(LookupError):  # the connection wants to hear of it, too
                bench.accept()
            await settle()
            assert isinstance(bench.running.exception(), LookupError)

    @in_virtual_time
    async def test_one_in_a_task_of_its_own_ends_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async def fail(*_: object) -> None:
            await asyncio.sleep(0)
            raise LookupError("a bug")

        monkeypatch.setattr(Encoder, "encode_off_loop", fail)
        async with Bench(codec=Codec.GZIP) as bench:
            bench.fill(LARGE)
            await pass_time(LINGER_S)
            assert isinstance(bench.running.exception(), LookupError)


class Thread:
    """Holds up the encoding of `LARGE` until it is told to end."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.release = threading.Event()
        encode = Encoder.encode

        def waiting(encoder: Encoder, batch: Batch) -> None:
            if batch.columns.values[0] == LARGE:
                assert self.release.wait(10)
            encode(encoder, batch)

        monkeypatch.setattr(Encoder, "encode", waiting)

    async def ends(self, bench: Bench) -> None:
        [preparing] = bench.sender._preparing.values()
        self.release.set()
        await asyncio.wait([preparing])
        await settle()


def spoil(batch: Batch) -> None:
    """Let encoding *batch* fail."""
    batch.columns.timestamps[0] = "not a time"  # type: ignore[call-overload]
