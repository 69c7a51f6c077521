"""The functions in C and in Python for Produce are equal: requests written, acknowledgements read."""

from __future__ import annotations

import sys
from collections.abc import Callable
from copy import copy
from typing import Any

import pytest
from hypothesis import example, given, strategies as st

from aioproducer._core.protocol.produce import (
    BY_NAME,
    DOES_NOT_FIT,
    FLEXIBLE,
    HIGHEST_BASE_OFFSET,
    BaseOffsets,
    LeaderIdAndEpoch,
    PartitionBatch,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicBatches,
    TopicProduceData,
    TopicProduceResponse,
    python_produce_writer,
    python_read_base_offsets,
)
from aioproducer._core.protocol.schema import decode_response, encode, encode_response
from aioproducer._core.protocol.types import NO_TOPIC_ID
from aioproducer.errors import ProtocolError
from tests.cases import for_each
from tests.property.messages import instances
from tests.property.test_acceleration import Raw, Text

accelerator: Any = pytest.importorskip(
    "aioproducer._core._accelerator", reason="it was not built", exc_type=ImportError
)

VERSIONS = (FLEXIBLE, BY_NAME, BY_NAME + 1)
TEXT = st.one_of(
    st.sampled_from(["", "orders", "é" * 100, Text("orders"), "n" * 0x7FFF]),
    st.text(max_size=5),
    st.sampled_from(
        ["n" * 0x8000, "\ud800", 5, bytes(16), None, 1.5]
    ),  # these do not fit, nor None as a name
)
RECORDS = st.one_of(
    st.none(),
    st.binary(max_size=300),
    st.binary(max_size=5).map(bytearray),
    st.binary(max_size=5).map(memoryview),  # type: ignore[arg-type]
    st.sampled_from([bytes(20_000), Raw(b"1"), "text", 5]),
)
IDS = st.one_of(st.binary(min_size=16, max_size=16), st.sampled_from(["n" * 16, "orders", 5]))


def integers(bits: int) -> st.SearchStrategy[Any]:
    edge = 2 ** (bits - 1)
    return st.one_of(
        st.integers(-edge, edge - 1),
        st.sampled_from([True, -edge - 1, edge, 2**70, -(2**70), 1.0, "1", None]),
    )


PARTITIONS = st.builds(PartitionProduceData, index=integers(32), records=RECORDS)
TOPICS = st.builds(
    TopicProduceData, name=TEXT, topic_id=IDS, partition_data=st.lists(PARTITIONS, max_size=3) | st.just(5)
)
REQUESTS = st.builds(
    ProduceRequest,
    transactional_id=TEXT,
    acks=integers(16),
    timeout_ms=integers(32),
    topic_data=st.lists(TOPICS, max_size=3) | st.none(),
)


def many_partitions(count: int, name: Any = "t", topic_id: Any = bytes(range(16))) -> ProduceRequest:
    partitions = [PartitionProduceData(index=index, records=b"12") for index in range(count)]
    topic = TopicProduceData(name=name, topic_id=topic_id, partition_data=partitions)
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])


def written(write: Callable[[bytearray, Any], None], request: Any) -> bytes | None:
    """Return the bytes that *write* appends, or None if it leaves the request to the compiled writer."""
    buf = bytearray(b"header")
    try:
        write(buf, request)
    except DOES_NOT_FIT:
        return None
    return bytes(buf)


@given(REQUESTS, st.booleans())
@example(many_partitions(0), True)
@example(many_partitions(126), True)
@example(many_partitions(127), False)
@example(many_partitions(20_000), False)
@example(many_partitions(1, topic_id="orders"), False)
@example(many_partitions(1, topic_id="n" * 16), False)
@example(many_partitions(1, name=bytes(16)), True)
@example(many_partitions(1, name=None), True)
def test_requests_are_written_the_same(request: ProduceRequest, by_name: bool) -> None:
    expected = written(python_produce_writer(by_name), request)
    assert written(accelerator.produce_writer(by_name), request) == expected


@for_each("version", [3, 8, 9, BY_NAME, BY_NAME + 1])
@for_each("pure", [True, False])
def test_named_tuples_are_written_as_structs(version: int, pure: bool) -> None:
    structs = many_partitions(3)
    structs.topic_data *= 2
    rows: Any = [
        TopicBatches(
            topic.name,
            topic.topic_id,
            [PartitionBatch(each.index, each.records) for each in topic.partition_data],
        )
        for topic in structs.topic_data
    ]
    request = ProduceRequest(acks=structs.acks, timeout_ms=structs.timeout_ms, topic_data=rows)
    if version < 9:
        assert encode(request, version) == encode(structs, version)
        return
    make = python_produce_writer if pure else accelerator.produce_writer
    assert written(make(version <= BY_NAME), request) == written(make(version <= BY_NAME), structs)


