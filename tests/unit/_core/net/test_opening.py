from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable

import pytest

from aioproducer._core.address import Address
from aioproducer._core.backoff import Backoff
from aioproducer._core.net.authentication import AuthenticatedConnection, AuthenticationBackoff, Authenticator
from aioproducer._core.net.connection import Connection, _Protocol
from aioproducer._core.net.connection_security import ConnectionSecurity
from aioproducer._core.net.dial import Dial, MakeProtocol, dial
from aioproducer._core.net.opening import open_connection
from aioproducer._core.protocol.client import SaslAuthenticateResponse, SaslHandshakeResponse
from aioproducer._core.protocol.metadata import ApiVersionsResponse, MetadataRequest, MetadataResponse
from aioproducer._core.protocol.produce import InitProducerIdRequest
from aioproducer._core.security.exchange import Exchange
from aioproducer._core.security.security_settings import SecuritySettings, TlsSettings
from aioproducer.errors import (
    AuthenticationFailed,
    ClusterAuthorizationFailed,
    ConnectionFailed,
    ProtocolError,
    RebootstrapRequired,
)
from aioproducer.testing import in_virtual_time
from tests.unit._core.net.connection_rig import SHORT_S, connected
from tests.unit._core.net.scripted import OFFER, Received, ScriptedBroker, hang_up, settings, stay_silent


async def test_open_returns_with_the_versions_of_the_broker(broker: ScriptedBroker) -> None:
    async with connected(broker) as (connection, _):
        assert connection.versions.pick(InitProducerIdRequest) == InitProducerIdRequest.VERSIONS[1]
        assert str(connection) == f"{broker.address} (node 3)"
        assert not connection.closed
        assert broker.greeted[0].header.client_id == "test"


async def test_handshake_is_retried_in_version_0_for_an_old_broker() -> None:
    def greeting(received: Received) -> bytes:
        # KIP-511: error 35 is answered in version 0, whatever was asked
        asked = received._replace(header=received.header._replace(api_version=0))
        error_code = 35 if received.header.api_version else 0
        return asked.answered(ApiVersionsResponse(error_code=error_code, api_keys=OFFER))

    async with ScriptedBroker(greeting) as broker, connected(broker) as (connection, _):
        assert [each.header.api_version for each in broker.greeted] == [4, 0]
        assert connection.versions.pick(InitProducerIdRequest) == InitProducerIdRequest.VERSIONS[1]


async def test_refused_connection_error_has_address_and_cause() -> None:
    async def refuse(host: str, port: int, _: MakeProtocol, /) -> asyncio.Transport:
        raise ConnectionRefusedError(111, "nobody there")

    with pytest.raises(
        ConnectionFailed, match=r"b:1 \(bootstrap\): cannot connect: .* nobody there"
    ) as failed:
        await open_connection(Address("b", 1), settings(), dial=refuse)
    assert not failed.value.written
    assert isinstance(failed.value.__cause__, ConnectionRefusedError)


@pytest.mark.parametrize("error", [TypeError("a NUL"), RuntimeError("no threads"), asyncio.CancelledError()])
async def test_dial_that_raises_anything_is_a_failed_connection(error: BaseException) -> None:
    async def fail(host: str, port: int, _: MakeProtocol, /) -> asyncio.Transport:
        raise error

    told = rf"b:1 \(bootstrap\): cannot connect: {type(error).__name__}, which is the cause"
    with pytest.raises(ConnectionFailed, match=told) as failed:
        await open_connection(Address("b", 1), settings(), dial=fail)
    assert failed.value.__cause__ is error


