"""Every request of a transaction goes wrong in every way, before a real Kafka of either version: all or nothing.

The outcome of each transaction is compared with the records that another client's read_committed consumer sees.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest

from aioproducer import (
    GroupMetadata,
    MessageTooLarge,
    Producer,
    ProducerError,
    TransactionOutcomeUnknown,
)
from aioproducer._core.protocol.produce import InitProducerIdRequest, ProduceRequest
from aioproducer._core.protocol.schema import Request
from aioproducer._core.protocol.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    FindCoordinatorRequest,
    TxnOffsetCommitRequest,
)
from tests.kafka.apache.proxy import What
from tests.kafka.apache.stand import Stand
from tests.kafka.ledger import settled
from tests.kafka.readback import read_with_librdkafka

ANSWERS = {
    What.REFUSED: {
        FindCoordinatorRequest: 15,
        InitProducerIdRequest: 14,
        AddPartitionsToTxnRequest: 51,
        AddOffsetsToTxnRequest: 16,
        TxnOffsetCommitRequest: 14,
        ProduceRequest: 7,
        EndTxnRequest: 51,
    }
}
KINDS = tuple(ANSWERS[What.REFUSED])
ONLY_VERSION_1 = {AddPartitionsToTxnRequest, AddOffsetsToTxnRequest}
RECORDS = 10
PARTITIONS = 3
IN_SHORT = {
    1: (AddPartitionsToTxnRequest, TxnOffsetCommitRequest, ProduceRequest, EndTxnRequest),
    2: (EndTxnRequest,),
}
"""What `make test` has of the requests, by version; of each what is done and not answered as it should be."""


def in_short(case: Mapping[str, Any]) -> bool:
    done = {What.RESET_AFTER, What.MUTED_AFTER, What.REFUSED_AFTER}
    return case["kind"] in IN_SHORT[case["stand"]] and case["what"] in done and not case["abort"]


def producer_of(stand: Stand, name: str, **options: Any) -> Producer:
    return Producer(
        stand.servers, transactional_id=name, request_timeout_ms=1_000, delivery_timeout_ms=8_000, **options
    )


class OnPurpose(Exception):
    """Error raised in the body of a transaction."""


def raise_if(abort: bool) -> None:
    if abort:
        raise OnPurpose


async def transact(producer: Producer, topic: str, number: int, *, abort: bool = False) -> str:
    """Write a transaction with offsets on all partitions, and return its outcome."""
    records = [f"{number}/{index}".encode() for index in range(RECORDS)]
    try:
        async with producer.transaction() as transaction:
            await producer.send_many(
                topic, records, partitions=[each % PARTITIONS for each in range(RECORDS)]
            )
            await transaction.send_offsets({("in", 0): number}, GroupMetadata(f"group-{topic}"))
            raise_if(abort)
    except OnPurpose:
        return "aborted"
    except TransactionOutcomeUnknown:
        await producer.commit_transaction()
        return "committed"
    except ProducerError as error:
        return f"fatal: {type(error).__name__}" if error.fatal else "failed"
    return "committed"


async def check_topic(stand: Stand, topic: str, told: list[str]) -> None:
    """Compare the outcomes with the log."""
    await settled(stand.servers, topic)
    seen = await asyncio.to_thread(
        read_with_librdkafka, stand.servers, topic, isolation_level="read_committed"
    )
    numbers = Counter(int((each.value or b"").partition(b"/")[0]) for each in seen)
    assert len({each.value for each in seen}) == len(seen), "something is doubled"
    for number, outcome in enumerate(told):
        if outcome == "committed":
            assert numbers[number] == RECORDS, (
                f"{number} was committed: {numbers[number]} of {RECORDS} are there"
            )
        else:
            assert numbers[number] == 0, f"{number} is {outcome}: {numbers[number]} are there"


@pytest.mark.long(unless=in_short)
@pytest.mark.parametrize("abort", [False, True], ids=["commit", "abort"])
@pytest.mark.parametrize("what", What, ids=lambda what: what.name.lower())
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__.removesuffix("Request"))
async def test_transaction_survives_one_failed_request(
    stand: Stand, stand_topic: str, kind: type[Request[Any]], what: What, abort: bool
) -> None:
    if stand.version == 2 and kind in ONLY_VERSION_1:
        pytest.skip("no such request in version 2")
    before_start = kind in {FindCoordinatorRequest, InitProducerIdRequest}
    code = ANSWERS[What.REFUSED][kind]
    fault = stand.proxy.add(kind, what, code, skip=0 if before_start else 10_000)
    async with producer_of(stand, stand_topic) as producer:
        told = [await transact(producer, stand_topic, 0)]
        fault.skip = min(fault.skip, fault.hits)
        told.append(await transact(producer, stand_topic, 1, abort=abort))
        told.append(await transact(producer, stand_topic, 2))
    assert fault.hits
    assert told == ["committed", "aborted" if abort else "committed", "committed"]
    await check_topic(stand, stand_topic, told)


class Code(NamedTuple):
    kind: type[Request[Any]]
    code: int
    outcome: str


@pytest.mark.long
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    "row",
    [
        Code(EndTxnRequest, -1, "committed"),
        Code(EndTxnRequest, 7, "committed"),
        Code(EndTxnRequest, 999, "committed"),
        Code(EndTxnRequest, 16, "committed"),
        Code(TxnOffsetCommitRequest, 22, "failed"),
        Code(TxnOffsetCommitRequest, 25, "failed"),
        Code(TxnOffsetCommitRequest, 12, "failed"),
        Code(TxnOffsetCommitRequest, 30, "failed"),
        Code(ProduceRequest, 29, "failed"),
        Code(ProduceRequest, 10, "committed"),
        Code(ProduceRequest, 47, "failed"),
        Code(ProduceRequest, 120, "failed"),
        Code(ProduceRequest, 87, "failed"),
        Code(AddPartitionsToTxnRequest, 29, "failed"),
        Code(AddPartitionsToTxnRequest, 3, "committed"),
        Code(AddPartitionsToTxnRequest, 59, "failed"),
    ],
    ids=lambda row: f"{row.kind.__name__.removesuffix('Request')}-{row.code}",
)
async def test_transaction_reacts_to_an_error_code(
    stand: Stand, stand_topic: str, row: Code, after: bool
) -> None:
    if stand.version == 2 and row.kind in ONLY_VERSION_1:
        pytest.skip("no such request in version 2")
    what = What.REFUSED_AFTER if after else What.REFUSED
    async with producer_of(stand, stand_topic) as producer:
        told = [await transact(producer, stand_topic, 0)]
        fault = stand.proxy.add(row.kind, what, row.code)
        told.append(await transact(producer, stand_topic, 1))
        told.append(await transact(producer, stand_topic, 2))
    assert fault.hits
    # The broker has it, and takes none of the halves.
    expected = "failed" if after and row.code == MessageTooLarge.code else row.outcome
    assert told == ["committed", expected, "committed"]
    await check_topic(stand, stand_topic, told)


@pytest.mark.parametrize(
    "what", [What.REFUSED, What.RESET, What.REFUSED_AFTER], ids=lambda what: what.name.lower()
)
async def test_first_batch_of_a_transaction_stays_first(stand: Stand, stand_topic: str, what: What) -> None:
    """In version 2 several are on their way at once: a leader takes nothing but sequence 0 first (KIP-890)."""
    async with producer_of(stand, stand_topic, batch_size=1_000, linger_ms=0) as producer:
        for number in range(3):
            async with producer.transaction():
                fault = stand.proxy.add(ProduceRequest, what, 7)
                values = [b"%d/%d/" % (number, index) + bytes(900) for index in range(20)]
                await producer.send_many(stand_topic, values, partition=0)
            assert fault.hits
    seen = await asyncio.to_thread(
        read_with_librdkafka, stand.servers, stand_topic, isolation_level="read_committed"
    )
    assert [(each.value or b"").rstrip(b"\0") for each in seen] == [
        b"%d/%d/" % (number, index) for number in range(3) for index in range(20)
    ]
