"""Rig of the `send_table` scenarios."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from aioproducer import Producer
from aioproducer.arrow import SendTableError, send_table
from tests.scenarios.rig import TOPIC


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(start, start + count)]


def batch_of(*rows: bytes | None) -> pa.RecordBatch:
    return pa.record_batch({"v": pa.array(rows, pa.binary())})


async def fails(producer: Producer, data: Any, topic: str | None = TOPIC, **columns: Any) -> SendTableError:
    with pytest.raises(SendTableError) as raised:
        await send_table(producer, topic, data, value="v", **columns)
    return raised.value
