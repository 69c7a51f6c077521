from __future__ import annotations

import threading

import pytest

from aioproducer.errors import ProtocolError
from aioproducer.metadata.metadata_source import DECODE_OFF_LOOP_BYTES, LargeAnswer, decode_unless_large
from aioproducer.protocol.metadata import MetadataResponse, MetadataResponseTopic
from aioproducer.protocol.schema import decode_response, encode_response
from aioproducer.testing.virtual_time import in_virtual_time
from tests.unit.metadata.answers import answer, partition
from tests.unit.metadata.metadata_source_rig import Setup

NEWEST = MetadataResponse.VERSIONS[1]
MANY = 5_000


def about(partitions: int) -> MetadataResponse:
    made = answer(
        MetadataResponseTopic(name="orders", partitions=[partition(each, 1) for each in range(partitions)])
    )
    made.throttle_time_ms = 7
    return made


def payload(message: MetadataResponse, version: int = NEWEST) -> bytes:
    return bytes(encode_response(message, version, 5)[4:])


@pytest.mark.parametrize("version", range(MetadataResponse.VERSIONS[0], NEWEST + 1))
def test_a_small_one_is_decoded_at_once_and_a_large_one_later(version: int) -> None:
    small, large = payload(about(2), version), payload(about(MANY), version)
    assert len(small) < DECODE_OFF_LOOP_BYTES <= len(large)
    assert decode_unless_large(MetadataResponse, version, small) == decode_response(
        MetadataResponse, version, small
    )
    kept, surplus = decode_unless_large(MetadataResponse, version, large)
    assert isinstance(kept, LargeAnswer)
    assert kept.throttle_time_ms == 7, "the connection looks at it"
    assert (kept.decode(), surplus) == decode_response(MetadataResponse, version, large)


@in_virtual_time
async def test_it_is_decoded_in_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []
    decode = LargeAnswer.decode

    def noted(self: LargeAnswer) -> MetadataResponse:
        threads.append(threading.get_ident())
        return decode(self)

    monkeypatch.setattr(LargeAnswer, "decode", noted)
    setup = Setup()
    setup.cluster.next_answers = [payload(about(2)), payload(about(MANY))]
    await setup.pool.connect(1)
    assert len((await setup.ask()).topics[0].partitions) == 2
    assert threads == []
    assert len((await setup.ask()).topics[0].partitions) == MANY
    assert len(threads) == 1
    assert threads[0] != threading.get_ident()


@in_virtual_time
async def test_one_that_makes_no_sense_closes_its_connection_and_another_is_asked() -> None:
    setup = Setup()
    setup.cluster.next_answers = [payload(about(MANY))[:-9], payload(about(1))]
    await setup.pool.connect(3, 1)
    assert len((await setup.ask()).topics[0].partitions) == 1
    assert setup.answered_by == 1
    [broken] = [each for each in setup.cluster.connections if each.closed]
    assert broken.node_id == 3
    assert isinstance(broken.error, ProtocolError)
