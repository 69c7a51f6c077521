from __future__ import annotations

from typing import Any

import pytest

from aioproducer._core.protocol.fields import struct_writer
from aioproducer._core.protocol.produce import (
    BY_NAME,
    BaseOffsets,
    BatchIndexAndErrorMessage,
    InitProducerIdRequest,
    InitProducerIdResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
    read_base_offsets,
)
from aioproducer._core.protocol.schema import Message, decode, encode, encode_response
from aioproducer._core.protocol.types import NO_TOPIC_ID
from aioproducer._core.records.columns import RecordColumns
from aioproducer._core.records.record_batch import encode_batch
from aioproducer.errors import UnsupportedVersion
from tests.cases import for_each
from tests.unit._core.protocol.golden import check

NEW = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
AGAIN = InitProducerIdRequest(
    transactional_id="t", transaction_timeout_ms=60_000, producer_id=5, producer_epoch=2
)
TWO_PHASE = InitProducerIdRequest(
    transactional_id="t", transaction_timeout_ms=60_000, enable2_pc=True, keep_prepared_txn=True
)
INIT_PRODUCER_ID_RESPONSE = InitProducerIdResponse(throttle_time_ms=1, producer_id=5, producer_epoch=2)


@for_each(
    ("request_", "version", "wire"),
    [
        (NEW, 0, "ffff 0000ea60"),
        (NEW, 2, "00 0000ea60 00"),
        (NEW, 4, "00 0000ea60 ffffffffffffffff ffff 00"),
        (NEW, 6, "00 0000ea60 ffffffffffffffff ffff 00 00 00"),
        (TWO_PHASE, 6, "02 74 0000ea60 ffffffffffffffff ffff 01 01 00"),
        (AGAIN, 3, "02 74 0000ea60 0000000000000005 0002 00"),
    ],
)
def test_init_producer_id_request_matches_golden_bytes(
    request_: InitProducerIdRequest, version: int, wire: str
) -> None:
    check(request_, version, wire)


@pytest.mark.parametrize(
    ("version", "wire"),
    [
        (0, "00000001 0000 0000000000000005 0002"),
        (2, "00000001 0000 0000000000000005 0002 00"),
        (6, "00000001 0000 0000000000000005 0002 ffffffffffffffff ffff 00"),
    ],
)
def test_init_producer_id_response_matches_golden_bytes(version: int, wire: str) -> None:
    check(INIT_PRODUCER_ID_RESPONSE, version, wire)


def test_producer_id_is_refused_by_version_2() -> None:
    with pytest.raises(UnsupportedVersion, match=r"version 2, .* has no producer_id"):
        encode(AGAIN, 2)


TOPIC_ID = bytes(range(1, 17))
OTHER_ID = bytes(range(2, 18))
PRODUCE_REQUEST = ProduceRequest(
    acks=-1,
    timeout_ms=30_000,
    topic_data=[
        TopicProduceData(name="orders", partition_data=[PartitionProduceData(index=2, records=b"batch")])
    ],
)
MOVED = PartitionProduceResponse(
    index=2,
    error_code=6,
    base_offset=-1,
    log_start_offset=40,
    record_errors=[BatchIndexAndErrorMessage(batch_index=1, batch_index_error_message="bad")],
    error_message="moved",
)
PRODUCE_RESPONSE = ProduceResponse(
    responses=[TopicProduceResponse(name="orders", partition_responses=[MOVED])], throttle_time_ms=5
)


@for_each(
    ("version", "wire"),
    [
        (3, "ffff ffff 00007530 00000001 0006 6f7264657273 00000001 00000002 00000005 6261746368"),
        (8, "ffff ffff 00007530 00000001 0006 6f7264657273 00000001 00000002 00000005 6261746368"),
        (9, "00 ffff 00007530 02 07 6f7264657273 02 00000002 06 6261746368 00 00 00"),
        (12, "00 ffff 00007530 02 07 6f7264657273 02 00000002 06 6261746368 00 00 00"),
    ],
)
def test_produce_request_matches_golden_bytes(version: int, wire: str) -> None:
    check(PRODUCE_REQUEST, version, wire)


