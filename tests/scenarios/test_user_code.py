"""Interceptors and serializers of the user, and their failures."""

from __future__ import annotations

import asyncio
import json
import logging
from contextvars import ContextVar
from typing import Any

import pytest

from aioproducer import (
    BufferFull,
    MetadataUnavailable,
    Producer,
    ProducerConfig,
    ProducerError,
    ProducerRecord,
    RecordMetadata,
    SerializationError,
    TopicAuthorizationFailed,
    TopicPartition,
)
from tests.scenarios.rig import TOPIC, cluster as open_cluster, producing, scenario, values

End = tuple[RecordMetadata | None, ProducerError | None, TopicPartition]


class Observer:
    """Stores the outcome of every record; a subset of the methods of `Interceptor` suffices."""

    def __init__(self) -> None:
        self.heard: list[End] = []
        self.closed = 0

    def on_acknowledgement(
        self, metadata: RecordMetadata | None, error: ProducerError | None, record: TopicPartition
    ) -> None:
        if record.topic == TOPIC:
            self.heard.append((metadata, error, record))

    def close(self) -> None:
        self.closed += 1


class Stamp:
    """Adds a header."""

    def __init__(self, name: str) -> None:
        self.name = name

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        record.headers = [*record.headers, (self.name, b"seen")]
        return record


class Broken:
    """Interceptor that fails in every method."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        record.value = b"spoilt"
        raise LookupError("on_send")

    def on_acknowledgement(self, *_: object) -> None:
        raise LookupError("on_acknowledgement")

    def close(self) -> None:
        raise LookupError("close")


class TestInterceptors:
    @scenario
    async def test_interceptors_run_in_order_and_receive_outcomes(self) -> None:
        observer = Observer()
        async with producing(
            interceptors=[Stamp("a"), observer, Stamp("b")],
            linger_ms=100,
        ) as (producer, cluster):
            cluster.on("produce", topic=TOPIC, after=1).answer(TopicAuthorizationFailed)
            sent = await producer.send(TOPIC, b"good")
            with pytest.raises(TopicAuthorizationFailed) as raised:
                await producer.send(TOPIC, b"bad")
            assert [record.headers for record in cluster.records(TOPIC, 0)] == [
                (("a", b"seen"), ("b", b"seen")),
            ]
            [(metadata, none, where), (nothing, error, elsewhere)] = observer.heard
            assert (metadata, none, nothing) == (sent, None, None)
            assert isinstance(error, TopicAuthorizationFailed)
            assert str(error) == str(raised.value)
            assert where == elsewhere == (TOPIC, 0)
        assert observer.closed == 1

    @scenario
    async def test_interceptors_receive_each_record_once(self) -> None:
        observer = Observer()
        async with producing(
            acquainted=False, interceptors=[observer], value_serializer=str.encode, buffer_memory=1_000
        ) as (producer, _):
            with pytest.raises(MetadataUnavailable):
                _ = producer.send_nowait(TOPIC, "unknown yet")
            await producer.send(TOPIC, "good")
            with pytest.raises(SerializationError):
                await producer.send(TOPIC, 5)
            future = producer.send_nowait(TOPIC, "x" * 700)
            with pytest.raises(BufferFull):
                _ = producer.send_nowait(TOPIC, "x" * 700)
            await future
            kinds = [type(metadata or error) for metadata, error, _ in observer.heard]
            assert kinds == [
                MetadataUnavailable,
                RecordMetadata,
                SerializationError,
                BufferFull,
                RecordMetadata,
            ]
            assert observer.heard[0][2] == (TOPIC, -1)

    @scenario
    async def test_interceptor_errors_are_logged_once(self, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.WARNING, "aioproducer"):
            async with producing(interceptors=[Broken()]) as (producer, cluster):
                for _ in range(3):
                    await producer.send(TOPIC, b"v")
                assert values(cluster) == [b"v"] * 3
        lines = [each for each in caplog.messages if each.startswith("interceptor.failed")]
        assert [each.split("method=")[1].split()[0] for each in lines] == [
            "on_send",
            "on_acknowledgement",
            "close",
        ]

    @scenario
    async def test_interceptor_may_send_records(self) -> None:
        class Auditor:
            producer: Producer

            def on_acknowledgement(
                self, metadata: RecordMetadata | None, error: ProducerError | None, record: TopicPartition
            ) -> None:
                if metadata is not None and record.topic == TOPIC:
                    _ = self.producer.send_nowait("audit", b"%d" % metadata.offset)

        auditor = Auditor()
        async with producing(interceptors=[auditor]) as (producer, cluster):
            auditor.producer = producer
            cluster.create_topic("audit")
            await producer.partitions_for("audit")
            for _ in range(3):
                await producer.send(TOPIC, b"v")
            await producer.flush()
            assert values(cluster, topic="audit") == [b"0", b"1", b"2"]


class TestSerializers:
    @scenario
    async def test_serializers_convert_keys_and_values(self) -> None:
        options: dict[str, Any] = {
            "value_serializer": lambda value: json.dumps(value).encode(),
            "key_serializer": str.encode,
            "acquainted": False,
        }
        async with producing(**options) as (producer, cluster):
            await producer.send(TOPIC, {"a": 1}, key="k")
            await producer.send_many(TOPIC, [[1, 2]], keys=["l"])
            assert [(record.key, record.value) for record in cluster.records(TOPIC, 0)] == [
                (b"k", b'{"a": 1}'),
                (b"l", b"[1, 2]"),
            ]

    @scenario
    async def test_serializer_errors_fail_the_call(self) -> None:
        async with producing(acquainted=False, value_serializer=str.encode) as (producer, cluster):
            for call in (producer.send(TOPIC, 5), producer.enqueue(TOPIC, 5)):
                with pytest.raises(SerializationError, match=r"value .* 'orders' \(int\)") as raised:
                    await call
                assert isinstance(raised.value.__cause__, TypeError)
                assert not raised.value.possibly_persisted
                assert not raised.value.retriable
            with pytest.raises(SerializationError):
                _ = producer.send_nowait(TOPIC, 5)
            await producer.flush()
            assert values(cluster) == []

    @scenario
    async def test_serializers_see_context_variables_of_the_call(self) -> None:
        """Several calls waited for the same topic, and one of them appends for the others."""
        request: ContextVar[str] = ContextVar("request")

        def serialize(value: str) -> bytes:
            return f"{request.get()}: {value}".encode()

        async def handle(name: str) -> None:
            request.set(name)
            await producer.send(TOPIC, "hello")

        async with producing(acquainted=False, value_serializer=serialize) as (producer, cluster):
            await asyncio.gather(*(handle(name) for name in ("first", "second", "third")))
            assert values(cluster) == [b"first: hello", b"second: hello", b"third: hello"]

    @scenario
    async def test_java_class_names_of_serializers_are_accepted(self) -> None:
        async with open_cluster() as cluster:
            config = ProducerConfig.from_mapping(
                {
                    "bootstrap.servers": cluster.bootstrap_servers,
                    "key.serializer": "org.apache.kafka.common.serialization.StringSerializer",
                    "value.serializer": "org.apache.kafka.common.serialization.ByteArraySerializer",
                }
            )
            async with Producer.from_config(config) as producer:
                await producer.send(TOPIC, b"v", key="schlüssel")
            assert cluster.records(TOPIC, 0)[0].key == "schlüssel".encode()
