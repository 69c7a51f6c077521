"""Differences between aiokafka's producer and the compatible one: each row of the page's table, with both."""

from __future__ import annotations

import asyncio
import gc
import importlib
import logging
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import aiokafka
import aiokafka.errors
import pytest

from aioproducer import GroupMetadata, TopicPartition, errors
from aioproducer.compat import aiokafka as compat
from aioproducer.compat.aiokafka import errors as compat_errors
from aioproducer.testing import Cluster
from tests.scenarios.both_clients import CLIENTS, TOPIC, filled, of_both, outcome, sent

PAGE = (Path(__file__).parents[2] / "docs/from-aiokafka.md").read_text()
SERVERS = "127.0.0.1:1"
PATIENCE_MS = 300
"""How long the tests of errors wait for one."""
SHOWN: set[str] = set()

Test = TypeVar("Test", bound=Callable[..., object])


def row(cell: str) -> Callable[[Test], Test]:
    """Mark the test of the row that begins with *cell*."""
    SHOWN.add(cell)
    return lambda test: test


def test_differences_page_rows_have_tests() -> None:
    table = PAGE.split("### Differences\n")[1].split("\n## ")[0]
    rows = [line.split("|")[1].strip() for line in table.splitlines() if line.startswith("|")]
    assert sorted(rows[2:]) == sorted(SHOWN)


def committed(cluster: Cluster) -> list[Any]:
    return [
        record
        for partition in range(3)
        for record in cluster.records(TOPIC, partition, isolation_level="read_committed")
    ]


class TestCalls:
    @row("a call in an invalid transaction state: commit without begin, a second begin")
    async def test_illegal_transaction_calls_raise_different_errors(self) -> None:
        async def begin_twice(producer: Any, _: Cluster) -> None:
            await producer.begin_transaction()
            await producer.begin_transaction()

        for ask in (lambda producer, _: producer.commit_transaction(), begin_twice):
            assert await of_both(ask, transactional_id="me") == ["AssertionError", "IllegalOperation"]

    @row("a commit after an unawaited record failed")
    async def test_commit_fails_for_an_unawaited_failed_record(self) -> None:
        async def ask(producer: Any, cluster: Cluster) -> list[Any]:
            cluster.on("produce").answer(errors.TopicAuthorizationFailed)

            async def block(value: bytes) -> str:
                async with producer.transaction():
                    for partition in (0, 1):
                        await producer.send(TOPIC, value, partition=partition)
                return "committed"

            outcomes = [await outcome(block(b"1")), await outcome(block(b"2"))]
            cluster.marker_delay_s = 0.0
            await producer.begin_transaction()  # the markers of the one before are written then
            await producer.abort_transaction()
            return [*outcomes, len(committed(cluster))]

        theirs, ours = await of_both(ask, transactional_id="me")
        assert (theirs[0], theirs[2] < 4) == ("committed", True)
        assert ours == ["TopicAuthorizationFailedError", "committed", 2]

    @row("`group_id` of `send_offsets_to_transaction()`")
    async def test_send_offsets_accepts_group_metadata(self) -> None:
        async def ask(producer: Any, cluster: Cluster) -> None:
            cluster.join_group("readers", "me", 1)
            await producer.begin_transaction()
            await producer.send_offsets_to_transaction(
                {TopicPartition(TOPIC, 0): 1}, GroupMetadata("readers", 1, "me")
            )

        assert await of_both(ask, transactional_id="me") == ["ValueError", None]

    @row("an invalid argument: a missing partition, no key and no value")
    @pytest.mark.parametrize("record", [{"value": b"v", "partition": -1}, {"value": None}], ids=str)
    async def test_wrong_argument_raises_a_different_error(self, record: dict[str, Any]) -> None:
        got = await of_both(lambda producer, _: producer.send(TOPIC, **record))
        assert got == ["AssertionError", "ValueError"]

    @row("a negative timestamp")
    async def test_negative_timestamp_is_refused(self) -> None:
        async def ask(producer: Any, _: Cluster) -> int:
            timestamp: int = (await producer.send_and_wait(TOPIC, b"v", timestamp_ms=-5)).timestamp
            return timestamp

        assert await of_both(ask) == [-5, "ValueError"]

    @row("an invalid topic name")
    async def test_illegal_topic_is_refused(self) -> None:
        got = await of_both(lambda producer, _: producer.send("a b", b"v"), request_timeout_ms=PATIENCE_MS)
        assert got == ["UnknownTopicOrPartitionError", "ValueError"]

    @row("a partitioner that raises")
    async def test_failing_partitioner_raises_a_different_error(self) -> None:
        def refuse(key: bytes | None, every: list[int], available: list[int]) -> int:
            raise LookupError(key)

        async def ask(producer: Any, _: Cluster) -> Any:
            try:
                await producer.send(TOPIC, b"v")
            except compat_errors.KafkaError as error:
                return type(getattr(error.__cause__, "__cause__", None))

        assert await of_both(ask, partitioner=refuse) == ["LookupError", LookupError]