@pytest.mark.parametrize("by_name", [True, False])
@pytest.mark.parametrize("topics", [1, 3])
def test_produce_writer_keeps_no_spare_memory(topics: int, by_name: bool) -> None:
    request = many_partitions(10)
    request.topic_data *= topics
    for partition in request.topic_data[0].partition_data:
        partition.records = memoryview(bytes(20_000))
    buf = bytearray(b"header")
    accelerator.produce_writer(by_name)(buf, request)
    expected = written(python_produce_writer(by_name), request)
    assert bytes(buf) == expected
    if topics == 1:
        assert sys.getsizeof(buf) < len(buf) + 500
    else:  # the memory doubles from topic to topic
        assert sys.getsizeof(buf) < 2 * len(buf)


@pytest.mark.parametrize("version", VERSIONS)
@given(data=st.data())
def test_produce_request_is_written_when_it_fits(data: st.DataObject, version: int) -> None:
    request = data.draw(instances(ProduceRequest, version))
    assert written(accelerator.produce_writer(version <= BY_NAME), request) == b"header" + encode(
        request, version
    )


@st.composite
def answers(draw: st.DrawFn, version: int) -> ProduceResponse:
    """Make an answer, which more often than not only acknowledges."""
    answer: ProduceResponse = draw(instances(ProduceResponse, version))
    if draw(st.integers(0, 3)):
        answer.node_endpoints = []
        answer.throttle_time_ms = draw(st.integers(-1, 2**31 - 1))
        for topic in answer.responses:
            for each in topic.partition_responses:
                each.record_errors, each.error_message, each.current_leader = [], None, LeaderIdAndEpoch()
                each.error_code = 0 if draw(st.integers(0, 9)) else each.error_code
                each.index, each.base_offset = draw(st.integers(-1, 9)), draw(OFFSETS)
                each.log_append_time_ms, each.log_start_offset = draw(TIMES), draw(TIMES)
    return answer


OFFSETS = st.integers(-2, HIGHEST_BASE_OFFSET + 1) | st.integers(-1, HIGHEST_BASE_OFFSET)
TIMES = st.integers(-1, 2**63 - 1) | st.integers(-(2**63), 2**63 - 1)


def names_in(answer: ProduceResponse, version: int) -> dict[bytes, str] | None:
    if version <= BY_NAME:
        return None
    return {topic.topic_id: f"topic {number}" for number, topic in enumerate(answer.responses)}


def only_acknowledges(answer: ProduceResponse) -> bool:
    """Whether *answer* fits the short form, but for the values of its numbers."""
    partitions = [each for topic in answer.responses for each in topic.partition_responses]
    if answer.node_endpoints:
        return False
    return not any(
        each.error_code
        or each.record_errors
        or each.error_message is not None
        or each.current_leader != LeaderIdAndEpoch()
        for each in partitions
    )


def is_refused(version: int, payload: bytes) -> bool:
    try:
        decode_response(ProduceResponse, version, payload)
    except ProtocolError:
        return True
    return False


@pytest.mark.parametrize("version", VERSIONS)
@given(data=st.data())
def test_acknowledgements_are_read_the_same(data: st.DataObject, version: int) -> None:
    answer = data.draw(answers(version))
    names = names_in(answer, version)
    payload = bytes(encode_response(answer, version, 7))[4:] + data.draw(st.binary(max_size=3))
    read = accelerator.read_base_offsets(BaseOffsets, payload, names)
    assert read == python_read_base_offsets(BaseOffsets, payload, names)
    if read is None:
        assert not only_acknowledges(answer) or is_refused(version, payload)
        return
    assert type(read[0]) is BaseOffsets
    whole, surplus = decode_response(ProduceResponse, version, payload)
    assert (read[0].throttle_time_ms, read[1]) == (whole.throttle_time_ms, surplus)
    assert read[0].offsets == {
        (topic.name if names is None else names[topic.topic_id], each.index): (
            each.base_offset,
            each.log_append_time_ms,
        )
        for topic in whole.responses
        for each in topic.partition_responses
    }


@pytest.mark.parametrize("version", VERSIONS)
@given(data=st.data())
def test_broken_bytes_are_read_the_same(data: st.DataObject, version: int) -> None:
    answer = data.draw(answers(version))
    names = names_in(answer, version)
    payload = bytearray(encode_response(answer, version, 7))[4:]
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(payload) - 1))
        payload[at] = data.draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF]))
    cut = bytes(payload[: data.draw(st.integers(0, len(payload)))])
    expected = python_read_base_offsets(BaseOffsets, cut, names)
    assert accelerator.read_base_offsets(BaseOffsets, cut, names) == expected


def payload_of(partition: PartitionProduceResponse, version: int = BY_NAME + 1, name: str = "") -> bytes:
    topic_id = NO_TOPIC_ID if name else ID
    topic = TopicProduceResponse(name=name, topic_id=topic_id, partition_responses=[partition])
    return bytes(encode_response(ProduceResponse(responses=[topic], throttle_time_ms=9), version, 7))[4:]


