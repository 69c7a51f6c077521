from __future__ import annotations

import pytest

from aioproducer._core.protocol.schema import encode
from aioproducer._core.protocol.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    Coordinator,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    TopicData,
    TransactionState,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from aioproducer.errors import UnsupportedVersion
from tests.unit._core.protocol.golden import check

REFUSAL = FindCoordinatorResponse(error_code=15, error_message="none", node_id=-1, host="", port=-1)


@pytest.mark.parametrize(("version", "wire"), [(0, "0001 67"), (1, "0001 67 00"), (3, "02 67 00 00")])
def test_find_coordinator_request_matches_golden_bytes(version: int, wire: str) -> None:
    check(FindCoordinatorRequest(key="g"), version, wire)


@pytest.mark.parametrize(
    ("version", "wire"),
    [
        (0, "000f ffffffff 0000 ffffffff"),
        (1, "00000000 000f 0004 6e6f6e65 ffffffff 0000 ffffffff"),
        (3, "00000000 000f 05 6e6f6e65 ffffffff 01 ffffffff 00"),
    ],
)
def test_find_coordinator_response_matches_golden_bytes(version: int, wire: str) -> None:
    check(REFUSAL, version, wire)


def test_find_coordinator_messages_have_many_keys_from_v4() -> None:
    check(FindCoordinatorRequest(key_type=1, coordinator_keys=["t"]), 4, "01 02 02 74 00")
    coordinators = [Coordinator(key="t", node_id=1, host="b", port=9092)]
    wire = "00000000 02 02 74 00000001 02 62 00002384 0000 01 00 00"
    check(FindCoordinatorResponse(coordinators=coordinators), 4, wire)


ADD_PARTITIONS = AddPartitionsToTxnRequest(
    v3_and_below_transactional_id="t",
    v3_and_below_producer_id=5,
    v3_and_below_producer_epoch=2,
    v3_and_below_topics=[AddPartitionsToTxnTopic(name="o", partitions=(0, 3))],
)
PARTITIONS_ADDED = AddPartitionsToTxnResponse(
    throttle_time_ms=1,
    results_by_topic_v3_and_below=[
        AddPartitionsToTxnTopicResult(
            name="o",
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(partition_index=3, partition_error_code=51)
            ],
        )
    ],
)
COMMIT_OFFSETS = TxnOffsetCommitRequest(
    transactional_id="t",
    group_id="g",
    producer_id=5,
    producer_epoch=2,
    topics=[
        TxnOffsetCommitRequestTopic(
            name="o",
            partitions=[
                TxnOffsetCommitRequestPartition(
                    partition_index=3, committed_offset=9, committed_metadata=None
                )
            ],
        )
    ],
)


@pytest.mark.parametrize(
    ("version", "wire"),
    [
        (0, "0001 74 0000000000000005 0002 00000001 0001 6f 00000002 00000000 00000003"),
        (3, "02 74 0000000000000005 0002 02 02 6f 03 00000000 00000003 00 00"),
    ],
)
def test_partitions_are_added_in_the_form_of_the_version(version: int, wire: str) -> None:
    check(ADD_PARTITIONS, version, wire)


@pytest.mark.parametrize(
    ("version", "wire"),
    [
        (0, "00000001 00000001 0001 6f 00000001 00000003 0033"),
        (3, "00000001 02 02 6f 02 00000003 0033 00 00 00"),
    ],
)
def test_add_partitions_response_matches_golden_bytes(version: int, wire: str) -> None:
    check(PARTITIONS_ADDED, version, wire)


@pytest.mark.parametrize(
    ("version", "wire"),
    [
        (0, "0001 74 0000000000000005 0002 0001 67"),
        (3, "02 74 0000000000000005 0002 02 67 00"),
        (4, "02 74 0000000000000005 0002 02 67 00"),
    ],
)
def test_add_offsets_request_matches_golden_bytes(version: int, wire: str) -> None:
    check(
        AddOffsetsToTxnRequest(transactional_id="t", producer_id=5, producer_epoch=2, group_id="g"),
        version,
        wire,
    )


