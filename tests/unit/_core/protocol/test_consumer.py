from __future__ import annotations

import pytest

from aioproducer._core.protocol.consumer import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
    PartitionData,
    SnapshotId,
)
from aioproducer._core.protocol.produce import LeaderIdAndEpoch
from aioproducer._core.protocol.schema import decode, encode
from tests.cases import for_each
from tests.unit._core.protocol.golden import check

FETCH_REQUEST = FetchRequest(
    cluster_id="c",
    max_wait_ms=500,
    min_bytes=1,
    topics=[
        FetchTopic(
            topic="orders",
            partitions=[FetchPartition(partition=2, fetch_offset=40, partition_max_bytes=1_048_576)],
        )
    ],
    rack_id="r",
)
FETCH_RESPONSE = FetchResponse(
    responses=[
        FetchableTopicResponse(
            topic="orders",
            partitions=[
                PartitionData(
                    partition_index=2, high_watermark=41, aborted_transactions=None, records=b"batch"
                )
            ],
        )
    ]
)


@for_each(
    ("version", "wire"),
    [
        (
            4,
            (
                "ffffffff 000001f4 00000001 7fffffff 00 00000001 0006 6f7264657273 00000001"
                " 00000002 0000000000000028 00100000"
            ),
        ),
        (
            5,
            (
                "ffffffff 000001f4 00000001 7fffffff 00 00000001 0006 6f7264657273 00000001"
                " 00000002 0000000000000028 ffffffffffffffff 00100000"
            ),
        ),
        (
            11,
            (
                "ffffffff 000001f4 00000001 7fffffff 00 00000000 ffffffff 00000001 0006 6f7264657273 00000001"
                " 00000002 ffffffff 0000000000000028 ffffffffffffffff 00100000 00000000 0001 72"
            ),
        ),
        (
            12,
            (
                "ffffffff 000001f4 00000001 7fffffff 00 00000000 ffffffff 02 07 6f7264657273 02"
                " 00000002 ffffffff 0000000000000028 ffffffff ffffffffffffffff 00100000 00 00 01 02 72"
                " 01 00 02 02 63"
            ),
        ),
    ],
)
def test_fetch_request_matches_golden_bytes(version: int, wire: str) -> None:
    check(FETCH_REQUEST, version, wire)


@for_each(
    ("version", "wire"),
    [
        (
            4,
            (
                "00000000 00000001 0006 6f7264657273 00000001"
                " 00000002 0000 0000000000000029 ffffffffffffffff ffffffff 00000005 6261746368"
            ),
        ),
        (
            7,
            (
                "00000000 0000 00000000 00000001 0006 6f7264657273 00000001"
                " 00000002 0000 0000000000000029 ffffffffffffffff ffffffffffffffff ffffffff 00000005 6261746368"
            ),
        ),
        (
            11,
            (
                "00000000 0000 00000000 00000001 0006 6f7264657273 00000001"
                " 00000002 0000 0000000000000029 ffffffffffffffff ffffffffffffffff ffffffff ffffffff"
                " 00000005 6261746368"
            ),
        ),
        (
            12,
            (
                "00000000 0000 00000000 02 07 6f7264657273 02"
                " 00000002 0000 0000000000000029 ffffffffffffffff ffffffffffffffff 00 ffffffff"
                " 06 6261746368 00 00 00"
            ),
        ),
    ],
)
def test_fetch_response_matches_golden_bytes(version: int, wire: str) -> None:
    check(FETCH_RESPONSE, version, wire)


def test_fetch_response_v12_has_leaders_and_divergence() -> None:
    data = PartitionData(
        partition_index=2,
        error_code=6,
        high_watermark=41,
        diverging_epoch=EpochEndOffset(epoch=1, end_offset=2),
        current_leader=LeaderIdAndEpoch(leader_id=1, leader_epoch=7),
        snapshot_id=SnapshotId(end_offset=3, epoch=1),
        aborted_transactions=[AbortedTransaction(producer_id=5, first_offset=6)],
        records=None,
    )
    response = FetchResponse(
        session_id=3, responses=[FetchableTopicResponse(topic="orders", partitions=[data])]
    )
    wire = (
        "00000000 0000 00000003 02 07 6f7264657273 02 00000002 0006 0000000000000029 ffffffffffffffff"
        " ffffffffffffffff 02 0000000000000005 0000000000000006 00 ffffffff 00"
        " 03 00 0d 00000001 0000000000000002 00 01 09 00000001 00000007 00 02 0d 0000000000000003 00000001 00"
        " 00 00"
    )
    check(response, 12, wire)
    assert decode(FetchResponse, 12, bytes.fromhex(wire)) == response


