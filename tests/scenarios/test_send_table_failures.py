"""Failed and acknowledged rows of a table are reported; timeouts and cancelled calls."""

from __future__ import annotations

import asyncio
import copy
import pickle
import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from aioproducer import (
    DeliveryTimeout,
    RecordTooLarge,
    TopicAuthorizationFailed,
    TopicPartition,
)
from aioproducer.arrow import OffsetRange, SendTableError, TableResult, send_table
from aioproducer.arrow.batches import IN_FLIGHT
from tests.cases import for_each
from tests.scenarios.rig import TOPIC, now, producing, scenario, values
from tests.scenarios.tables import batch_of, fails, numbered

FIRST = TopicPartition(TOPIC, 0)
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class TestFailures:
    @scenario
    async def test_failed_row_is_named_and_others_are_sent(self) -> None:
        rows = [b"a", b"b", b"c" * 2000, b"d"]
        async with producing(max_request_size=1000) as (producer, cluster):
            error = await fails(producer, [batch_of(*rows[:1]), batch_of(*rows[1:])])
            assert values(cluster) == [b"a", b"b", b"d"]
            assert (error.row, error.topic, error.partition) == (2, TOPIC, None)
            assert isinstance(error.__cause__, RecordTooLarge)
            assert list(error.failures) == [2]
            assert str(error).startswith("row 2 (topic 'orders'): RecordTooLarge: ")
            assert str(error).endswith("; 3 were acknowledged")
            assert error.result == TableResult(3, 3, {FIRST: OffsetRange(0, 2, 3)})
            assert not error.possibly_persisted
            assert not error.retriable

    @scenario
    async def test_failure_settles_rows_in_flight_and_stops_reading(self) -> None:
        taken = []

        def batches() -> Iterator[pa.RecordBatch]:
            for number in range(100):
                taken.append(number)
                yield pa.record_batch({"v": [b"%d" % number], "p": [number % 2]})

        async with producing(partitions=2, linger_ms=0) as (producer, cluster):
            cluster.on("produce", topic=TOPIC, partition=1, times=None).answer(TopicAuthorizationFailed)
            error = await fails(producer, batches(), partition="p")
            assert (error.row, error.topic, error.partition) == (1, TOPIC, 1)
            assert isinstance(error.__cause__, TopicAuthorizationFailed)
            assert "(topic 'orders', partition 1)" in str(error)
            assert len(taken) < 20
            assert error.result.rows == len(values(cluster))
            assert error.result.rows + len(error.failures) <= len(taken)

    @scenario
    async def test_error_keeps_the_first_hundred_failures(self) -> None:
        async with producing(max_request_size=1000) as (producer, _):
            error = await fails(producer, batch_of(b"fits", *[b"x" * 2000] * 250))
            assert list(error.failures) == list(range(1, 101))
            assert "; 249 more rows failed; 1 were acknowledged" in str(error)

    @for_each(
        ("columns", "row", "complaint"),
        [
            ({"partition": [0, -1, 0]}, 4, "column 'partition': a partition is 0 to .*, not -1"),
            (
                {"partition": [None, 0, 2**31]},
                5,
                "column 'partition': a partition is 0 to .*, not 2147483648",
            ),
            (
                {"partition": [None, 0, 1]},
                5,
                "topic 'orders', partition 1.*there is no partition 1: 'orders' has 1, from 0",
            ),
            ({"timestamp": [1, None, -7]}, 5, "column 'timestamp': Kafka's timestamps are .*, not -7"),
            ({"topic_column": ["orders", None, "orders"]}, 4, "column 'topic_column': there is no topic"),
            ({"topic_column": ["orders", "a b", "orders"]}, 4, "topic 'a b' is not a legal name"),
            (
                {"headers": pa.array([[], [], [{"key": None, "value": b""}]], HEADERS)},
                5,
                "column 'headers': a header has no key",
            ),
        ],
    )
    @scenario
    async def test_invalid_value_is_a_failure_of_its_row(
        self, columns: dict[str, Any], row: int, complaint: str
    ) -> None:
        ((role, wrong),) = columns.items()
        wrong = pa.array(wrong)
        fine = {"topic_column": pa.array([TOPIC] * 3)}.get(role, pa.nulls(3, wrong.type))
        batches = [pa.record_batch({"v": numbered(3), role: column}) for column in (fine, wrong)]
        async with producing() as (producer, cluster):
            topic = None if role == "topic_column" else TOPIC
            error = await fails(producer, batches, topic, **{role: role})
            assert error.row == row
            assert isinstance(error.__cause__, ValueError)
            assert not error.possibly_persisted
            assert str(pickle.loads(pickle.dumps(error))) == str(error)
            with pytest.raises(SendTableError, match=f"^row {row}.*{complaint}"):
                raise error
            assert values(cluster)[:3] == numbered(3)
            assert error.result.rows == len(values(cluster))

    @scenario
    async def test_failure_is_raised_while_the_source_blocks(self) -> None:
        go_on = threading.Event()
        went_on = []

        def stuck() -> Iterator[pa.RecordBatch]:
            yield batch_of(b"x" * 2000)
            went_on.append(go_on.wait(10))

        async with producing(max_request_size=1000) as (producer, _):
            assert (await fails(producer, stuck())).row == 0
            assert not went_on
            go_on.set()

    @scenario
    async def test_table_error_can_be_pickled_and_copied(self) -> None:
        async with producing(max_request_size=1000) as (producer, _):
            error = await fails(producer, batch_of(b"x" * 2000))
        for again in (copy.copy(error), pickle.loads(pickle.dumps(error))):
            assert str(again) == str(error)
            assert (again.row, again.topic, again.result) == (0, TOPIC, error.result)
            assert list(again.failures) == [0]


