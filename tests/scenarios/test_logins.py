"""Logins, over TLS and in the clear: refused, mended, renewed while records are sent, and never answered."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aioproducer import Producer
from aioproducer.errors import AuthenticationFailed, ConnectionFailed, ProducerError, SaslAuthenticationFailed
from aioproducer.net.dial import MakeProtocol, routes
from aioproducer.testing import Cluster
from aioproducer.testing.faults import HangUp, Rewrite
from tests.scenarios.faults import hostile
from tests.scenarios.story import TOPIC, cluster, now, settle, story, values

USERS = {"alice": "hunter2"}
FAILS_WITHIN_S = 5.0
PROTOCOLS = ("SASL_PLAINTEXT", "SASL_SSL")


@asynccontextmanager
async def secured(
    mechanism: str = "SCRAM-SHA-256", *, security_protocol: str = "SASL_PLAINTEXT", **options: Any
) -> AsyncIterator[Cluster]:
    who: dict[str, Any] = {"tokens": {"token": "alice"}} if mechanism == "OAUTHBEARER" else {"users": USERS}
    async with cluster(
        security_protocol=security_protocol, sasl_mechanisms=[mechanism], **who, **options
    ) as opened:
        yield opened


def producer_on(opened: Cluster, **options: Any) -> Producer:
    return Producer(opened.bootstrap_servers, **{**opened.client_options, **options})


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


class Steady:
    """Sends one record after the other, each a pause after the one before, and notes what becomes of them."""

    def __init__(self, producer: Producer, *, pause_s: float) -> None:
        self.sent = 0
        self.errors: list[ProducerError] = []
        self._producer, self._pause_s = producer, pause_s
        self._waiting: list[asyncio.Future[Any]] = []

    async def run(self, for_s: float) -> None:
        until = now() + for_s
        while now() < until:
            self._waiting.append(await self._producer.enqueue(TOPIC, b"%d" % self.sent))
            self.sent += 1
            await asyncio.sleep(self._pause_s)
        for outcome in await asyncio.gather(*self._waiting, return_exceptions=True):
            if isinstance(outcome, ProducerError):
                self.errors.append(outcome)


# --- refused


@pytest.mark.parametrize("protocol", PROTOCOLS)
@story
async def test_a_start_with_a_wrong_password_fails_at_once(protocol: str) -> None:
    async with secured(security_protocol=protocol) as opened:
        producer = producer_on(opened, sasl_password="wrong")
        with pytest.raises(SaslAuthenticationFailed) as refused:
            await producer.start()
        assert now() < 1
        assert (refused.value.mechanism, refused.value.broker) == ("SCRAM-SHA-256", opened.bootstrap_servers)
        assert "hunter2" not in str(refused.value)
        assert not refused.value.fatal
        assert opened.request_count("sasl_handshake") == 1


@story
async def test_a_refusal_counts_whatever_other_addresses_say() -> None:
    """One that accepts and says nothing, and one where nobody listens, are no reason to wait."""
    async with secured() as opened, secured() as silent, secured() as gone:
        silent.freeze_broker(1)
        await gone.stop_broker(1)
        servers = ",".join(each.bootstrap_servers for each in (silent, gone, opened))
        options = opened.client_options | {"sasl_password": "wrong"}
        with pytest.raises(SaslAuthenticationFailed):
            await Producer(servers, **options).start()
        assert now() < 2
        await gone.start_broker(1)


@story
async def test_a_mechanism_that_the_listener_has_not_is_told_with_those_that_it_has() -> None:
    async with secured("PLAIN") as opened:
        with pytest.raises(AuthenticationFailed, match="it has PLAIN"):
            await producer_on(opened, sasl_mechanism="SCRAM-SHA-512").start()


@story
async def test_a_running_producer_fails_each_send_soon_tries_in_paces_and_heals() -> None:
    async with secured() as opened:
        async with producer_on(opened, reconnect_backoff_ms=100, reconnect_backoff_max_ms=1_000) as producer:
            await producer.send(TOPIC, b"before")
            opened.users["alice"] = "rotated"
            opened.disconnect(1)
            logins, began_at = opened.request_count("sasl_handshake"), now()
            for _ in range(20):
                called_at = now()
                with pytest.raises(ProducerError) as failed:
                    await producer.send(TOPIC, b"refused")
                assert now() - called_at <= FAILS_WITHIN_S
                causes = (failed.value, failed.value.__cause__)
                assert any(isinstance(each, AuthenticationFailed) for each in causes), causes
                assert not failed.value.possibly_persisted
                await asyncio.sleep(0.5)
            tried = opened.request_count("sasl_handshake") - logins
            # at 100 ms, 200, 400, 800 and then each second; each may be a fifth sooner
            assert 5 <= tried <= 5 + (now() - began_at) / 0.8
            opened.users["alice"] = "hunter2"
            await asyncio.sleep(1)
            healed = await producer.send(TOPIC, b"after")
            assert healed.offset == 1
        assert values(opened) == [b"before", b"after"]


@story
async def test_calls_that_wait_for_metadata_fail_as_soon_as_nobody_lets_us_in() -> None:
    async with secured(auto_create_topics=False) as opened, producer_on(opened) as producer:
        opened.users["alice"] = "rotated"
        opened.disconnect(1)
        with pytest.raises(ProducerError) as failed:
            await producer.send("another", b"value")
        assert isinstance(failed.value, AuthenticationFailed) or isinstance(
            failed.value.__cause__, AuthenticationFailed
        )
        assert now() <= FAILS_WITHIN_S


@story
async def test_a_refusal_that_is_over_in_a_moment_fails_nothing() -> None:
    """Whoever rotates a password may be a moment late on one side."""
    async with secured() as opened, producer_on(opened) as producer:
        await producer.send(TOPIC, b"before")
        opened.users["alice"] = "rotated"
        opened.disconnect(1)
        sending = asyncio.create_task(producer.send(TOPIC, b"meanwhile"))
        await asyncio.sleep(1)
        opened.users["alice"] = "hunter2"
        assert (await sending).offset == 1


@story
async def test_a_password_is_rotated_without_a_restart() -> None:
    async with secured() as opened:
        pairs = iter([("alice", "hunter2"), ("alice", "rotated")])
        options = {name: each for name, each in opened.client_options.items() if "username" not in name}
        del options["sasl_password"]
        options["sasl_credentials"] = lambda: next(pairs)
        async with Producer(opened.bootstrap_servers, **options) as producer:
            await producer.send(TOPIC, b"before")
            opened.users["alice"] = "rotated"
            opened.disconnect(1)
            await producer.send(TOPIC, b"after")
        assert values(opened) == [b"before", b"after"]


# --- logging in again


@pytest.mark.parametrize("acks", ["all", 0])
@pytest.mark.parametrize("mechanism", ["PLAIN", "OAUTHBEARER", "SCRAM-SHA-256"])
@story
async def test_a_session_is_renewed_under_load(mechanism: str, acks: Any) -> None:
    """In order, none twice, none sent again: no connection is lost for it."""
    async with secured(mechanism, session_lifetime_s=3, latency_s=0.02) as opened:
        async with producer_on(opened, acks=acks, enable_idempotence=acks != 0, linger_ms=0) as producer:
            load = Steady(producer, pause_s=0.005)
            await load.run(for_s=12)
            report = producer.metrics()["producer"]
            assert load.errors == []
            assert report["record_retry_total"] == 0
            assert report["connection_close_total"] <= 1  # the first, if it was to a bootstrap address
            # three renewals of each connection and more
            assert 4 <= opened.request_count("sasl_handshake") <= 6
            await producer.flush()
            await asyncio.sleep(1)
        assert values(opened) == numbers(load.sent)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
@story
async def test_a_session_is_renewed_with_exactly_one_record_under_way(mechanism: str) -> None:
    """The broker sits on it; the login is behind it, and both are answered."""
    async with secured(mechanism, session_lifetime_s=3, latency_s=0.02) as opened:
        async with producer_on(opened) as producer:
            await producer.send(TOPIC, b"0")
            _ = opened.on("produce").delay(3.0)
            assert (await producer.send(TOPIC, b"1")).offset == 1
            assert (await producer.send(TOPIC, b"2")).offset == 2
            assert producer.metrics()["producer"]["record_retry_total"] == 0
        assert values(opened) == [b"0", b"1", b"2"]


@pytest.mark.parametrize(("mechanism", "round_trips"), [("PLAIN", 1), ("SCRAM-SHA-256", 3)])
@story
async def test_how_long_a_record_is_held_back_by_a_login(mechanism: str, round_trips: int) -> None:
    latency_s = 0.1
    async with (
        secured(mechanism, session_lifetime_s=10, latency_s=latency_s) as opened,
        producer_on(opened, linger_ms=0) as producer,
    ):
        await producer.send(TOPIC, b"value")
        slowest = 0.0
        while opened.request_count("sasl_handshake") < 4:
            called_at = now()
            await producer.send(TOPIC, b"value")
            slowest = max(slowest, now() - called_at)
        assert slowest == pytest.approx(2 * latency_s * round_trips, rel=0.5)
        assert slowest <= 2 * latency_s * round_trips + 0.01


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
@story
async def test_a_session_over_a_slow_network_is_renewed_before_it_ends(mechanism: str) -> None:
    async with secured(mechanism, session_lifetime_s=8, latency_s=1.0) as opened:
        async with producer_on(opened, linger_ms=0) as producer:
            load = Steady(producer, pause_s=0.05)
            await load.run(for_s=40)
            assert load.errors == []
            assert producer.metrics()["producer"]["record_retry_total"] == 0
        assert values(opened) == numbers(load.sent)


@story
async def test_a_renewal_that_is_refused_costs_the_connection_and_no_record() -> None:
    async with secured(session_lifetime_s=3) as opened, producer_on(opened, linger_ms=0) as producer:
        load = Steady(producer, pause_s=0.01)
        logins = opened.request_count("sasl_authenticate")
        refusing = opened.on("sasl_authenticate", after=0).answer(58)
        await load.run(for_s=6)
        assert logins
        assert refusing.hits == 1
        assert load.errors == []
        assert values(opened) == numbers(load.sent)


@story
async def test_a_renewal_that_is_never_answered_costs_the_connection_and_no_record() -> None:
    async with (
        secured(session_lifetime_s=3) as opened,
        producer_on(opened, linger_ms=0, request_timeout_ms=2_000) as producer,
    ):
        load = Steady(producer, pause_s=0.01)
        dropping = opened.on("sasl_authenticate").drop()
        await load.run(for_s=9)
        assert dropping.hits == 1
        assert load.errors == []
        assert values(opened) == numbers(load.sent)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
@story
async def test_a_password_changed_on_the_broker_alone_ends_a_session(mechanism: str) -> None:
    """What is held back at that moment was not written."""
    async with secured(mechanism, session_lifetime_s=3) as opened, producer_on(opened) as producer:
        await producer.send(TOPIC, b"before")
        opened.users["alice"] = "rotated"
        await asyncio.sleep(3)
        called_at = now()
        with pytest.raises(AuthenticationFailed) as failed:
            await producer.send(TOPIC, b"refused")
        assert now() - called_at <= FAILS_WITHIN_S
        assert not failed.value.possibly_persisted
        assert values(opened) == [b"before"]


# --- brokers that do not play by the rules


@pytest.mark.parametrize("request_kind", ["sasl_handshake", "sasl_authenticate"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
@story
async def test_a_broker_that_never_answers_the_login_is_given_up_in_time(
    protocol: str, request_kind: str
) -> None:
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


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"])
@pytest.mark.parametrize("request_kind", ["sasl_handshake", "sasl_authenticate"])
@pytest.mark.parametrize("nonsense", NONSENSE)
@story
async def test_nonsense_in_a_login_is_an_error_at_once(
    nonsense: str, request_kind: str, mechanism: str
) -> None:
    async with secured(mechanism) as opened:
        _ = opened.on(request_kind, times=None).rewrite(NONSENSE[nonsense])
        with pytest.raises(ProducerError):
            async with producer_on(opened) as producer:
                # What is behind the last answer of a login may come with the next one's.
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
    """Let whoever answers at the address of the cluster's node say *hello*, and hang up."""
    from aioproducer.testing.memory import open_pair  # noqa: PLC0415

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


