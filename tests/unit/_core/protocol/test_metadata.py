from __future__ import annotations

import pytest

from aioproducer._core.protocol.metadata import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
    SupportedFeatureKey,
)
from aioproducer._core.protocol.schema import decode, encode
from tests.cases import for_each
from tests.unit._core.protocol.golden import TOPIC_ID, check

API_VERSIONS_REQUEST = ApiVersionsRequest(
    client_software_name="aioproducer", client_software_version="1.0", cluster_id="c", node_id=7
)
API_VERSIONS_RESPONSE = ApiVersionsResponse(
    error_code=0,
    api_keys=[ApiVersion(api_key=0, min_version=3, max_version=12)],
    throttle_time_ms=1,
    supported_features=[SupportedFeatureKey(name="f", min_version=0, max_version=2)],
    finalized_features_epoch=4,
    finalized_features=[FinalizedFeatureKey(name="f", max_version_level=2, min_version_level=1)],
    zk_migration_ready=True,
)


@for_each(
    ("version", "wire"),
    [
        (0, ""),
        (2, ""),
        (3, "0c 61696f70726f6475636572 04 312e30 00"),
        (4, "0c 61696f70726f6475636572 04 312e30 00"),
        (5, "0c 61696f70726f6475636572 04 312e30 02 63 00000007 00"),
    ],
)
def test_api_versions_request_matches_golden_bytes(version: int, wire: str) -> None:
    check(API_VERSIONS_REQUEST, version, wire)


@pytest.mark.parametrize(
    ("version", "wire"),
    [
        (0, "0000 00000001 0000 0003 000c"),
        (1, "0000 00000001 0000 0003 000c 00000001"),
        (
            3,
            (
                "0000 02 0000 0003 000c 00 00000001 04"
                " 00 08 02 02 66 0000 0002 00"
                " 01 08 0000000000000004"
                " 02 08 02 02 66 0002 0001 00"
                " 03 01 01"
            ),
        ),
    ],
)
def test_api_versions_response_matches_golden_bytes(version: int, wire: str) -> None:
    check(API_VERSIONS_RESPONSE, version, wire)


def test_api_versions_response_may_have_no_features() -> None:
    response = decode(ApiVersionsResponse, 4, bytes.fromhex("0000 01 00000000 00"))
    assert (response.finalized_features_epoch, response.finalized_features) == (-1, [])


ONE_TOPIC = MetadataRequest(topics=[MetadataRequestTopic(name="orders")])
ALL_TOPICS = MetadataRequest(topics=None, allow_auto_topic_creation=False)
NO_TOPICS = MetadataRequest(topics=[])
METADATA_RESPONSE = MetadataResponse(
    brokers=[MetadataResponseBroker(node_id=1, host="b", port=9092, rack="r")],
    cluster_id="c",
    controller_id=1,
    topics=[
        MetadataResponseTopic(
            name="orders",
            topic_id=TOPIC_ID,
            partitions=[
                MetadataResponsePartition(
                    partition_index=0,
                    leader_id=1,
                    leader_epoch=7,
                    replica_nodes=(1, 2),
                    isr_nodes=(1,),
                    offline_replicas=(2,),
                )
            ],
        )
    ],
)
CLASSIC_START = (
    "00000000 00000001 00000001 0001 62 00002384 0001 72 0001 63 00000001 00000001 0000 0006 6f7264657273"
)


@for_each(
    ("request_", "version", "wire"),
    [
        (ONE_TOPIC, 4, "00000001 0006 6f7264657273 01"),
        (ONE_TOPIC, 8, "00000001 0006 6f7264657273 01 00 00"),
        (ONE_TOPIC, 9, "02 07 6f7264657273 00 01 00 00 00"),
        (ONE_TOPIC, 10, "02" + "00" * 16 + "07 6f7264657273 00 01 00 00 00"),
        (ONE_TOPIC, 13, "02" + "00" * 16 + "07 6f7264657273 00 01 00 00"),
        (ALL_TOPICS, 4, "ffffffff 00"),
        (ALL_TOPICS, 9, "00 00 00 00 00"),
        (NO_TOPICS, 4, "00000000 01"),
        (NO_TOPICS, 12, "01 01 00 00"),
    ],
)
def test_metadata_request_matches_golden_bytes(request_: MetadataRequest, version: int, wire: str) -> None:
    check(request_, version, wire)


@for_each(
    ("version", "wire"),
    [
        (
            4,
            CLASSIC_START
            + " 00 00000001 0000 00000000 00000001 00000002 00000001 00000002 00000001 00000001",
        ),
        (
            5,
            CLASSIC_START + " 00 00000001 0000 00000000 00000001 00000002 00000001 00000002"
            " 00000001 00000001 00000001 00000002",
        ),
        (
            7,
            CLASSIC_START + " 00 00000001 0000 00000000 00000001 00000007 00000002 00000001 00000002"
            " 00000001 00000001 00000001 00000002",
        ),
        (
            13,
            "00000000 02 00000001 02 62 00002384 02 72 00 02 63 00000001 02 0000 07 6f7264657273"
            + TOPIC_ID.hex()
            + " 00 02 0000 00000000 00000001 00000007 03 00000001 00000002 02 00000001 02 00000002 00"
            " 80000000 00 0000 00",
        ),
    ],
)
def test_metadata_response_matches_golden_bytes(version: int, wire: str) -> None:
    check(METADATA_RESPONSE, version, wire)


@for_each("version", range(10, 14))
def test_metadata_response_survives_the_wire_from_v10(version: int) -> None:
    assert decode(MetadataResponse, version, encode(METADATA_RESPONSE, version)) == METADATA_RESPONSE


def test_metadata_response_before_v7_has_no_leader_epoch() -> None:
    answer = decode(MetadataResponse, 6, encode(METADATA_RESPONSE, 6))
    assert answer.topics[0].partitions[0].leader_epoch == -1


def test_metadata_request_may_ask_by_topic_id_from_v10() -> None:
    by_id = MetadataRequest(topics=[MetadataRequestTopic(topic_id=TOPIC_ID, name=None)])
    check(by_id, 12, "02" + TOPIC_ID.hex() + "00 00 01 00 00")
    with pytest.raises(TypeError, match="None where the protocol has a string"):
        encode(by_id, 9)
