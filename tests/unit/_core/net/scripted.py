"""A broker of which a test decides every byte, and the settings to connect to it."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from types import TracebackType
from typing import Any, NamedTuple, Self

from aioproducer._core.address import Address
from aioproducer._core.backoff import Backoff
from aioproducer._core.net.connection_protocol import ConnectionSettings
from aioproducer._core.protocol.apis import REQUESTS
from aioproducer._core.protocol.metadata import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from aioproducer._core.protocol.produce import InitProducerIdRequest, InitProducerIdResponse
from aioproducer._core.protocol.schema import Message, RequestHeader, decode, decode_request, encode_response

OFFER = [
    ApiVersion(api_key=cls.API_KEY, min_version=cls.VERSIONS[0], max_version=cls.VERSIONS[1])
    for cls in REQUESTS.values()
]
ASK = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)


def settings(**changes: Any) -> ConnectionSettings:
    """Return settings that time out late; tests that wait for a timeout shorten it."""
    values: dict[str, Any] = {
        "client_id": "test",
        "request_timeout_s": 20,
        "setup_timeout_s": 20,
        "setup_timeout_max_s": 20,
        "idle_timeout_s": None,
        "reconnect_backoff": Backoff(0.01, 0.01),
        "send_buffer_bytes": -1,
        "receive_buffer_bytes": -1,
    }
    return ConnectionSettings(**values | changes)


class Received(NamedTuple):
    """A request as the broker got it."""

    header: RequestHeader
    body: Message

    def answered(self, response: Message) -> bytes:
        return bytes(encode_response(response, self.header.api_version, self.header.correlation_id))

    def answered_with_id(self, producer_id: int) -> bytes:
        """Response to `ASK`, identified by its producer id."""
        return self.answered(InitProducerIdResponse(producer_id=producer_id, producer_epoch=0))


def greet(received: Received) -> bytes | None:
    return received.answered(ApiVersionsResponse(error_code=0, api_keys=OFFER))


def stay_silent(received: Received) -> bytes | None:
    return b""


def hang_up(received: Received) -> bytes | None:
    return None


def answer_to(header: RequestHeader, *, too_old: bool = False, surplus: bytes = b"") -> bytes:
    """Answer as a broker: with its versions, or with the correlation id as producer id."""
    version = header.api_version
    if header.api_key != ApiVersionsRequest.API_KEY:
        response: Any = InitProducerIdResponse(producer_id=header.correlation_id, producer_epoch=0)
    elif too_old and version:
        response, version = ApiVersionsResponse(error_code=35, api_keys=[]), 0
    else:
        response = ApiVersionsResponse(error_code=0, api_keys=OFFER)
    frame = encode_response(response, version, header.correlation_id)
    frame[:4] = (len(frame) - 4 + len(surplus)).to_bytes(4, "big")
    return bytes(frame + surplus)


class Peer:
    """The broker's end of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.inbox: asyncio.Queue[Received] = asyncio.Queue()
        self.gone = asyncio.Event()
        """Set when the client has closed."""

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    def freeze(self) -> None:
        """Stop reading. Data of the client accumulates first in the kernel, then in the client."""
        self.writer.transport.pause_reading()  # type: ignore[attr-defined]

    def close(self) -> None:
        self.writer.close()

    def reset(self) -> None:
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def receive(self) -> Received:
        head = await self.reader.readexactly(4)
        payload = await self.reader.readexactly(int.from_bytes(head, "big"))
        header, pos = decode_request(payload, REQUESTS)
        return Received(header, decode(REQUESTS[header.api_key], header.api_version, payload, pos))


class ScriptedBroker:
    """Answers ApiVersions by *greeting* (None closes the connection), and leaves the rest to the test."""

    def __init__(self, greeting: Callable[[Received], bytes | None] = greet) -> None:
        self.greeting = greeting
        self.greeted: list[Received] = []
        self.accepted: asyncio.Queue[Peer] = asyncio.Queue()
        self.address = Address("127.0.0.1", 0)
        self._serving: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, self.address.host, 0)
        self.address = Address(*self._server.sockets[0].getsockname())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for task in self._serving:
            task.cancel()
        if self._serving:
            await asyncio.wait(self._serving)
        await self._server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(Peer(reader, writer)))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, peer: Peer) -> None:
        self.accepted.put_nowait(peer)
        try:
            while True:
                received = await peer.receive()
                if not isinstance(received.body, ApiVersionsRequest):
                    peer.inbox.put_nowait(received)
                    continue
                self.greeted.append(received)
                answer = self.greeting(received)
                if answer is None:
                    return
                peer.send(answer)
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            peer.gone.set()
            peer.writer.transport.abort()