LIST_OFFSETS_REQUEST = ListOffsetsRequest(
    replica_id=-1,
    topics=[
        ListOffsetsTopic(name="orders", partitions=[ListOffsetsPartition(partition_index=2, timestamp=-1)])
    ],
)
LIST_OFFSETS_RESPONSE = ListOffsetsResponse(
    topics=[
        ListOffsetsTopicResponse(
            name="orders",
            partitions=[ListOffsetsPartitionResponse(partition_index=2, timestamp=5, offset=6)],
        )
    ]
)


@for_each(
    ("version", "wire"),
    [
        (1, "ffffffff 00000001 0006 6f7264657273 00000001 00000002 ffffffffffffffff"),
        (2, "ffffffff 00 00000001 0006 6f7264657273 00000001 00000002 ffffffffffffffff"),
        (4, "ffffffff 00 00000001 0006 6f7264657273 00000001 00000002 ffffffff ffffffffffffffff"),
        (7, "ffffffff 00 02 07 6f7264657273 02 00000002 ffffffff ffffffffffffffff 00 00 00"),
    ],
)
def test_list_offsets_request_matches_golden_bytes(version: int, wire: str) -> None:
    check(LIST_OFFSETS_REQUEST, version, wire)


@pytest.mark.parametrize(
    ("version", "wire"),
    [
        (1, "00000001 0006 6f7264657273 00000001 00000002 0000 0000000000000005 0000000000000006"),
        (2, "00000000 00000001 0006 6f7264657273 00000001 00000002 0000 0000000000000005 0000000000000006"),
        (
            7,
            "00000000 02 07 6f7264657273 02 00000002 0000 0000000000000005 0000000000000006 ffffffff 00 00 00",
        ),
    ],
)
def test_list_offsets_response_matches_golden_bytes(version: int, wire: str) -> None:
    check(LIST_OFFSETS_RESPONSE, version, wire)


ONE_GROUP = OffsetFetchRequest(
    group_id="g", topics=[OffsetFetchRequestTopic(name="o", partition_indexes=(3,))]
)


@pytest.mark.parametrize(
    ("version", "wire"),
    [
        (1, "0001 67 00000001 0001 6f 00000001 00000003"),
        (6, "02 67 02 02 6f 02 00000003 00 00"),
        (7, "02 67 02 02 6f 02 00000003 00 00 00"),
    ],
)
def test_offset_fetch_request_names_one_group_up_to_v7(version: int, wire: str) -> None:
    check(ONE_GROUP, version, wire)


def test_offset_fetch_request_may_ask_for_all_topics_from_v2() -> None:
    check(OffsetFetchRequest(group_id="g", topics=None), 2, "0001 67 ffffffff")
    with pytest.raises(TypeError):
        encode(OffsetFetchRequest(group_id="g", topics=None), 1)


@pytest.mark.parametrize(
    ("version", "wire"),
    [
        (8, "02 02 67 02 02 6f 02 00000003 00 00 01 00"),
        (9, "02 02 67 00 ffffffff 02 02 6f 02 00000003 00 00 01 00"),
    ],
)
def test_offset_fetch_request_names_many_groups_from_v8(version: int, wire: str) -> None:
    topics = [OffsetFetchRequestTopics(name="o", partition_indexes=(3,))]
    groups = [OffsetFetchRequestGroup(group_id="g", topics=topics)]
    check(OffsetFetchRequest(groups=groups, require_stable=True), version, wire)


@for_each(
    ("version", "wire"),
    [
        (1, "00000001 0001 6f 00000001 00000003 0000000000000009 0000 0058"),
        (2, "00000001 0001 6f 00000001 00000003 0000000000000009 0000 0058 0000"),
        (3, "00000001 00000001 0001 6f 00000001 00000003 0000000000000009 0000 0058 0000"),
        (5, "00000001 00000001 0001 6f 00000001 00000003 0000000000000009 ffffffff 0000 0058 0000"),
        (6, "00000001 02 02 6f 02 00000003 0000000000000009 ffffffff 01 0058 00 00 0000 00"),
    ],
)
def test_offset_fetch_response_describes_one_group_up_to_v7(version: int, wire: str) -> None:
    partition = OffsetFetchResponsePartition(partition_index=3, committed_offset=9, error_code=88)
    topics = [OffsetFetchResponseTopic(name="o", partitions=[partition])]
    check(OffsetFetchResponse(throttle_time_ms=1, topics=topics), version, wire)


def test_offset_fetch_response_describes_many_groups_from_v8() -> None:
    partition = OffsetFetchResponsePartitions(partition_index=3, committed_offset=9)
    topics = [OffsetFetchResponseTopics(name="o", partitions=[partition])]
    groups = [OffsetFetchResponseGroup(group_id="g", topics=topics)]
    wire = "00000001 02 02 67 02 02 6f 02 00000003 0000000000000009 ffffffff 01 0000 00 00 0000 00 00"
    check(OffsetFetchResponse(throttle_time_ms=1, groups=groups), 8, wire)
