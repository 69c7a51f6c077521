from __future__ import annotations

import asyncio
import errno
import os
import signal
from contextlib import nullcontext

import pytest

from aioproducer import InvalidRecord, MetadataTimeout, Producer, TopicAuthorizationFailed
from aioproducer._topic_client import Client
from aioproducer.cli.logs import without_warnings
from aioproducer.cli.reports import (
    HINT,
    SECURITY_HINT,
    TOPIC_S,
    Failures,
    audit_hint,
    await_topic,
    counted,
    done,
    error_text,
    on_signals,
)
from aioproducer.config import ProducerConfig
from aioproducer.errors import BufferFull, ConnectionFailed, DeliveryTimeout, ProducerError
from aioproducer.testing import Cluster, ThreadedCluster, in_virtual_time


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_signal_calls_interrupt_and_handler_is_restored(number: signal.Signals) -> None:
    def mine(*_: object) -> None:
        pytest.fail("it has not called")

    before, called = signal.signal(number, mine), asyncio.Event()  # the tests may run with one ignored
    try:
        with on_signals(called.set):
            os.kill(os.getpid(), number)
            await called.wait()
        assert signal.getsignal(number) is mine
    finally:
        signal.signal(number, before)


async def test_ignored_signal_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        called = asyncio.Event()
        with on_signals(called.set):
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            os.kill(os.getpid(), signal.SIGHUP)
            await asyncio.sleep(0)  # what is heard is called in the next turn
            assert not called.is_set()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def cluster_with_orders() -> Cluster:
    return Cluster(topics={"orders": 1}, transport="memory", auto_create_topics=False)


@in_virtual_time
async def test_existing_topic_needs_no_wait() -> None:
    async with cluster_with_orders() as cluster, Producer(cluster.bootstrap_servers) as producer:
        began = asyncio.get_running_loop().time()
        await await_topic(producer, "orders")
        assert asyncio.get_running_loop().time() - began < 1