async def test_login_that_raises_anything_is_a_failed_connection(
    broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def cancelled(_: Connection) -> None:
        raise asyncio.CancelledError

    monkeypatch.setattr(Connection, "handshake", cancelled)
    with pytest.raises(ConnectionFailed, match="the handshake ended with CancelledError"):
        await open_connection(broker.address, settings())
    await (await broker.accepted.get()).gone.wait()


async def test_dialling_ends_with_the_setup_timeout() -> None:
    async def hang(host: str, port: int, _: MakeProtocol, /) -> asyncio.Transport:
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

    with pytest.raises(ConnectionFailed, match="no address responded in time"):
        await open_connection(Address("b", 1), settings(setup_timeout_s=SHORT_S), dial=hang)


@pytest.mark.parametrize(("node_id", "lines"), [(-1, 1), (5, 0)])
@in_virtual_time
async def test_silent_bootstrap_address_is_logged_with_a_hint(
    caplog: pytest.LogCaptureFixture, node_id: int, lines: int
) -> None:
    async def hang(host: str, port: int, _: MakeProtocol, /) -> asyncio.Transport:
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

    for setup_timeout_s in (1.9, 10):
        with pytest.raises(ConnectionFailed, match="no address responded in time"):
            await open_connection(
                Address("b", 1), settings(setup_timeout_s=setup_timeout_s), dial=hang, node_id=node_id
            )
    await asyncio.sleep(10)
    told = [each.getMessage() for each in caplog.records]
    assert len(told) == lines
    assert all(each.startswith('connection.silent broker="b:1 (bootstrap)" for_s=2 hint=') for each in told)


async def test_port_out_of_range_fails_the_connection() -> None:
    with pytest.raises(ConnectionFailed, match="there is no port 70000"):
        await open_connection(Address("127.0.0.1", 70_000), settings())


async def test_connection_lost_during_the_dial_is_reported_as_lost(broker: ScriptedBroker) -> None:
    async def dial_and_lose(host: str, port: int, make_protocol: MakeProtocol, /) -> asyncio.Transport:
        transport = await dial(host, port, make_protocol)
        transport.abort()
        protocol = transport.get_protocol()
        assert isinstance(protocol, _Protocol)
        await protocol.connection.wait_closed()
        return transport

    with pytest.raises(ConnectionFailed, match=r"lost after .* before the handshake was over"):
        await open_connection(broker.address, settings(), dial=dial_and_lose)
    assert broker.greeted == []


async def test_handshake_ends_at_the_deadline() -> None:
    async with ScriptedBroker(stay_silent) as broker:
        deadline = asyncio.get_running_loop().time() + 10 * SHORT_S  # a busy machine dials within this time
        with pytest.raises(ConnectionFailed, match="connected, but the handshake did not finish within 0"):
            await open_connection(broker.address, settings(), deadline=deadline)
        await (await broker.accepted.get()).gone.wait()


async def test_handshake_has_the_request_timeout() -> None:
    async with ScriptedBroker(stay_silent) as broker:
        with pytest.raises(ConnectionFailed, match=r"no answer in 0\.02 s to ApiVersions v4"):
            await open_connection(broker.address, settings(request_timeout_s=SHORT_S))


async def test_close_during_the_handshake_hints_at_tls_or_sasl() -> None:
    async with ScriptedBroker(hang_up) as broker:
        with pytest.raises(ConnectionFailed, match=r"closed by the broker .* require TLS or SASL"):
            await open_connection(broker.address, settings())


@pytest.mark.parametrize(
    ("greeting", "complaint"),
    [
        (b"\x15\x03\x03\x00\x02\x02\x46", "TLS alert"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "HTTP response"),
        (b"\x00\x00\x00\x06\x00\x00\x00\x01\x00\x00", "ApiVersionsResponse v4"),
    ],
)
async def test_other_protocol_is_named_in_the_error(greeting: bytes, complaint: str) -> None:
    async with ScriptedBroker(lambda _: greeting) as broker:
        with pytest.raises(ProtocolError, match=complaint) as failed:
            await open_connection(broker.address, settings())
        assert str(failed.value).startswith(f"{broker.address} (bootstrap): ")
        await (await broker.accepted.get()).gone.wait()


async def test_refused_handshake_closes_the_connection() -> None:
    def refuse(received: Received) -> bytes:
        return received.answered(ApiVersionsResponse(error_code=31, api_keys=[]))

    async with ScriptedBroker(refuse) as broker:
        with pytest.raises(ClusterAuthorizationFailed):
            await open_connection(broker.address, settings())
        await (await broker.accepted.get()).gone.wait()


async def test_garbage_after_the_handshake_response_fails_the_opening() -> None:
    def greeting(received: Received) -> bytes:
        return received.answered(ApiVersionsResponse(error_code=0, api_keys=OFFER)) + b"junk"

    async with ScriptedBroker(greeting) as broker:
        with pytest.raises(ProtocolError, match="b'junk'"):
            await open_connection(broker.address, settings())


async def test_cancelled_open_leaves_no_connection_at_any_step() -> None:
    async with ScriptedBroker() as broker:
        for steps in range(25):
            opening = asyncio.create_task(open_connection(broker.address, settings()))
            for _ in range(steps):
                await asyncio.sleep(0)
            if opening.cancel():
                with pytest.raises(asyncio.CancelledError):
                    await opening
            else:
                connection = await opening
                connection.close()
                await connection.wait_closed()


@pytest.mark.parametrize(
    ("error_code", "cluster_id", "is_other"),
    [(0, "c", False), (0, None, False), (0, "another", True), (RebootstrapRequired.code, None, True)],
)
async def test_new_connection_is_checked_for_its_cluster(
    broker: ScriptedBroker, error_code: int, cluster_id: str | None, is_other: bool
) -> None:
    opening = asyncio.create_task(
        open_connection(broker.address, settings(), node_id=3, cluster_id="c"), name="opening"
    )
    peer = await broker.accepted.get()
    asked = await peer.inbox.get()
    assert isinstance(asked.body, MetadataRequest)
    assert asked.body.topics == []
    told = MetadataResponse(brokers=[], cluster_id=cluster_id, topics=[], error_code=error_code)
    peer.send(asked.answered(told))
    if is_other:
        with pytest.raises(ConnectionFailed, match=r"belongs to cluster .*, not 'c'") as failed:
            await opening
        assert isinstance(failed.value.__cause__, RebootstrapRequired)
        assert not failed.value.written
        await peer.gone.wait()
    else:
        connection = await opening
        assert not connection.closed
        connection.close()
        await connection.wait_closed()


async def test_cluster_is_unchecked_when_the_broker_has_no_metadata() -> None:
    def greeting(received: Received) -> bytes:
        offered = [each for each in OFFER if each.api_key != MetadataRequest.API_KEY]
        return received.answered(ApiVersionsResponse(error_code=0, api_keys=offered))

    async with ScriptedBroker(greeting) as broker:
        connection = await open_connection(broker.address, settings(), node_id=3, cluster_id="c")
        assert not connection.closed
        connection.close()
        await connection.wait_closed()


class FakeSecurity(ConnectionSecurity):
    """Security whose login is the given function."""

    def __init__(self, start: Callable[[Connection], Awaitable[None]]) -> None:
        super().__init__(SecuritySettings(), backoff=Backoff(1, 1))
        self._start = start
        self.refusal: AuthenticationFailed | None = None

    def authenticator(self, connection: AuthenticatedConnection) -> Authenticator:
        return Authenticator(connection, self.exchange, AuthenticationBackoff(self.has_changed), self.backoff)

    async def has_changed(self, refused: object) -> bool:
        return False

    async def dial(self, dial: Dial, address: Address, make_protocol: MakeProtocol) -> None:
        protocol = make_protocol()
        assert isinstance(protocol, _Protocol)
        self.connection = protocol.connection
        await dial(*address, lambda: protocol)

    def lost(self, error: Exception | None, address: Address) -> AuthenticationFailed | None:
        return self.refusal

    def exchange(self) -> Exchange:
        start, connection = self._start, self.connection

        class Mechanism:
            name = "PLAIN"

            async def start(self, _: object) -> bytes:
                await start(connection)
                return b"first"

            def respond(self, _: bytes) -> bytes:
                return b""

        return Exchange(Mechanism(), Address("b", 1))


async def login_answered(broker: ScriptedBroker, *, error_code: int = 0) -> None:
    """Answer the two requests of a login."""
    peer = await broker.accepted.get()
    handshake = await peer.inbox.get()
    peer.send(handshake.answered(SaslHandshakeResponse(error_code=0, mechanisms=["PLAIN"])))
    authenticate = await peer.inbox.get()
    peer.send(
        authenticate.answered(
            SaslAuthenticateResponse(error_code=error_code, error_message=None, auth_bytes=b"")
        )
    )
    if error_code:
        peer.close()


async def at_once(_: Connection) -> None:
    """Have a first message."""


class TestLogin:
    async def test_connection_is_open_after_the_login(self, broker: ScriptedBroker) -> None:
        answering = asyncio.create_task(login_answered(broker))
        connection = await open_connection(broker.address, settings(), security=FakeSecurity(at_once))
        assert not connection.closed
        await answering
        connection.close()
        await connection.wait_closed()

    async def test_refused_login_closes_the_connection(self, broker: ScriptedBroker) -> None:
        """The refusal is raised even if the broker closes the connection at the same time."""
        answering = asyncio.create_task(login_answered(broker, error_code=58))
        with pytest.raises(AuthenticationFailed, match="refused the login by PLAIN"):
            await open_connection(broker.address, settings(), security=FakeSecurity(at_once))
        await answering

    async def test_unanswered_login_ends_at_the_deadline(self, broker: ScriptedBroker) -> None:
        deadline = asyncio.get_running_loop().time() + 10 * SHORT_S
        with pytest.raises(ConnectionFailed, match=r"the login by PLAIN did not finish within 0"):
            await open_connection(
                broker.address, settings(), security=FakeSecurity(at_once), deadline=deadline
            )
        await (await broker.accepted.get()).gone.wait()

    async def test_deadline_error_names_missing_credentials(self, broker: ScriptedBroker) -> None:
        async def hang(_: Connection) -> None:
            await asyncio.get_running_loop().create_future()

        deadline = asyncio.get_running_loop().time() + 10 * SHORT_S
        with pytest.raises(
            ConnectionFailed,
            match=r"the login by PLAIN \(no credentials yet\) did not finish within 0",
        ):
            await open_connection(broker.address, settings(), security=FakeSecurity(hang), deadline=deadline)

    async def test_deadline_error_names_an_unanswered_tls_handshake(self) -> None:
        context = ssl.create_default_context()
        tls = ConnectionSecurity(SecuritySettings(TlsSettings(context=context), None), backoff=Backoff(1, 1))
        async with ScriptedBroker(stay_silent) as broker:
            deadline = asyncio.get_running_loop().time() + 25 * SHORT_S
            with pytest.raises(
                ConnectionFailed, match="connected, but the TLS handshake did not finish within"
            ):
                await open_connection(broker.address, settings(), security=tls, deadline=deadline)

    async def test_lost_connection_raises_the_tls_refusal_during_a_login(
        self, broker: ScriptedBroker
    ) -> None:
        """TLS 1.3 reports a rejected client certificate only after the handshake."""

        async def lose(connection: Connection) -> None:
            security.refusal = AuthenticationFailed("we are not accepted")
            (await broker.accepted.get()).reset()
            await connection.wait_closed()

        security = FakeSecurity(lose)
        with pytest.raises(AuthenticationFailed, match="we are not accepted"):
            await open_connection(broker.address, settings(), security=security)

    async def test_cancelled_login_leaves_no_connection(self) -> None:
        async with ScriptedBroker() as broker:
            for steps in range(0, 40, 2):
                answering = asyncio.create_task(login_answered(broker))
                opening = asyncio.create_task(
                    open_connection(broker.address, settings(), security=FakeSecurity(at_once))
                )
                for _ in range(steps):
                    await asyncio.sleep(0)
                if opening.cancel():
                    with pytest.raises(asyncio.CancelledError):
                        await opening
                else:
                    connection = await opening
                    connection.close()
                    await connection.wait_closed()
                answering.cancel()
                await asyncio.wait([answering])
