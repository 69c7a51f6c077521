"""Arrow tables, as another client reads them back."""

from __future__ import annotations

from collections import defaultdict

import pyarrow as pa
import pytest
from aiokafka.partitioner import DefaultPartitioner

from aioproducer import MessageTooLarge, Producer, TopicPartition
from aioproducer.arrow import OffsetRange, SendTableError, TableResult, send_table
from tests.kafka.apache.broker import ApacheKafka
from tests.kafka.conftest import NewTopic
from tests.kafka.readback import Record, read_with_librdkafka

ROWS = 50_000
PARTITIONS = 3
FIRST_TIMESTAMP_MS = 1_700_000_000_000
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def partition_of(key: bytes) -> int:
    everywhere = list(range(PARTITIONS))
    return int(DefaultPartitioner()(key, everywhere, everywhere))


def rows_of(topic: str) -> tuple[pa.Table, list[Record]]:
    """Return a table of every kind of column, and its records as a consumer is to see them."""
    numbers = range(ROWS)
    keys = [f"customer-{number % 997}" for number in numbers]
    payloads = [None if number % 1_000 == 0 else b"payload %d" % number for number in numbers]
    table = pa.table(
        {
            "topic": pa.repeat(topic, ROWS).dictionary_encode(),
            "key": keys,
            "value": pa.array(payloads, pa.large_binary()),
            "headers": pa.array(
                [
                    [{"key": "row", "value": b"%d" % number}, {"key": "none", "value": None}]
                    if number % 3
                    else None
                    for number in numbers
                ],
                HEADERS,
            ),
            "partition": pa.array([2 if number % 5 == 0 else None for number in numbers], pa.int32()),
            "timestamp": pa.array(
                [(FIRST_TIMESTAMP_MS + number) * 1_000 for number in numbers], pa.timestamp("us", "UTC")
            ),
        }
    )
    expected = []
    offsets: defaultdict[int, int] = defaultdict(int)
    for number, key, payload in zip(numbers, keys, payloads, strict=True):
        partition = 2 if number % 5 == 0 else partition_of(key.encode())
        headers = (("row", b"%d" % number), ("none", None)) if number % 3 else ()
        expected.append(
            Record(
                partition,
                offsets[partition],
                key.encode(),
                payload,
                headers,
                FIRST_TIMESTAMP_MS + number,
                False,
            )
        )
        offsets[partition] += 1
    return table, sorted(expected)


@pytest.mark.parametrize("form", ["table", "stream"])
async def test_every_row_of_a_table_is_read_back_once(kafka: ApacheKafka, topic: str, form: str) -> None:
    table, expected = rows_of(topic)
    async with Producer(kafka.bootstrap_servers, compression_type="lz4") as producer:
        result = await send_table(
            producer,
            None,
            table if form == "table" else table.to_reader(max_chunksize=4_567),
            topic_column="topic",
            value="value",
            key="key",
            headers="headers",
            partition="partition",
            timestamp="timestamp",
        )
    found = read_with_librdkafka(kafka.bootstrap_servers, topic)
    assert found == expected
    ends = {each.partition: each.offset for each in found}
    assert result == TableResult(
        rows=ROWS,
        bytes=sum(len(each.key or b"") + len(each.value or b"") for each in found),
        offsets={
            TopicPartition(topic, partition): OffsetRange(0, end, end + 1) for partition, end in ends.items()
        },
    )


async def test_refused_row_is_named_and_other_rows_are_in_the_log(
    kafka: ApacheKafka, new_topic: NewTopic
) -> None:
    topic = new_topic(max_message_bytes="3000")
    table = pa.table({"v": [b"first", b"x" * 5_000, b"last"], "p": pa.array([0, 0, 0], pa.int8())})
    async with Producer(kafka.bootstrap_servers) as producer:
        with pytest.raises(SendTableError) as raised:
            await send_table(producer, topic, table, value="v", partition="p")
    error = raised.value
    assert (error.row, error.topic, error.partition) == (1, topic, 0)
    assert isinstance(error.__cause__, MessageTooLarge)
    stored = read_with_librdkafka(kafka.bootstrap_servers, topic)
    assert [each.value for each in stored] == [b"first", b"last"]
    assert error.result.rows == 2
