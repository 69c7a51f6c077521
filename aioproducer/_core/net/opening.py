"""Opening of connections: dial, handshake, authentication, and check of the cluster."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from aioproducer._core.address import Address
from aioproducer._core.log_limits import LogLimits
from aioproducer._core.logfmt import Pairs
from aioproducer._core.metrics import NodeCounters
from aioproducer._core.net.connection import Connection
from aioproducer._core.net.connection_protocol import ConnectionSettings
from aioproducer._core.net.dial import Dial, MakeProtocol, described, dial as dial_any, hooked, is_failure
from aioproducer._core.net.handshake import ExpectedNode
from aioproducer._core.protocol.metadata import MetadataRequest
from aioproducer._core.steps import Log
from aioproducer.errors import AuthenticationFailed, ConnectionFailed, RebootstrapRequired, UnsupportedVersion

if TYPE_CHECKING:
    from aioproducer._core.net.connection_security import ConnectionSecurity

log: Final = Log(__name__)

SILENT_S: Final = 2.0
"""Time without a response from a bootstrap address after which a WARNING is logged, in seconds."""


async def open_connection(
    address: Address,
    settings: ConnectionSettings,
    *,
    dial: Dial = dial_any,
    security: ConnectionSecurity | None = None,
    node_id: int = -1,
    counters: NodeCounters | None = None,
    limits: LogLimits | None = None,
    deadline: float | None = None,
    cluster_id: str | None = None,
    checks_node: bool = False,
) -> Connection:
    """Dial *address*, shake hands and authenticate until *deadline* (loop clock; default: the setup timeout from now).

    A *node_id* below 0 stands for the unknown node at a bootstrap address. Traffic is counted in *counters*.

    With a *cluster_id* the connection is to node *node_id* of that cluster. *checks_node*: the brokers are known to
    have ApiVersions v5, and compare cluster id and node id (KIP-1242). Without *checks_node* a Metadata
    request gets the cluster id, which costs one round trip.

    Raises: ConnectionFailed, also for any other exception that *dial*, TLS or the user's callables raise;
        AuthenticationFailed if one side does not accept the other; ProtocolError if the peer is no broker; BrokerError
        if the broker refuses the handshake; ConnectionFailed, caused by RebootstrapRequired, if the peer is another
        node or belongs to another cluster. An exception or a cancellation leaves no connection open.
    """
    loop = asyncio.get_running_loop()
    if deadline is None:
        deadline = loop.time() + settings.setup_timeout_s
    expected = ExpectedNode(cluster_id, node_id) if cluster_id is not None and checks_node else None
    connection = Connection(address, settings, node_id, loop, security, expected)
    connection.counters, connection.limits = counters or connection.counters, limits or connection.limits
    silent = loop.call_later(SILENT_S, _log_silence, connection) if node_id < 0 else None
    try:
        await _open(
            connection, dial if settings.dial is None else hooked(settings.dial), deadline, cluster_id
        )
    except RebootstrapRequired as error:  # ConnectionFailed is retriable, RebootstrapRequired is not
        raise ConnectionFailed(f"{connection}: {error}", written=False) from error
    except BaseException as error:
        if security is not None and not isinstance(error, AuthenticationFailed):
            security.failed(address)
        raise
    finally:
        if silent is not None:
            silent.cancel()
    return connection


async def _open(connection: Connection, dial: Dial, deadline: float, cluster_id: str | None) -> None:
    loop = asyncio.get_running_loop()
    began_at = loop.time()
    waiting = asyncio.timeout_at(deadline)
    has_dialled = False

    async def noted(host: str, port: int, make_protocol: MakeProtocol) -> asyncio.Transport:
        nonlocal has_dialled
        transport = await dial(host, port, make_protocol)
        has_dialled = True
        return transport

    try:
        async with waiting:
            await connection.open_transport(noted)
    except BaseException as error:
        if not is_failure(error):
            raise
        if waiting.expired() and has_dialled:
            why = _unfinished("the TLS handshake", loop.time() - began_at)
        else:
            why = (
                f"cannot connect: {'no address responded in time' if waiting.expired() else described(error)}"
            )
        raise ConnectionFailed(f"{connection}: {why}", written=False) from error
    try:
        async with asyncio.timeout_at(deadline):
            await connection.handshake()
            await _check_cluster(connection, cluster_id)
    except BaseException as error:
        connection.close()
        await connection.wait_closed()
        if isinstance(error, TimeoutError):
            why = _unfinished(connection.stage, loop.time() - began_at)
            raise ConnectionFailed(f"{connection}: {why}") from error
        if isinstance(error, ConnectionFailed) and connection.error is not None:
            raise connection.error from connection.error.__cause__  # the cause may be a refused client certificate
        if is_failure(error):
            raise ConnectionFailed(
                f"{connection}: {connection.stage} ended with {described(error)}"
            ) from error
        raise
    if connection.error is not None:
        await connection.wait_closed()
        raise connection.error


async def _check_cluster(connection: Connection, cluster_id: str | None) -> None:
    """Compare the cluster id of a new connection with *cluster_id*, unless the broker compared it in the handshake.

    Raises: RebootstrapRequired if the ids differ; a null id is not compared.
    """
    if cluster_id is None or connection.versions.is_node_checked or connection.closed:
        return
    try:
        answer = await connection.request(MetadataRequest(topics=[], allow_auto_topic_creation=False))
    except UnsupportedVersion:
        return
    if answer.error_code == RebootstrapRequired.code or answer.cluster_id not in {None, cluster_id}:
        raise RebootstrapRequired(f"it belongs to cluster {answer.cluster_id!r}, not {cluster_id!r}")


def _log_silence(connection: Connection) -> None:
    connection.limits.log(
        log,
        logging.WARNING,
        Pairs(broker=connection),
        "connection.silent broker=%s for_s=%g hint=%r",
        connection,
        SILENT_S,
        "check that the address and port belong to a broker's listener, that security_protocol is the protocol of this"
        " listener, and that no firewall blocks the connection",
    )


def _unfinished(what: str, after_s: float) -> str:
    return f"connected, but {what} did not finish within {after_s:.3g} s"


async def close_all(*connections: Connection) -> None:
    """Close *connections*, and wait until their sockets are closed."""
    for connection in connections:
        connection.close()
    for connection in connections:
        await connection.wait_closed()
