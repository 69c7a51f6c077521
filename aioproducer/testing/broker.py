"""One node of the cluster: its listener, its connections with or without TLS, and the order of its responses."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from contextlib import suppress
from typing import Any, Final, TypeAlias

from aioproducer._core.net.in_flight import LENGTH, FrameReader
from aioproducer._core.protocol.apis import REQUESTS
from aioproducer._core.protocol.client import SaslAuthenticateRequest, SaslAuthenticateResponse
from aioproducer._core.protocol.metadata import ApiVersionsRequest
from aioproducer._core.protocol.schema import (
    RequestHeader,
    decode_request,
    decode_start,
    encode_request,
    encode_response,
)
from aioproducer._core.steps import Log
from aioproducer._core.wire import BytesLike
from aioproducer.errors import IllegalSaslState, ProtocolError
from aioproducer.testing.cluster_security import Security
from aioproducer.testing.faults import NO_FAULT, CloseConnection, NoResponse, RequestFaults, Script
from aioproducer.testing.handlers.connect import OFFERED, unknown_api_versions
from aioproducer.testing.handlers.table import APIS
from aioproducer.testing.listener import READ_BYTES, MemoryListener, TcpListener
from aioproducer.testing.sasl_server import Session
from aioproducer.testing.state import Call, ClusterState

INTERNAL_ERROR: Final = bytes.fromhex("15 0303 0002 0250")
"""TLS alert; a client that expects Kafka's protocol reads it as a length of 352 MB."""


class TlsStream:
    """Server side of a TLS connection, over sockets and memory transports: a reader and a writer.

    `TlsStream` replaces asyncio's TLS, which closes a failed handshake without the alert that brokers send. Some event
    loops support TLS over sockets only.
    """

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, context: ssl.SSLContext
    ) -> None:
        self._reader, self._writer = reader, writer
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls: Final = context.wrap_bio(self._incoming, self._outgoing, server_side=True)

    async def handshake(self) -> None:
        """Perform the handshake. Raises: OSError, including ssl.SSLError, after the alert was sent."""
        try:
            while True:
                try:
                    self._tls.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    if not await self._read_more():
                        raise ConnectionResetError("the client left during the TLS handshake") from None
        except ssl.SSLError:
            if not self._outgoing.pending:  # a JVM sends an alert for bytes that are not TLS, OpenSSL none
                self._outgoing.write(INTERNAL_ERROR)
            raise
        finally:
            self._flush()
        await self._writer.drain()

    async def read(self, n: int) -> bytes:
        """Return up to *n* bytes, b"" at the end. Raises: OSError."""
        while True:
            try:
                return self._tls.read(n)
            except ssl.SSLWantReadError:
                if not await self._read_more():
                    return b""
            except ssl.SSLZeroReturnError:
                return b""

    def write(self, data: BytesLike) -> None:
        """Encrypt and write *data*."""
        self._tls.write(data)
        self._flush()

    async def drain(self) -> None:
        """Wait until the write buffer has room."""
        await self._writer.drain()

    def is_closing(self) -> bool:
        """Return True if the connection is closed or closing."""
        return self._writer.is_closing()

    def send_close_notify(self) -> None:
        """Send close_notify, unless the connection is closing."""
        if self._writer.is_closing():
            return  # uvloop logs an error for a write to a closing connection
        with suppress(ssl.SSLError):  # `unwrap` waits for the client's close_notify
            self._tls.unwrap()
        self._flush()

    async def _read_more(self) -> bool:
        """Send pending bytes, and read bytes of the client; return False at the end of the stream."""
        self._flush()
        data = await self._reader.read(READ_BYTES)
        self._incoming.write(data)
        return bool(data)

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._writer.write(self._outgoing.read())


log: Final = Log(__name__)

MAX_REQUEST_BYTES = 100 * 1024 * 1024
"""Kafka's default for `socket.request.max.bytes`."""

Listener: TypeAlias = TcpListener | MemoryListener
_Writer: TypeAlias = asyncio.StreamWriter | TlsStream
_NO_LINGER = struct.pack("ii", 1, 0)


