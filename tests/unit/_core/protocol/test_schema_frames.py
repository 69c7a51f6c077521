from __future__ import annotations

import pytest

from aioproducer._core.protocol.metadata import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from aioproducer._core.protocol.produce import InitProducerIdRequest, InitProducerIdResponse
from aioproducer._core.protocol.schema import (
    RequestHeader,
    decode,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    read_correlation_id,
)
from aioproducer.errors import ProtocolError

REQUEST = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
RESPONSE = InitProducerIdResponse(producer_id=5, producer_epoch=2)
REQUESTS = {
    ApiVersionsRequest.API_KEY: ApiVersionsRequest,
    InitProducerIdRequest.API_KEY: InitProducerIdRequest,
}

CLASSIC_REQUEST = bytes.fromhex("00000011  0016 0001 00000007 0001 63  ffff 0000ea60")
FLEXIBLE_REQUEST = bytes.fromhex("00000012  0016 0002 00000007 0001 63 00  00 0000ea60 00")
CLASSIC_RESPONSE = bytes.fromhex("00000014  00000007  00000000 0000 0000000000000005 0002")
FLEXIBLE_RESPONSE = bytes.fromhex("00000016  00000007 00  00000000 0000 0000000000000005 0002 00")


@pytest.mark.parametrize(("version", "frame"), [(1, CLASSIC_REQUEST), (2, FLEXIBLE_REQUEST)])
def test_request_has_the_header_of_its_version(version: int, frame: bytes) -> None:
    assert encode_request(REQUEST, version, 7, "c") == frame
    header, pos = decode_request(frame[4:], REQUESTS)
    assert header == RequestHeader(api_key=22, api_version=version, correlation_id=7, client_id="c")
    assert decode(InitProducerIdRequest, version, frame[4:], pos) == REQUEST


def test_request_of_the_latest_version_is_read_back() -> None:
    latest = InitProducerIdRequest.VERSIONS[1]
    payload = encode_request(REQUEST, latest, 7, "c")[4:]
    _, pos = decode_request(payload, REQUESTS)
    assert decode(InitProducerIdRequest, latest, payload, pos) == REQUEST


@pytest.mark.parametrize(("version", "frame"), [(1, CLASSIC_RESPONSE), (2, FLEXIBLE_RESPONSE)])
def test_response_has_the_header_of_its_version(version: int, frame: bytes) -> None:
    assert encode_response(RESPONSE, version, 7) == frame
    assert read_correlation_id(frame[4:]) == 7
    assert decode_response(InitProducerIdResponse, version, frame[4:]) == (RESPONSE, 0)


def test_surplus_bytes_of_a_response_are_counted() -> None:
    for version, frame in ((1, CLASSIC_RESPONSE), (2, FLEXIBLE_RESPONSE)):
        payload = frame[4:] + b"\0!?"
        assert decode_response(InitProducerIdResponse, version, payload) == (RESPONSE, 3)


@pytest.mark.parametrize("client_id", [None, "", "é" * 100])
def test_client_id_is_a_classic_string_in_either_header(client_id: str | None) -> None:
    for version in (1, 2):
        payload = encode_request(REQUEST, version, 7, client_id)[4:]
        assert decode_request(payload, REQUESTS)[0].client_id == client_id


def test_header_of_an_api_versions_response_has_no_tags() -> None:
    response = ApiVersionsResponse(
        error_code=0, api_keys=[ApiVersion(api_key=0, min_version=3, max_version=12)]
    )
    frame = encode_response(response, 4, 7)
    assert frame == bytes.fromhex("00000013  00000007  0000 02 0000 0003 000c 00 00000000 00")
    assert decode_response(ApiVersionsResponse, 4, frame[4:]) == (response, 0)


def test_tags_in_a_header_are_skipped() -> None:
    response = FLEXIBLE_RESPONSE[4:8] + bytes.fromhex("01 05 02 ffff") + FLEXIBLE_RESPONSE[9:]
    for kind in (bytes, bytearray, memoryview):
        assert decode_response(InitProducerIdResponse, 2, kind(response)) == (RESPONSE, 0)
    request = FLEXIBLE_REQUEST[4:15] + bytes.fromhex("01 05 02 ffff") + FLEXIBLE_REQUEST[16:]
    _, pos = decode_request(request, REQUESTS)
    assert decode(InitProducerIdRequest, 2, request, pos) == REQUEST


@pytest.mark.parametrize("api_key", [77, 22])
def test_header_of_an_unknown_request_is_read(api_key: int) -> None:
    payload = api_key.to_bytes(2) + bytes.fromhex("0063 00000007 0001 63") + b"\xff\xff\xff"
    header, _ = decode_request(payload, REQUESTS)
    assert header == RequestHeader(api_key=api_key, api_version=99, correlation_id=7, client_id="c")


def test_correlation_id_is_read_alone() -> None:
    assert read_correlation_id(FLEXIBLE_RESPONSE[4:]) == 7
    assert read_correlation_id(memoryview(FLEXIBLE_RESPONSE)[4:]) == 7


def test_truncated_payload_is_a_protocol_error() -> None:
    for end in range(len(FLEXIBLE_RESPONSE) - 4):
        with pytest.raises(ProtocolError):
            decode_response(InitProducerIdResponse, 2, FLEXIBLE_RESPONSE[4 : 4 + end])
    for end in range(12):
        with pytest.raises(ProtocolError):
            decode_request(FLEXIBLE_REQUEST[4 : 4 + end], REQUESTS)
    with pytest.raises(ProtocolError, match=r"^4 bytes expected at byte 0, 3 left$"):
        read_correlation_id(b"\0\0\0")


def test_invalid_value_of_a_response_names_the_message() -> None:
    payload = encode_response(InitProducerIdResponse(producer_id=-2, producer_epoch=0), 1, 7)[4:]
    with pytest.raises(ProtocolError, match=r"^InitProducerIdResponse v1: producer_id=-2 is out of range"):
        decode_response(InitProducerIdResponse, 1, payload)
