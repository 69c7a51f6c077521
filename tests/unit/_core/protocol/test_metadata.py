from __future__ import annotations

import pytest

from aioproducer._core.protocol.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from aioproducer._core.protocol.schema import decode, encode
from tests.unit._core.protocol.golden import TOPIC_ID, check

ONE_TOPIC = MetadataRequest(topics=[MetadataRequestTopic(name="orders")])
ALL_TOPICS = MetadataRequest(topics=None, allow_auto_topic_creation=False)
NO_TOPICS = MetadataRequest(topics=[])
RESPONSE = MetadataResponse(
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


@pytest.mark.parametrize(
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
def test_the_request_has_the_form_of_its_version(request_: MetadataRequest, version: int, wire: str) -> None:
    check(request_, version, wire)


@pytest.mark.parametrize(
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
def test_the_response_has_the_form_of_its_version(version: int, wire: str) -> None:
    check(RESPONSE, version, wire)


@pytest.mark.parametrize("version", range(10, 14))
def test_all_that_a_producer_needs_survives_the_wire(version: int) -> None:
    assert decode(MetadataResponse, version, encode(RESPONSE, version)) == RESPONSE


def test_before_v7_the_leader_epoch_is_unknown() -> None:
    answer = decode(MetadataResponse, 6, encode(RESPONSE, 6))
    assert answer.topics[0].partitions[0].leader_epoch == -1


def test_a_topic_is_asked_for_by_id_from_v10_on() -> None:
    by_id = MetadataRequest(topics=[MetadataRequestTopic(topic_id=TOPIC_ID, name=None)])
    check(by_id, 12, "02" + TOPIC_ID.hex() + "00 00 01 00 00")
    with pytest.raises(TypeError, match="None where the protocol has a string"):
        encode(by_id, 9)
