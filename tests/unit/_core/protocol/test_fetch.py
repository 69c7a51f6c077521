from __future__ import annotations

import pytest

from aioproducer._core.protocol.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    SnapshotId,
)
from aioproducer._core.protocol.produce import LeaderIdAndEpoch
from aioproducer._core.protocol.schema import decode
from tests.unit._core.protocol.golden import check

REQUEST = FetchRequest(
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
RESPONSE = FetchResponse(
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


@pytest.mark.parametrize(
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
def test_the_request_has_the_form_of_its_version(version: int, wire: str) -> None:
    check(REQUEST, version, wire)


@pytest.mark.parametrize(
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
def test_the_response_has_the_form_of_its_version(version: int, wire: str) -> None:
    check(RESPONSE, version, wire)


def test_v12_tells_of_leaders_and_divergence() -> None:
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
