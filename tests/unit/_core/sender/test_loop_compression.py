from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence

import pytest

from aioproducer._core.batching import topic
from aioproducer._core.batching.batch import Batch
from aioproducer._core.batching.batch_state import BatchState
from aioproducer._core.batching.topic import RATE_MARGIN
from aioproducer._core.batching.waiters import Failure
from aioproducer._core.protocol.produce import ProduceRequest
from aioproducer._core.protocol.schema import ApiVersionTable
from aioproducer._core.records.compression import Codec
from aioproducer._core.sender import requests
from aioproducer._core.sender.requests import ZSTD_FROM, Encoder, Unencodable
from aioproducer.errors import NotEnoughReplicas, ProducerError, UnknownTopicId, UnsupportedCompressionType
from aioproducer.testing import in_virtual_time
from tests.cases import for_each
from tests.fakes import FakeConnection
from tests.unit._core.sender.loop_rig import LARGE, LINGER_S, Rig, Thread, Told, advance, preparing_of
from tests.unit.floor_rig import NODE, TOPIC, settle

SILENT_S = 3.0
ROOMY = {"batch_bytes": 70_000, "max_request_bytes": 700_000, "buffer_bytes": 10_000_000}
Change = Callable[[Rig, Told], None]


def closed(rig: Rig, _: Told) -> None:
    rig.connection.close()


def silent(rig: Rig, _: Told) -> None:
    rig.connection.throttled_until = rig.loop.time() + SILENT_S


def moved(rig: Rig, _: Told) -> None:
    rig.accumulator.update_topic(TOPIC, [NODE + 1])


def aborted(rig: Rig, transaction: Told) -> None:
    transaction.may_send = False
    rig.pool.connections[NODE] = FakeConnection()  # busy, so that returned batches stay in their queues
    rig.connection.throttled_until = rig.loop.time() + SILENT_S


CHANGES = (closed, silent, moved, aborted)


def spoil(batch: Batch) -> None:
    """Let encoding *batch* fail."""
    batch.columns.timestamps[0] = "not a time"


