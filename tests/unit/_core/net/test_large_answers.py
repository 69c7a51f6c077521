from __future__ import annotations

import threading

import pytest

from aioproducer._core.net.large_answers import DECODE_OFF_LOOP_BYTES, LargeAnswer, decode_unless_large
from aioproducer._core.net.waiting import decoded
from aioproducer._core.protocol.admin import ListTransactionsResponse, TransactionState
from aioproducer._core.protocol.metadata import MetadataResponse, MetadataResponseTopic
from aioproducer._core.protocol.schema import Message, decode_response, encode_response
from aioproducer.errors import ProtocolError
from tests.unit._core.metadata.answers import answer, partition

NEWEST = MetadataResponse.VERSIONS[1]
MANY = 5_000


def about(partitions: int) -> MetadataResponse:
    made = answer(
        MetadataResponseTopic(name="orders", partitions=[partition(each, 1) for each in range(partitions)])
    )
    made.throttle_time_ms = 7
    return made


def payload(message: Message, version: int = NEWEST) -> bytes:
    return bytes(encode_response(message, version, 5)[4:])


def never(error: ProtocolError) -> None:
    raise AssertionError(error)


@pytest.mark.parametrize("version", range(MetadataResponse.VERSIONS[0], NEWEST + 1))
def test_small_answer_is_decoded_at_once_and_large_one_later(version: int) -> None:
    small, large = payload(about(2), version), payload(about(MANY), version)
    assert len(small) < DECODE_OFF_LOOP_BYTES <= len(large)
    assert decode_unless_large(MetadataResponse, version, small) == decode_response(
        MetadataResponse, version, small
    )
    kept, _ = decode_unless_large(MetadataResponse, version, large)
    assert isinstance(kept, LargeAnswer)
    assert kept.throttle_time_ms == 7, "the connection pauses for it"
    assert kept.decode() == decode_response(MetadataResponse, version, large)


async def test_large_answer_is_decoded_in_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []
    decode = LargeAnswer.decode

    def noted(self: LargeAnswer) -> tuple[MetadataResponse, int]:
        threads.append(threading.get_ident())
        return decode(self)

    monkeypatch.setattr(LargeAnswer, "decode", noted)
    for partitions in (2, MANY):
        told, _ = decode_unless_large(MetadataResponse, NEWEST, payload(about(partitions)))
        message = await decoded(told, never)
        assert len(message.topics[0].partitions) == partitions
    assert len(threads) == 1
    assert threads[0] != threading.get_ident()


async def test_large_answer_that_makes_no_sense_is_refused_and_raised() -> None:
    told, _ = decode_unless_large(MetadataResponse, NEWEST, payload(about(MANY))[:-9])
    refused: list[ProtocolError] = []
    with pytest.raises(ProtocolError) as raised:
        await decoded(told, refused.append)
    assert refused == [raised.value]


async def test_large_list_of_transactions_is_decoded_later() -> None:
    states = [
        TransactionState(transactional_id=f"id-{each}", producer_id=each, transaction_state="Ongoing")
        for each in range(MANY)
    ]
    listed = ListTransactionsResponse(error_code=0, unknown_state_filters=[], transaction_states=states)
    told, _ = decode_unless_large(ListTransactionsResponse, 0, payload(listed, 0))
    assert isinstance(told, LargeAnswer)
    assert await decoded(told, never) == listed
