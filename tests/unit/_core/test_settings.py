from __future__ import annotations

import pytest

from aioproducer.errors import RecordTooLarge
from tests.unit._core.batching.accumulator_rig import BATCH
from tests.unit.floor_rig import TOPIC, batching_settings, sender_settings


def test_record_above_max_request_size_is_too_large() -> None:
    settings = batching_settings(max_request_bytes=1_000, buffer_bytes=2_000)
    assert settings.largest_record == 1_000 - BATCH
    assert settings.room_for(1_000 - BATCH) == 1_000
    settings.check_size(TOPIC, 1_000 - BATCH)
    with pytest.raises(RecordTooLarge, match=r"'orders' takes 1,001 bytes .* max_request_size=1,000"):
        settings.check_size(TOPIC, 1_001 - BATCH)


def test_record_above_buffer_memory_is_too_large() -> None:
    settings = batching_settings(max_request_bytes=2_000, buffer_bytes=1_000)
    assert settings.largest_record == 1_000 - BATCH
    with pytest.raises(RecordTooLarge, match="buffer_memory=1,000"):
        settings.check_size(TOPIC, 1_001 - BATCH)


@pytest.mark.parametrize(("acks", "limit"), [(-1, 5), (1, 5), (0, 1)])
def test_one_unacknowledged_request_is_in_flight(acks: int, limit: int) -> None:
    assert sender_settings(acks=acks, max_in_flight=5).in_flight_limit == limit