@in_virtual_time
async def test_missing_topic_is_reported_once_after_timeout(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with cluster_with_orders() as cluster, Producer(cluster.bootstrap_servers) as producer:
        began = asyncio.get_running_loop().time()
        with pytest.raises(
            MetadataTimeout, match="no broker knew a topic 'odrers' in 5 s: is the name right"
        ):
            await await_topic(producer, "odrers")
        assert asyncio.get_running_loop().time() - began == pytest.approx(TOPIC_S)
        assert not caplog.records, "the error says it"


@in_virtual_time
async def test_broker_error_of_topic_is_raised() -> None:
    async with cluster_with_orders() as cluster, Producer(cluster.bootstrap_servers) as producer:
        cluster.on("metadata", times=None).answer(TopicAuthorizationFailed)
        with pytest.raises(TopicAuthorizationFailed):
            await await_topic(producer, "orders")


def test_failures_are_counted_by_class_with_first_message() -> None:
    failures = Failures()
    for error in (DeliveryTimeout("a"), BufferFull("b"), DeliveryTimeout("c")):
        failures.add(error)
    assert failures == {"DeliveryTimeout: a": 2, "BufferFull: b": 1}


@pytest.mark.parametrize(("records", "told"), [(0, "0 records"), (1, "1 record"), (2_000, "2,000 records")])
def test_counted_uses_singular_for_one(records: int, told: str) -> None:
    assert counted(records) == told


def test_done_says_written_with_acks_0() -> None:
    assert done(ProducerConfig(bootstrap_servers="a:1")) == "acknowledged"
    assert done(ProducerConfig(bootstrap_servers="a:1", acks=0)) == "written, acks=0"


def test_audit_hint_is_a_command() -> None:
    hint = audit_hint(ProducerConfig(bootstrap_servers="a:1,b:2"), "orders", "r", 3)
    command = "aioproducer audit orders --bootstrap-servers a:1,b:2 --run r --expect 3"
    assert hint == f"Is all of it there? {command}\n"
    with_security = ProducerConfig(bootstrap_servers="a:1,b:2", security_protocol="SSL")
    assert (
        audit_hint(with_security, "orders", "r", 3)
        == f"Is all of it there? {command}, and the options for security\n"
    )


async def test_failed_batches_are_not_logged_during_run(caplog: pytest.LogCaptureFixture) -> None:
    async with Cluster(topics={"orders": 1}) as cluster:
        cluster.on("produce", times=None).answer(InvalidRecord)
        for block, expected in (
            (without_warnings("aioproducer.batching"), []),
            (nullcontext(), ["batch.failed"]),
        ):
            async with Producer(cluster.bootstrap_servers) as producer:
                with block, pytest.raises(InvalidRecord):
                    await producer.send("orders", b"v")
            assert [each.getMessage().split()[0] for each in caplog.records] == expected


REFUSED = os.strerror(errno.ECONNREFUSED).lower()


async def failure_of(servers: str, *, by_producer: bool) -> ProducerError:
    config = ProducerConfig(bootstrap_servers=servers)
    with pytest.raises(ProducerError) as caught:
        async with Producer.from_config(config) if by_producer else Client(config):
            raise AssertionError("there is nobody")
    return caught.value


@pytest.mark.parametrize("by_producer", [True, False])
async def test_refused_connection_names_the_server(by_producer: bool) -> None:
    told = error_text(await failure_of("127.0.0.1:1", by_producer=by_producer))
    assert told == f"ConnectionFailed: {REFUSED} by 127.0.0.1:1\n{HINT}"


@pytest.mark.parametrize("by_producer", [True, False])
async def test_error_text_counts_servers(by_producer: bool) -> None:
    told = error_text(await failure_of("127.0.0.1:1,127.0.0.1:2,[::1]:3", by_producer=by_producer))
    first, hint = told.splitlines()
    assert first.startswith(f"ConnectionFailed: {REFUSED} by ")
    assert first.endswith(" (3 brokers tried)")
    for server in ("127.0.0.1:1", "127.0.0.1:2"):
        assert server in first
    assert "Errno" not in told
    assert hint == HINT


def test_error_text_groups_servers_by_reason() -> None:
    error = ConnectionFailed(
        "no bootstrap server could be asked for metadata:"
        " a:1 (bootstrap): cannot connect: [Errno 111] Connect call failed ('10.0.0.1', 1);"
        " b:1: cannot connect: [Errno -2] Name or service not known;"
        " c:1: no answer yet;"
        " d:1 (bootstrap): cannot connect: [Errno 111] Connect call failed ('::1', 1, 0, 0)"
    )
    assert error_text(error) == (
        "ConnectionFailed: connection refused by a:1, d:1; b:1: Name or service not known; c:1: no answer yet"
        f" (4 brokers tried)\n{HINT}"
    )


def test_reason_may_contain_semicolons() -> None:
    error = ConnectionFailed(
        "no bootstrap server could be asked for metadata:"
        " a:1 (bootstrap): no Kafka frame; it begins with b'HTTP', like an HTTP response: this is a web server's port;"
        " b:1 (bootstrap): cannot connect: [Errno 111] Connect call failed ('10.0.0.1', 1)"
    )
    assert error_text(error) == (
        "ConnectionFailed: a:1: no Kafka frame; it begins with b'HTTP', like an HTTP response: this is a web server's"
        f" port; connection refused by b:1 (2 brokers tried)\n{HINT}"
    )


@pytest.mark.parametrize(
    "error", [ConnectionFailed("the connection is closed"), DeliveryTimeout("a:1: too late")]
)
def test_other_errors_are_unchanged(error: ProducerError) -> None:
    assert error_text(error) == f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("protocol", ["SSL", "SASL_PLAINTEXT"])
async def test_error_text_hints_at_security(protocol: str) -> None:
    users = {"alice": "password"} if protocol.startswith("SASL") else None
    with ThreadedCluster(security_protocol=protocol, users=users) as cluster:
        told = error_text(await failure_of(cluster.bootstrap_servers, by_producer=True))
    first, hint = told.splitlines()
    assert first.startswith("ConnectionFailed: 127.0.0.1:")
    assert hint == SECURITY_HINT
