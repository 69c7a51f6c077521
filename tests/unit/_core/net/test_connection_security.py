from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from aioproducer._core.address import Address, ResolvedAddress
from aioproducer._core.backoff import Backoff
from aioproducer._core.net.connection_security import ConnectionSecurity
from aioproducer._core.net.dial import AnyProtocol, MakeProtocol, dial
from aioproducer._core.security.exchange import ExchangeFactory
from aioproducer.config import ProducerConfig
from aioproducer.errors import AuthenticationFailed, ConnectionFailed
from aioproducer.testing import Cluster, in_virtual_time
from tests.unit._core.net.authentication_rig import FakeConnection
from tests.unit._core.security.certificates import Authority, Issued, server_context
from tests.unit.floor_rig import settle

BACKOFF = Backoff(0.1, 1.0)
LOGIN: dict[str, Any] = {"sasl_mechanism": "PLAIN", "sasl_username": "alice", "sasl_password": "hunter2"}

A, B = Address("a", 9092), Address("b", 9092)


def security(**options: Any) -> ConnectionSecurity:
    config = ProducerConfig(bootstrap_servers="a:1", **options)
    return ConnectionSecurity(config.security_settings(), backoff=BACKOFF)


class Noting(asyncio.Protocol):
    def __init__(self) -> None:
        self.transport: asyncio.BaseTransport | None = None
        self.lost: list[Exception | None] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert self.transport is None, "told twice"
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)


@asynccontextmanager
async def tls_cluster(**options: Any) -> AsyncIterator[tuple[Cluster, Address]]:
    async with Cluster(transport="memory", security_protocol="SSL", **options) as cluster:
        yield cluster, cluster._brokers[1].listener.address


async def cannot_dial(*_: object) -> asyncio.Transport:
    raise AssertionError("it was dialled")


class TestBackoff:
    def test_no_login_is_delayed_without_sasl(self) -> None:
        secured = security()
        secured.failed(A)
        assert secured.authenticator(FakeConnection()) is None
        assert secured.next_login_at == 0.0

    @in_virtual_time
    async def test_login_without_an_answer_leaves_its_turn(self) -> None:
        secured = security(security_protocol="SASL_PLAINTEXT", **LOGIN)
        pace, loop = secured.authentication_backoff, asyncio.get_running_loop()
        assert pace is not None
        pace.accepted(A)
        pace.refused(A, AuthenticationFailed("refused"), None)
        assert secured.next_login_at > loop.time()
        await asyncio.sleep(1.2)
        await pace.admit(B)
        with pytest.raises(AuthenticationFailed):
            await pace.admit(A)
        secured.failed(B)
        await pace.admit(A)


