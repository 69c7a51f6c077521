"""A connection to a broker on asyncio's streams: the shell of `ConnectionProtocol`, with the clock and the timer.

`Connection` is the StreamReader, and decides nothing: its `feed_data` passes the received bytes to `ConnectionProtocol`
immediately. So a response reaches its callable in the loop iteration of the read, without a task and without a Future.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from aioproducer.errors import ConnectionFailed, ProducerError
from aioproducer.log_limits import LogLimits
from aioproducer.metrics.counters import NodeTally
from aioproducer.net.address import Address
from aioproducer.net.connection_protocol import (
    READY,
    ConnectionProtocol,
    ConnectionSettings,
    ConnectionState,
    caused,
)
from aioproducer.net.dial import Dial, configure_socket
from aioproducer.net.handshake import ExpectedNode
from aioproducer.net.in_flight import Call, Decode
from aioproducer.net.large_answers import Undecoded, decode_unless_large
from aioproducer.net.waiting import decoded, let_go, resolve
from aioproducer.protocol.schema import ApiVersionTable, Message, Request, decode_response
from aioproducer.steps import Log, as_step, step_here
from aioproducer.worker_threads import WORK_THREADS

if TYPE_CHECKING:  # it brings TLS and logins with it, which not everybody needs
    from aioproducer.net.connection_security import ConnectionSecurity

log: Final = Log(__name__)

WRITE_BUFFER_BYTES: Final = 1024 * 1024
"""`drain` waits while more than this is left to write."""
LONG_THROTTLE_S: Final = 1.0
"""Shortest throttle that is logged."""
FLUSH_GRACE_S: Final = 1.0
"""How long an orderly close waits for the socket to take what nobody expects an answer to."""

R = TypeVar("R", bound=Message)


class Connection(asyncio.StreamReader):
    """A connection past its handshake, made by `open_connection`. It buffers no data for `read`."""

    on_closed: Callable[[Connection, ProducerError | None], None] | None = None
    """Called once, after every call was settled; None if the connection was closed on purpose."""
    is_reading: bool = False
    """Whether answers that have come are being handed out …"""
    after_read: Callable[[], None] | None = None
    """… and what to call, once, behind the last of them."""

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
        now = loop.time()
        self._security = security
        self._session = security.session(self) if security is not None else None
        logs_in = self._session is not None
        self._core = ConnectionProtocol(address, settings, node_id, now, logs_in=logs_in, expected=expected)
        self._settings, self._loop, self._step = settings, loop, step_here()
        self._protocol = _Protocol(self, loop)
        self._released: asyncio.Future[None] | None = None  # while requests are held back
        self._shaken_hands: asyncio.Future[None] = loop.create_future()  # or closed
        self._timer: asyncio.TimerHandle | None = None
        self._decoding: asyncio.Task[tuple[Any, int]] | None = None  # meanwhile nothing is read
        self._wakes_at = inf
        self._told_of_surplus = False
        self._noted_throttle = 0.0  # end of the logged throttle; 0 after a response without a throttle
        self.gone: asyncio.Future[None] = loop.create_future()
        """Done once the socket is closed, some time after `close`."""
        self.address: Final = address
        self.tally: NodeTally = NodeTally(now)  # other connections may count there, too
        self.limits: LogLimits = LogLimits()
        """Log limits of the producer."""

    def __str__(self) -> str:
        return str(self._core)

    @property
    def node_id(self) -> int:
        """Whose connection it is; below 0 while that is not known."""
        return self._core.node_id

    @node_id.setter
    def node_id(self, node_id: int) -> None:
        self._core.node_id = node_id

    @property
    def versions(self) -> ApiVersionTable:
        """What the broker speaks."""
        return self._core.versions

    @property
    def error(self) -> ProducerError | None:
        """What the connection was closed for; None also if on purpose."""
        return self._core.error

    @property
    def last_used(self) -> float:
        """When the last request was written or the last answer came, in loop time."""
        return self._core.last_used

    @property
    def throttled_until(self) -> float:
        """Time at which the broker reads requests again, in loop time (KIP-219)."""
        return self._core.throttled_until

    @property
    def idle_since(self) -> float:
        """Time from which on the connection counts as idle while nothing is in flight, in loop time."""
        return max(self._core.last_used, self._core.throttled_until)

    @property
    def held(self) -> bool:
        """True while requests are held back for a login."""
        return self._released is not None

    @property
    def in_flight(self) -> int:
        """How many calls wait for their answer."""
        return self._core.in_flight

    @property
    def closed(self) -> bool:
        """Whether nothing more can be sent."""
        return self._core.state is not READY or self._writer.is_closing()

    @property
    def waits_for(self) -> str:
        """What is not over yet of `shake_hands`, for people."""
        if self._session is None or self._core.state is ConnectionState.HANDSHAKE:
            return "the handshake"
        return self._session.story

    @property
    def muted(self) -> bool:
        """Whether the broker wants no requests now."""
        return self._core.throttled_until > self._loop.time()

    @property
    def is_one_way(self) -> bool:
        """Whether requests were written that nobody answers."""
        return self._core.is_one_way

    async def reach(self, dial: Dial) -> None:
        """Get a transport. Raises: what *dial* raises, and TLS."""
        if self._security is None:
            await dial(*self.address, lambda: self._protocol)
        else:
            await self._security.dial(dial, self.address, lambda: self._protocol)

    async def shake_hands(self) -> None:
        """Ask for versions, and log in; if it is lost meanwhile, `error` says so. Raises: what the login raises."""
        if not self._core.is_closed:  # not lost before the dial was over
            now = self._loop.time()
            self._core.connection_made(now)
            self._write(now)
        await self._shaken_hands
        if self._session is not None and not self._core.is_closed:
            await self._session.log_in()

    def call(
        self,
        request: Request[R],
        on_answer: Callable[[R | ProducerError], None] | None,
        *,
        version: int | None = None,
        decode: Decode = decode_response,
    ) -> None:
        """Write *request* now; *on_answer* is called once, later, with its answer or with why there is none.

        Without it the broker is not to answer; if it does, no harm. Without *version* it is the highest that both sides know.

        Raises: ConnectionFailed if the connection is closed, UnsupportedVersion if the broker does not know such
            requests. Nothing was written then, and *on_answer* is not called.
        """
        if self._writer.is_closing():
            raise self._core.refusal()
        now = self._loop.time()
        self._core.send(request, now, on_answer, version, decode)
        self._write(now)

    def write_only(self, request: Request[Any], *, version: int | None = None) -> None:
        """Write *request* now, which the broker is not to answer: one with acks=0. Raises: as `call`."""
        self.call(request, None, version=version)

    async def request(self, request: Request[R], *, version: int | None = None) -> R:
        """Return the answer to *request*, written once the broker is `unmuted`; cancelling stops the waiting.

        A large answer is decoded in a worker thread.

        Raises: as `call`, and why it was closed.
        """
        if self.muted:
            await self.unmuted()
        answered: asyncio.Future[R] = self._loop.create_future()
        self.call(request, partial(resolve, answered), version=version, decode=decode_unless_large)
        answer: R = await decoded(await answered, self.close)
        return answer

    async def unmuted(self) -> None:
        """Wait until the broker reads requests again (KIP-219), or the connection is closed."""
        while not self.gone.done() and (pause_s := self._core.throttled_until - self._loop.time()) > 0:
            await asyncio.wait([self.gone], timeout=pause_s)

    def ask(self, request: Request[R]) -> asyncio.Future[R]:
        """Write *request*, one of a login; the future has its answer. Raises: as `call`."""
        answered: asyncio.Future[R] = self._loop.create_future()
        now = self._loop.time()
        self._core.ask(request, now, partial(resolve, answered))
        self._write(now)
        return answered

    def logged_in(self) -> None:
        """Take requests from now on."""
        self._core.logged_in()

    def hold(self) -> None:
        """Hold back requests that are sent from now on, until `release`; `drain` waits as long."""
        self._core.hold()
        self._released = self._loop.create_future()

    def release(self) -> None:
        """Write what was held back."""
        self._core.release(now := self._loop.time())
        self._write(now)
        let_go(self._released)
        self._released = None
        if self._core.is_done:
            self.close()

    async def drain(self) -> None:
        """Wait until the socket has taken most of what was written, or held: nothing else bounds `write_only`.

        Raises: ConnectionFailed if it is lost meanwhile, or closed here after the request timeout. Cancelling is harmless.
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
                break  # reported to `lost` before
            except TimeoutError:
                if self._core.throttled_until + timeout_s > self._loop.time():
                    continue  # a throttling broker reads nothing
                unwritten = self._transport.get_write_buffer_size()
                self.close(ConnectionFailed(f"{self}: {unwritten} bytes were not taken in {timeout_s:.3g} s"))
        if self._core.is_closed:
            raise caused(ConnectionFailed(f"{self}: closed before all was written"), self.error)

    def retire(self, patience_s: float = inf) -> None:
        """Accept no more calls; close after the calls in flight are answered, at the latest after *patience_s*."""
        now = self._loop.time()
        self._core.retire(now + patience_s)
        if self._core.is_done:
            self.close()
        elif not self._core.is_closed:
            self._write(now)

    @as_step
    def close(self, cause: ProducerError | None = None) -> None:
        """Close now and settle every call in flight with *cause*, before this returns.

        Without a cause and with nothing in flight, what `write_only` left in the buffer still goes out, if the
        broker takes it soon.
        """
        core = self._core
        if core.is_closed:
            return
        self._stop_timer()
        self._timer = self._loop.call_later(FLUSH_GRACE_S, self._end)
        if self._decoding is not None:
            self._decoding.cancel()
        if self._session is not None:
            self._session.end()
        failed = core.connection_lost(cause, self._unwritten())
        if cause is None and not failed:
            self._writer.close()
        else:
            self._transport.abort()
        for call, error in failed:
            self._settle(call, error)
        let_go(self._shaken_hands)
        let_go(self._released)
        if self.on_closed is not None:
            self.on_closed(self, cause)

    def _end(self) -> None:
        """Drop what is unsent. `gone` is done even if a signal handler has interrupted `lost`."""
        self._transport.abort()
        let_go(self.gone)

    async def wait_closed(self) -> None:
        """Wait until the socket is closed; to be called after `close`."""
        await asyncio.wait([self.gone])

    def set_transport(self, transport: asyncio.BaseTransport) -> None:
        """Write to *transport*; `shake_hands` goes on when the dial is over."""
        super().set_transport(transport)
        self._transport = cast("asyncio.Transport", transport)
        self._writer = asyncio.StreamWriter(self._transport, self._protocol, None, self._loop)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self.tally.at(self._loop.time()).opened += 1
        configure_socket(transport, self._settings)

    def feed_data(self, data: bytes) -> None:  # type: ignore[override]  # typeshed: an iterable of integers
        """Settle the calls whose responses are complete with *data*."""
        self.is_reading = True
        try:
            self._step.run(self._hand_out, data)
        except BaseException as interrupt:  # of a signal handler: an answer may be lost
            self.close(ConnectionFailed(f"{self}: {interrupt!r} interrupted the reading"))
            raise
        finally:
            self.is_reading, callback, self.after_read = False, self.after_read, None
            if callback is not None:
                callback()

    def _hand_out(self, data: bytes) -> None:
        core, tally, is_exchanging = self._core, self.tally, self._core.is_exchanging
        now = self._loop.time()
        if now >= tally.window_ends_at:
            tally.begin_window(now)
        tally.bytes_in += len(data)
        try:
            for call, answer, surplus in core.receive_data(data, now):
                if surplus:
                    self._note_surplus(call, surplus)
                self._settle(call, answer)
                self.tally.responses += 1
                if core.is_done:
                    self.close()
            if core.throttled_until > now or self._noted_throttle:
                self._note_throttle(now)
        except Exception as reason:  # noqa: BLE001 - logged with its traceback
            self._stop_reading(reason)
        if is_exchanging:
            self._write(now)
            if core.state is not ConnectionState.HANDSHAKE:
                let_go(self._shaken_hands)

    def _stop_reading(self, reason: Exception) -> None:
        """Close because of *reason*, or read no more until a large answer is decoded."""
        if isinstance(reason, Undecoded):
            self._decode(reason)
        elif isinstance(reason, ProducerError):
            self.close(reason)
        else:
            self.limits.log(log, logging.ERROR, str(self), "connection.bug connection=%s", self, error=reason)
            self.close(self._our_bug(reason))

    def _decode(self, large: Undecoded) -> None:
        """Decode *large* in a worker thread, and read on afterwards: answers are settled in their order."""
        self._transport.pause_reading()
        decoding = WORK_THREADS.run_anyway(large.decode)
        self._decoding = self._loop.create_task(decoding, name=f"aioproducer: decode {large.call}")
        self._decoding.add_done_callback(partial(self._read_on, large.call))

    def _read_on(self, call: Call, decoding: asyncio.Task[tuple[Any, int]]) -> None:
        self._decoding = None
        if decoding.cancelled():  # by `close`, or by the end of the event loop
            self.close(ConnectionFailed(f"{self}: closed before the answer to {call} was decoded"))
            return
        self._core.decoded(call, decoding.result)
        self.feed_data(b"")
        if not self._writer.is_closing() and self._decoding is None:
            self._transport.resume_reading()

    def feed_eof(self) -> None:
        """Close: a broker that has sent its last byte reads no further request."""
        story = self._core.story(self._loop.time())
        self.close(ConnectionFailed(f"{self}: closed by the broker {story}"))

    @as_step
    def lost(self, exc: Exception | None) -> None:
        """Report the loss of the transport by *exc*, unless this side has closed the connection."""
        now = self._loop.time()
        refused = None if self._security is None else self._security.lost(exc, self.address)
        lost = refused or ConnectionFailed(f"{self}: lost {self._core.story(now)}: {exc}")
        self.close(caused(lost, exc))
        self.tally.at(now).closed += 1
        let_go(self.gone)
        self._stop_timer()

    def _write(self, now: float) -> None:
        """Write what there is to write, and see to it that the timer goes off in time for the answer."""
        core, tally = self._core, self.tally
        for frame in core.data_to_send():
            size = len(frame)
            if now >= tally.window_ends_at:
                tally.begin_window(now)
            tally.requests += 1
            tally.bytes_out += size
            self._writer.write(frame)
        if core.next_timeout < self._wakes_at:
            self._stop_timer()
            self._wakes_at = core.next_timeout
            self._timer = self._loop.call_at(self._wakes_at, self._on_timer)

    def _unwritten(self) -> int | None:
        """Return how many of the bytes that were handed over are surely still here; None if nobody can tell.

        The one place that knows: TLS has buffers of its own, of which asyncio tells nothing.
        """
        if self._writer.get_extra_info("ssl_object") is not None:
            return None
        return self._transport.get_write_buffer_size()

    def _note_surplus(self, call: Call, surplus: int) -> None:
        """Say, once per node, that there was more in an answer than belongs there; bootstrap servers may become nodes."""
        self.tally.surplus_answers += 1
        if self.tally.surplus_answers == 1 and not self._told_of_surplus:
            self._told_of_surplus = True
            log.warning(
                "connection.surplus node_id=%d address=%s api=%s version=%d bytes=%d",
                *(self.node_id, self.address, call.api, call.version, surplus),
            )

    def _note_throttle(self, now: float) -> None:
        """Log the start of a throttle, or the first response after it without a throttle."""
        until, subject = self._core.throttled_until, f"node_id={self.node_id}"
        if until > self._noted_throttle and until - now >= LONG_THROTTLE_S:
            self._noted_throttle = until
            self.limits.log(
                log,
                logging.WARNING,
                subject,
                "connection.throttled %s address=%s throttle_s=%.3f",
                *(subject, self.address, until - now),
            )
        elif until <= now:
            self._noted_throttle = 0.0
            _ = self.limits.over(
                "connection.throttled",
                subject,
                "connection.unthrottled %s address=%s",
                *(subject, self.address),
            )

    def _settle(self, call: Call, outcome: Message | ProducerError) -> None:
        try:
            call.on_answer(outcome)
        except Exception as error:  # noqa: BLE001 - the stream is fine; the state of the caller is unknown
            self.limits.log(
                log, logging.ERROR, str(self), "connection.handler_failed connection=%s", self, error=error
            )
            self.close(self._our_bug(error))

    def _our_bug(self, error: Exception) -> ConnectionFailed:
        return caused(ConnectionFailed(f"{self}: closed by a bug of ours: {error!r}"), error)

    def _on_timer(self) -> None:
        """The timer is seldom set anew, so it goes off for calls that were answered long ago, too."""
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

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the loss, then wake the tasks in `drain`: the connection has the reason."""
        try:
            self.connection.lost(exc)
        finally:  # a signal handler may raise
            super().connection_lost(None)