class TestErrors:
    @row("every error")
    async def test_cause_and_possibly_persisted(self) -> None:
        async def ask(producer: Any, cluster: Cluster) -> tuple[Any, ...]:
            cluster.on("produce").answer(errors.TopicAuthorizationFailed)
            future = await producer.send(TOPIC, b"v", partition=0)
            await asyncio.wait([future])
            error = future.exception()
            return type(error.__cause__), getattr(error, "possibly_persisted", None)

        assert await of_both(ask) == [(type(None), None), (errors.TopicAuthorizationFailed, False)]

    @row("`message`, `description` and text of an error")
    def test_messages_of_errors_have_the_current_names(self) -> None:
        names = ("UnknownError", "NotLeaderForPartitionError", "MessageSizeTooLargeError")
        theirs, ours = (
            [getattr(module, name).message for name in names] for module in (aiokafka.errors, compat_errors)
        )
        assert theirs == ["UNKNOWN", "NOT_LEADER_FOR_PARTITION", "MESSAGE_SIZE_TOO_LARGE"]
        assert ours == ["UNKNOWN_SERVER_ERROR", "NOT_LEADER_OR_FOLLOWER", "MESSAGE_TOO_LARGE"]

    @row("`retriable` of codes 2, 9, 51 and 72")
    def test_four_more_codes_are_retriable(self) -> None:
        differing = {
            code
            for code, theirs in aiokafka.errors.kafka_errors.items()
            if compat_errors.for_code(code).errno == code
            and compat_errors.for_code(code).retriable
            and not theirs.retriable
        }
        assert differing == {2, 9, 51, 72}

    @row("a broker stopped with a request in flight, and did not return")
    async def test_lost_request_raises_a_different_error(self) -> None:
        async def ask(producer: Any, cluster: Cluster) -> None:
            unanswered = cluster.on("produce").drop()
            future = await producer.send(TOPIC, b"v", partition=0)
            await unanswered.happened()
            await cluster.stop_broker(1)
            await future

        got = await of_both(ask, request_timeout_ms=PATIENCE_MS)
        assert got == ["NodeNotReadyError", "KafkaConnectionError"]

    @row("names of consumers and of the admin client, and their errors")
    def test_consumer_names_are_missing(self) -> None:
        def names(module: ModuleType, package: ModuleType) -> list[bool]:
            return [
                hasattr(package, "AIOKafkaConsumer"),
                hasattr(module, "CommitFailedError"),
                hasattr(importlib.import_module(f"{package.__name__}.abc"), "ConsumerRebalanceListener"),
            ]

        assert names(aiokafka.errors, aiokafka) == [True] * 3
        assert names(compat_errors, compat) == [False] * 3

    @row("error of `start()` after a failed TLS handshake or login")
    async def test_refused_login_raises_a_different_error(self) -> None:
        said = []
        async with Cluster(security_protocol="SASL_PLAINTEXT", users={"alice": "right"}) as cluster:
            for module in CLIENTS:
                producer = module.AIOKafkaProducer(
                    bootstrap_servers=cluster.bootstrap_servers,
                    security_protocol="SASL_PLAINTEXT",
                    sasl_mechanism="SCRAM-SHA-256",
                    sasl_plain_username="alice",
                    sasl_plain_password="wrong",
                )
                with pytest.raises(RuntimeError) as caught:
                    await producer.start()
                await producer.stop()
                assert type(caught.value).__name__ == "KafkaConnectionError"
                said.append(str(caught.value))
        theirs, ours = said
        assert "Unable to bootstrap from" in theirs
        assert "refused the login by SCRAM-SHA-256: " in ours

    @row("SCRAM without a user name")
    async def test_scram_without_a_user_name_raises_a_different_error(self) -> None:
        options = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "SCRAM-SHA-256"}
        await aiokafka.AIOKafkaProducer(bootstrap_servers=SERVERS, **options).stop()
        with pytest.raises(ValueError, match="sasl_plain_username"):
            compat.AIOKafkaProducer(bootstrap_servers=SERVERS, **options)  # type: ignore[arg-type]


