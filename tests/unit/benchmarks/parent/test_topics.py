from __future__ import annotations

import pytest

from aioproducer import Producer
from aioproducer.testing import ThreadedCluster
from benchmarks.parent.topics import MissingRecordsError, Topics, check_count, stored


async def test_records_are_counted_over_all_partitions(kafka_cluster: ThreadedCluster) -> None:
    kafka_cluster.create_topic("counted", 3)
    async with Producer(kafka_cluster.bootstrap_servers) as producer:
        for partition, count in enumerate((4, 0, 3)):
            await producer.send_many("counted", [b"v"] * count, partition=partition)
    partitions = [("counted", number) for number in range(3)]
    assert stored(kafka_cluster.bootstrap_servers, partitions) == 7
    Topics(kafka_cluster.bootstrap_servers).check("counted", 3, sent=7)


@pytest.mark.parametrize("there", [9, 11])
def test_one_too_few_is_as_wrong_as_one_too_many(there: int) -> None:
    check_count(10, 10)
    with pytest.raises(
        MissingRecordsError, match=f"10 records were acknowledged, but the topic holds {there}"
    ):
        check_count(10, there)