@pytest.mark.parametrize("hello", TALK)
@story
async def test_nonsense_instead_of_tls_is_an_error_at_once(hello: str) -> None:
    async with secured(security_protocol="SASL_SSL") as opened, talking(opened, TALK[hello]):
        with pytest.raises((ConnectionFailed, AuthenticationFailed)):
            await producer_on(opened).start()
        assert now() <= 1.5


@story
async def test_tls_to_a_listener_in_the_clear_says_what_it_is() -> None:
    async with cluster() as opened:
        with pytest.raises(ConnectionFailed, match="PLAINTEXT"):
            await Producer(opened.bootstrap_servers, security_protocol="SSL").start()
        assert now() <= 1.5


@story
async def test_in_the_clear_to_a_listener_with_tls_says_what_it_is() -> None:
    async with cluster(security_protocol="SSL") as opened:
        with pytest.raises(ProducerError, match="TLS"):
            await Producer(opened.bootstrap_servers).start()
        assert now() <= 1.5


@story
async def test_no_login_at_a_listener_that_wants_one_says_so() -> None:
    async with secured() as opened:
        with pytest.raises(ProducerError, match="SASL"):
            await Producer(opened.bootstrap_servers).start()
        assert now() <= 1.5


@pytest.mark.parametrize(
    ("renewed", "why"),
    [
        ({"expired": True}, "expired"),
        ({"new_authority": True}, "do not trust"),
        ({"hosts": ["elsewhere"]}, "is not for broker-1.memory"),
    ],
)
@story
async def test_a_certificate_that_does_not_verify_ends_the_start_at_once(
    renewed: dict[str, Any], why: str
) -> None:
    async with secured(security_protocol="SASL_SSL") as opened:
        options = opened.client_options
        opened.renew_certificates(**renewed)
        with pytest.raises(AuthenticationFailed, match=why) as refused:
            await Producer(opened.bootstrap_servers, **options).start()
        assert "_ssl.c" not in str(refused.value)
        assert now() <= 1.5
        assert opened.request_count("sasl_handshake") == 0


