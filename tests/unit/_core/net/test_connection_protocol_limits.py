from __future__ import annotations

from typing import Any

import pytest

from aioproducer._core.net.connection_protocol import (
    BYTES_PER_RECORD,
    BYTES_PER_REQUEST_BYTE,
    LOGIN_RESPONSE_BYTES,
    RESPONSE_BYTES,
    ConnectionProtocol,
)
from aioproducer._core.net.in_flight import LENGTH
from aioproducer._core.protocol.admin import ListTransactionsRequest
from aioproducer._core.protocol.client import MOST_MECHANISMS, SaslHandshakeResponse
from aioproducer._core.protocol.metadata import (
    MAX_API_VERSIONS,
    ApiVersion,
    ApiVersionsResponse,
    MetadataRequest,
)
from aioproducer._core.protocol.produce import (
    InitProducerIdRequest,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from aioproducer._core.protocol.schema import Request, decode, encode
from aioproducer._core.wire import MOST_TAGS, append_unsigned_varint, read_tags
from aioproducer.errors import ProtocolError
from tests.unit._core.net.connection_protocol_rig import NOW, answer, answers, made, ready
from tests.unit._core.net.scripted import ASK


def announce(connection: ConnectionProtocol, size: int) -> None:
    """Let the broker announce a response of *size* bytes."""
    _ = connection.data_to_send()
    list(answers(connection, [LENGTH.pack(size)]))


def test_response_before_the_login_is_small() -> None:
    announce(made(), LOGIN_RESPONSE_BYTES)
    with pytest.raises(ProtocolError, match="524288 are possible"):
        announce(made(), LOGIN_RESPONSE_BYTES + 1)


def test_response_to_a_small_request_is_small() -> None:
    connection = ready()
    connection.send(ASK, NOW, lambda _: None)
    with pytest.raises(ProtocolError, match="bytes long"):
        announce(connection, 2 * RESPONSE_BYTES)


def test_response_to_an_acks_0_request_is_small() -> None:
    connection = ready()
    connection.send(ASK, NOW, None)
    announce(connection, RESPONSE_BYTES)
    connection = ready()
    connection.send(ASK, NOW, None)
    with pytest.raises(ProtocolError, match=rf"\(4 to {RESPONSE_BYTES} are possible\)"):
        announce(connection, RESPONSE_BYTES + 1)


def test_earlier_requests_do_not_raise_the_limit() -> None:
    connection = ready()
    for name in ("x" * 30_000, "x"):
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=1)
        connection.send(request, NOW, lambda _: None)
    list(connection.receive_data(answer(2), NOW))
    with pytest.raises(ProtocolError, match="bytes long"):
        announce(connection, RESPONSE_BYTES + 100_000)


@pytest.mark.parametrize("request_", [MetadataRequest(topics=None), ListTransactionsRequest()])
def test_response_about_a_whole_cluster_may_be_large(request_: Request[Any]) -> None:
    connection = ready()
    connection.send(request_, NOW, lambda _: None, version=0 if request_.API_KEY == 66 else 4)
    announce(connection, 99 * 1024 * 1024)


def test_response_grows_with_its_request() -> None:
    connection = ready()
    connection.send(
        InitProducerIdRequest(transactional_id="x" * 30_000, transaction_timeout_ms=1), NOW, lambda _: None
    )
    announce(connection, RESPONSE_BYTES + 100_000)


@pytest.mark.parametrize("records", [20_000, 10])
def test_response_grows_with_records_of_its_request(records: int) -> None:
    connection = ready()
    batch = bytes(57) + LENGTH.pack(records) + bytes(100)  # compressed
    topic = TopicProduceData(name="orders", partition_data=[PartitionProduceData(index=0, records=batch)])
    request = ProduceRequest(acks=-1, timeout_ms=1, topic_data=[topic])
    connection.send(request, NOW, lambda _: None, version=9)
    (frame,) = connection.data_to_send()
    most = RESPONSE_BYTES + BYTES_PER_REQUEST_BYTE * len(frame) + BYTES_PER_RECORD * records
    with pytest.raises(ProtocolError, match=rf"\(4 to {most} are possible\)"):
        announce(connection, most + 1)


@pytest.mark.parametrize(("count", "taken"), [(MAX_API_VERSIONS, True), (MAX_API_VERSIONS + 1, False)])
def test_number_of_apis_is_limited(count: int, taken: bool) -> None:
    keys = [ApiVersion(api_key=1, min_version=0, max_version=1)] * count
    data = encode(ApiVersionsResponse(error_code=0, api_keys=keys), 3)
    if taken:
        assert len(decode(ApiVersionsResponse, 3, data).api_keys) == count
        return
    with pytest.raises(ProtocolError, match=f"{count} items in .*; {MAX_API_VERSIONS} are possible"):
        decode(ApiVersionsResponse, 3, data)


def test_number_of_mechanisms_is_limited() -> None:
    data = encode(SaslHandshakeResponse(error_code=0, mechanisms=["X"] * (MOST_MECHANISMS + 1)), 1)
    with pytest.raises(ProtocolError, match="101 items"):
        decode(SaslHandshakeResponse, 1, data)


def test_number_of_tagged_fields_is_limited() -> None:
    data = bytearray()
    append_unsigned_varint(data, MOST_TAGS + 1)
    with pytest.raises(ProtocolError, match="1001 tagged fields"):
        read_tags(bytes(data) + bytes(5000), 0, {}, None)