@for_each(
    ("version", "wire"),
    [
        (
            3,
            "00000001 0006 6f7264657273 00000001 00000002 0006 ffffffffffffffff ffffffffffffffff 00000005",
        ),
        (
            5,
            (
                "00000001 0006 6f7264657273 00000001 00000002 0006 ffffffffffffffff ffffffffffffffff"
                " 0000000000000028 00000005"
            ),
        ),
        (
            8,
            (
                "00000001 0006 6f7264657273 00000001 00000002 0006 ffffffffffffffff ffffffffffffffff"
                " 0000000000000028 00000001 00000001 0003 626164 0005 6d6f766564 00000005"
            ),
        ),
        (
            9,
            (
                "02 07 6f7264657273 02 00000002 0006 ffffffffffffffff ffffffffffffffff"
                " 0000000000000028 02 00000001 04 626164 00 06 6d6f766564 00 00 00000005 00"
            ),
        ),
    ],
)
def test_produce_response_matches_golden_bytes(version: int, wire: str) -> None:
    check(PRODUCE_RESPONSE, version, wire)


def test_produce_response_has_current_leaders_from_v10() -> None:
    moved_to = PartitionProduceResponse(
        index=2, error_code=6, base_offset=-1, current_leader=LeaderIdAndEpoch(leader_id=3, leader_epoch=9)
    )
    response = ProduceResponse(
        responses=[TopicProduceResponse(name="orders", partition_responses=[moved_to])],
        node_endpoints=[NodeEndpoint(node_id=3, host="c", port=9092)],
    )
    wire = (
        "02 07 6f7264657273 02 00000002 0006 ffffffffffffffff ffffffffffffffff ffffffffffffffff 01 00"
        " 01 00 09 00000003 00000009 00 00 00000000 01 00 0d 02 00000003 02 63 00002384 00 00"
    )
    check(response, 10, wire)
    assert decode(ProduceResponse, 10, bytes.fromhex(wire)) == response


def test_produce_messages_have_topic_ids_from_v13() -> None:
    data = [PartitionProduceData(index=2, records=b"batch")]
    request = ProduceRequest(
        acks=-1, timeout_ms=1500, topic_data=[TopicProduceData(topic_id=TOPIC_ID, partition_data=data)]
    )
    wire = f"00 ffff 000005dc 02 {TOPIC_ID.hex()} 02 00000002 06 6261746368 00 00 00"
    check(request, 13, wire)
    assert decode(ProduceRequest, 13, bytes.fromhex(wire)) == request
    response = ProduceResponse(
        responses=[TopicProduceResponse(topic_id=TOPIC_ID, partition_responses=[MOVED])], throttle_time_ms=5
    )
    wire = (
        f"02 {TOPIC_ID.hex()} 02 00000002 0006 ffffffffffffffff ffffffffffffffff"
        " 0000000000000028 02 00000001 04 626164 00 06 6d6f766564 00 00 00000005 00"
    )
    check(response, 13, wire)
    assert decode(ProduceResponse, 13, bytes.fromhex(wire)) == response


def test_produce_request_has_either_topic_names_or_ids() -> None:
    topic = TopicProduceData(name="orders", topic_id=TOPIC_ID, partition_data=[])
    request = ProduceRequest(acks=-1, timeout_ms=1500, topic_data=[topic])
    [by_name] = decode(ProduceRequest, 12, encode(request, 12)).topic_data
    [by_id] = decode(ProduceRequest, 13, encode(request, 13)).topic_data
    assert (by_name.name, by_name.topic_id) == ("orders", NO_TOPIC_ID)
    assert (by_id.name, by_id.topic_id) == ("", TOPIC_ID)


def test_produce_response_without_a_hint_has_an_unknown_leader() -> None:
    wire = bytes.fromhex("02 01 02 00000002 0000" + "00" * 24 + "01 00 00 00 00000000 00")
    response = decode(ProduceResponse, 10, wire)
    assert response.responses[0].partition_responses[0].current_leader == LeaderIdAndEpoch()
    assert LeaderIdAndEpoch() == LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1)