@story
async def test_a_client_certificate_that_is_missing_ends_the_start_at_once() -> None:
    """Under TLS 1.3 the broker says so when our side of the handshake is over."""
    async with cluster(security_protocol="SSL", client_auth=True) as opened:
        options = {
            name: each for name, each in opened.client_options.items() if not name.startswith("ssl_keystore")
        }
        with pytest.raises(AuthenticationFailed, match="wants a client certificate"):
            await Producer(opened.bootstrap_servers, **options).start()
        assert now() <= 1.5
        async with producer_on(opened) as producer:
            await producer.send(TOPIC, b"value")


# --- cancelled


@pytest.mark.parametrize("protocol", ["SSL", "SASL_PLAINTEXT", "SASL_SSL"])
@story
async def test_a_start_cancelled_anywhere_leaves_nothing_behind(protocol: str) -> None:
    """After each so many turns of the event loop, until it is not cancelled in time."""
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
@story
async def test_a_start_cancelled_while_the_broker_is_silent_leaves_nothing_behind(moment: str) -> None:
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


@story
async def test_a_broker_that_hangs_up_on_every_login_is_unreachable_and_no_more() -> None:
    def hang_up(_: bytes) -> bytes:
        raise HangUp

    async with secured() as opened:
        _ = opened.on("sasl_authenticate", times=None).rewrite(hang_up)
        with pytest.raises(ConnectionFailed):
            await producer_on(opened).start()
        assert now() <= 1.5