class TestTimeAndCancelling:
    @scenario
    async def test_timeout_s_counts_from_the_call(self) -> None:
        async with producing() as (producer, cluster):
            cluster.freeze_broker(1)
            began = now()
            error = await fails(producer, iter([batch_of(b"a"), batch_of(b"b")]), timeout_s=2)
            assert now() - began == pytest.approx(2, abs=0.1)
            assert isinstance(error.__cause__, DeliveryTimeout)
            assert list(error.failures) == [0, 1]
            assert error.possibly_persisted

    async def test_timeout_names_the_row_of_a_blocking_source(self) -> None:
        """In real time: the virtual clock waits for threads."""
        go_on = threading.Event()

        def stuck() -> Iterator[pa.RecordBatch]:
            go_on.wait(10)
            yield batch_of(b"a")

        async with producing() as (producer, cluster):
            error = await fails(producer, stuck(), timeout_s=0.1)
            go_on.set()
            assert (error.row, error.result) == (0, TableResult(0, 0, {}))
            assert "not read and appended within the call's timeout_s=0.1" in str(error)
            assert not error.possibly_persisted
            assert values(cluster) == []

    @pytest.mark.parametrize("wrong", [-1, float("nan")])
    @scenario
    async def test_send_table_refuses_an_invalid_timeout(self, wrong: float) -> None:
        async with producing() as (producer, _):
            with pytest.raises(ValueError, match="timeout_s must be 0 or more seconds"):
                await send_table(producer, TOPIC, batch_of(b"a"), value="v", timeout_s=wrong)

    @scenario
    async def test_cancelled_send_table_reads_no_more_and_leaves_no_task(self) -> None:
        async with producing() as (producer, cluster):
            cluster.freeze_broker(1)
            batches = (batch_of(b"%d" % number) for number in range(100))
            sending = asyncio.ensure_future(send_table(producer, TOPIC, batches, value="v"))
            await asyncio.sleep(1)  # virtual: all happens that can
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending
            cluster.thaw_broker(1)
            await producer.flush()
            sent = values(cluster)
            assert sent == numbered(IN_FLIGHT)
            left = next(batches)  # one more was read, for which there was no room
            assert left.column("v").to_pylist() == [b"%d" % (IN_FLIGHT + 1)]
