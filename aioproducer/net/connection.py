"""One connection to one broker: requests go out at once, answers come back in the order of the requests.

Who is told what:

- Every `call` is settled exactly once: by its answer, or by the error that the connection was closed for.
- A request of which surely no byte left gets ConnectionFailed with `written` false, if this side closed the connection.
- Where the stream of answers stops making sense the connection is closed: nothing behind that point can be trusted.

It is an asyncio protocol, not a pair of streams: an answer gets from the socket to its callable in one turn of the
event loop, with no task and no future in between.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar, cast

from aioproducer.errors import ConnectionFailed, ProducerError, ProtocolError
from aioproducer.metrics.counters import NodeTally
from aioproducer.net.dial import Address, Dial, configure_socket, dial as dial_any
from aioproducer.net.framing import FrameReader
from aioproducer.net.handshake import handshake
from aioproducer.net.in_flight import Call, Decode, InFlight, resolve
from aioproducer.net.settings import ConnectionSettings
from aioproducer.protocol.frames import decode_response, encode_request
from aioproducer.protocol.schema import Message, Request
from aioproducer.protocol.versions import ApiVersionTable

log: Final = logging.getLogger(__name__)

WRITE_BUFFER_BYTES: Final = 1024 * 1024
"""`drain` waits while more than this is left to write."""
READ_BYTES: Final = 64 * 1024
"""The most that is read at once, into a buffer that stays: asyncio would get 256 KiB from the operating system for
each answer, and give them back."""
FLUSH_GRACE_S: Final = 1.0
"""How long an orderly close waits for the socket to take what nobody expects an answer to."""

E = TypeVar("E", bound=ProducerError)

R = TypeVar("R", bound=Message)


class Connection(asyncio.BufferedProtocol):
    """A connection past its handshake; made by `open`. Its transport calls the methods of asyncio.BufferedProtocol."""

    on_closed: Callable[[Connection, ProducerError | None], None] | None = None
    """Called once, after every call was settled; None if the connection was closed on purpose."""

    def __init__(
        self, address: Address, settings: ConnectionSettings, node_id: int, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._settings = settings
        self._loop = loop
        self._received = memoryview(bytearray(READ_BYTES))
        self._frames = FrameReader(settings.max_response_bytes)
        self._in_flight = InFlight()
        self._handed_over = 0  # bytes, to the transport; some may still be in its buffer
        self._room_to_write: asyncio.Future[None] | None = None  # while the transport's buffer is full
        self._timer: asyncio.TimerHandle | None = None
        self._opened_at = loop.time()
        self._ready = self._heard = self._retired = self._closed = self._told_of_surplus = False
        self.gone: asyncio.Future[None] = loop.create_future()
        """Done once the socket is closed, some time after `close`."""
        self.address = address
        self.node_id = node_id
        self.tally: NodeTally = NodeTally(self._opened_at)  # other connections may count there, too
        self.versions: ApiVersionTable = ApiVersionTable({})
        """Empty until the handshake is over."""
        self.error: ProducerError | None = None
        """What the connection was closed for."""
        self.last_used: float = self._opened_at
        """When the last request was written or the last answer came, in loop time."""
        self.throttled_until: float = 0.0
        """The broker asked for silence until then, in loop time (KIP-219); callers heed it."""

    @classmethod
    async def open(
        cls,
        address: Address,
        settings: ConnectionSettings,
        *,
        dial: Dial = dial_any,
        node_id: int = -1,
        tally: NodeTally | None = None,
        deadline: float | None = None,
    ) -> Connection:
        """Dial *address* and shake hands, until *deadline* in loop time (by default, the setup timeout from now).

        A *node_id* below 0 means that it is not known yet: a bootstrap address. Traffic is counted in *tally*.

        Raises: ConnectionFailed; ProtocolError if something else than a broker answers; BrokerError if it refuses
            the handshake. Then, as when this is cancelled, nothing is left open.
        """
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        if deadline is None:
            deadline = began_at + settings.setup_timeout_s
        connection = cls(address, settings, node_id, loop)
        connection.tally = tally or connection.tally
        await connection._reach(dial, deadline)
        try:
            async with asyncio.timeout_at(deadline):
                connection.versions = await handshake(connection, settings)
        except BaseException as error:
            connection.close()
            await connection.wait_closed()
            if isinstance(error, TimeoutError):
                waited_s = loop.time() - began_at
                raise ConnectionFailed(
                    f"{connection}: connected, but the handshake did not finish within {waited_s:.3g} s"
                ) from error
            raise
        if connection.error is not None:  # lost while the answer was on its way to this coroutine
            await connection.wait_closed()
            raise connection.error
        connection._ready = True
        return connection

    def __str__(self) -> str:
        return f"{self.address} ({'bootstrap' if self.node_id < 0 else f'node {self.node_id}'})"

    @property
    def age_s(self) -> float:
        """How long ago it was opened."""
        return self._loop.time() - self._opened_at

    @property
    def in_flight(self) -> int:
        """How many calls wait for their answer."""
        return len(self._in_flight)

    @property
    def closed(self) -> bool:
        """Whether nothing more can be sent."""
        return self._closed or self._retired or self._transport.is_closing()

    @property
    def muted(self) -> bool:
        """Whether the broker wants no requests now."""
        return self.throttled_until > self._loop.time()

    def call(
        self,
        request: Request[R],
        on_answer: Callable[[R | ProducerError], None],
        *,
        version: int | None = None,
        decode: Decode = decode_response,
    ) -> None:
        """Write *request* now; *on_answer* is called once, later, with its answer or with why there is none.

        Without *version* it is the highest that both sides know.

        Raises: ConnectionFailed if the connection is closed, UnsupportedVersion if the broker does not know such
            requests. Nothing was written then, and *on_answer* is not called.
        """
        version, correlation_id, frame = self._encode(request, version)
        deadline = self._loop.time() + self._settings.request_timeout_s
        self._in_flight.add(
            Call(correlation_id, request.RESPONSE, version, decode, on_answer, deadline, self._handed_over)
        )
        if self._timer is None:
            self._timer = self._loop.call_at(deadline, self._check_oldest)
        self._write(frame)

    def write_only(self, request: Request[Any], *, version: int | None = None) -> None:
        """Write *request* now, which the broker is not to answer: produce requests with acks=0. If it does, no harm.

        Raises: as `call`.
        """
        self._write(self._encode(request, version)[-1])

    async def request(
        self, request: Request[R], *, version: int | None = None, decode: Decode = decode_response
    ) -> R:
        """Send *request* and return its answer. Cancelling stops the waiting; the request is out.

        Raises: as `call`, and the error that the connection was closed for.
        """
        answered: asyncio.Future[R] = self._loop.create_future()
        self.call(request, partial(resolve, answered), version=version, decode=decode)
        return await answered

    async def drain(self) -> None:
        """Wait until the socket has taken most of what was written: nothing else bounds `write_only`.

        Raises: ConnectionFailed if the connection is lost meanwhile, or closed here because that took longer than
            the request timeout. Cancelling only stops the waiting.
        """
        timeout_s = self._settings.request_timeout_s
        if self._room_to_write is not None:
            try:
                async with asyncio.timeout(timeout_s):
                    await asyncio.shield(self._room_to_write)
            except TimeoutError:
                unwritten = self._transport.get_write_buffer_size()
                self.close(ConnectionFailed(f"{self}: {unwritten} bytes were not taken in {timeout_s:.3g} s"))
        if self._closed:
            raise _caused(ConnectionFailed(f"{self}: closed before all was written"), self.error)

    def retire(self) -> None:
        """Take no more calls, and close when those in flight are answered."""
        self._retired = True
        self._close_if_retired()

    def close(self, cause: ProducerError | None = None) -> None:
        """Close now and settle every call in flight with *cause*, before this returns.

        Without a cause and with nothing in flight, what `write_only` left in the buffer still goes out, if the
        broker takes it soon.
        """
        if self._closed:
            return
        self._closed = True
        self.error = cause
        self._stop_timer()
        transport = self._transport
        left_us = self._handed_over - transport.get_write_buffer_size()
        if cause is None and not self._in_flight:
            transport.close()
            self._timer = self._loop.call_later(FLUSH_GRACE_S, transport.abort)
        else:
            transport.abort()
        reason = ConnectionFailed(f"{self}: closed by this side") if cause is None else cause
        for each in self._in_flight.take_all():
            if each.starts_at < left_us:
                self._settle(each, reason)
            else:
                self._settle(each, _caused(ConnectionFailed(str(reason), written=False), reason))
        if self.on_closed is not None:
            self.on_closed(self, cause)

    async def wait_closed(self) -> None:
        """Wait until the socket is closed; to be called after `close`."""
        await asyncio.wait([self.gone])

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep *transport*."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self.tally.at(self._loop.time()).opened += 1
        configure_socket(transport, self._settings)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where to put what comes."""
        return self._received

    def buffer_updated(self, nbytes: int) -> None:
        """Hand out the answers that are complete with the *nbytes* that have come."""
        if self._closed:
            return
        self.last_used = now = self._loop.time()
        if now >= self.tally.window_ends_at:
            self.tally.turn(now)
        self.tally.bytes_in += nbytes
        try:
            self._take(bytes(self._received[:nbytes]))
        except ProtocolError as error:
            self.close(_caused(ProtocolError(f"{self}: {error}"), error))
        except Exception as error:
            log.exception("connection.bug address=%s node_id=%d", self.address, self.node_id)
            self.close(_caused(ConnectionFailed(f"{self}: closed by a bug of ours: {error!r}"), error))

    def eof_received(self) -> None:
        """Close: a broker that says no more will not listen either."""
        self.close(ConnectionFailed(f"{self}: closed by the broker {self._story()}"))

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell everybody, unless this side has closed it."""
        self.close(_caused(ConnectionFailed(f"{self}: lost {self._story()}: {exc}"), exc))
        self._stop_timer()
        self.resume_writing()
        self.tally.at(self._loop.time()).closed += 1
        self.gone.set_result(None)

    def pause_writing(self) -> None:
        """Let `drain` wait."""
        self._room_to_write = self._loop.create_future()

    def resume_writing(self) -> None:
        """Let `drain` go on."""
        if self._room_to_write is not None:
            self._room_to_write.set_result(None)
            self._room_to_write = None

    async def _reach(self, dial: Dial, deadline: float) -> None:
        waiting = asyncio.timeout_at(deadline)
        try:
            async with waiting:
                await dial(*self.address, lambda: self)
        except (OSError, ValueError) as error:
            why = "nothing answered in time" if waiting.expired() else error
            raise ConnectionFailed(f"{self}: cannot connect: {why}", written=False) from error

    def _encode(self, request: Request[Any], version: int | None) -> tuple[int, int, bytearray]:
        if self.closed:
            raise self._refusal()
        if version is None:
            version = self.versions.pick(type(request))
        correlation_id = self._in_flight.new_id()
        frame = encode_request(request, version, correlation_id, self._settings.client_id)
        return version, correlation_id, frame

    def _refusal(self) -> ConnectionFailed:
        return _caused(ConnectionFailed(f"{self}: the connection is closed", written=False), self.error)

    def _write(self, frame: bytearray) -> None:
        size, tally = len(frame), self.tally
        self._handed_over += size
        self.last_used = now = self._loop.time()
        if now >= tally.window_ends_at:
            tally.turn(now)
        tally.requests += 1
        tally.bytes_out += size
        self._transport.write(frame)

    def _take(self, chunk: bytes) -> None:
        for payload in self._frames.feed(chunk):
            matched = self._in_flight.match(payload)
            if matched is None:
                continue
            call, answer, surplus = matched
            if surplus:
                self._note_surplus(call, surplus)
            if call.version >= call.response.CLIENT_PAUSES_FROM and answer.throttle_time_ms:
                until = self.last_used + answer.throttle_time_ms / 1000
                self.throttled_until = max(self.throttled_until, until)
            self._settle(call, answer)
            self.tally.responses += 1
            self._heard = self._ready
            self._close_if_retired()
            if self._closed:
                return
        if self._frames.buffered and not self._in_flight.may_be_answered:
            raise ProtocolError(f"{self._frames.buffered} bytes came that no request was waiting for")
        begun = self._frames.begun_payload
        if begun:  # what may become a hundred megabytes of nonsense is not waited for
            _ = self._in_flight.expect(begun)

    def _note_surplus(self, call: Call, surplus: int) -> None:
        """Say, once per node, that there was more in an answer than belongs there; bootstrap servers may become nodes."""
        self.tally.surplus_answers += 1
        if self.tally.surplus_answers == 1 and not self._told_of_surplus:
            self._told_of_surplus = True
            log.warning(
                "connection.surplus node_id=%d address=%s api=%s version=%d bytes=%d",
                *(self.node_id, self.address, call.api, call.version, surplus),
            )

    def _settle(self, call: Call, outcome: Message | ProducerError) -> None:
        try:
            call.on_answer(outcome)
        except Exception as error:  # the stream is fine, but who knows what state the caller is in
            log.exception("connection.handler_failed address=%s node_id=%d", self.address, self.node_id)
            self.close(_caused(ConnectionFailed(f"{self}: closed by a bug of ours: {error!r}"), error))

    def _close_if_retired(self) -> None:
        if self._retired and not self._in_flight:
            self.close()

    def _check_oldest(self) -> None:
        """The timer: it is set for the oldest call when it is set, and looks again when it goes off."""
        self._timer = None
        if not self._in_flight:
            return
        oldest = self._in_flight.oldest
        if oldest.deadline > self._loop.time():
            self._timer = self._loop.call_at(oldest.deadline, self._check_oldest)
        else:
            waited_s = self._settings.request_timeout_s
            silent = ConnectionFailed(f"{self}: no answer in {waited_s:.3g} s to {oldest}")
            self.close(_caused(silent, TimeoutError("request_timeout_ms")))

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _story(self) -> str:
        calls = "1 call" if self.in_flight == 1 else f"{self.in_flight} calls"
        story = f"after {self.age_s:.3g} s with {calls} in flight"
        if self._frames.buffered:
            story += f", {self._frames.buffered} bytes into an answer"
        if not self._ready:
            story += ", before the handshake was over: does this listener want TLS or SASL?"
        elif self._in_flight and not self._heard:
            story += ", before it answered anything but the handshake: does this listener want SASL?"
        return story


def _caused(error: E, cause: BaseException | None) -> E:
    """As `raise error from cause`, for an error that is handed over instead of raised."""
    error.__cause__ = cause
    return error
