"""Tables and streams of RecordBatches: every row is sent once, in order, or the error names the invalid input."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from aioproducer import (
    ProducerClosed,
    TopicPartition,
)
from aioproducer._core.partitioning import Murmur2Partitioner
from aioproducer.arrow import OffsetRange, TableResult, send_table
from aioproducer.arrow.batches import IN_FLIGHT, PIECE_ROWS
from tests.cases import for_each
from tests.scenarios.rig import TOPIC, producing, scenario, values
from tests.scenarios.tables import batch_of, numbered

FIRST, SECOND = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class Streamed:
    """Has nothing but the C stream interface, as a DataFrame of another library."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)


class ByColumn:
    """Partitioner for columns of keys: key b has partition 1, other keys partition 0."""

    keyless_is_sticky = True

    def partition(self, *_: Any) -> int | None:
        raise AssertionError("the column is chosen in one call")

    def partition_column(
        self, topic: str, keys: Sequence[bytes], partition_count: int, available: Sequence[int]
    ) -> Sequence[int]:
        return [int(key == b"b") for key in keys]


class TestRows:
    @scenario
    async def test_columns_become_parts_of_the_record(self) -> None:
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

    @scenario
    async def test_partitioner_chooses_for_null_partitions(self) -> None:
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

    @scenario
    async def test_keys_that_are_all_null_ask_no_partitioner(self) -> None:
        asked: list[bytes | None] = []

        class Asked(Murmur2Partitioner):
            def partition(
                self, topic: str, key: bytes | None, partition_count: int, available: Sequence[int]
            ) -> int | None:
                asked.append(key)
                return super().partition(topic, key, partition_count, available)

        table = pa.table({"v": numbered(3), "k": pa.nulls(3, pa.binary())})
        async with producing(partitions=4, partitioner=Asked()) as (producer, cluster):
            await send_table(producer, TOPIC, table, value="v", key="k")
            [where] = [partition for partition in range(4) if values(cluster, partition)]
            assert [each.key for each in cluster.records(TOPIC, where)] == [None] * 3
            assert values(cluster, where) == numbered(3)
        assert not asked

    @scenario
    async def test_partitioner_receives_keys_as_a_sequence(self) -> None:
        class Joined(ByColumn):
            def partition_column(
                self, topic: str, keys: Sequence[bytes], partition_count: int, available: Sequence[int]
            ) -> Sequence[int]:
                assert isinstance(keys, Sequence)
                assert b"".join(keys) == b"ababa"
                assert (keys[-1], list(keys[1:3]), keys.index(b"b"), keys.count(b"a")) == (
                    b"a",
                    [b"b", b"a"],
                    1,
                    3,
                )
                return super().partition_column(topic, keys, partition_count, available)

        table = pa.table({"v": numbered(5), "k": [b"a", b"b", b"a", b"b", b"a"]})
        async with producing(partitions=2, partitioner=Joined()) as (producer, cluster):
            await send_table(producer, TOPIC, table, value="v", key="k")
            assert values(cluster, 0) == [b"0", b"2", b"4"]
            assert values(cluster, 1) == [b"1", b"3"]

    @scenario
    async def test_keys_beside_nulls_are_chosen_together(self) -> None:
        table = pa.table({"v": numbered(6), "k": [b"a", None, b"b", b"a", None, b"b"]})
        async with producing(partitions=2, partitioner=ByColumn()) as (producer, cluster):
            await send_table(producer, TOPIC, table, value="v", key="k")
            records = [[(each.key, each.value) for each in cluster.records(TOPIC, at)] for at in range(2)]
        keyless: list[tuple[bytes | None, bytes | None]] = [(None, b"1"), (None, b"4")]
        of_keys: list[list[tuple[bytes | None, bytes | None]]]
        of_keys = [[(b"a", b"0"), (b"a", b"3")], [(b"b", b"2"), (b"b", b"5")]]
        shared = 0 if keyless[0] in records[0] else 1
        assert records[1 - shared] == of_keys[1 - shared]
        assert records[shared] == sorted(keyless + of_keys[shared], key=lambda each: each[1] or b"")

    @scenario
    async def test_null_timestamp_is_the_current_time(self) -> None:
        when = datetime(2024, 5, 1, tzinfo=UTC)
        table = pa.table(
            {"v": [b"a", b"b"], "t": pa.array([when, None], pa.timestamp("ns", "Europe/Berlin"))}
        )
        async with producing() as (producer, cluster):
            await send_table(producer, TOPIC, table, value="v", timestamp="t")
            given, at_once = (each.timestamp_ms for each in cluster.records(TOPIC, 0))
            assert given == when.timestamp() * 1000
            assert at_once > given

    @scenario
    async def test_topic_column_routes_rows_in_order(self) -> None:
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

    @pytest.mark.parametrize("buffer_memory", [100_000_000, 50_000])
    @scenario
    async def test_rows_beyond_the_in_flight_limit_keep_their_order(self, buffer_memory: int) -> None:
        rows = numbered(PIECE_ROWS * (IN_FLIGHT + 2) + 7)
        async with producing(buffer_memory=buffer_memory) as (producer, cluster):
            result = await send_table(producer, TOPIC, pa.table({"v": rows}), value="v")
            assert values(cluster) == rows
            assert result.rows == len(rows)
            assert result.offsets == {FIRST: OffsetRange(0, len(rows) - 1, len(rows))}

    @scenario
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


