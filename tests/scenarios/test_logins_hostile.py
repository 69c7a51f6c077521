"""Brokers that answer a login with nonsense or never, listeners mixed up, and starts that are cancelled."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aioproducer import Producer
from aioproducer._core.net.dial import MakeProtocol, routes
from aioproducer.errors import AuthenticationFailed, ConnectionFailed, ProducerError
from aioproducer.testing import Cluster
from aioproducer.testing.faults import CloseConnection, Rewrite
from tests.cases import for_each
from tests.scenarios.faults import hostile
from tests.scenarios.login_rig import PROTOCOLS, USERS, producer_on, secured
from tests.scenarios.rig import TOPIC, cluster, now, scenario, settle

# --- brokers that do not play by the rules


@pytest.mark.parametrize("request_kind", ["sasl_handshake", "sasl_authenticate"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
@scenario
async def test_unanswered_login_ends_at_its_timeout(protocol: str, request_kind: str) -> None:
    async with secured(security_protocol=protocol) as opened:
        _ = opened.on(request_kind, times=None).drop()
        with pytest.raises(ConnectionFailed):
            await producer_on(
                opened, socket_connection_setup_timeout_ms=2_000, request_timeout_ms=3_000
            ).start()
        assert now() <= 5


NONSENSE: dict[str, Rewrite] = {
    "cut": hostile.cut,
    "twice": hostile.twice,
    "other-correlation-id": hostile.other_correlation_id,
    "absurd-length": hostile.of_length(0x7FFFFFFF),
    "zero-length": hostile.of_length(0),
    "negative-length": hostile.of_length(-1),
    "garbage": hostile.garbage,
    "web-page": hostile.web_page,
}


@for_each("mechanism", ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"])
@for_each("request_kind", ["sasl_handshake", "sasl_authenticate"])
@for_each("nonsense", NONSENSE)
@scenario
async def test_malformed_login_response_fails_at_once(
    nonsense: str, request_kind: str, mechanism: str
) -> None:
    async with secured(mechanism) as opened:
        _ = opened.on(request_kind, times=None).rewrite(NONSENSE[nonsense])
        with pytest.raises(ProducerError):
            async with producer_on(opened) as producer:
                # Bytes behind the last answer of a login may arrive with the next answer.
                await producer.send(TOPIC, b"value", timeout_s=1)
        assert now() <= 1.5


TALK = {
    "junk": b"\x00" * 64,
    "text": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "alert": bytes.fromhex("15 0303 0002 0228"),
    "half-a-record": bytes.fromhex("16 0303 4000 02"),
    "a-record-of-junk": bytes.fromhex("16 0303 0008") + b"\xff" * 8,
    "nothing": b"",
}


@asynccontextmanager
async def talking(opened: Cluster, hello: bytes) -> AsyncIterator[None]:
    """Send *hello* at the address of the node of the cluster, then close the connection."""
    from aioproducer.testing.listener import open_pair  # noqa: PLC0415

    address = opened._brokers[1].listener.address
    serving: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(hello)
        writer.close()
        await writer.wait_closed()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.add(asyncio.create_task(serve(reader, writer), name="talking"))

    async def connect(_host: str, _port: int, make: MakeProtocol, /) -> asyncio.Transport:
        return open_pair(accept, address, make())

    before = routes[address]
    routes[address] = connect
    try:
        yield
    finally:
        routes[address] = before
        await asyncio.gather(*serving, return_exceptions=True)


@for_each("hello", TALK)
@scenario
async def test_nonsense_instead_of_tls_is_an_error_at_once(hello: str) -> None:
    async with secured(security_protocol="SASL_SSL") as opened, talking(opened, TALK[hello]):
        with pytest.raises((ConnectionFailed, AuthenticationFailed)):
            await producer_on(opened).start()
        assert now() <= 1.5


@scenario
async def test_tls_to_a_plaintext_listener_names_plaintext() -> None:
    async with cluster() as opened:
        with pytest.raises(ConnectionFailed, match="PLAINTEXT"):
            await Producer(opened.bootstrap_servers, security_protocol="SSL").start()
        assert now() <= 1.5


@scenario
async def test_plaintext_connection_to_tls_names_the_cause() -> None:
    async with cluster(security_protocol="SSL") as opened:
        with pytest.raises(ProducerError, match="TLS"):
            await Producer(opened.bootstrap_servers).start()
        assert now() <= 1.5


@scenario
async def test_missing_login_names_the_cause() -> None:
    async with secured() as opened:
        with pytest.raises(ProducerError, match="SASL"):
            await Producer(opened.bootstrap_servers).start()
        assert now() <= 1.5


@pytest.mark.parametrize(
    ("renewed", "why"),
    [
        ({"expired": True}, "expired"),
        ({"new_authority": True}, "is not trusted"),
        ({"hosts": ["elsewhere"]}, "is not for broker-1.memory"),
    ],
)
@scenario
async def test_unverified_certificate_fails_the_start_at_once(renewed: dict[str, Any], why: str) -> None:
    async with secured(security_protocol="SASL_SSL") as opened:
        options = opened.client_options
        opened.renew_certificates(**renewed)
        with pytest.raises(AuthenticationFailed, match=why) as refused:
            await Producer(opened.bootstrap_servers, **options).start()
        assert "_ssl.c" not in str(refused.value)
        assert now() <= 1.5
        assert opened.request_count("sasl_handshake") == 0


@scenario
async def test_missing_client_certificate_fails_the_start_at_once() -> None:
    """Under TLS 1.3 the broker reports the error after the client has finished its handshake."""
    async with cluster(security_protocol="SSL", client_auth=True) as opened:
        options = {
            name: each for name, each in opened.client_options.items() if not name.startswith("ssl_keystore")
        }
        with pytest.raises(AuthenticationFailed, match="requires a client certificate"):
            await Producer(opened.bootstrap_servers, **options).start()
        assert now() <= 1.5
        async with producer_on(opened) as producer:
            await producer.send(TOPIC, b"value")


# --- cancelled


@pytest.mark.parametrize("protocol", ["SSL", "SASL_PLAINTEXT", "SASL_SSL"])
@scenario
async def test_cancelled_start_leaves_no_task_or_connection(protocol: str) -> None:
    """Cancels after every third iteration of the event loop until the start completes first."""
    users = USERS if protocol.startswith("SASL") else None
    async with cluster(security_protocol=protocol, users=users) as opened:
        for turns in itertools.count(0, 3):
            producer = producer_on(opened)
            starting = asyncio.create_task(producer.start())
            for _ in range(turns):
                await asyncio.sleep(0)
            is_late = starting.done()
            starting.cancel()
            await asyncio.wait([starting])
            await producer.close()
            await settle()
            await asyncio.sleep(0.01)
            assert not opened._brokers[1]._connections
            if is_late:
                break
        assert turns > 10


@pytest.mark.parametrize("moment", ["tls", "login"])
@scenario
async def test_start_cancelled_by_a_silent_broker_leaves_nothing(moment: str) -> None:
    async with secured(security_protocol="SASL_SSL") as opened:
        if moment == "tls":
            opened.freeze_broker(1)
        else:
            _ = opened.on("sasl_authenticate", times=None).drop()
        producer = producer_on(opened)
        starting = asyncio.create_task(producer.start())
        await asyncio.sleep(1)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert now() == pytest.approx(1, abs=0.1)
        opened.thaw_broker(1)
        await asyncio.sleep(1)
        assert not opened._brokers[1]._connections


@scenario
async def test_broker_that_closes_logins_counts_as_unreachable() -> None:
    def hang_up(_: bytes) -> bytes:
        raise CloseConnection

    async with secured() as opened:
        _ = opened.on("sasl_authenticate", times=None).rewrite(hang_up)
        with pytest.raises(ConnectionFailed):
            await producer_on(opened).start()
        assert now() <= 1.5
