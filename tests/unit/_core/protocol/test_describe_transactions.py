from __future__ import annotations

from aioproducer._core.protocol.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from tests.unit._core.protocol.golden import check


def test_ids_are_asked_about() -> None:
    check(DescribeTransactionsRequest(transactional_ids=["t", "uu"]), 0, "03 02 74 03 75 75 00")


def test_a_state_has_the_partitions_of_its_transaction() -> None:
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


def test_of_an_id_that_is_not_known_there_is_an_error_and_nothing_else() -> None:
    unknown = TransactionState(error_code=105, transactional_id="t")
    wire = "00000000 02 0069 02 74 01 00000000 0000000000000000 0000000000000000 0000 01 00 00"
    check(DescribeTransactionsResponse(transaction_states=[unknown]), 0, wire)