class TestCompression:
    """No time passes while a thread is out, so nothing may linger here."""

    @in_virtual_time
    async def test_later_batch_waits_for_a_batch_compressed_in_a_thread(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        thread = Thread(monkeypatch)
        async with Rig(codec=Codec.GZIP, partitions=2) as rig:
            rig.accumulator.flushing.add(1)
            rig.fill(LARGE)
            await settle()
            rig.fill(b"small")
            rig.fill(b"of another partition", partition=1)
            await settle()
            assert rig.sent_values() == []
            await thread.ends(rig)
            first, second = rig.sent_values()
            assert first == [LARGE]
            assert set(second) == {b"small", b"of another partition"}

    @in_virtual_time
    async def test_turn_yields_gil_only_while_a_request_is_prepared(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        thread, yielded = Thread(monkeypatch), list[bool]()
        async with Rig(codec=Codec.GZIP) as rig:
            monkeypatch.setattr(Encoder, "yield_gil", lambda _: yielded.append(bool(rig.sender._preparing)))
            rig.accumulator.flushing.add(1)
            rig.fill(b"small")
            await settle()
            assert yielded == []
            rig.fill(LARGE)
            await settle()
            first = len(yielded)
            rig.fill(b"behind")
            await settle()
            assert len(yielded) > first > 0
            assert all(yielded)
            await thread.ends(rig)
            before = len(yielded)
            rig.fill(b"later")
            await settle()
            assert len(yielded) == before

    @in_virtual_time
    async def test_parallel_compressed_requests_leave_in_drain_order(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        others = [LARGE + b"2", LARGE + b"3"]
        at_once, both = threading.Barrier(2), asyncio.Event()
        encode, encode_off_loop = Encoder.encode, Encoder.encode_off_loop
        back: list[Batch] = []

        def waits_for_the_other(encoder: Encoder, batch: Batch) -> None:
            if batch.columns.values[0] in others:
                at_once.wait(10)
            encode(encoder, batch)

        async def noted(encoder: Encoder, batches: Sequence[Batch]) -> Unencodable:
            failed = await encode_off_loop(encoder, batches)
            back.extend(batches)
            if len(back) == 2:
                both.set()
            return failed

        monkeypatch.setattr(Encoder, "encode", waits_for_the_other)
        monkeypatch.setattr(Encoder, "encode_off_loop", noted)
        thread = Thread(monkeypatch)
        monkeypatch.setattr(requests, "COMPRESSION_THREADS", 3)
        async with Rig(codec=Codec.GZIP, partitions=3, batching={"batch_bytes": 70_000}) as rig:
            rig.accumulator.flushing.add(1)
            for partition, value in enumerate((LARGE, *others)):
                rig.fill(value, partition=partition)
                await settle()
            assert len(preparing_of(rig)) == 3
            await both.wait()
            await settle()
            assert rig.sent_values() == []
            await thread.ends(rig)
            assert rig.sent_values() == [[LARGE], *([value] for value in others)]

    @in_virtual_time
    async def test_prepared_requests_count_as_in_flight(self, monkeypatch: pytest.MonkeyPatch) -> None:
        thread = Thread(monkeypatch)
        async with Rig(codec=Codec.GZIP, partitions=3, max_in_flight=2) as rig:
            rig.accumulator.flushing.add(1)
            for partition in range(3):
                rig.fill(LARGE, partition=partition)
                await settle()
            assert len(preparing_of(rig)) == 2
            await thread.ends(rig)
            assert rig.sent_values() == [[LARGE], [LARGE]]

    @in_virtual_time
    async def test_adaptive_linger_starts_while_a_request_is_prepared(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        thread = Thread(monkeypatch)
        async with Rig(codec=Codec.GZIP, batching={"linger_is_adaptive": True}) as rig:
            rig.fill(LARGE)
            await settle()
            assert NODE in rig.accumulator.schedule.busy
            follower = rig.fill(b"small")
            await thread.ends(rig)
            assert not follower.ready
            rig.accept()
            assert NODE not in rig.accumulator.schedule.busy
            assert follower.ready

    @in_virtual_time
    async def test_adaptive_linger_ends_when_a_prepared_request_fails(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        thread = Thread(monkeypatch)
        async with Rig(codec=Codec.GZIP, partitions=2, batching={"linger_is_adaptive": True}) as rig:
            spoil(rig.fill(LARGE))
            await settle()
            rig.fill(b"small", partition=1)
            await thread.ends(rig)
            assert rig.sent_values() == [[b"small"]]
            assert rig.loop.time() == 0

    @pytest.mark.parametrize(("max_in_flight", "requests"), [(3, [1, 3, 3]), (2, [1, 3]), (1, [10])])
    @in_virtual_time
    async def test_busy_broker_gets_small_requests(
        self, monkeypatch: pytest.MonkeyPatch, max_in_flight: int, requests: list[int]
    ) -> None:
        thread = Thread(monkeypatch)
        async with Rig(codec=Codec.GZIP, partitions=20, max_in_flight=max_in_flight, batching=ROOMY) as rig:
            rig.accumulator.flushing.add(1)
            for partition in range(20):
                rig.fill(LARGE, partition=partition)
            await settle()
            await thread.ends(rig)
            assert [len(values) for values in rig.sent_values()] == requests

    @in_virtual_time
    async def test_requests_grow_with_the_number_in_flight(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(topic, "IMPROVING_STEP", 0.0)  # requests count uncompressed bytes
        thread = Thread(monkeypatch)
        async with Rig(codec=Codec.GZIP, partitions=40, batching=ROOMY) as rig:
            rig.accumulator.flushing.add(1)
            for partition in range(4):
                rig.fill(LARGE, partition=partition)
                await settle()
            await thread.ends(rig)
            thread.release.clear()
            for answered in range(3):
                rig.accept(answered)
            for partition in range(4, 40):
                rig.fill(LARGE, partition=partition)
            await settle()
            assert len(preparing_of(rig)) == 4
            await thread.ends(rig)
            assert [len(values) for values in rig.sent_values()] == [1, 3, 3, 3, 3]
            thread.release.clear()
            rig.accept(3)
            await settle()
            await thread.ends(rig)
            assert len(rig.sent_values()[-1]) == 10

    @in_virtual_time
    async def test_batch_behind_one_that_cannot_be_encoded_is_sent(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        thread = Thread(monkeypatch)
        async with Rig(codec=Codec.GZIP) as rig:
            rig.accumulator.flushing.add(1)
            bad = rig.append(LARGE)
            spoil(rig.queue(0).batches[0])
            await settle()
            rig.fill(b"behind it")
            await settle()
            assert len(preparing_of(rig)) == 2
            await thread.ends(rig)
            assert isinstance(bad.exception(), ProducerError)
            assert rig.sent_values() == [[b"behind it"]]

    @in_virtual_time
    async def test_compression_rate_is_updated_once_per_batch(self) -> None:
        async with Rig(codec=Codec.GZIP) as rig:
            limits = rig.accumulator.topics[TOPIC].limits
            batch = rig.fill(b"x" * 1_000)
            await advance(LINGER_S)
            assert rig.sent_values() == [[b"x" * 1_000]]
            assert limits.rate == pytest.approx(0.995 * RATE_MARGIN)
            rig.completion.reenqueue(batch, rig.loop.time())
            await settle()
            assert rig.sent_values() == [[b"x" * 1_000]] * 2
            assert limits.rate == pytest.approx(0.995 * RATE_MARGIN)
            rig.accept()
            follower = rig.fill(b"x")
            assert (follower.limit, follower.rate) == (limits.ready, limits.rate)

    @in_virtual_time
    async def test_compression_rate_is_unchanged_without_a_codec(self) -> None:
        async with Rig() as rig:
            rig.fill(b"x" * 1_000)
            await advance(LINGER_S)
            assert rig.sent_values() == [[b"x" * 1_000]]
            assert rig.accumulator.topics[TOPIC].limits.rate == 1.0

    @in_virtual_time
    async def test_batch_that_fails_during_compression_is_not_written(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        thread = Thread(monkeypatch)
        async with Rig(codec=Codec.GZIP) as rig:
            rig.accumulator.flushing.add(1)
            batch = rig.fill(LARGE)
            await settle()
            assert batch.state is BatchState.IN_FLIGHT
            rig.completion.fail_everything(Failure(ProducerError, "enough"))
            await thread.ends(rig)
            assert rig.connection.calls == []
            assert rig.sender._preparing == {}

    @pytest.mark.parametrize("what", CHANGES, ids=lambda what: what.__name__)
    @in_virtual_time
    async def test_batch_that_may_no_longer_be_sent_is_given_back(
        self, monkeypatch: pytest.MonkeyPatch, what: Change
    ) -> None:
        thread, transaction = Thread(monkeypatch), Told()
        async with Rig(codec=Codec.GZIP, transaction=transaction, transactional_id="tx", retries=0) as rig:
            rig.accumulator.flushing.add(1)
            first = rig.fill(LARGE)
            await settle()
            second = rig.fill(b"behind it")
            await settle()
            assert len(preparing_of(rig)) == 2
            connection = rig.connection
            what(rig, transaction)
            await thread.ends(rig)
            assert connection.calls == []
            assert transaction.written == []
            assert [first.state, second.state] == [BatchState.BACKOFF] * 2
            assert (first.retries, first.possibly_persisted) == (0, False)

    @in_virtual_time
    async def test_batches_given_back_are_sent_in_order(self, monkeypatch: pytest.MonkeyPatch) -> None:
        thread = Thread(monkeypatch)
        async with Rig(codec=Codec.GZIP) as rig:
            rig.accumulator.flushing.add(1)
            rig.fill(LARGE)
            await settle()
            rig.fill(b"behind it")
            await settle()
            silent(rig, Told())
            await thread.ends(rig)
            await advance(SILENT_S)
            assert rig.sent_values() == [[LARGE]]
            rig.accept()
            await settle()
            assert rig.sent_values() == [[b"behind it"]]

    @pytest.mark.parametrize("is_recreated", [False, True], ids=["refused", "recreated"])
    @in_virtual_time
    async def test_batch_waits_for_an_earlier_batch_without_outcome(
        self, monkeypatch: pytest.MonkeyPatch, is_recreated: bool
    ) -> None:
        thread = Thread(monkeypatch)
        async with Rig(codec=Codec.GZIP) as rig:
            rig.accumulator.flushing.add(1)
            rig.fill(b"first")
            await settle()
            rig.accept()
            rig.fill(b"earlier")
            await settle()
            later = rig.fill(LARGE)
            await settle()
            if is_recreated:
                rig.accumulator.update_topic(TOPIC, [NODE], bytes(15) + b"2")
            else:
                rig.refuse(NotEnoughReplicas)
            await thread.ends(rig)
            assert [LARGE] not in rig.sent_values()
            assert (later.state, later.retries) == (BatchState.BACKOFF, 0)
            if is_recreated:
                rig.refuse(UnknownTopicId)
            await advance(1.0)
            assert rig.sent_values() == [[b"earlier"]]
            rig.accept()
            await settle()
            assert rig.sent_values() == [[LARGE]]

    @in_virtual_time
    async def test_batch_waits_for_a_retry_drained_behind_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        thread = Thread(monkeypatch)
        async with Rig(codec=Codec.GZIP) as rig:
            rig.accumulator.flushing.add(1)
            rig.fill(b"first")
            await settle()
            rig.accept()
            earlier = rig.fill(b"earlier")
            await settle()
            later = rig.fill(LARGE)
            await settle()
            rig.refuse(NotEnoughReplicas)
            earlier.retry_by(rig.loop.time())
            rig.accumulator.schedule.offer(rig.queue(0), rig.loop.time())
            rig.wakeup.ring()
            await settle()
            assert len(preparing_of(rig)) == 2
            await thread.ends(rig)
            assert rig.sent_values() == [[b"earlier"]]
            assert later.state is BatchState.BACKOFF
            rig.accept()
            await settle()
            assert rig.sent_values() == [[LARGE]]

    @in_virtual_time
    async def test_batch_with_another_leader_is_given_back_alone(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        thread = Thread(monkeypatch)
        async with Rig(codec=Codec.GZIP, partitions=2) as rig:
            rig.accumulator.flushing.add(1)
            stays, goes = rig.fill(LARGE), rig.fill(b"of another partition", partition=1)
            await settle()
            rig.accumulator.update_topic(TOPIC, [NODE, NODE + 1])
            await thread.ends(rig)
            assert rig.sent_values() == [[LARGE]]
            assert (stays.state, goes.state) == (BatchState.IN_FLIGHT, BatchState.BACKOFF)

    @in_virtual_time
    async def test_batch_that_cannot_be_compressed_fails_alone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        thread = Thread(monkeypatch)
        async with Rig(codec=Codec.GZIP, partitions=2) as rig:
            rig.accumulator.flushing.add(1)
            good, bad = rig.append(LARGE), rig.append(LARGE, partition=1)
            spoil(rig.queue(1).batches[0])
            await settle()
            await thread.ends(rig)
            assert isinstance(bad.exception(), ProducerError)
            rig.accept()
            assert good.result().offset == 0

    @in_virtual_time
    async def test_batch_that_cannot_be_encoded_fails_alone_on_the_loop(self) -> None:
        async with Rig(partitions=2) as rig:
            good, bad = rig.append(b"good"), rig.append(b"bad", partition=1)
            spoil(rig.queue(1).batches[0])
            await advance(LINGER_S)
            error = bad.exception()
            assert isinstance(error, ProducerError)
            assert isinstance(error.__cause__, Exception)
            rig.accept()
            assert good.result().offset == 0

    @in_virtual_time
    async def test_batch_that_fails_twice_in_compression_is_reported_once(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        thread = Thread(monkeypatch)
        async with Rig(codec=Codec.GZIP, partitions=2) as rig:
            rig.accumulator.flushing.add(1)
            rig.fill(LARGE)
            spoil(rig.fill(b"bad", partition=1))
            await settle()
            rig.completion.fail_everything(Failure(ProducerError, "enough"))
            await thread.ends(rig)
            assert len(rig.witness.failures) == 2
            assert not rig.running.done()


class TestZstd:
    @for_each("acks", [-1, 0])
    @for_each("value", [b"small", LARGE])
    @in_virtual_time
    async def test_old_broker_fails_each_record_before_anything_is_sent(
        self, value: bytes, acks: int
    ) -> None:
        async with Rig(codec=Codec.ZSTD, acks=acks, idempotent=acks == -1, partitions=2) as rig:
            rig.accumulator.flushing.add(1)
            rig.connection.versions = ApiVersionTable({ProduceRequest.API_KEY: (0, ZSTD_FROM - 1)})
            futures = [rig.append(value, partition=partition) for partition in (0, 0, 1)]
            await asyncio.sleep(1)
            for error in (future.exception() for future in futures):
                assert isinstance(error, UnsupportedCompressionType)
                assert error.code == 76
                assert not error.possibly_persisted
                assert "set compression_type to none, gzip, snappy or lz4" in str(error)
            assert len({id(future.exception()) for future in futures}) == 3
            assert not rig.connection.calls
            assert not rig.connection.unanswered

    @in_virtual_time
    async def test_new_brokers_of_a_mixed_cluster_receive_zstd_records(self) -> None:
        async with Rig(connected=(NODE, NODE + 1), codec=Codec.ZSTD, partitions=2) as rig:
            rig.accumulator.flushing.add(1)
            rig.learn(TOPIC, NODE, NODE + 1)
            rig.pool.connections[NODE + 1].versions = ApiVersionTable({ProduceRequest.API_KEY: (0, 6)})
            good, bad = rig.append(b"new", partition=0), rig.append(b"old", partition=1)
            await settle()
            assert isinstance(bad.exception(), UnsupportedCompressionType)
            rig.accept(0)
            assert good.result().offset == 0
            rig.learn(TOPIC, NODE, NODE)
            later = rig.append(b"moved", partition=1)
            await settle()
            rig.accept(1)
            assert later.result().offset == 0

    @in_virtual_time
    async def test_old_brokers_get_other_codecs_than_zstd(self) -> None:
        async with Rig(codec=Codec.LZ4) as rig:
            rig.accumulator.flushing.add(1)
            rig.connection.versions = ApiVersionTable({ProduceRequest.API_KEY: (3, 6)})
            _ = rig.append(b"v")
            await settle()
            assert len(rig.connection.calls) == 1
