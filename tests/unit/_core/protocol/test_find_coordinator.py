from __future__ import annotations

import pytest

from aioproducer._core.protocol.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from tests.unit._core.protocol.golden import check

REFUSAL = FindCoordinatorResponse(error_code=15, error_message="none", node_id=-1, host="", port=-1)


@pytest.mark.parametrize(("version", "wire"), [(0, "0001 67"), (1, "0001 67 00"), (3, "02 67 00 00")])
def test_the_request_has_the_form_of_its_version(version: int, wire: str) -> None:
    check(FindCoordinatorRequest(key="g"), version, wire)


@pytest.mark.parametrize(
    ("version", "wire"),
    [
        (0, "000f ffffffff 0000 ffffffff"),
        (1, "00000000 000f 0004 6e6f6e65 ffffffff 0000 ffffffff"),
        (3, "00000000 000f 05 6e6f6e65 ffffffff 01 ffffffff 00"),
    ],
)
def test_the_response_has_the_form_of_its_version(version: int, wire: str) -> None:
    check(REFUSAL, version, wire)


def test_from_v4_on_there_are_many_at_once() -> None:
    check(FindCoordinatorRequest(key_type=1, coordinator_keys=["t"]), 4, "01 02 02 74 00")
    coordinators = [Coordinator(key="t", node_id=1, host="b", port=9092)]
    wire = "00000000 02 02 74 00000001 02 62 00002384 0000 01 00 00"
    check(FindCoordinatorResponse(coordinators=coordinators), 4, wire)