ID = bytes(range(16))
FINE = PartitionProduceResponse(
    index=3, error_code=0, base_offset=2**40, log_append_time_ms=7, log_start_offset=5
)


@pytest.mark.parametrize("read", [python_read_base_offsets, accelerator.read_base_offsets])
def test_acknowledgements_are_read_with_their_fields(read: Callable[..., Any]) -> None:
    expected = BaseOffsets(9, {("orders", 3): (2**40, 7)})
    assert read(BaseOffsets, payload_of(FINE), {ID: "orders"}) == (expected, 0)
    assert read(BaseOffsets, payload_of(FINE, BY_NAME, "orders") + b"12", None) == (expected, 2)


@pytest.mark.parametrize("read", [python_read_base_offsets, accelerator.read_base_offsets])
def test_response_other_than_an_acknowledgement_is_not_read(read: Callable[..., Any]) -> None:
    refused = PartitionProduceResponse(index=3, error_code=-1, base_offset=-1)
    told = PartitionProduceResponse(index=3, error_code=0, base_offset=1, error_message="so what")
    led = PartitionProduceResponse(
        index=3, error_code=0, base_offset=1, current_leader=LeaderIdAndEpoch(leader_id=1)
    )
    for each in (refused, told, led):
        assert read(BaseOffsets, payload_of(each), {ID: "orders"}) is None
    assert read(BaseOffsets, payload_of(FINE), {}) is None, "a topic that was not requested"
    no_text = payload_of(FINE, BY_NAME, "xx").replace(b"xx", b"\xff\xff")
    assert read(BaseOffsets, no_text, None) is None
    assert read(BaseOffsets, b"", None) is None
    fine = payload_of(FINE)
    for at, what in (
        (4, "tags of the header"),
        (5, "null in place of topics"),
        (22, "null in place of partitions"),
        (len(fine) - 6, "tags of the topic"),
        (len(fine) - 1, "tags of the answer"),
    ):
        changed = bytearray(fine)
        changed[at] = 0 if "null" in what else 1
        assert changed != fine
        assert read(BaseOffsets, bytes(changed), {ID: "orders"}) is None, what


@for_each("read", [python_read_base_offsets, accelerator.read_base_offsets])
@for_each(
    ("field", "lowest", "highest"),
    [
        ("index", 0, 2**31 - 1),
        ("base_offset", -1, HIGHEST_BASE_OFFSET),
        ("log_append_time_ms", -1, 2**63 - 1),
        ("log_start_offset", -1, 2**63 - 1),
    ],
)
def test_acknowledgement_is_refused_when_out_of_range(
    read: Callable[..., Any], field: str, lowest: int, highest: int
) -> None:
    limits = {"index": 2**31, "base_offset": 2**63, "log_append_time_ms": 2**63, "log_start_offset": 2**63}
    for value in {lowest, highest, lowest - 1, -limits[field], min(highest + 1, limits[field] - 1)}:
        partition = copy(FINE)
        setattr(partition, field, value)
        payload, fits = payload_of(partition), lowest <= value <= highest
        assert (read(BaseOffsets, payload, {ID: "orders"}) is not None) == fits, value
        assert is_refused(BY_NAME + 1, payload) != fits, value


@pytest.mark.parametrize("read", [python_read_base_offsets, accelerator.read_base_offsets])
def test_acknowledgement_is_refused_when_throttle_is_negative(read: Callable[..., Any]) -> None:
    payload = bytearray(payload_of(FINE))
    assert payload[-5:] == b"\0\0\0\x09\0"
    payload[-5] = 0x80
    assert read(BaseOffsets, bytes(payload), {ID: "orders"}) is None
    assert is_refused(BY_NAME + 1, bytes(payload))


@for_each(
    "call",
    [
        lambda: accelerator.read_base_offsets(dict, b"", None),
        lambda: accelerator.read_base_offsets(7, b"", None),
        lambda: accelerator.read_base_offsets(BaseOffsets, "text", None),
        lambda: accelerator.read_base_offsets(BaseOffsets, b"", ["orders"]),
        lambda: accelerator.read_base_offsets(BaseOffsets, b""),
        lambda: accelerator.produce_writer(True)(b"", many_partitions(1)),
        lambda: accelerator.produce_writer(True)(bytearray()),
    ],
)
def test_produce_writer_refuses_other_arguments(call: Callable[[], object]) -> None:
    with pytest.raises(TypeError):
        call()


def test_flag_for_topic_names_takes_any_truth_value() -> None:
    class NoTruth:
        def __bool__(self) -> bool:
            raise ZeroDivisionError

    request = many_partitions(1)
    for truth, by_name in ((1, True), ("", False), ([0], True)):
        assert written(accelerator.produce_writer(truth), request) == written(
            accelerator.produce_writer(by_name), request
        )
    with pytest.raises(ZeroDivisionError):
        accelerator.produce_writer(NoTruth())
