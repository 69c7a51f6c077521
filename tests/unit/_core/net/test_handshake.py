from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

import pytest

from aioproducer._core.net.handshake import NODE_CHECK, Ask, ExpectedNode, handshake
from aioproducer._core.protocol.metadata import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
)
from aioproducer._core.protocol.produce import InitProducerIdRequest
from aioproducer._core.protocol.schema import ApiVersionTable, Message, encode_response
from aioproducer.errors import (
    ClusterAuthorizationFailed,
    ProtocolError,
    RebootstrapRequired,
    UnsupportedVersion,
)
from tests.cases import for_each

KIP_511 = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
NEWEST = NODE_CHECK - 1
"""Without an expected node."""
ANSWER = ApiVersionsResponse(
    error_code=0, api_keys=[ApiVersion(api_key=InitProducerIdRequest.API_KEY, min_version=0, max_version=3)]
)


def payload(response: Message, version: int) -> bytes:
    return bytes(encode_response(response, version, 1)[4:])


class Dialogue:
    """Plays the broker: gives the next of *payloads* to each question."""

    def __init__(self, *payloads: bytes) -> None:
        self.payloads = list(payloads)
        self.asked: list[Ask] = []

    def of(
        self,
        version_caps: Mapping[int, int] = MappingProxyType({}),
        expected: ExpectedNode | None = None,
    ) -> ApiVersionTable:
        exchange = handshake(version_caps, expected)
        ask = next(exchange)
        while True:
            self.asked.append(ask)
            answer, surplus = ask.decode(ask.request.RESPONSE, ask.version, self.payloads.pop(0))
            assert surplus == 0
            try:
                ask = exchange.send(answer)
            except StopIteration as over:
                return over.value  # type: ignore[no-any-return]

    @property
    def versions(self) -> list[int]:
        return [ask.version for ask in self.asked]


def test_handshake_begins_in_the_newest_version() -> None:
    dialogue = Dialogue(payload(ANSWER, NEWEST))
    table = dialogue.of(version_caps={InitProducerIdRequest.API_KEY: 2})
    assert dialogue.versions == [NEWEST]
    assert table.offered == {InitProducerIdRequest.API_KEY: (0, 3)}
    assert table.pick(InitProducerIdRequest) == 2


def test_finalized_features_are_kept_with_their_epoch() -> None:
    told = [FinalizedFeatureKey(name="transaction.version", max_version_level=2, min_version_level=0)]
    answer = ApiVersionsResponse(
        error_code=0, api_keys=[], finalized_features_epoch=7, finalized_features=told
    )
    table = Dialogue(payload(answer, NEWEST)).of()
    assert (table.finalized_features, table.finalized_features_epoch) == ({"transaction.version": 2}, 7)


def test_finalized_features_are_empty_when_the_broker_sends_none() -> None:
    table = Dialogue(payload(ANSWER, 0)).of(version_caps={ApiVersionsRequest.API_KEY: 0})
    assert (table.finalized_features, table.finalized_features_epoch) == ({}, -1)


def test_client_software_name_and_version_conform_to_kip_511() -> None:
    dialogue = Dialogue(payload(ANSWER, NEWEST))
    dialogue.of()
    request = dialogue.asked[0].request
    assert isinstance(request, ApiVersionsRequest)
    assert request.client_software_name == "aioproducer"
    assert KIP_511.fullmatch(request.client_software_version)


@for_each("version", range(NEWEST + 1))
def test_version_cap_applies_to_api_versions(version: int) -> None:
    dialogue = Dialogue(payload(ANSWER, version))
    table = dialogue.of(version_caps={ApiVersionsRequest.API_KEY: version})
    assert dialogue.versions == [version]
    assert table.pick(InitProducerIdRequest) == 3


@for_each(
    "rest",
    [
        payload(ApiVersionsResponse(error_code=35, api_keys=ANSWER.api_keys), 0)[6:],
        payload(ApiVersionsResponse(error_code=35, api_keys=[]), NEWEST)[6:],
        payload(ApiVersionsResponse(error_code=35, api_keys=ANSWER.api_keys), 0)[6:] + b"surplus",
        b"",
        b"\xff garbage",
    ],
)
def test_error_35_is_followed_by_a_request_in_version_0(rest: bytes) -> None:
    refusal = b"\x00\x00\x00\x01" + (35).to_bytes(2, "big") + rest
    dialogue = Dialogue(refusal, payload(ANSWER, 0))
    table = dialogue.of()
    assert dialogue.versions == [NEWEST, 0]
    assert table.pick(InitProducerIdRequest) == 3