class TestDial:
    @in_virtual_time
    async def test_protocol_is_notified_of_a_tls_connection(self) -> None:
        async with tls_cluster() as (cluster, address):
            protocol = Noting()
            await security(**cluster.client_options).dial(dial, address, lambda: protocol)
            assert isinstance(protocol.transport, asyncio.Transport)
            assert protocol.transport.get_extra_info("ssl_object").version() == "TLSv1.3"
            protocol.transport.abort()
            await settle()
            assert protocol.lost == [None]

    @in_virtual_time
    async def test_dial_without_tls_returns_the_plain_transport(self) -> None:
        secured = security(security_protocol="SASL_PLAINTEXT", **LOGIN)
        assert secured.authenticator(FakeConnection()) is not None
        async with Cluster(transport="memory") as cluster:
            protocol = Noting()
            await secured.dial(dial, cluster._brokers[1].listener.address, lambda: protocol)
            assert protocol.transport is not None
            assert protocol.transport.get_extra_info("ssl_object") is None
            assert isinstance(protocol.transport, asyncio.Transport)
            protocol.transport.abort()

    @pytest.mark.parametrize(
        ("renewed", "why"),
        [
            ({"expired": True}, "has expired"),
            ({"new_authority": True}, "the issuer of its certificate is not trusted"),
            ({"hosts": ["elsewhere"]}, "its certificate is not for broker-1.memory"),
        ],
    )
    @in_virtual_time
    async def test_broker_with_an_invalid_certificate_gets_no_connection(
        self, renewed: dict[str, Any], why: str
    ) -> None:
        async with tls_cluster() as (cluster, address):
            secured = security(**cluster.client_options)
            cluster.renew_certificates(**renewed)
            protocol = Noting()
            with pytest.raises(AuthenticationFailed, match=why) as refused:
                await secured.dial(dial, address, lambda: protocol)
            assert refused.value.broker == str(address)
            assert protocol.transport is None
            await settle()
            assert not cluster._brokers[1]._connections

    async def test_wrong_host_error_names_the_host_of_the_certificate(self) -> None:
        async with Cluster(security_protocol="SSL") as cluster:
            secured = security(**cluster.client_options)
            cluster.renew_certificates(hosts=["elsewhere.example"])
            port = cluster._brokers[1].listener.address.port
            with pytest.raises(AuthenticationFailed, match=r"not for localhost, but for elsewhere\.example"):
                await secured.dial(dial, Address("localhost", port), Noting)

    async def test_certificate_is_checked_against_the_name_not_the_address(self) -> None:
        async with Cluster(security_protocol="SSL") as cluster:
            secured = security(**cluster.client_options)
            cluster.renew_certificates(hosts=["kafka.example"])
            port = cluster._brokers[1].listener.address.port
            protocol = Noting()
            await secured.dial(dial, ResolvedAddress("127.0.0.1", port, "kafka.example"), lambda: protocol)
            assert isinstance(protocol.transport, asyncio.Transport)
            protocol.transport.abort()
            await settle_sockets()

    @pytest.mark.parametrize("host", ["", "."])
    async def test_broker_without_a_host_name_is_not_dialled(self, host: str) -> None:
        with pytest.raises(AuthenticationFailed, match="without a host name"):
            await security(security_protocol="SSL").dial(cannot_dial, Address(host, 1), Noting)

    async def test_context_factory_that_raises_prevents_the_dial(self) -> None:
        def context() -> ssl.SSLContext:
            raise OSError("the disk is away")

        secured = security(security_protocol="SSL", ssl_context=context)
        with pytest.raises(AuthenticationFailed):
            await secured.dial(cannot_dial, Address("a", 1), Noting)

    async def test_dial_error_is_passed_on(self) -> None:
        async def refuse(_host: str, _port: int, _: MakeProtocol, /) -> asyncio.Transport:
            raise ConnectionRefusedError("nobody there")

        with pytest.raises(ConnectionRefusedError):
            await security(security_protocol="SSL").dial(refuse, Address("a", 1), Noting)

    @in_virtual_time
    async def test_plaintext_listener_is_named_in_the_error_of_a_tls_dial(self) -> None:
        async with Cluster(transport="memory") as cluster:
            with pytest.raises(ConnectionFailed, match="is this a listener for PLAINTEXT") as failed:
                await security(security_protocol="SSL").dial(
                    dial, cluster._brokers[1].listener.address, Noting
                )
            assert not failed.value.written

    @in_virtual_time
    async def test_connection_lost_at_the_end_of_start_tls_fails_the_dial(self) -> None:
        async with tls_cluster() as (cluster, address):
            secured = security(**cluster.client_options)
            loop = asyncio.get_running_loop()
            start_tls = loop.start_tls

            async def and_lose(transport: Any, protocol: Any, *args: Any, **how: Any) -> Any:
                made = await start_tls(transport, protocol, *args, **how)
                cluster.disconnect(1)
                await settle()
                return made

            loop.start_tls = and_lose  # type: ignore[method-assign]
            protocol = Noting()
            with pytest.raises(ConnectionFailed):
                await secured.dial(dial, address, lambda: protocol)
            assert protocol.transport is None

    @in_virtual_time
    async def test_dial_that_fails_in_tls_leaves_no_connection(self) -> None:
        async with tls_cluster() as (cluster, address):
            secured = security(**cluster.client_options)

            async def fail(*_: Any, **__: Any) -> Any:
                raise TypeError("argument must be encoded string without null bytes")

            asyncio.get_running_loop().start_tls = fail  # type: ignore[method-assign]
            with pytest.raises(TypeError):
                await secured.dial(dial, address, Noting)
            await asyncio.sleep(1)
            assert not cluster._brokers[1]._connections

    @in_virtual_time
    async def test_dial_cancelled_during_tls_leaves_no_connection(self) -> None:
        async with tls_cluster() as (cluster, address):
            cluster.freeze_broker(1)
            secured = security(**cluster.client_options)
            made: list[AnyProtocol] = []

            def make() -> AnyProtocol:
                made.append(Noting())
                return made[-1]

            dialling = asyncio.create_task(secured.dial(dial, address, make))
            await asyncio.sleep(1)
            dialling.cancel()
            with pytest.raises(asyncio.CancelledError):
                await dialling
            cluster.thaw_broker(1)
            await asyncio.sleep(1)
            assert not cluster._brokers[1]._connections
            assert made == []