class TestOutcomes:
    @row("`log_start_offset` of a `RecordMetadata`")
    async def test_log_start_offset(self) -> None:
        theirs, ours = await of_both(lambda producer, _: producer.send_and_wait(TOPIC, b"v"))
        assert (theirs.log_start_offset, ours.log_start_offset) == (0, None)

    @row("`timestamp` of a `RecordMetadata`")
    async def test_timestamps_of_a_batch_are_those_of_the_records(self) -> None:
        async def ask(producer: Any, _: Cluster) -> list[int]:
            futures = [await producer.send(TOPIC, b"v", partition=0, timestamp_ms=time) for time in (7, 8)]
            of_a_batch = await sent(producer, filled(producer, b"1", b"2"))
            return [(await each).timestamp for each in futures] + [of_a_batch.timestamp]

        assert await of_both(ask, linger_ms=20) == [[7, 7, -1], [7, 8, 1_000]]


class TestBatches:
    @row("partition of records without a key")
    async def test_keyless_records_stick_to_one_partition(self) -> None:
        async def ask(producer: Any, _: Cluster) -> set[int]:
            futures = [await producer.send(TOPIC, b"v") for _ in range(40)]
            await producer.flush()
            return {each.result().partition for each in futures}

        theirs, ours = await of_both(ask, linger_ms=20)
        assert len(theirs) > len(ours) == 1

    @row("limit of buffered records")
    async def test_send_waits_for_memory_instead_of_a_full_batch(self) -> None:
        async def ask(producer: Any, cluster: Cluster) -> int:
            cluster.on("produce", times=None).drop()
            return len([await producer.send(TOPIC, bytes(10_000), partition=0) for _ in range(20)])

        assert await of_both(ask, request_timeout_ms=PATIENCE_MS) == ["KafkaTimeoutError", 20]

    @row("a batch that is sent while it is open")
    async def test_sent_batch_builder_is_closed(self) -> None:
        async def ask(producer: Any, _: Cluster) -> bool:
            batch = filled(producer, b"v")
            await producer.send_batch(batch, TOPIC, partition=0)
            closed: bool = batch.closed()
            return closed

        assert await of_both(ask) == [False, True]

    @row("the size of a batch")
    async def test_size_of_a_batch_is_an_uncompressed_bound(self) -> None:
        async def ask(producer: Any, _: Cluster) -> tuple[int, int]:
            batch = filled(producer, bytes(1_000))
            before = batch.size()
            await sent(producer, batch)
            return before, batch.size()

        (exact, compressed), (bound, after) = await of_both(ask, compression_type="gzip")
        assert exact < bound == after < exact + 10
        assert compressed < 200

    @row("a batch above the broker's size limit")
    async def test_record_too_large_for_the_broker_raises_after_the_send(self) -> None:
        async def ask(producer: Any, cluster: Cluster) -> list[int]:
            cluster.on("produce").answer(errors.MessageTooLarge)
            await sent(producer, filled(producer, b"1", b"2"))
            return [len(batch.records) for batch in cluster.batches(TOPIC, 0)]

        assert await of_both(ask) == ["MessageSizeTooLargeError", [1, 1]]

    @row("a record in a batch that is larger than `max_request_size`")
    async def test_record_too_large_for_a_request_raises_at_the_send(self) -> None:
        async def ask(producer: Any, _: Cluster) -> int:
            offset: int = (await sent(producer, filled(producer, bytes(1_000)))).offset
            return offset

        assert await of_both(ask, max_request_size=1_000) == [0, "MessageSizeTooLargeError"]


