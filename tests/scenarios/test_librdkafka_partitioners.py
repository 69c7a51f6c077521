"""Each of librdkafka's partitioners chooses the same partitions here, compared with librdkafka itself."""

from __future__ import annotations

from confluent_kafka import Producer as LibrdkafkaProducer

from aioproducer import Producer
from aioproducer.testing import ThreadedCluster
from tests.cases import for_each

TOPIC = "keyed"
KEYS = [
    b"",
    b"a",
    b"ab",
    b"abc",
    b"customer-7",
    "grün".encode(),
    bytes(range(256)),
    *(b"k%d" % each for each in range(40)),
]


@for_each("name", ["consistent", "consistent_random", "murmur2", "murmur2_random", "fnv1a", "fnv1a_random"])
async def test_key_has_the_partition_of_librdkafka(name: str) -> None:
    keys = KEYS[1:] if name == "consistent_random" else KEYS  # to which an empty key is none
    where: dict[bytes, int | None] = {}
    with ThreadedCluster(topics={TOPIC: 37}) as cluster:
        theirs = LibrdkafkaProducer({"bootstrap.servers": cluster.bootstrap_servers, "partitioner": name})
        for key in keys:
            theirs.produce(
                TOPIC,
                b"v",
                key,
                on_delivery=lambda _, sent: where.__setitem__(sent.key() or b"", sent.partition()),
            )
        assert theirs.flush(20) == 0
        async with Producer(cluster.bootstrap_servers, partitioner=name) as ours:  # type: ignore[arg-type]
            sent = {key: (await ours.send(TOPIC, b"v", key)).partition for key in keys}
    assert sent == where
