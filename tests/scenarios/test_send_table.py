"""A table, or a stream of RecordBatches, in: every row once, in order, or the row that failed named."""

from __future__ import annotations

import asyncio
import copy
import pickle
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from aioproducer import (
    DeliveryTimeout,
    Producer,
    ProducerClosed,
    RecordTooLarge,
    TopicAuthorizationFailed,
    TopicPartition,
)
from aioproducer.arrow import OffsetRange, SendTableError, TableResult, send_table
from aioproducer.arrow.batches import IN_FLIGHT, PIECE_ROWS
from tests.scenarios.story import TOPIC, now, producing, story, values

FIRST, SECOND = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(start, start + count)]


def batch_of(*rows: bytes | None) -> pa.RecordBatch:
    return pa.record_batch({"v": pa.array(rows, pa.binary())})


async def fails(producer: Producer, data: Any, topic: str | None = TOPIC, **columns: Any) -> SendTableError:
    with pytest.raises(SendTableError) as raised:
        await send_table(producer, topic, data, value="v", **columns)
    return raised.value


class Streamed:
    """Has nothing but the C stream interface, as a DataFrame of another library."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)


class TestWhatIsSent:
    @story
    async def test_each_column_is_its_part_of_the_record(self) -> None:
        table = pa.table(
            {
                "payload": ["größe", None, ""],
                "who": [b"k", None, b""],
                "extra": pa.array(
                    [[{"key": "h", "value": b"1"}, {"key": "n", "value": None}], None, []], HEADERS
                ),
                "where": pa.array([1, 0, 1], pa.int8()),
                "when": pa.array([1_500_999, 2_000_000, 3_000_000], pa.timestamp("us")),
            }
        )
        async with producing(partitions=2) as (producer, cluster):
            result = await send_table(
                producer,
                TOPIC,
                table,
                value="payload",
                key="who",
                headers="extra",
                partition="where",
                timestamp="when",
            )
            records = [(each.key, each.value, each.headers) for each in cluster.records(TOPIC, 1)]
            assert records == [
                (b"k", "größe".encode(), (("h", b"1"), ("n", None))),
                (b"", b"", ()),
            ]
            assert [each.timestamp_ms for each in cluster.records(TOPIC, 1)] == [1_500, 3_000]
            (tombstone,) = cluster.records(TOPIC, 0)
            assert (tombstone.key, tombstone.value, tombstone.timestamp_ms) == (None, None, 2_000)
            assert result == TableResult(
                rows=3, bytes=8, offsets={FIRST: OffsetRange(0, 0, 1), SECOND: OffsetRange(0, 1, 2)}
            )

    @story
    async def test_the_partitioner_chooses_where_there_is_no_partition(self) -> None:
        keys = [b"a", b"b", b"c", b"d"]
        table = pa.table({"v": keys, "k": keys, "p": pa.array([None, None, 3, None], pa.int64())})
        async with producing(partitions=4) as (producer, cluster):
            sent = await producer.send_many(TOPIC, keys, keys=keys)
            expected = [sent.partition(position) for position in range(4)]
            expected[2] = 3
            before = {partition: len(values(cluster, partition)) for partition in range(4)}
            await send_table(producer, TOPIC, table, value="v", key="k", partition="p")
            for partition in range(4):
                chosen = [key for key, where in zip(keys, expected, strict=True) if where == partition]
                assert values(cluster, partition)[before[partition] :] == chosen

    @story
    async def test_a_null_timestamp_is_now(self) -> None:
        when = datetime(2024, 5, 1, tzinfo=UTC)
        table = pa.table(
            {"v": [b"a", b"b"], "t": pa.array([when, None], pa.timestamp("ns", "Europe/Berlin"))}
        )
        async with producing() as (producer, cluster):
            await send_table(producer, TOPIC, table, value="v", timestamp="t")
            given, at_once = (each.timestamp_ms for each in cluster.records(TOPIC, 0))
            assert given == when.timestamp() * 1000
            assert at_once > given

    @story
    async def test_a_column_of_topics_sends_each_row_to_its_own_in_order(self) -> None:
        rows = numbered(7)
        topics = pa.array(["orders", "acquaintance", "orders", "orders", "acquaintance", "orders", "orders"])
        batches = [
            pa.record_batch({"v": rows[:3], "t": topics[:3].dictionary_encode()}),
            pa.record_batch({"v": rows[3:4], "t": topics[3:4]}),  # one topic only
            pa.record_batch({"v": rows[4:], "t": topics[4:]}),
        ]
        async with producing() as (producer, cluster):
            result = await send_table(producer, None, batches, value="v", topic_column="t")
            assert values(cluster) == [b"0", b"2", b"3", b"5", b"6"]
            assert values(cluster, topic="acquaintance") == [b"hello", b"1", b"4"]
            assert (result.rows, result.bytes) == (7, 7)
            assert result.offsets[TOPIC, 0] == OffsetRange(0, 4, 5)  # type: ignore[index] # a plain tuple will do

    @story
    async def test_more_rows_than_are_in_flight_at_a_time_keep_their_order(self) -> None:
        rows = numbered(PIECE_ROWS * (IN_FLIGHT + 2) + 7)
        async with producing() as (producer, cluster):
            result = await send_table(producer, TOPIC, pa.table({"v": rows}), value="v")
            assert values(cluster) == rows
            assert result.rows == len(rows)
            assert result.offsets == {FIRST: OffsetRange(0, len(rows) - 1, len(rows))}

    @story
    async def test_rows_of_an_unknown_offset_are_counted(self) -> None:
        async with producing(acks=0, enable_idempotence=False) as (producer, _):
            result = await send_table(producer, TOPIC, batch_of(b"a", b"b"), value="v")
            assert result.offsets == {FIRST: OffsetRange(-1, -1, 2)}


ROWS = numbered(5)
TABLE = pa.table({"v": pa.chunked_array([ROWS[:2], ROWS[2:]])})
INPUTS: dict[str, Callable[[], Any]] = {
    "table": lambda: TABLE,
    "record batch": lambda: pa.record_batch({"v": ROWS}),
    "reader": TABLE.to_reader,
    "list": TABLE.to_batches,
    "iterator": lambda: iter(TABLE.to_batches()),
    "stream": lambda: Streamed(TABLE),
}


class TestInputs:
    @pytest.mark.parametrize("form", INPUTS)
    @story
    async def test_every_form_of_data_is_sent(self, form: str) -> None:
        async with producing() as (producer, cluster):
            result = await send_table(producer, TOPIC, INPUTS[form](), value="v")
            assert values(cluster) == ROWS
            assert (result.rows, result.bytes) == (5, 5)

    @pytest.mark.parametrize("data", [TABLE.slice(0, 0), TABLE.schema.empty_table().to_reader(), []], ids=str)
    @story
    async def test_no_rows_are_no_records(self, data: Any) -> None:
        async with producing() as (producer, cluster):
            assert await send_table(producer, TOPIC, data, value="v") == TableResult(0, 0, {})
            assert values(cluster) == []

    @story
    async def test_small_chunks_of_a_table_are_sent_together(self) -> None:
        table = pa.table({"v": pa.chunked_array([[each] for each in numbered(500)])})
        async with producing() as (producer, cluster):
            await send_table(producer, TOPIC, table, value="v")
            assert values(cluster) == numbered(500)
            assert len(cluster.batches(TOPIC, 0)) == 1

    @story
    async def test_what_may_block_is_read_in_a_thread_while_the_loop_goes_on(self) -> None:
        go_on = threading.Event()
        loop = asyncio.get_running_loop()

        def blocking() -> Iterator[pa.RecordBatch]:
            yield batch_of(b"0")
            assert go_on.wait(10)
            yield batch_of(b"1")

        async with producing() as (producer, cluster):
            sending = loop.create_task(send_table(producer, TOPIC, blocking(), value="v"))
            await cluster.wait_for_records(TOPIC, 0, 1)
            go_on.set()
            assert (await sending).rows == 2

    @story
    async def test_the_schema_may_change_as_long_as_the_columns_are_there(self) -> None:
        batches = [batch_of(b"a"), pa.record_batch({"more": [1], "v": ["b"]})]
        async with producing() as (producer, cluster):
            await send_table(producer, TOPIC, batches, value="v")
            assert values(cluster) == [b"a", b"b"]


class TestWrongInput:
    @pytest.mark.parametrize(
        ("data", "complaint"),
        [
            (7, "data must be a pyarrow Table, .*, not int"),
            ({"v": [1]}, "data must be .* has a str in it"),
            ([TABLE], "data must be .* has a Table in it"),
            ([None], "data must be .* has a NoneType in it"),
        ],
        ids=str,
    )
    @story
    async def test_what_is_no_arrow_data_is_a_type_error(self, data: Any, complaint: str) -> None:
        async with producing() as (producer, _):
            with pytest.raises(TypeError, match=complaint):
                await send_table(producer, TOPIC, data, value="v")

    @story
    async def test_a_wrong_column_is_told_before_anything_is_sent(self) -> None:
        table = pa.table({"v": [b"a"], "k": [1]})
        async with producing() as (producer, cluster):
            for data in (table, table.to_reader(), table.to_batches(), Streamed(table)):
                with pytest.raises(
                    TypeError, match="key='k': the column is int64, expected string or binary"
                ):
                    await send_table(producer, TOPIC, data, value="v", key="k")
            with pytest.raises(ValueError, match="value='w': there is no such column; there are: 'v', 'k'"):
                await send_table(producer, TOPIC, table, value="w")
            assert values(cluster) == []

    @story
    async def test_a_schema_that_changes_for_the_worse_tells_what_was_sent_before(self) -> None:
        async with producing() as (producer, cluster):
            with pytest.raises(ValueError, match="value='v': there is no such column") as raised:
                await send_table(producer, TOPIC, [batch_of(b"a"), pa.record_batch({"w": ["b"]})], value="v")
            assert raised.value.__notes__ == ["send_table: 1 rows had been acknowledged before"]
            assert values(cluster) == [b"a"]

    @story
    async def test_an_error_of_the_iterator_is_raised_once_what_it_gave_is_settled(self) -> None:
        def broken() -> Iterator[pa.RecordBatch]:
            yield batch_of(b"a", b"b")
            raise OSError("the disk is gone")

        async with producing() as (producer, cluster):
            with pytest.raises(OSError, match="the disk is gone") as raised:
                await send_table(producer, TOPIC, broken(), value="v")
            assert raised.value.__notes__ == ["send_table: 2 rows had been acknowledged before"]
            assert values(cluster) == [b"a", b"b"]

    @story
    async def test_serializers_are_refused(self) -> None:
        async with producing(acquainted=False, value_serializer=str.encode) as (producer, _):
            with pytest.raises(ValueError, match="the producer has a value_serializer"):
                await send_table(producer, TOPIC, TABLE, value="v")

    @story
    async def test_a_closed_producer_says_so(self) -> None:
        async with producing() as (producer, _):
            await producer.close()
            with pytest.raises(ProducerClosed, match="closed"):
                await send_table(producer, TOPIC, TABLE, value="v")


class TestFailures:
    @story
    async def test_a_row_that_fails_is_named_and_the_others_of_its_batch_are_sent(self) -> None:
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

    @story
    async def test_what_is_in_flight_is_settled_and_no_more_is_read(self) -> None:
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

    @story
    async def test_of_many_failures_the_first_hundred_are_kept(self) -> None:
        async with producing(max_request_size=1000) as (producer, _):
            error = await fails(producer, batch_of(b"fits", *[b"x" * 2000] * 250))
            assert list(error.failures) == list(range(1, 101))
            assert "; 249 more rows failed; 1 were acknowledged" in str(error)

    @pytest.mark.parametrize(
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
        ids=str,
    )
    @story
    async def test_a_value_that_cannot_be_sent_is_a_failure_of_its_row(
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

    @story
    async def test_a_failure_is_told_while_the_source_blocks(self) -> None:
        go_on = threading.Event()
        went_on = []

        def stuck() -> Iterator[pa.RecordBatch]:
            yield batch_of(b"x" * 2000)
            went_on.append(go_on.wait(10))

        async with producing(max_request_size=1000) as (producer, _):
            assert (await fails(producer, stuck())).row == 0
            assert not went_on
            go_on.set()

    @story
    async def test_it_can_be_pickled_and_copied(self) -> None:
        async with producing(max_request_size=1000) as (producer, _):
            error = await fails(producer, batch_of(b"x" * 2000))
        for again in (copy.copy(error), pickle.loads(pickle.dumps(error))):
            assert str(again) == str(error)
            assert (again.row, again.topic, again.result) == (0, TOPIC, error.result)
            assert list(again.failures) == [0]


class TestTimeAndCancelling:
    @story
    async def test_timeout_s_counts_from_the_call(self) -> None:
        async with producing() as (producer, cluster):
            cluster.freeze_broker(1)
            began = now()
            error = await fails(producer, iter([batch_of(b"a"), batch_of(b"b")]), timeout_s=2)
            assert now() - began == pytest.approx(2, abs=0.1)
            assert isinstance(error.__cause__, DeliveryTimeout)
            assert list(error.failures) == [0, 1]
            assert error.possibly_persisted

    async def test_a_source_that_blocks_longer_fails_the_row_that_is_not_there(self) -> None:
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
    @story
    async def test_a_timeout_is_a_duration(self, wrong: float) -> None:
        async with producing() as (producer, _):
            with pytest.raises(ValueError, match="timeout_s must be 0 or more seconds"):
                await send_table(producer, TOPIC, TABLE, value="v", timeout_s=wrong)

    @story
    async def test_cancelled_it_reads_no_more_and_leaves_no_task_behind(self) -> None:
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
