from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Sequence

import pytest

from aioproducer._core.batching.batch import Batch
from aioproducer._core.idempotence import BatchSequence, ProducerIdentity
from aioproducer._core.protocol.produce import (
    BY_NAME,
    FLEXIBLE,
    BaseOffsets,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from aioproducer._core.protocol.schema import ApiVersionTable, decode_response, encode_response
from aioproducer._core.protocol.types import NO_TOPIC_ID
from aioproducer._core.records.compression import Codec, Compress
from aioproducer._core.records.decode import DecodedBatch, decode_batches
from aioproducer._core.sender import requests
from aioproducer._core.sender.requests import (
    COMPRESS_OFF_LOOP_BYTES,
    COMPRESSED_REQUEST_BYTES,
    Encoder,
    decoder_for,
    largest_request,
    version_for,
)
from aioproducer.errors import UnsupportedCompressionType, UnsupportedVersion
from tests.cases import for_each
from tests.unit.floor_rig import FloorRig, batching_settings, sender_settings

ID = b"i" * 16


def decoded(batch: Batch) -> DecodedBatch:
    assert batch.encoded is not None
    [only] = decode_batches(batch.encoded, limit=10_000_000)
    return only


class TestEncode:
    async def test_encoded_batch_has_the_records_and_the_sequence(self) -> None:
        batch, _ = FloorRig().sent(b"a", b"b")
        Encoder(sender_settings()).encode(batch)
        read = decoded(batch)
        assert [record.value for record in read.records] == [b"a", b"b"]
        assert (read.producer_id, read.producer_epoch, read.base_sequence) == (7, 0, 0)
        assert batch.encoded_sequence == batch.sequence

    async def test_encoded_batch_has_no_producer_id_without_idempotence(self) -> None:
        batch, _ = FloorRig(idempotent=False).sent(b"a")
        Encoder(sender_settings()).encode(batch)
        read = decoded(batch)
        assert (read.producer_id, read.producer_epoch, read.base_sequence) == (-1, -1, -1)

    @pytest.mark.parametrize("transactional_id", [None, "tx"])
    async def test_encoded_batch_is_transactional_with_a_transactional_id(
        self, transactional_id: str | None
    ) -> None:
        batch, _ = FloorRig().sent(b"a")
        Encoder(sender_settings(transactional_id=transactional_id)).encode(batch)
        assert decoded(batch).transactional is (transactional_id is not None)

    @for_each("codec", list(Codec))
    async def test_encoded_batch_is_compressed_as_configured(self, codec: Codec) -> None:
        batch, _ = FloorRig().sent(b"a" * 1000, b"b" * 1000)
        Encoder(sender_settings(codec=codec)).encode(batch)
        read = decoded(batch)
        assert read.codec is codec
        assert [record.value for record in read.records] == [b"a" * 1000, b"b" * 1000]

    async def test_compression_level_is_used(self, monkeypatch: pytest.MonkeyPatch) -> None:
        asked: list[tuple[Codec, int | None, bool]] = []

        def noted(codec: Codec, level: int | None, *, small_records: bool = False) -> None:
            asked.append((codec, level, small_records))

        monkeypatch.setattr(requests, "compressor", noted)
        Encoder(sender_settings(codec=Codec.GZIP, compression_level=3))
        assert asked == [(Codec.GZIP, 3, False), (Codec.GZIP, 3, True)]

    @pytest.mark.parametrize(("size", "small"), [(2 * 8_192 - 1, True), (2 * 8_192, False)])
    async def test_small_records_have_their_own_compressor(
        self, monkeypatch: pytest.MonkeyPatch, size: int, small: bool
    ) -> None:
        used: list[bool] = []

        def made(_codec: Codec, _level: int | None, *, small_records: bool = False) -> Compress:
            def compress(data: bytes | bytearray | memoryview) -> bytes:
                used.append(small_records)
                return bytes(data)

            return compress

        monkeypatch.setattr(requests, "compressor", made)
        batch, _ = FloorRig().sent(b"a", b"b")
        batch.size = size
        Encoder(sender_settings(codec=Codec.ZSTD)).encode(batch)
        assert used == [small]

    async def test_encoded_bytes_are_kept_for_a_retry(self) -> None:
        batch, _ = FloorRig().sent(b"a")
        encoder = Encoder(sender_settings())
        encoder.encode(batch)
        first = batch.encoded
        encoder.encode(batch)
        assert batch.encoded is first

    async def test_header_is_rewritten_for_a_new_sequence(self) -> None:
        batch, _ = FloorRig().sent(b"a" * 100)
        encoder = Encoder(sender_settings(codec=Codec.ZSTD))
        encoder.encode(batch)
        first = batch.encoded
        batch.renumber()
        batch.assign_sequence(BatchSequence(ProducerIdentity(8, 3), 0), 1)
        encoder.encode(batch)
        assert batch.encoded is first
        read = decoded(batch)
        assert (read.producer_id, read.producer_epoch, read.base_sequence) == (8, 3, 0)
        assert read.records[0].value == b"a" * 100


class TestEncodeAll:
    async def test_batch_that_cannot_be_encoded_does_not_stop_the_others(self) -> None:
        rig = FloorRig(partitions=3)
        for partition in range(3):
            rig.fill(partition=partition)
        batches = rig.drain()
        batches[1].columns.values[0] = "not bytes"
        [(batch, error)] = Encoder(sender_settings()).encode_all(batches)
        assert batch is batches[1]
        assert isinstance(error, TypeError)
        assert batches[0].encoded
        assert batches[2].encoded


class TestOffTheLoop:
    @staticmethod
    def large(rig: FloorRig, size: int = COMPRESS_OFF_LOOP_BYTES) -> Sequence[Batch]:
        rig.fill(b"x" * size)
        return rig.drain()

    async def test_large_batches_are_compressed_in_a_thread(self, monkeypatch: pytest.MonkeyPatch) -> None:
        encoder = Encoder(sender_settings(codec=Codec.GZIP))
        batches = self.large(FloorRig())
        threads = []
        encode = Encoder.encode

        def noted(self: Encoder, batch: Batch) -> None:
            threads.append(threading.get_ident())
            encode(self, batch)

        monkeypatch.setattr(Encoder, "encode", noted)
        assert encoder.leaves_loop(batches)
        assert await encoder.encode_off_loop(batches) == []
        assert threads
        assert threads[0] != threading.get_ident()
        assert decoded(batches[0]).codec is Codec.GZIP

    async def test_parallel_compressions_are_limited_to_the_threads(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(requests, "COMPRESSION_THREADS", 2)
        pair, threads = threading.Barrier(2), set()
        encode = Encoder.encode

        def in_pairs(self: Encoder, batch: Batch) -> None:
            threads.add(threading.get_ident())
            pair.wait(10)
            encode(self, batch)

        monkeypatch.setattr(Encoder, "encode", in_pairs)
        encoder = Encoder(sender_settings(codec=Codec.GZIP))
        batches = [self.large(FloorRig()) for _ in range(6)]
        assert await asyncio.gather(*map(encoder.encode_off_loop, batches)) == [[]] * 6
        assert len(threads) == 2

    async def test_threads_end_when_the_encoder_is_closed(self) -> None:
        before = set(threading.enumerate())
        encoder = Encoder(sender_settings(codec=Codec.GZIP))
        assert await encoder.encode_off_loop(self.large(FloorRig())) == []
        [thread] = set(threading.enumerate()) - before
        assert thread.name == "aioproducer compresses_0"
        encoder.close()
        thread.join(10)
        assert not thread.is_alive()

    async def test_closed_encoder_starts_no_more_compressions(self, monkeypatch: pytest.MonkeyPatch) -> None:
        release, begun = threading.Event(), threading.Semaphore(0)
        encode = Encoder.encode

        def waiting(self: Encoder, batch: Batch) -> None:
            begun.release()
            assert release.wait(10)
            encode(self, batch)

        monkeypatch.setattr(requests, "COMPRESSION_THREADS", 1)
        monkeypatch.setattr(Encoder, "encode", waiting)
        encoder = Encoder(sender_settings(codec=Codec.GZIP))
        first, second = (
            asyncio.create_task(encoder.encode_off_loop(self.large(FloorRig()))) for _ in range(2)
        )
        await asyncio.sleep(0)
        assert begun.acquire(timeout=10)
        encoder.close()
        release.set()
        assert await first == []
        with pytest.raises(asyncio.CancelledError):
            await second
        assert not begun.acquire(blocking=False)

    def test_threads_are_as_many_as_cores_up_to_four(self) -> None:
        assert min(4, os.cpu_count() or 1) == requests.COMPRESSION_THREADS

    async def test_batches_leave_the_loop_from_64_kib_on(self) -> None:
        encoder = Encoder(sender_settings(codec=Codec.GZIP))
        [batch] = self.large(FloorRig(), size=1)
        batch.size = 64 * 1024 - 1
        assert not encoder.leaves_loop([batch])
        batch.size = 64 * 1024
        assert encoder.leaves_loop([batch])

    async def test_small_batches_stay_on_the_loop(self) -> None:
        encoder = Encoder(sender_settings(codec=Codec.GZIP))
        batches = self.large(FloorRig(), size=COMPRESS_OFF_LOOP_BYTES // 2)
        assert not encoder.leaves_loop(batches)
        encoding = encoder.encode_off_loop(batches)
        with pytest.raises(StopIteration) as ended:
            encoding.send(None)  # it ends without waiting for anything
        assert ended.value.value == []

    async def test_large_batches_stay_on_the_loop_without_compression(self) -> None:
        assert not Encoder(sender_settings()).leaves_loop(self.large(FloorRig()))

    async def test_encoded_batches_do_not_leave_the_loop(self) -> None:
        encoder = Encoder(sender_settings(codec=Codec.GZIP))
        batches = self.large(FloorRig())
        encoder.encode_all(batches)
        assert not encoder.leaves_loop(batches)

    async def test_failure_in_the_thread_is_returned(self) -> None:
        encoder = Encoder(sender_settings(codec=Codec.GZIP))
        batches = self.large(FloorRig())
        batches[0].columns.timestamps[0] = None
        [(batch, _)] = await asyncio.wait_for(encoder.encode_off_loop(batches), 10)
        assert batch is batches[0]


class TestProduceRequest:
    async def test_batches_are_grouped_by_topic(self) -> None:
        rig = FloorRig(partitions=2)
        rig.learn("audit", 1)
        for partition in range(2):
            rig.fill(partition=partition)
        audit = rig.accumulator.topics["audit"]
        _ = rig.accumulator.append(audit, audit[0], b"a", None, (), 1, 20, rig.receipts)
        batches = rig.drain()
        Encoder(sender_settings()).encode_all(batches)
        encoder = Encoder(sender_settings(acks=1, request_timeout_s=1.5))
        request = encoder.request(batches, rig.accumulator.topics)
        assert (request.acks, request.timeout_ms, request.transactional_id) == (1, 1500, None)
        in_it = {
            (topic.name, data.index): data.records
            for topic in request.topic_data
            for data in topic.partition_data
        }
        assert in_it == {batch.topic_partition: batch.encoded for batch in batches}
        assert sorted(topic.name for topic in request.topic_data) == ["audit", "orders"]

    def test_request_has_the_transactional_id(self) -> None:
        request = Encoder(sender_settings(transactional_id="tx")).request([], {})
        assert request.transactional_id == "tx"


class TestVersions:
    @for_each(
        ("ids", "at_most", "version"),
        [
            ([ID], None, BY_NAME + 1),
            ([ID], BY_NAME, BY_NAME),
            ([ID], 11, 11),
            ([NO_TOPIC_ID], None, BY_NAME),
            ([NO_TOPIC_ID], 11, 11),
            ([NO_TOPIC_ID], 99, BY_NAME),
            ([ID, NO_TOPIC_ID, ID], None, BY_NAME),
            ([], None, BY_NAME + 1),
        ],
    )
    def test_version_by_name_is_used_without_topic_ids(
        self, ids: list[bytes], at_most: int | None, version: int
    ) -> None:
        assert version_for(self.request(*ids), ApiVersionTable({0: (3, BY_NAME + 1)}), at_most) == version

    def test_version_by_name_is_used_with_acks_0_and_unknown_id(self) -> None:
        request = self.request(ID)
        request.acks = 0
        assert version_for(request, ApiVersionTable({0: (3, BY_NAME + 1)}), None) == BY_NAME

    @for_each(("codec", "lowest"), [(Codec.ZSTD, 7), (Codec.GZIP, 6)])
    def test_codec_is_sent_from_its_first_version(self, codec: Codec, lowest: int) -> None:
        versions = ApiVersionTable({0: (3, lowest)})
        assert version_for(self.request(ID), versions, None, codec) == lowest

    def test_broker_without_zstd_refuses_it(self) -> None:
        with pytest.raises(UnsupportedCompressionType) as refused:
            version_for(self.request(ID), ApiVersionTable({0: (3, 6)}), None, Codec.ZSTD)
        assert str(refused.value) == (
            "not sent: zstd needs Kafka 2.1, and the broker supports Produce up to version 6, not 7;"
            " set compression_type to none, gzip, snappy or lz4"
        )

    def test_version_by_name_is_used_if_the_broker_lacks_ids(self) -> None:
        assert version_for(self.request(ID), ApiVersionTable({0: (3, 9)}), None) == 9

    def test_broker_that_needs_ids_refuses_a_topic_without_one(self) -> None:
        with pytest.raises(UnsupportedVersion, match="Produce"):
            version_for(self.request(NO_TOPIC_ID), ApiVersionTable({0: (BY_NAME + 1, 99)}), None)

    @for_each("version", [FLEXIBLE - 1, FLEXIBLE, BY_NAME, BY_NAME + 1])
    def test_answers_have_names_in_any_version(self, version: int) -> None:
        request = self.request(ID, b"j" * 16)
        payload = self.answer(request, version, error_code=6)
        decoded, surplus = decoder_for(request, version)(ProduceResponse, version, payload + b"?")
        assert ([topic.name for topic in decoded.responses], surplus) == (["topic-0", "topic-1"], 1)

    def test_answers_before_flexible_versions_are_decoded_whole(self) -> None:
        assert decoder_for(self.request(ID), FLEXIBLE - 1) is decode_response

    @pytest.mark.parametrize("version", [FLEXIBLE, BY_NAME, BY_NAME + 1])
    def test_acknowledgements_have_names_in_any_version(self, version: int) -> None:
        request = self.request(ID, b"j" * 16)
        payload = self.answer(request, version, error_code=0)
        decoded, surplus = decoder_for(request, version)(ProduceResponse, version, payload + b"?")
        assert decoded == BaseOffsets(0, {("topic-0", 3): (42, -1), ("topic-1", 3): (42, -1)})
        assert surplus == 1

    def test_topic_that_was_not_requested_is_named_by_its_id(self) -> None:
        answer = ProduceResponse(responses=[TopicProduceResponse(topic_id=b"?" * 16, partition_responses=[])])
        payload = bytes(encode_response(answer, BY_NAME + 1, 7)[4:])
        decoded, _ = decoder_for(self.request(ID), BY_NAME + 1)(ProduceResponse, BY_NAME + 1, payload)
        assert decoded.responses[0].name == f"the topic with the id {'3f' * 16}"

    def answer(self, request: ProduceRequest, version: int, error_code: int) -> bytes:
        partition = PartitionProduceResponse(index=3, error_code=error_code, base_offset=42)
        topics = [
            TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=[partition])
            for topic in request.topic_data
        ]
        return bytes(encode_response(ProduceResponse(responses=topics), version, 7)[4:])

    def request(self, *ids: bytes) -> ProduceRequest:
        topics = [
            TopicProduceData(name=f"topic-{number}", topic_id=each, partition_data=[])
            for number, each in enumerate(ids)
        ]
        return ProduceRequest(acks=-1, timeout_ms=1, topic_data=topics)


MOST = 1024 * 1024
READY = 16_384
ZSTD = {"codec": Codec.ZSTD}


@for_each(
    ("settings", "in_flight", "written", "size"),
    [
        ({}, 0, 0, READY),
        ({}, 1, 1, MOST),
        (ZSTD, 0, 0, READY),
        (ZSTD, 2, 0, COMPRESSED_REQUEST_BYTES),
        (ZSTD, 2, 2, 2 * COMPRESSED_REQUEST_BYTES),
        (ZSTD, 5, 5, MOST),
        ({"max_in_flight": 1}, 0, 0, MOST),
        ({"acks": 0}, 0, 0, MOST),
    ],
)
def test_largest_request_depends_on_in_flight_and_written_bytes(
    settings: dict[str, object], in_flight: int, written: int, size: int
) -> None:
    batching = batching_settings(batch_bytes=READY, max_request_bytes=MOST)
    assert largest_request(batching, sender_settings(**settings), in_flight, written) == size


def test_largest_request_never_exceeds_max_request_size() -> None:
    batching = batching_settings(batch_bytes=READY, max_request_bytes=1_000)
    assert largest_request(batching, sender_settings()) == 1_000


def test_first_request_to_a_node_has_one_batch_size() -> None:
    assert largest_request(batching_settings(batch_bytes=READY), sender_settings()) == READY