async def settle_sockets() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def alert(reason: str) -> ssl.SSLError:
    error = ssl.SSLError(1, reason)
    error.reason = reason
    return error


class TestLost:
    def test_tls_alert_for_a_missing_client_certificate_is_a_refusal(self) -> None:
        secured = security(security_protocol="SSL")
        refused = secured.lost(alert("TLSV13_ALERT_CERTIFICATE_REQUIRED"), Address("b", 1))
        assert isinstance(refused, AuthenticationFailed)
        assert "b:1: the broker refused this client: it requires a client certificate" in str(refused)
        for error in (None, ConnectionResetError(), alert("DECRYPTION_FAILED_OR_BAD_RECORD_MAC")):
            assert secured.lost(error, Address("b", 1)) is None

    def test_tls_alert_is_ignored_without_tls(self) -> None:
        secured = security(security_protocol="SASL_PLAINTEXT", **LOGIN)
        assert secured.lost(alert("TLSV13_ALERT_CERTIFICATE_REQUIRED"), Address("b", 1)) is None


class TestCommonName:
    @staticmethod
    @asynccontextmanager
    async def listening(tmp_path: Path, issued: Issued) -> AsyncIterator[Address]:
        server = await asyncio.start_server(
            lambda _, writer: writer.transport.abort(), "127.0.0.1", 0, ssl=server_context(issued, tmp_path)
        )
        async with server:
            yield ResolvedAddress("127.0.0.1", server.sockets[0].getsockname()[1], "localhost")

    async def test_common_name_counts_without_subject_alt_name(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        authority = Authority()
        secured = security(security_protocol="SSL", ssl_truststore_certificates=authority.pem)
        async with self.listening(tmp_path, authority.issue(common_name="localhost")) as address:
            for _ in range(2):
                await secured.dial(dial, address, Noting)
        (warning,) = [each for each in caplog.messages if each.startswith("security.certificate.common_name")]
        assert "RFC 9525" in warning
        assert f"broker={address}" in warning

    async def test_subject_alt_name_is_accepted_silently(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        authority = Authority()
        secured = security(security_protocol="SSL", ssl_truststore_certificates=authority.pem)
        async with self.listening(tmp_path, authority.issue("localhost")) as address:
            await secured.dial(dial, address, Noting)
        assert not [each for each in caplog.messages if "common_name" in each]

    @pytest.mark.parametrize(
        ("names", "common_name"),
        [(("other.example",), "localhost"), ((), "other.example"), ((), "127.0.0.1")],
    )
    async def test_common_name_of_another_host_is_refused(
        self, tmp_path: Path, names: tuple[str, ...], common_name: str
    ) -> None:
        authority = Authority()
        secured = security(security_protocol="SSL", ssl_truststore_certificates=authority.pem)
        issued = authority.issue(*names, common_name=common_name)
        async with self.listening(tmp_path, issued) as address:
            with pytest.raises(AuthenticationFailed, match="its certificate is not for localhost"):
                await secured.dial(dial, address, Noting)

    def test_weak_setting_is_logged_at_the_start(self, caplog: pytest.LogCaptureFixture) -> None:
        security(security_protocol="SASL_PLAINTEXT", **LOGIN)
        (warning,) = caplog.messages
        assert warning.startswith(
            'security.weak setting="sasl_mechanism=PLAIN security_protocol=SASL_PLAINTEXT" risk='
        )


class TestLogins:
    async def test_exchange_is_new_per_login_and_has_the_given_host(self) -> None:
        secured = security(security_protocol="SASL_SSL", **LOGIN)
        connection = FakeConnection()
        connection.address = ResolvedAddress("10.0.0.1", 9093, "kafka.example")
        authenticator = secured.authenticator(connection)
        assert authenticator is not None
        first, second = authenticator._new_exchange(), authenticator._new_exchange()
        assert first.mechanism is not second.mechanism
        assert str(first.broker) == "kafka.example:9093"
        assert (await first.start()).take() == b"\0alice\0hunter2"

    def test_close_without_a_login_does_nothing(self) -> None:
        secured = security(security_protocol="SSL")
        assert secured.authenticator(FakeConnection()) is None
        secured.close()

    def test_close_ends_the_renewal_of_tokens(self, monkeypatch: pytest.MonkeyPatch) -> None:
        closed: list[ExchangeFactory] = []

        def close(logins: ExchangeFactory) -> None:
            closed.append(logins)

        monkeypatch.setattr(ExchangeFactory, "close", close)
        security(security_protocol="SASL_SSL", **LOGIN).close()
        assert len(closed) == 1
