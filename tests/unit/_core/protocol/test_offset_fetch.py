from __future__ import annotations

import pytest

from aioproducer._core.protocol.offset_fetch import (
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
)
from aioproducer._core.protocol.schema import encode
from tests.unit._core.protocol.golden import check

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
def test_one_group_is_asked_about_up_to_v7(version: int, wire: str) -> None:
    check(ONE_GROUP, version, wire)


def test_all_topics_can_be_asked_about_from_v2_on() -> None:
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
def test_many_groups_are_asked_about_from_v8_on(version: int, wire: str) -> None:
    topics = [OffsetFetchRequestTopics(name="o", partition_indexes=(3,))]
    groups = [OffsetFetchRequestGroup(group_id="g", topics=topics)]
    check(OffsetFetchRequest(groups=groups, require_stable=True), version, wire)


@pytest.mark.parametrize(
    ("version", "wire"),
    [
        (1, "00000001 0001 6f 00000001 00000003 0000000000000009 0000 0058"),
        (2, "00000001 0001 6f 00000001 00000003 0000000000000009 0000 0058 0000"),
        (3, "00000001 00000001 0001 6f 00000001 00000003 0000000000000009 0000 0058 0000"),
        (5, "00000001 00000001 0001 6f 00000001 00000003 0000000000000009 ffffffff 0000 0058 0000"),
        (6, "00000001 02 02 6f 02 00000003 0000000000000009 ffffffff 01 0058 00 00 0000 00"),
    ],
)
def test_one_group_is_answered_up_to_v7(version: int, wire: str) -> None:
    partition = OffsetFetchResponsePartition(partition_index=3, committed_offset=9, error_code=88)
    topics = [OffsetFetchResponseTopic(name="o", partitions=[partition])]
    check(OffsetFetchResponse(throttle_time_ms=1, topics=topics), version, wire)


def test_many_groups_are_answered_from_v8_on() -> None:
    partition = OffsetFetchResponsePartitions(partition_index=3, committed_offset=9)
    topics = [OffsetFetchResponseTopics(name="o", partitions=[partition])]
    groups = [OffsetFetchResponseGroup(group_id="g", topics=topics)]
    wire = "00000001 02 02 67 02 02 6f 02 00000003 0000000000000009 ffffffff 01 0000 00 00 0000 00 00"
    check(OffsetFetchResponse(throttle_time_ms=1, groups=groups), 8, wire)