class TestLife:
    @row("constructing a producer")
    async def test_constructor_needs_no_loop(self) -> None:
        with pytest.raises(RuntimeError):
            await asyncio.to_thread(aiokafka.AIOKafkaProducer)
        await (await asyncio.to_thread(compat.AIOKafkaProducer)).stop()

    @row("an option that is out of range, or a float for an integer")
    @pytest.mark.parametrize("option", [{"linger_ms": -1}, {"metadata_max_age_ms": 0.5}], ids=str)
    async def test_options_are_checked_in_the_constructor(self, option: dict[str, Any]) -> None:
        await aiokafka.AIOKafkaProducer(**option).stop()
        with pytest.raises(ValueError):
            compat.AIOKafkaProducer(**option)

    @row("`client_id` by default")
    async def test_client_id_defaults_to_another_prefix(self) -> None:
        theirs = aiokafka.AIOKafkaProducer()
        assert theirs.client._client_id.startswith("aiokafka-producer-")
        ours = compat.AIOKafkaProducer()
        assert ours.client._client_id.startswith("aioproducer-")
        await theirs.stop()
        await ours.stop()

    @row("`send()` before `start()`")
    async def test_calls_before_start_raise_different_errors(self) -> None:
        for client, expected in zip(CLIENTS, ["TimeoutError", "ProducerClosed"], strict=True):
            producer = client.AIOKafkaProducer(bootstrap_servers=SERVERS)
            assert await outcome(asyncio.wait_for(producer.send(TOPIC, b"v"), 0.05)) == expected
            await producer.stop()

    @row("`flush()` and `stop()` with `linger_ms`")
    async def test_flush_ends_lingering(self) -> None:
        async def ask(producer: Any, _: Cluster) -> None:
            await producer.partitions_for(TOPIC)
            await producer.send(TOPIC, b"v")
            await asyncio.wait_for(producer.flush(), 0.5)

        assert await of_both(ask, linger_ms=1_000) == ["TimeoutError", None]

    @row("`partitions_for()` after `stop()`")
    async def test_partitions_after_the_end(self) -> None:
        async def ask(producer: Any, _: Cluster) -> Any:
            await producer.partitions_for(TOPIC)
            await producer.stop()
            return await producer.partitions_for(TOPIC)

        assert await of_both(ask) == [{0, 1, 2}, "ProducerClosed"]

    @row("`start()` after `stop()`")
    async def test_start_after_the_end(self) -> None:
        async def ask(producer: Any, _: Cluster) -> tuple[Any, Any]:
            await producer.stop()
            await producer.start()
            sent = await outcome(producer.send(TOPIC, b"v"))
            await producer._sender.close()  # or it would run for ever: there is no second stop
            await producer.client.close()
            return "started", sent

        assert await of_both(ask) == [("started", "ProducerClosed"), "ProducerClosed"]

    @row("`producer.client` and names that begin with `_`")
    async def test_message_accumulator_is_missing(self) -> None:
        async def ask(producer: Any, _: Cluster) -> list[bool]:
            known = [hasattr(producer, name) for name in ("client", "_closed", "_sender", "_partition")]
            return [*known, hasattr(producer, "_message_accumulator")]

        assert await of_both(ask) == [[True] * 5, [*[True] * 4, False]]

    @row("loggers, and a failed Future without a reader")
    async def test_failed_batch_is_logged_and_its_future_is_silent(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        told: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["message"]))

        async def ask(producer: Any, cluster: Cluster) -> None:
            cluster.on("produce").answer(errors.TopicAuthorizationFailed)
            await producer.send(TOPIC, b"v", partition=0)

        with caplog.at_level(logging.DEBUG):
            await of_both(ask)
        gc.collect()
        assert told == ["Future exception was never retrieved"]
        lines = {each.name: each.getMessage() for each in caplog.records}
        assert lines.keys() >= {"aiokafka.producer.producer", "aioproducer.batching.completion"}
        assert lines["aioproducer.batching.completion"].startswith("batch.failed partition=orders-0")
