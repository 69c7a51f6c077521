"""Connection to a broker on asyncio's streams: I/O, clock and timer of a `ConnectionProtocol`.

`Connection` is the StreamReader, without protocol logic: `feed_data` passes received bytes to `ConnectionProtocol`
immediately. A response reaches its callable in the loop iteration of the read, without a task and without a Future.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from aioproducer._core.address import Address
from aioproducer._core.log_limits import LogLimits
from aioproducer._core.metrics import NodeCounters
from aioproducer._core.net.connection_log import ConnectionLog
from aioproducer._core.net.connection_protocol import (
    READY,
    ConnectionProtocol,
    ConnectionSettings,
    ConnectionState,
    caused,
)
from aioproducer._core.net.dial import Dial, configure_socket
from aioproducer._core.net.handshake import ExpectedNode
from aioproducer._core.net.in_flight import Call, Decode, LargeAnswer, Undecoded, decode_unless_large
from aioproducer._core.protocol.schema import ApiVersionTable, Message, Request, decode_response
from aioproducer._core.steps import as_step, step_here
from aioproducer._core.worker_threads import WORK_THREADS
from aioproducer.errors import ConnectionFailed, ProducerError, ProtocolError

if TYPE_CHECKING:
    from aioproducer._core.net.connection_security import ConnectionSecurity


WRITE_BUFFER_BYTES: Final = 1024 * 1024
"""Number of unwritten bytes above which `drain` waits."""
FLUSH_GRACE_S: Final = 1.0
"""Maximum time in which an orderly close writes requests that get no response, in seconds."""

R = TypeVar("R", bound=Message)


class _Writer(asyncio.StreamWriter):
    """A writer whose `write` and `is_closing`, used for every request, are the methods of its transport.

    A deleted writer logs no warning about an open transport, because uvloop closes the transport of a cancelled dial
    and never reports the transport as closing.
    """

    def __init__(
        self, transport: asyncio.Transport, protocol: _Protocol, loop: asyncio.AbstractEventLoop
    ) -> None:
        super().__init__(transport, protocol, None, loop)
        self.write = transport.write  # type: ignore[method-assign]
        self.is_closing = transport.is_closing  # type: ignore[method-assign]

    def __del__(self) -> None:
        pass


class Connection(asyncio.StreamReader):
    """A connection past its handshake, made by `open_connection`; `read` gets no data."""

    on_closed: Callable[[Connection, ProducerError | None], None] | None = None
    """Called once, after every call was settled; the error is None after an intended close."""
    is_reading: bool = False
    """True while `feed_data` passes responses to their callables."""
    after_read: Callable[[], None] | None = None
    """Called once after the last response of a read, and then reset to None."""
    read_at: float = 0.0
    """Time of the last read (loop clock)."""
    throttled_until: float = 0.0
    """Time at which the broker reads requests again (loop clock, KIP-219). The protocol's time is copied,
    because a property costs seven times as much as an attribute on Python 3.11."""

    def __init__(
        self,
        address: Address,
        settings: ConnectionSettings,
        node_id: int,
        loop: asyncio.AbstractEventLoop,
        security: ConnectionSecurity | None,
        expected: ExpectedNode | None = None,
    ) -> None:
        super().__init__(loop=loop)
        self.address: Final = address
        now = loop.time()
        self._security = security
        self._authenticator = security.authenticator(self) if security is not None else None
        has_sasl = self._authenticator is not None
        self._core = ConnectionProtocol(address, settings, node_id, now, has_sasl=has_sasl, expected=expected)
        self._log = ConnectionLog(self._core)
        self._settings, self._loop, self._step = settings, loop, step_here()
        self._protocol = _Protocol(self, loop)
        self._released: asyncio.Future[None] | None = None  # while requests are held back
        self._handshake_done: asyncio.Future[None] = loop.create_future()  # set by the handshake or a close
        self._timer: asyncio.TimerHandle | None = None
        self._decoding: asyncio.Task[tuple[Any, int]] | None = None  # no data is read while the task runs
        self._wakes_at = inf
        self.socket_closed: asyncio.Future[None] = loop.create_future()
        """Done once the socket is closed, after `close`."""
        self.counters: NodeCounters = NodeCounters(now)  # shared with other connections to the node
        self.limits: LogLimits = LogLimits()  # replaced by the limits of the producer
        self.versions: ApiVersionTable = self._core.versions
        """Versions that the broker supports, per API; empty until the handshake is over."""

    def __str__(self) -> str:
        return str(self._core)

    @property
    def node_id(self) -> int:
        """Node id of the broker; below 0 while unknown."""
        return self._core.node_id

    @node_id.setter
    def node_id(self, node_id: int) -> None:
        self._core.node_id = node_id

    @property
    def error(self) -> ProducerError | None:
        """Cause of the loss; None for an open connection and after an intended close."""
        return self._core.error

    @property
    def last_used(self) -> float:
        """Time of the last request or response (loop clock)."""
        return self._core.last_used

    @property
    def idle_since(self) -> float:
        """Time from which a connection without requests in flight counts as idle (loop clock)."""
        return max(self._core.last_used, self.throttled_until)

    @property
    def is_paused(self) -> bool:
        """True while requests are held back for a reauthentication."""
        return self._released is not None

    @property
    def in_flight(self) -> int:
        """Number of calls without a response yet."""
        return self._core.in_flight

    @property
    def closed(self) -> bool:
        """True if the connection accepts no more calls."""
        return not self.accepts_calls()

    def accepts_calls(self) -> bool:
        """Return True if the connection accepts calls: a method, because a property costs twice as much on Python 3.11."""
        return self._core.state is READY and not self._writer.is_closing()

    @property
    def stage(self) -> str:
        """Current stage of `handshake`, for a message."""
        if self._authenticator is None or self._core.state is ConnectionState.HANDSHAKE:
            return "the handshake"
        return self._authenticator.stage

    @property
    def is_throttled(self) -> bool:
        """True while the broker throttles this connection."""
        return self.throttled_until > self._loop.time()

    @property
    def is_one_way(self) -> bool:
        """True if requests without a response were written."""
        return self._core.is_one_way

    async def open_transport(self, dial: Dial) -> None:
        """Open a transport. Raises: the errors of *dial* and of the TLS handshake."""
        if self._security is None:
            await dial(*self.address, lambda: self._protocol)
        else:
            await self._security.dial(dial, self.address, lambda: self._protocol)

    async def handshake(self) -> None:
        """Request the API versions and authenticate. A lost connection sets `error`. Raises: errors of the authentication."""
        if not self._core.is_closed:  # the dial may have lost the connection
            now = self._loop.time()
            self._core.connection_made(now)
            self._write(now)
        await self._handshake_done
        if self._authenticator is not None and not self._core.is_closed:
            await self._authenticator.authenticate()

    def call(
        self,
        request: Request[R],
        on_answer: Callable[[R | ProducerError], None] | None,
        version: int | None = None,
        decode: Decode = decode_response,
        now: float | None = None,
    ) -> None:
        """Write *request* now; *on_answer* is called once, later, with the response or the error.

        Without *on_answer* no response is expected, and a response is skipped. By default *version* is the highest common
        version. *now* is the time (loop clock); None reads the clock.

        Raises: ConnectionFailed if the connection is closed, UnsupportedVersion if the broker does not support the
            request. After an error, no request is written and *on_answer* is not called.
        """
        if self._writer.is_closing():
            raise self._core.refusal()
        if now is None:
            now = self._loop.time()
        self._core.send(request, now, on_answer, version, decode)
        self._write(now)

    def write_only(self, request: Request[Any], *, version: int | None = None) -> None:
        """Write *request* now; the broker sends no response (acks=0). Raises: the errors of `call`."""
        self.call(request, None, version=version)

    async def request(self, request: Request[R], *, version: int | None = None) -> R:
        """Write *request* after `wait_unthrottled`, and return the response; a worker thread decodes a large response.

        Raises: the errors of `call`, and of a connection that is closed during the wait. Cancelling ends only the wait.
        """
        if self.is_throttled:
            await self.wait_unthrottled()
        answered: asyncio.Future[R] = self._loop.create_future()
        self.call(request, partial(resolve, answered), version=version, decode=decode_unless_large)
        answer: R = await decoded(await answered, self.close)
        return answer

    async def wait_unthrottled(self) -> None:
        """Wait until the broker reads requests again (KIP-219), or the connection is closed."""
        while not self.socket_closed.done() and (pause_s := self.throttled_until - self._loop.time()) > 0:
            await asyncio.wait([self.socket_closed], timeout=pause_s)

    def ask(self, request: Request[R]) -> asyncio.Future[R]:
        """Write the SASL *request* and return the Future of its response. Raises: the errors of `call`."""
        answered: asyncio.Future[R] = self._loop.create_future()
        now = self._loop.time()
        self._core.ask(request, now, partial(resolve, answered))
        self._write(now)
        return answered

    def authenticated(self) -> None:
        """Accept requests from now on."""
        self._core.authenticated()

    def pause_requests(self) -> None:
        """Hold back later requests until `resume_requests`; `drain` waits for `resume_requests`."""
        self._core.pause_requests()
        self._released = self._loop.create_future()

    def resume_requests(self) -> None:
        """Write the requests that were held back."""
        self._core.resume_requests(now := self._loop.time())
        self._write(now)
        set_done(self._released)
        self._released = None
        if self._core.is_done:
            self.close()

    async def drain(self) -> None:
        """Wait until at most `WRITE_BUFFER_BYTES` are unwritten and no request is held back.

        Only `drain` bounds the unwritten requests of `write_only`. Cancelling is harmless.
        Raises: ConnectionFailed if the connection is lost, or closed by `drain` after the request timeout.
        """
        timeout_s = self._settings.request_timeout_s
        while not self._core.is_closed:
            try:
                async with asyncio.timeout(timeout_s):
                    if self._released is None:
                        await self._writer.drain()
                        break
                    await asyncio.shield(self._released)
            except ConnectionResetError:
                break  # `lost` has already reported the error
            except TimeoutError:
                if self.throttled_until + timeout_s > self._loop.time():
                    continue  # a throttling broker reads nothing
                unwritten = self._transport.get_write_buffer_size()
                self.close(ConnectionFailed(f"{self}: {unwritten} bytes unwritten after {timeout_s:.3g} s"))
        if self._core.is_closed:
            raise caused(ConnectionFailed(f"{self}: closed before all requests were written"), self.error)

    def retire(self, timeout_s: float = inf) -> None:
        """Accept no more calls; close after the calls in flight are answered, at the latest after *timeout_s*."""
        now = self._loop.time()
        self._core.retire(now + timeout_s)
        if self._core.is_done:
            self.close()
        elif not self._core.is_closed:
            self._write(now)

    @as_step
    def close(self, cause: ProducerError | None = None) -> None:
        """Close the connection now, and settle every call in flight with *cause* before `close` returns.

        Without a cause and without calls in flight, requests of `write_only` are written for up to `FLUSH_GRACE_S`.
        """
        core = self._core
        if core.is_closed:
            return
        self._stop_timer()
        self._timer = self._loop.call_later(FLUSH_GRACE_S, self._end)
        if self._decoding is not None:
            self._decoding.cancel()
        if self._authenticator is not None:
            self._authenticator.stop()
        # asyncio does not report the buffers of TLS.
        has_tls = self._writer.get_extra_info("ssl_object") is not None
        failed = core.connection_lost(cause, None if has_tls else self._transport.get_write_buffer_size())
        if cause is None and not failed:
            self._writer.close()
        else:
            self._transport.abort()
        for call, error in failed:
            try:
                call.on_answer(error)
            except Exception as bug:  # noqa: BLE001 - the other calls get their errors
                self._log.handler_failed(bug, self.limits)
        set_done(self._handshake_done)
        set_done(self._released)
        if self.on_closed is not None:
            self.on_closed(self, cause)

    def _end(self) -> None:
        """Drop unwritten bytes, and resolve `socket_closed` even if a signal handler has interrupted `lost`."""
        self._transport.abort()
        set_done(self.socket_closed)

    async def wait_closed(self) -> None:
        """Wait until the socket is closed. Call `close` first."""
        await asyncio.wait([self.socket_closed])

    def set_transport(self, transport: asyncio.BaseTransport) -> None:
        """Write to *transport* from now on; `handshake` continues after the dial."""
        super().set_transport(transport)
        self._transport = cast("asyncio.Transport", transport)
        self._writer = _Writer(self._transport, self._protocol, self._loop)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self.counters.at(self._loop.time()).opened += 1
        configure_socket(transport, self._settings)

    def feed_data(self, data: bytes) -> None:  # type: ignore[override]  # typeshed: an iterable of integers
        """Settle the calls whose responses are complete with *data*."""
        self.is_reading = True
        try:
            self._step.run(self._hand_out, data)
        except BaseException as interrupt:  # a signal handler raised; a response may be lost
            self.close(ConnectionFailed(f"{self}: {interrupt!r} interrupted the read"))
            raise
        finally:
            self.is_reading, callback, self.after_read = False, self.after_read, None
            if callback is not None:
                callback()

    def _hand_out(self, data: bytes) -> None:
        core, counters, is_exchanging = self._core, self.counters, self._core.is_exchanging
        now = self.read_at = self._loop.time()
        if now >= counters.window_ends_at:
            counters.begin_window(now)
        counters.bytes_in += len(data)
        try:
            for call, answer, surplus in core.receive_data(data, now):
                self.throttled_until = core.throttled_until
                if surplus:
                    self._log.surplus(call, surplus, counters)
                try:
                    call.on_answer(answer)
                except Exception as error:  # noqa: BLE001 - the stream is fine; the state of the caller is unknown
                    self.close(self._log.handler_failed(error, self.limits))
                self.counters.responses += 1
                if core.state is not READY and core.is_done:
                    self.close()
            if self.throttled_until > now or self._log.throttled_until:
                self._log.throttle(now, self.limits)
        except Exception as reason:  # noqa: BLE001 - logged with its traceback
            self._stop_reading(reason)
        if is_exchanging:
            self.versions = core.versions
            self._write(now)
            if core.state is not ConnectionState.HANDSHAKE:
                set_done(self._handshake_done)

    def _stop_reading(self, reason: Exception) -> None:
        """Close the connection because of *reason*, or read no more until a large answer is decoded."""
        if isinstance(reason, Undecoded):
            self._decode(reason)
        else:
            self.close(reason if isinstance(reason, ProducerError) else self._log.bug(reason, self.limits))

    def _decode(self, large: Undecoded) -> None:
        """Decode *large* in a worker thread before the next read: calls are settled in the order of responses."""
        self._transport.pause_reading()
        decoding = WORK_THREADS.run_anyway(large.decode)
        self._decoding = self._loop.create_task(decoding, name=f"aioproducer: decode {large.call}")
        self._decoding.add_done_callback(partial(self._read_on, large.call))

    def _read_on(self, call: Call, decoding: asyncio.Task[tuple[Any, int]]) -> None:
        self._decoding = None
        if decoding.cancelled():  # `close`, or the end of the event loop, cancels the task
            self.close(ConnectionFailed(f"{self}: closed before the answer to {call} was decoded"))
            return
        self._core.decoded(call, decoding.result)
        self.feed_data(b"")
        if not self._writer.is_closing() and self._decoding is None:
            self._transport.resume_reading()

    def feed_eof(self) -> None:
        """Close the connection: a broker that has sent its last byte reads no further request."""
        progress = self._core.progress(self._loop.time())
        self.close(ConnectionFailed(f"{self}: closed by the broker {progress}"))

    @as_step
    def lost(self, exc: Exception | None) -> None:
        """Report the loss of the transport by *exc*, unless the producer has closed the connection."""
        now = self._loop.time()
        refused = None if self._security is None else self._security.lost(exc, self.address)
        lost = refused or ConnectionFailed(f"{self}: lost {self._core.progress(now)}: {exc}")
        self.close(caused(lost, exc))
        self.counters.at(now).closed += 1
        set_done(self.socket_closed)
        self._stop_timer()

    def _write(self, now: float) -> None:
        """Write the frames that are due, and set the timer for the next timeout."""
        core, counters = self._core, self.counters
        for frame in core.data_to_send():
            if now >= counters.window_ends_at:
                counters.begin_window(now)
            counters.requests += 1
            counters.bytes_out += len(frame)
            self._writer.write(frame)
        if core.next_timeout < self._wakes_at:
            self._stop_timer()
            self._wakes_at = core.next_timeout
            self._timer = self._loop.call_at(self._wakes_at, self._on_timer)

    def _on_timer(self) -> None:
        """Close the connection after a timeout. The timer is rarely reset, so it also fires for calls answered long ago."""
        self._timer, self._wakes_at = None, inf
        now = self._loop.time()
        try:
            self._core.handle_timeout(now)
        except ProducerError as error:
            self.close(error)
        self._write(now)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._wakes_at = None, inf


class _Protocol(asyncio.StreamReaderProtocol):
    """StreamReaderProtocol of a connection, which separates the end of the stream from the loss of the transport."""

    def __init__(self, connection: Connection, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(connection, loop=loop)
        self.connection: Final = connection
        self.data_received = connection.feed_data  # type: ignore[method-assign]  # saves a Python call per read

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the loss, then wake the tasks in `drain`, which raise the error of the connection."""
        try:
            self.connection.lost(exc)
        finally:  # a signal handler may raise
            super().connection_lost(None)


def set_done(waiting: asyncio.Future[None] | None) -> None:
    """Resolve *waiting*, if it is pending."""
    if waiting is not None and not waiting.done():
        waiting.set_result(None)


def resolve(answered: asyncio.Future[Any], outcome: Any) -> None:
    """Resolve *answered* with *outcome*, a response or an error, unless it was cancelled."""
    if answered.done():
        return
    if isinstance(outcome, ProducerError):
        answered.set_exception(outcome)
    else:
        answered.set_result(outcome)


async def decoded(answer: Any, refuse: Callable[[ProtocolError], None]) -> Any:
    """Return *answer* decoded. A ProtocolError is raised, and passed to *refuse*, which closes the connection."""
    if not isinstance(answer, LargeAnswer):
        return answer
    try:
        message, _ = await WORK_THREADS.run_anyway(answer.decode)
    except ProtocolError as error:
        refuse(error)
        raise
    return message