class Broker:
    """A node that serves each connection in a separate task.

    As in Kafka, the requests of a connection are served one after the other, so responses keep their order.
    """

    def __init__(
        self, node_id: int, listener: Listener, security: Security, state: ClusterState, script: Script
    ) -> None:
        self.listener: Listener = listener
        self._security = security
        self._node_id = node_id
        self._state = state
        self._script = script
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._thawed = asyncio.Event()
        self._thawed.set()
        self._bugs: list[Exception] = []
        self._former_listeners: list[Listener] = []
        """Sockets at former addresses of this node, which refuse connections."""

    async def start(self) -> None:
        """Start to listen. Raises: OSError if the port is in use."""
        await self.listener.open(self._accept)

    async def stop(self) -> None:
        """Reset the connections and end their tasks. Raises: ExceptionGroup of the exceptions in these tasks."""
        self.listener.close()
        await self.listener.wait_closed()
        tasks = list(self._connections)
        self.disconnect()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.thaw()
        if self._bugs:
            bugs, self._bugs = self._bugs, []
            raise ExceptionGroup(f"broker {self._node_id} failed", bugs)

    async def move(self, listener: Listener) -> None:
        """Move to *listener*, and reset the connections. Raises: OSError if the port is in use."""
        await listener.open(self._accept)
        self.listener.close()
        self._former_listeners.append(self.listener)
        self.listener = listener
        self.disconnect()

    async def exchange(self, other: Broker) -> None:
        """Exchange addresses with *other*, and reset the connections of both."""
        for each in self, other:
            each.listener.close()
        self.listener, other.listener = other.listener, self.listener
        for each in self, other:
            await each.start()
            each.disconnect()

    def release(self) -> None:
        """Release the addresses of a stopped node to other processes."""
        for listener in (self.listener, *self._former_listeners):
            listener.release()

    def disconnect(self) -> None:
        """Reset all connections; the node accepts new connections."""
        for writer in self._connections.values():
            sock: socket.socket | None = writer.get_extra_info("socket")
            # Without lingering, closing is a reset and not an end of stream.
            if sock is not None and sock.fileno() >= 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
            writer.transport.abort()

    def freeze(self) -> None:
        """Accept connections and requests without serving them until `thaw`."""
        self._thawed.clear()

    def thaw(self) -> None:
        """Serve the requests that arrived since `freeze`."""
        self._thawed.set()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        name = f"aioproducer.testing broker {self._node_id}"
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer), name=name)
        self._connections[task] = writer
        task.add_done_callback(self._connections.pop)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        context, tls = self._security.context, None
        try:
            if context is None:
                await self._serve_requests(reader, writer)
            else:
                await self._thawed.wait()
                tls = TlsStream(reader, writer, context)
                await tls.handshake()
                await self._serve_requests(tls, tls)
        except (CloseConnection, ProtocolError, ssl.SSLError) as error:
            log.warning("broker.hang_up node_id=%d error=%r", self._node_id, error)
        except OSError as error:
            log.debug("broker.connection_lost node_id=%d error=%r", self._node_id, error)
        except Exception as bug:
            log.exception("broker.bug node_id=%d", self._node_id)
            self._bugs.append(bug)
        finally:
            if tls is not None:
                tls.send_close_notify()
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _serve_requests(self, reader: asyncio.StreamReader | TlsStream, writer: _Writer) -> None:
        session = Session(self._security.sasl)
        frames = FrameReader(MAX_REQUEST_BYTES)
        while data := await reader.read(READ_BYTES):
            for payload in frames.feed(data):
                try:
                    await self._serve_request(payload, writer, session)
                except NoResponse:
                    while await reader.read(READ_BYTES):
                        pass
                    return

    async def _serve_request(self, payload: bytes, writer: _Writer, session: Session) -> None:
        """Serve one request. Raises: CloseConnection; NoResponse; ProtocolError: malformed request."""
        await self._thawed.wait()
        is_token = session.reads_tokens
        if is_token:  # as a request, so that the handler and scripts of that request apply
            payload = bytes(
                encode_request(SaslAuthenticateRequest(auth_bytes=payload), 0, 0, None)[LENGTH.size :]
            )
        header, body_at = decode_request(payload, REQUESTS)
        lowest, highest = OFFERED.get(header.api_key, (0, -1))  # no version of an unknown API
        if not is_token and not lowest <= header.api_version <= highest:
            if header.api_key != ApiVersionsRequest.API_KEY:
                raise CloseConnection(f"API {header.api_key} version {header.api_version} is not served")
            header = header._replace(api_version=0)
            await self._send(writer, header, unknown_api_versions(), NO_FAULT)
            return
        # Brokers ignore trailing bytes: a request of librdkafka for all topics has three bytes too many.
        request, _ = decode_start(REQUESTS[header.api_key], header.api_version, payload, body_at)
        api = APIS[header.api_key]
        targets = list(api.targets(request, self._state))
        self._state.count_request(api.name, self._node_id, targets)
        admitted = session.admit(header.api_key)
        faults = (
            self._script.faults_of(api.name, self._node_id, targets)
            if admitted
            else RequestFaults({}, IllegalSaslState)
        )
        await faults.before()
        call = Call(self._state, self._node_id, header.api_version, faults, session)
        response = await api.handle(call, request)
        await faults.after()
        if is_token and isinstance(response, SaslAuthenticateResponse):
            if response.error_code:
                raise CloseConnection(f"{api.name} was refused, and a token has no error code")
            writer.write(LENGTH.pack(len(response.auth_bytes)) + response.auth_bytes)
        elif response is not None:
            await self._send(writer, header, response, faults)
        if session.must_close:
            raise CloseConnection(f"{api.name} was refused before the login was complete")

    async def _send(
        self, writer: _Writer, header: RequestHeader, response: Any, faults: RequestFaults
    ) -> None:
        """Write the response and pause for its throttle time; in old versions the pause comes first (KIP-219)."""
        answers_first = header.api_version >= response.CLIENT_PAUSES_FROM
        if faults.throttle_ms:
            if hasattr(response, "throttle_time_ms"):  # SASL responses have no throttle time
                response.throttle_time_ms = faults.throttle_ms
            if not answers_first:
                await asyncio.sleep(faults.throttle_ms / 1000)
        frame = encode_response(response, header.api_version, header.correlation_id)
        await self._thawed.wait()
        for piece in faults.pieces(frame):
            if writer.is_closing():  # asyncio ignores a write to a closing connection, uvloop logs an error
                raise ConnectionResetError("closed before the answer")
            writer.write(piece)
            await writer.drain()
        if faults.throttle_ms and answers_first:
            await asyncio.sleep(faults.throttle_ms / 1000)