def test_error_35_to_version_0_is_the_end() -> None:
    refusal = payload(ApiVersionsResponse(error_code=35, api_keys=[]), 0)
    with pytest.raises(UnsupportedVersion, match="ApiVersions was refused"):
        Dialogue(refusal, refusal).of()


@for_each("expected", [None, ExpectedNode("cluster", 7)])
def test_error_code_is_raised_as_its_class(expected: ExpectedNode | None) -> None:
    refusal = payload(ApiVersionsResponse(error_code=31, api_keys=[]), NEWEST)
    with pytest.raises(
        ClusterAuthorizationFailed, match=r"^ApiVersions was refused: ClusterAuthorizationFailed \(31\)$"
    ):
        Dialogue(refusal).of(expected=expected)


@pytest.mark.parametrize(
    "garbage", [b"", b"\x00\x00\x00\x01", b"\x00\x00\x00\x01\x00\x00\xff\xff\xff\xff\x7f"]
)
def test_garbage_is_a_protocol_error(garbage: bytes) -> None:
    with pytest.raises(ProtocolError):
        Dialogue(garbage).of()


def test_error_35_is_decoded_without_the_bytes_after_its_code() -> None:
    ask = next(handshake({}))
    refusal = b"\x00\x00\x00\x01" + (35).to_bytes(2, "big") + b"\xff garbage"
    assert ask.decode(ask.request.RESPONSE, NEWEST, refusal) == (
        ApiVersionsResponse(error_code=35, api_keys=[]),
        0,
    )


def refusing(*, highest: int) -> bytes:
    """Return error 35 with the range of ApiVersions, as brokers since 2.4 answer it."""
    offered = ApiVersion(api_key=ApiVersionsRequest.API_KEY, min_version=0, max_version=highest)
    return payload(ApiVersionsResponse(error_code=35, api_keys=[offered]), 0)


class TestExpectedNode:
    NODE = ExpectedNode("cluster", 7)

    def test_expected_node_ids_are_sent_in_version_5(self) -> None:
        dialogue = Dialogue(payload(ANSWER, NODE_CHECK))
        table = dialogue.of(expected=self.NODE)
        assert dialogue.versions == [NODE_CHECK]
        request = dialogue.asked[0].request
        assert isinstance(request, ApiVersionsRequest)
        assert (request.cluster_id, request.node_id) == ("cluster", 7)
        assert table.is_node_checked

    def test_older_broker_is_asked_in_its_highest_version(self) -> None:
        told = [FinalizedFeatureKey(name="transaction.version", max_version_level=2, min_version_level=0)]
        answer = ApiVersionsResponse(error_code=0, api_keys=[], finalized_features=told)
        dialogue = Dialogue(refusing(highest=4), payload(answer, 4))
        table = dialogue.of(expected=self.NODE)
        assert dialogue.versions == [NODE_CHECK, 4]
        assert table.finalized_features == {"transaction.version": 2}
        assert not table.is_node_checked

    def test_broker_that_refuses_its_highest_version_is_asked_in_0(self) -> None:
        dialogue = Dialogue(refusing(highest=4), refusing(highest=4), payload(ANSWER, 0))
        dialogue.of(expected=self.NODE)
        assert dialogue.versions == [NODE_CHECK, 4, 0]

    def test_another_node_requires_a_rebootstrap(self) -> None:
        refusal = payload(ApiVersionsResponse(error_code=129, api_keys=[]), NODE_CHECK)
        with pytest.raises(RebootstrapRequired, match=r"^not node 7 of cluster 'cluster'$"):
            Dialogue(refusal).of(expected=self.NODE)

    def test_cap_leaves_the_node_unchecked(self) -> None:
        dialogue = Dialogue(payload(ANSWER, 3))
        assert not dialogue.of({ApiVersionsRequest.API_KEY: 3}, self.NODE).is_node_checked
        assert dialogue.versions == [3]