def test_node_endpoints_are_refused_before_v10() -> None:
    with pytest.raises(UnsupportedVersion, match=r"version 9, .* has no node_endpoints"):
        check(
            ProduceResponse(responses=[], node_endpoints=[NodeEndpoint(node_id=1, host="b", port=1)]), 9, ""
        )


class TestByHand:
    """From v9 on; that it does as the compiled code does, `test_protocol_messages` shows of many messages."""

    def compiled(self, message: Message, version: int) -> bytearray:
        buf = bytearray()
        struct_writer(type(message), version, flexible=True)(buf, message)
        return buf

    @for_each("records", [None, b"", b"r" * 126, b"r" * 127, b"r" * 20_000])
    @for_each("count", [0, 1, 3, 200])
    @for_each("transactional_id", [None, "", "t", "t" * 200])
    @for_each("version", [9, 12, 13])
    def test_hand_written_encoder_equals_the_schema(
        self, version: int, count: int, records: bytes | None, transactional_id: str | None
    ) -> None:
        partitions = [PartitionProduceData(index=index, records=records) for index in range(count)]
        topics = [TopicProduceData(name="orders", topic_id=TOPIC_ID, partition_data=partitions)] * 2
        request = ProduceRequest(
            transactional_id=transactional_id, acks=-1, timeout_ms=30_000, topic_data=topics
        )
        assert encode(request, version) == self.compiled(request, version)

    def test_transactional_id_that_is_too_long_is_refused(self) -> None:
        request = ProduceRequest(transactional_id="t" * 32_768, acks=-1, timeout_ms=1, topic_data=[])
        with pytest.raises(ValueError, match="32768"):
            encode(request, 12)

    def test_value_that_does_not_fit_is_refused_with_its_name(self) -> None:
        with pytest.raises(ValueError, match=r"acks.*99999"):
            encode(ProduceRequest(acks=99_999, timeout_ms=1, topic_data=[]), 12)


def test_records_of_all_batches_are_counted() -> None:
    columns = RecordColumns()
    for _ in range(3):
        columns.append(b"value", None, (), 0)
    batch = encode_batch(columns)
    topics = [
        TopicProduceData(name=name, partition_data=[PartitionProduceData(index=0, records=records)])
        for name, records in (("a", batch), ("b", None), ("c", batch))
    ]
    assert ProduceRequest(acks=1, timeout_ms=1, topic_data=topics).count_records() == 6


