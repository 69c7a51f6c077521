from __future__ import annotations

import pytest

from aioproducer._core.protocol.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from aioproducer._core.protocol.schema import encode
from tests.unit._core.protocol.golden import check

NEW = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
AGAIN = InitProducerIdRequest(
    transactional_id="t", transaction_timeout_ms=60_000, producer_id=5, producer_epoch=2
)
TWO_PHASE = InitProducerIdRequest(
    transactional_id="t", transaction_timeout_ms=60_000, enable2_pc=True, keep_prepared_txn=True
)
RESPONSE = InitProducerIdResponse(throttle_time_ms=1, producer_id=5, producer_epoch=2)


@pytest.mark.parametrize(
    ("request_", "version", "wire"),
    [
        (NEW, 0, "ffff 0000ea60"),
        (NEW, 2, "00 0000ea60 00"),
        (NEW, 4, "00 0000ea60 ffffffffffffffff ffff 00"),
        (NEW, 6, "00 0000ea60 ffffffffffffffff ffff 00 00 00"),
        (TWO_PHASE, 6, "02 74 0000ea60 ffffffffffffffff ffff 01 01 00"),
        (AGAIN, 3, "02 74 0000ea60 0000000000000005 0002 00"),
    ],
)
def test_the_request_has_the_form_of_its_version(
    request_: InitProducerIdRequest, version: int, wire: str
) -> None:
    check(request_, version, wire)


@pytest.mark.parametrize(
    ("version", "wire"),
    [
        (0, "00000001 0000 0000000000000005 0002"),
        (2, "00000001 0000 0000000000000005 0002 00"),
        (6, "00000001 0000 0000000000000005 0002 ffffffffffffffff ffff 00"),
    ],
)
def test_the_response_has_the_form_of_its_version(version: int, wire: str) -> None:
    check(RESPONSE, version, wire)


def test_a_version_that_cannot_say_the_id_must_not_be_told_one() -> None:
    with pytest.raises(ValueError, match="version 2 has no producer_id, which is 5"):
        encode(AGAIN, 2)
