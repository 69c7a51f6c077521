from __future__ import annotations

import pytest

from aioproducer._core.protocol.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from tests.unit._core.protocol.golden import check

REQUEST = ListOffsetsRequest(
    replica_id=-1,
    topics=[
        ListOffsetsTopic(name="orders", partitions=[ListOffsetsPartition(partition_index=2, timestamp=-1)])
    ],
)
RESPONSE = ListOffsetsResponse(
    topics=[
        ListOffsetsTopicResponse(
            name="orders",
            partitions=[ListOffsetsPartitionResponse(partition_index=2, timestamp=5, offset=6)],
        )
    ]
)


@pytest.mark.parametrize(
    ("version", "wire"),
    [
        (1, "ffffffff 00000001 0006 6f7264657273 00000001 00000002 ffffffffffffffff"),
        (2, "ffffffff 00 00000001 0006 6f7264657273 00000001 00000002 ffffffffffffffff"),
        (4, "ffffffff 00 00000001 0006 6f7264657273 00000001 00000002 ffffffff ffffffffffffffff"),
        (7, "ffffffff 00 02 07 6f7264657273 02 00000002 ffffffff ffffffffffffffff 00 00 00"),
    ],
)
def test_the_request_has_the_form_of_its_version(version: int, wire: str) -> None:
    check(REQUEST, version, wire)


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
def test_the_response_has_the_form_of_its_version(version: int, wire: str) -> None:
    check(RESPONSE, version, wire)
