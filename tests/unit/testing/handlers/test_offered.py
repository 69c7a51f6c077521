from __future__ import annotations

from aioproducer.protocol.apis import REQUESTS
from aioproducer.testing.handlers.offered import OFFERED
from aioproducer.testing.handlers.table import APIS


def test_what_is_offered_is_served_in_versions_that_can_be_read() -> None:
    assert OFFERED.keys() == APIS.keys()
    for api_key, (lowest, highest) in OFFERED.items():
        request = REQUESTS[api_key]
        assert request.VERSIONS[0] <= lowest <= highest <= request.VERSIONS[1]


def test_transactions_without_a_timeout_are_not_offered() -> None:
    assert OFFERED[22] == (0, 5)