class TestBaseOffsets:
    """Responses in flexible versions; `decode_response` reads all other details."""

    @staticmethod
    def read(response: ProduceResponse, version: int = 13, more: bytes = b"") -> Any:
        names = None if version <= BY_NAME else {TOPIC_ID: "orders", OTHER_ID: "bills"}
        payload = bytes(encode_response(response, version, 7)[4:])
        return read_base_offsets(BaseOffsets, payload + more, names)

    @for_each("count", [0, 1, 126, 127, 20_000])
    @for_each("version", [9, 12, 13])
    def test_base_offsets_have_the_offset_of_each_batch(self, version: int, count: int) -> None:
        partitions = [
            PartitionProduceResponse(
                index=index, error_code=0, base_offset=index + 2**40, log_append_time_ms=-1
            )
            for index in range(count)
        ]
        topics = [
            topic_response("orders", TOPIC_ID, version, partitions),
            topic_response(
                "bills",
                OTHER_ID,
                version,
                [PartitionProduceResponse(index=0, error_code=0, base_offset=-1, log_append_time_ms=5)],
            ),
        ]
        read, surplus = self.read(ProduceResponse(responses=topics, throttle_time_ms=5), version, b"??")
        assert (type(read), surplus) == (BaseOffsets, 2)
        assert read.throttle_time_ms == 5
        assert read.offsets == {
            **{("orders", index): (index + 2**40, -1) for index in range(count)},
            ("bills", 0): (-1, 5),
        }

    @for_each(
        "partition",
        [
            MOVED,
            PartitionProduceResponse(index=2, error_code=6, base_offset=-1),
            PartitionProduceResponse(index=2, error_code=0, base_offset=1, error_message="well"),
            PartitionProduceResponse(
                index=2, error_code=0, base_offset=1, record_errors=[BatchIndexAndErrorMessage(batch_index=1)]
            ),
            PartitionProduceResponse(
                index=2, error_code=0, base_offset=1, current_leader=LeaderIdAndEpoch(leader_id=3)
            ),
        ],
    )
    def test_base_offsets_are_none_for_errors_and_details(self, partition: PartitionProduceResponse) -> None:
        topic = TopicProduceResponse(topic_id=TOPIC_ID, partition_responses=[partition])
        assert self.read(ProduceResponse(responses=[topic])) is None

    def test_base_offsets_are_none_when_node_endpoints_are_present(self) -> None:
        endpoint = NodeEndpoint(node_id=1, host="b", port=1)
        assert self.read(ProduceResponse(responses=[], node_endpoints=[endpoint])) is None

    def test_base_offsets_are_none_for_topics_not_requested(self) -> None:
        unknown = TopicProduceResponse(topic_id=b"?" * 16, partition_responses=[])
        assert self.read(ProduceResponse(responses=[unknown])) is None

    @for_each("count", [126, 127, 16_383])
    @for_each("size", [126, 127, 249])
    @for_each("version", [12, 13])
    def test_base_offsets_are_read_for_many_topics_with_long_names(
        self, version: int, size: int, count: int
    ) -> None:
        partition = PartitionProduceResponse(index=0, error_code=0, base_offset=1)
        names = {number.to_bytes(16, "big"): f"{number:0{size}}" for number in range(count)}
        topics = [topic_response(name, each, version, [partition]) for each, name in names.items()]
        payload = bytes(encode_response(ProduceResponse(responses=topics), version, 7)[4:])
        read = read_base_offsets(BaseOffsets, payload, None if version <= BY_NAME else names)
        assert read == (BaseOffsets(0, {(name, 0): (1, -1) for name in names.values()}), 0)

    def test_base_offsets_are_none_for_a_truncated_response(self) -> None:
        partition = PartitionProduceResponse(index=2, error_code=0, base_offset=1)
        topic = TopicProduceResponse(topic_id=TOPIC_ID, partition_responses=[partition])
        payload = bytes(encode_response(ProduceResponse(responses=[topic]), 13, 7)[4:])
        for end in range(len(payload)):
            assert read_base_offsets(BaseOffsets, payload[:end], {TOPIC_ID: "orders"}) is None

    @for_each(
        ("at", "invalid"),
        [
            (4, b"\x01"),  # tagged fields of the header
            (5, b"\x00"),  # null instead of topics
            (22, b"\x00"),  # null instead of partitions
            (23, b"\x80"),  # a negative partition
            (29, b"\x80"),  # an offset below -1
            (37, b"\x80"),  # a timestamp below -1
            (56, b"\x01"),  # tagged fields of the topic
            (57, b"\x80"),  # a negative throttle time
            (61, b"\x01"),  # tagged fields of the response
        ],
    )
    def test_base_offsets_are_none_for_invalid_fields(self, at: int, invalid: bytes) -> None:
        partition = PartitionProduceResponse(index=2, error_code=0, base_offset=1)
        topic = TopicProduceResponse(topic_id=TOPIC_ID, partition_responses=[partition])
        payload = bytes(encode_response(ProduceResponse(responses=[topic]), 13, 7)[4:])
        names = {TOPIC_ID: "orders"}
        assert read_base_offsets(BaseOffsets, payload, names) == (BaseOffsets(0, {("orders", 2): (1, -1)}), 0)
        assert read_base_offsets(BaseOffsets, payload[:at] + invalid + payload[at + 1 :], names) is None


def topic_response(
    name: str, topic_id: bytes, version: int, partitions: list[PartitionProduceResponse]
) -> TopicProduceResponse:
    if version <= BY_NAME:
        return TopicProduceResponse(name=name, partition_responses=partitions)
    return TopicProduceResponse(topic_id=topic_id, partition_responses=partitions)