def kind_of(data: object) -> str:
    return type(data).__name__


class TestInputs:
    @for_each("form", INPUTS)
    @scenario
    async def test_send_table_accepts_every_form_of_data(self, form: str) -> None:
        async with producing() as (producer, cluster):
            result = await send_table(producer, TOPIC, INPUTS[form](), value="v")
            assert values(cluster) == ROWS
            assert (result.rows, result.bytes) == (5, 5)

    @pytest.mark.parametrize(
        "data", [TABLE.slice(0, 0), TABLE.schema.empty_table().to_reader(), []], ids=kind_of
    )
    @scenario
    async def test_send_table_accepts_no_rows(self, data: Any) -> None:
        async with producing() as (producer, cluster):
            assert await send_table(producer, TOPIC, data, value="v") == TableResult(0, 0, {})
            assert values(cluster) == []

    @scenario
    async def test_small_chunks_of_a_table_are_sent_together(self) -> None:
        table = pa.table({"v": pa.chunked_array([[each] for each in numbered(500)])})
        async with producing() as (producer, cluster):
            await send_table(producer, TOPIC, table, value="v")
            assert values(cluster) == numbered(500)
            assert len(cluster.batches(TOPIC, 0)) == 1

    @scenario
    async def test_blocking_source_is_read_in_a_thread(self) -> None:
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

    @scenario
    async def test_schema_may_change_when_columns_remain(self) -> None:
        batches = [batch_of(b"a"), pa.record_batch({"more": [1], "v": ["b"]})]
        async with producing() as (producer, cluster):
            await send_table(producer, TOPIC, batches, value="v")
            assert values(cluster) == [b"a", b"b"]


class TestWrongInput:
    @pytest.mark.parametrize(
        ("data", "complaint"),
        [
            (7, "data must be a pyarrow Table, .*, not int"),
            ({"v": [1]}, "data must be .*; it contains a str"),
            ([TABLE], "data must be .*; it contains a Table"),
            ([None], "data must be .*; it contains a NoneType"),
        ],
        ids=str,
    )
    @scenario
    async def test_data_other_than_arrow_is_a_type_error(self, data: Any, complaint: str) -> None:
        async with producing() as (producer, _):
            with pytest.raises(TypeError, match=complaint):
                await send_table(producer, TOPIC, data, value="v")

    @scenario
    async def test_wrong_column_is_reported_before_sending(self) -> None:
        table = pa.table({"v": [b"a"], "k": [1]})
        async with producing() as (producer, cluster):
            for data in (table, table.to_reader(), table.to_batches(), Streamed(table)):
                with pytest.raises(
                    TypeError, match="key='k': the column is int64, expected string or binary"
                ):
                    await send_table(producer, TOPIC, data, value="v", key="k")
            with pytest.raises(ValueError, match="value='w': no such column; the columns are: 'v', 'k'"):
                await send_table(producer, TOPIC, table, value="w")
            assert values(cluster) == []

    @scenario
    async def test_invalid_schema_change_reports_rows_sent_before(self) -> None:
        async with producing() as (producer, cluster):
            with pytest.raises(ValueError, match="value='v': no such column") as raised:
                await send_table(producer, TOPIC, [batch_of(b"a"), pa.record_batch({"w": ["b"]})], value="v")
            assert raised.value.__notes__ == ["send_table: 1 rows had been acknowledged before"]
            assert values(cluster) == [b"a"]

    @scenario
    async def test_iterator_error_is_raised_after_earlier_rows_settle(self) -> None:
        def broken() -> Iterator[pa.RecordBatch]:
            yield batch_of(b"a", b"b")
            raise OSError("the disk is gone")

        async with producing() as (producer, cluster):
            with pytest.raises(OSError, match="the disk is gone") as raised:
                await send_table(producer, TOPIC, broken(), value="v")
            assert raised.value.__notes__ == ["send_table: 2 rows had been acknowledged before"]
            assert values(cluster) == [b"a", b"b"]

    @scenario
    async def test_serializers_are_refused(self) -> None:
        async with producing(acquainted=False, value_serializer=str.encode) as (producer, _):
            with pytest.raises(ValueError, match="the producer has a value_serializer"):
                await send_table(producer, TOPIC, TABLE, value="v")

    @scenario
    async def test_closed_producer_refuses_a_table(self) -> None:
        async with producing() as (producer, _):
            await producer.close()
            with pytest.raises(ProducerClosed, match="closed"):
                await send_table(producer, TOPIC, TABLE, value="v")