@pytest.mark.parametrize(("version", "wire"), [(0, "00000001 0033"), (3, "00000001 0033 00")])
def test_add_offsets_response_matches_golden_bytes(version: int, wire: str) -> None:
    check(AddOffsetsToTxnResponse(throttle_time_ms=1, error_code=51), version, wire)


@pytest.mark.parametrize(
    ("version", "wire"),
    [
        (
            0,
            "0001 74 0001 67 0000000000000005 0002 00000001 0001 6f 00000001 00000003 0000000000000009 ffff",
        ),
        (
            2,
            (
                "0001 74 0001 67 0000000000000005 0002 00000001 0001 6f 00000001 00000003 0000000000000009"
                " ffffffff ffff"
            ),
        ),
        (
            3,
            (
                "02 74 02 67 0000000000000005 0002 ffffffff 01 00 02 02 6f 02 00000003 0000000000000009"
                " ffffffff 00 00 00 00"
            ),
        ),
    ],
)
def test_offsets_are_committed_in_the_form_of_the_version(version: int, wire: str) -> None:
    check(COMMIT_OFFSETS, version, wire)


def test_member_id_is_refused_by_version_2() -> None:
    asked = TxnOffsetCommitRequest(
        transactional_id="t", group_id="g", producer_id=5, producer_epoch=2, member_id="m", topics=[]
    )
    with pytest.raises(UnsupportedVersion, match=r"version 2, .* has no member_id"):
        encode(asked, 2)
    check(asked, 5, "02 74 02 67 0000000000000005 0002 ffffffff 02 6d 00 01 00")


@pytest.mark.parametrize(
    ("version", "wire"),
    [
        (0, "00000001 00000001 0001 6f 00000001 00000003 0019"),
        (3, "00000001 02 02 6f 02 00000003 0019 00 00 00"),
    ],
)
def test_txn_offset_commit_response_matches_golden_bytes(version: int, wire: str) -> None:
    partitions = [TxnOffsetCommitResponsePartition(partition_index=3, error_code=25)]
    topics = [TxnOffsetCommitResponseTopic(name="o", partitions=partitions)]
    check(TxnOffsetCommitResponse(throttle_time_ms=1, topics=topics), version, wire)


@pytest.mark.parametrize(
    ("version", "wire"),
    [
        (0, "0001 74 0000000000000005 0002 01"),
        (3, "02 74 0000000000000005 0002 01 00"),
        (5, "02 74 0000000000000005 0002 01 00"),
    ],
)
def test_end_txn_request_matches_golden_bytes(version: int, wire: str) -> None:
    check(EndTxnRequest(transactional_id="t", producer_id=5, producer_epoch=2, committed=True), version, wire)


@pytest.mark.parametrize(
    ("version", "wire"),
    [
        (0, "00000001 0000"),
        (4, "00000001 0000 00"),
        (5, "00000001 0000 0000000000000005 0003 00"),
    ],
)
def test_end_txn_response_has_the_next_epoch_from_v5(version: int, wire: str) -> None:
    check(EndTxnResponse(throttle_time_ms=1, producer_id=5, producer_epoch=3), version, wire)


def test_ids_are_asked_about() -> None:
    check(DescribeTransactionsRequest(transactional_ids=["t", "uu"]), 0, "03 02 74 03 75 75 00")


def test_describe_transactions_response_has_the_partitions() -> None:
    state = TransactionState(
        transactional_id="t",
        transaction_state="Ongoing",
        transaction_timeout_ms=60_000,
        transaction_start_time_ms=7,
        producer_id=5,
        producer_epoch=2,
        topics=[TopicData(topic="o", partitions=(3,))],
    )
    wire = (
        "00000001 02 0000 02 74 08 4f6e676f696e67 0000ea60 0000000000000007 0000000000000005 0002"
        " 02 02 6f 02 00000003 00 00 00"
    )
    check(DescribeTransactionsResponse(throttle_time_ms=1, transaction_states=[state]), 0, wire)


def test_describe_transactions_response_may_have_an_unknown_id() -> None:
    unknown = TransactionState(error_code=105, transactional_id="t")
    wire = "00000000 02 0069 02 74 01 00000000 0000000000000000 0000000000000000 0000 01 00 00"
    check(DescribeTransactionsResponse(transaction_states=[unknown]), 0, wire)
