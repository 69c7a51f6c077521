from __future__ import annotations

import errno
import os

import pytest

from aioproducer import Producer
from aioproducer._topic_client import Client
from aioproducer.cli.shell import HINT, SECURITY_HINT, complaint
from aioproducer.config import ProducerConfig
from aioproducer.errors import ConnectionFailed, DeliveryTimeout, ProducerError
from aioproducer.testing import ThreadedCluster

REFUSED = os.strerror(errno.ECONNREFUSED).lower()


async def failure_of(servers: str, *, by_producer: bool) -> ProducerError:
    config = ProducerConfig(bootstrap_servers=servers)
    with pytest.raises(ProducerError) as caught:
        async with Producer.from_config(config) if by_producer else Client(config):
            raise AssertionError("there is nobody")
    return caught.value


@pytest.mark.parametrize("by_producer", [True, False])
async def test_who_refused_is_said_whoever_asked(by_producer: bool) -> None:
    told = complaint(await failure_of("127.0.0.1:1", by_producer=by_producer))
    assert told == f"ConnectionFailed: {REFUSED} by 127.0.0.1:1\n{HINT}"


@pytest.mark.parametrize("by_producer", [True, False])
async def test_several_are_counted(by_producer: bool) -> None:
    told = complaint(await failure_of("127.0.0.1:1,127.0.0.1:2,[::1]:3", by_producer=by_producer))
    first, hint = told.splitlines()
    assert first.startswith(f"ConnectionFailed: {REFUSED} by ")
    assert first.endswith(" (3 brokers tried)")
    for server in ("127.0.0.1:1", "127.0.0.1:2"):
        assert server in first
    assert "Errno" not in told
    assert hint == HINT


def test_each_reason_is_told_with_those_it_is_about() -> None:
    error = ConnectionFailed(
        "no bootstrap server could be asked for metadata:"
        " a:1 (bootstrap): cannot connect: [Errno 111] Connect call failed ('10.0.0.1', 1);"
        " b:1: cannot connect: [Errno -2] Name or service not known;"
        " c:1: no answer yet;"
        " d:1 (bootstrap): cannot connect: [Errno 111] Connect call failed ('::1', 1, 0, 0)"
    )
    assert complaint(error) == (
        "ConnectionFailed: connection refused by a:1, d:1; b:1: Name or service not known; c:1: no answer yet"
        f" (4 brokers tried)\n{HINT}"
    )


def test_a_reason_may_have_semicolons_itself() -> None:
    error = ConnectionFailed(
        "no bootstrap server could be asked for metadata:"
        " a:1 (bootstrap): no Kafka frame; it begins with b'HTTP', like an HTTP response: this is a web server's port;"
        " b:1 (bootstrap): cannot connect: [Errno 111] Connect call failed ('10.0.0.1', 1)"
    )
    assert complaint(error) == (
        "ConnectionFailed: a:1: no Kafka frame; it begins with b'HTTP', like an HTTP response: this is a web server's"
        f" port; connection refused by b:1 (2 brokers tried)\n{HINT}"
    )


@pytest.mark.parametrize(
    "error", [ConnectionFailed("the connection is closed"), DeliveryTimeout("a:1: too late")]
)
def test_other_errors_are_told_as_they_are(error: ProducerError) -> None:
    assert complaint(error) == f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("protocol", ["SSL", "SASL_PLAINTEXT"])
async def test_a_listener_that_wants_more_is_there(protocol: str) -> None:
    users = {"alice": "password"} if protocol.startswith("SASL") else None
    with ThreadedCluster(security_protocol=protocol, users=users) as cluster:
        told = complaint(await failure_of(cluster.bootstrap_servers, by_producer=True))
    first, hint = told.splitlines()
    assert first.startswith("ConnectionFailed: 127.0.0.1:")
    assert hint == SECURITY_HINT
