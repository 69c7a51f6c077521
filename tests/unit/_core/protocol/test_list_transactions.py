from __future__ import annotations

import pytest

from aioproducer._core.protocol.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from aioproducer._core.protocol.schema import encode
from tests.unit._core.protocol.golden import check

ONGOING_OF_FIVE = ListTransactionsRequest(state_filters=["Ongoing"], producer_id_filters=(5,))


@pytest.mark.parametrize(
    ("version", "wire"),
    [
        (0, "02 08 4f6e676f696e67 02 0000000000000005 00"),
        (1, "02 08 4f6e676f696e67 02 0000000000000005 ffffffffffffffff 00"),
        (2, "02 08 4f6e676f696e67 02 0000000000000005 ffffffffffffffff 00 00"),
    ],
)
def test_the_request_has_the_form_of_its_version(version: int, wire: str) -> None:
    check(ONGOING_OF_FIVE, version, wire)


def test_a_pattern_that_the_version_cannot_say_must_not_be_left_out() -> None:
    asked = ListTransactionsRequest(duration_filter=9, transactional_id_pattern="t.*")
    check(asked, 2, "01 01 0000000000000009 04 742e2a 00")
    with pytest.raises(ValueError, match="version 1 has no transactional_id_pattern"):
        encode(asked, 1)


def test_the_response_names_what_it_did_not_know() -> None:
    state = TransactionState(transactional_id="t", producer_id=5, transaction_state="Ongoing")
    response = ListTransactionsResponse(
        throttle_time_ms=1, unknown_state_filters=["X"], transaction_states=[state]
    )
    check(response, 0, "00000001 0000 02 02 58 02 02 74 0000000000000005 08 4f6e676f696e67 00 00")
