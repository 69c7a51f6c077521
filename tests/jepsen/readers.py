"""Consumers of other clients, which read from the first record to the end of the run, each on a thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from typing import Final, TypeAlias

from confluent_kafka import Consumer, IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.jepsen.history import COMMITTED, UNCOMMITTED, Recorder
from tests.jepsen.workload import PARTITIONS

Fetched: TypeAlias = tuple[int, int, bytes | None]
"""Partition, offset and value of a record; None as the value at the end of a partition."""
END_S: Final = 60.0
"""Time in which open transactions must time out, and readers must reach the end, after the last fault."""


class Readers:
    """Three consumers: two of librdkafka, one per isolation level, and one of kafka-python with read_committed."""

    def __init__(self, servers: str, topic: str, record: Recorder) -> None:
        self._servers = servers
        self._topic = topic
        self._record = record
        self._ends: Mapping[int, int] | None = None
        self._deadline = float("inf")
        confluent, kafka_python = self._confluent, self._kafka_python
        self._threads = [
            threading.Thread(target=self._read, name=arguments[0], args=arguments, daemon=True)
            for arguments in (
                ("confluent", COMMITTED, confluent(COMMITTED)),
                ("confluent-uncommitted", UNCOMMITTED, confluent(UNCOMMITTED)),
                ("kafka-python", COMMITTED, kafka_python()),
            )
        ]
        for thread in self._threads:
            thread.start()

    def finish(self) -> None:
        """Wait until no transaction is open, record the ends of the partitions, and read to these ends."""
        deadline = time.monotonic() + END_S
        while True:
            high_watermarks, last_stable = self._latest(IsolationLevel.READ_UNCOMMITTED), self._latest()
            if high_watermarks == last_stable or time.monotonic() > deadline:
                break
            time.sleep(0.5)
        for partition, end in high_watermarks.items():
            stable = last_stable[partition]
            self._record("end of log", partition=partition, high_watermark=end, last_stable_offset=stable)
        self._deadline = time.monotonic() + END_S
        self._ends = last_stable
        for thread in self._threads:
            thread.join(2 * END_S)
            # Consumer.close() of confluent-kafka blocked forever after an hour of faults.
            if thread.is_alive():
                self._record("reader not closed", reader=thread.name)

    def _latest(self, isolation: IsolationLevel = IsolationLevel.READ_COMMITTED) -> dict[int, int]:
        admin = AdminClient({"bootstrap.servers": self._servers, "log_level": 0})
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        wanted = {TopicPartition(self._topic, each): latest for each in range(PARTITIONS)}
        found = admin.list_offsets(wanted, isolation_level=isolation, request_timeout=20)
        return {where.partition: future.result().offset for where, future in found.items()}

    def _read(self, reader: str, isolation: str, fetched: Iterator[Fetched]) -> None:
        """Record all records of *fetched*, until the positions have reached the ends."""
        positions = dict.fromkeys(range(PARTITIONS), 0)
        for partition, offset, value in fetched:
            if value is not None:
                where = {"partition": partition, "offset": offset}
                self._record("read", reader=reader, isolation=isolation, value=value.decode(), **where)
            if partition in positions:
                positions[partition] = max(positions[partition], offset + (value is not None))
            ends = self._ends
            if ends is not None and all(positions[each] >= end for each, end in ends.items()):
                return
            if time.monotonic() > self._deadline:
                self._record("reader incomplete", reader=reader, positions=positions)
                return

    def _confluent(self, isolation: str) -> Iterator[Fetched]:
        consumer = Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": "readers",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "isolation.level": isolation,
                "fetch.wait.max.ms": 100,
                "log_level": 0,
            }
        )
        with closing(consumer):
            consumer.assign([TopicPartition(self._topic, each, 0) for each in range(PARTITIONS)])
            while True:
                yield -1, 0, None
                for message in consumer.consume(1_000, 0.2):
                    partition, offset, error = message.partition(), message.offset(), message.error()
                    if error is not None and error.name() != "_PARTITION_EOF":
                        if error.name() == "_AUTO_OFFSET_RESET":
                            raise KafkaException(error)
                        continue
                    assert partition is not None
                    assert offset is not None
                    yield partition, offset, None if error is not None else message.value()

    def _kafka_python(self) -> Iterator[Fetched]:
        from kafka import KafkaConsumer, TopicPartition as PythonPartition  # noqa: PLC0415 - the import emits a warning
        from kafka.errors import KafkaError  # noqa: PLC0415

        consumer = KafkaConsumer(
            bootstrap_servers=self._servers,
            isolation_level=COMMITTED,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=100,
        )
        partitions = [PythonPartition(self._topic, each) for each in range(PARTITIONS)]
        with closing(consumer):
            consumer.assign(partitions)
            while True:
                fetched = {}
                with suppress(KafkaError):  # a lost connection raises KafkaError
                    fetched = consumer.poll(200)
                for records in fetched.values():
                    for record in records:
                        yield record.partition, record.offset, record.value
                yield -1, 0, None
                for partition in partitions:
                    with suppress(KafkaError):
                        yield partition.partition, consumer.position(partition), None
