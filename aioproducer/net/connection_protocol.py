"""The protocol state of a connection to a broker: bytes and the time go in, bytes and answers come out; no I/O.

Who is told what:

- Every call is settled exactly once: by its answer (`receive_data`), or by the error that the connection was closed for
  (`connection_lost`), in the order of the calls.
- A request of which surely no byte left gets ConnectionFailed with `written` false, if this side closed the connection.
- Where the stream of answers stops making sense an error is raised, and the connection has to be closed: nothing behind
  that point can be trusted.
"""

# ruff: noqa: I002 - else typing compiles each annotation of a NamedTuple, for which every process waits

from collections.abc import Callable, Iterator, Mapping
from enum import IntEnum, auto
from math import inf
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from aioproducer.backoff import Backoff
from aioproducer.errors import ConnectionFailed, ProducerError, ProtocolError
from aioproducer.net.address import Address
from aioproducer.net.handshake import Ask, Exchange, ExpectedNode, handshake
from aioproducer.net.in_flight import Call, Decode, FrameReader, InFlight
from aioproducer.net.large_answers import Undecoded, decode_unless_large
from aioproducer.protocol.schema import ApiVersionTable, Message, Request, decode_response, encode_request

E = TypeVar("E", bound=ProducerError)
R = TypeVar("R", bound=Message)

Answered: TypeAlias = tuple[Call, Any, int]
"""A call, its answer, and how many bytes the broker sent with it that do not belong there."""
Failed: TypeAlias = tuple[Call, ProducerError]


NEVER_SENT: Final = 2**63
"""Behind every byte that a connection will ever send."""


LOGIN_RESPONSE_BYTES: Final = 512 * 1024
"""Maximum size of a response before the connection is authenticated."""
RESPONSE_BYTES: Final = 1024 * 1024
"""Maximum size of a response to a small request, except those about a whole cluster (`Message.LARGE`)."""
BYTES_PER_REQUEST_BYTE: Final = 4
"""Additional size per byte of the request and of later requests: a response has an item per partition of its request."""
BYTES_PER_RECORD: Final = 512
"""Additional size per record of the request: a broker may name each record that it refuses, with a message (KIP-467)."""


class ConnectionSettings(NamedTuple):
    """Durations in seconds, sizes in bytes."""

    client_id: str | None
    """What brokers call us in their logs and quotas."""
    request_timeout_s: float
    """A connection whose oldest request has waited this long for its answer is closed."""
    setup_timeout_s: float
    """How long dialling and the handshake may take together; doubles with each failed attempt in a row…"""
    setup_timeout_max_s: float
    """… up to this (KIP-601)."""
    idle_timeout_s: float | None
    """Close a connection that was not used for this long; None or 0 never does."""
    reconnect_backoff: Backoff
    """How long a node is left alone after a failed attempt, or a lost connection."""
    send_buffer_bytes: int
    """SO_SNDBUF; -1 leaves it to the operating system."""
    receive_buffer_bytes: int
    """SO_RCVBUF; -1 leaves it to the operating system."""
    throttle_max_s: float = inf
    """Maximum throttle, in seconds. After a longer throttle, requests are sent again after this time."""
    max_response_bytes: int = 100 * 1024 * 1024
    """A frame that announces more than this is garbage, not an answer."""
    version_caps: Mapping[int, int] = MappingProxyType({})
    """Per API key, the highest version to use although we know higher ones."""


class ConnectionState(IntEnum):
    """Where a connection is in its life."""

    HANDSHAKE = auto()
    """An exchange of its own comes first."""
    LOGIN = auto()
    """Takes the requests of a login only."""
    READY = auto()
    """Takes requests."""
    RETIRED = auto()
    """Takes none; those in flight are still answered."""
    CLOSED = auto()


READY, _RETIRED, _CLOSED = ConnectionState.READY, ConnectionState.RETIRED, ConnectionState.CLOSED
"""Asked for with every request: before Python 3.12 to look up a member of an Enum costs more than a call."""


class ConnectionProtocol:
    """One connection, from the moment at which bytes can be sent.

    What is called here may leave something in `data_to_send`, and an earlier `next_timeout`.
    """

    def __init__(
        self,
        address: Address,
        settings: ConnectionSettings,
        node_id: int,
        now: float,
        *,
        logs_in: bool = False,
        expected: ExpectedNode | None = None,
    ) -> None:
        """A *node_id* below 0 means that it is not known yet: a bootstrap address. *expected* goes into the handshake.

        *logs_in*: after the handshake somebody logs in, by `ask`, and says so by `logged_in`.
        """
        self._logs_in = logs_in
        self._held: list[_Held] | None = None
        self._settings = settings
        self._frames = FrameReader(settings.max_response_bytes, self._expected_bytes, self._postpone)
        self._in_flight = InFlight()
        self._to_send: list[bytearray] = []
        self._accepted = (
            0  # bytes; the last of them may still be in _to_send, or in a buffer of the transport
        )
        self._exchange: Exchange[ApiVersionTable] = handshake(settings.version_caps, expected)
        self._is_heard = False
        self._logins = 0  # requests of a login that wait for their answer
        self._retired_until = inf
        self.address: Final = address
        self.node_id: int = node_id
        self.opened_at: Final = now
        self.state: ConnectionState = ConnectionState.HANDSHAKE
        self.versions: ApiVersionTable = ApiVersionTable({})
        """Empty until the handshake is over."""
        self.error: ProducerError | None = None
        """What the connection was closed for; None also if on purpose."""
        self.last_used: float = now
        """When the last request was made or the last bytes came, but those of a login: it is no use of its own."""
        self.next_timeout: float = inf
        """When to call `handle_timeout`; earlier is no harm, and sometimes it is earlier than it had to be: looking for the
        oldest call with each new one, and with each answer, would cost more than a call in half a minute for nothing."""
        self.is_exchanging: bool = True
        """Whether it has something to ask for itself. Only then `receive_data` leaves something in `data_to_send`."""
        self.is_one_way: bool = False
        """Whether there were requests that nobody answers."""
        self.throttled_until: float = 0.0
        """Time at which the broker reads requests again (KIP-219). Callers hold their requests back until then."""

    def __str__(self) -> str:
        return f"{self.address} ({'bootstrap' if self.node_id < 0 else f'node {self.node_id}'})"

    @property
    def in_flight(self) -> int:
        """How many calls wait for their answer."""
        held = self._held
        return len(self._in_flight) + (sum(each.on_answer is not None for each in held) if held else 0)

    @property
    def is_closed(self) -> bool:
        """Whether it has ended."""
        return self.state is _CLOSED

    @property
    def is_done(self) -> bool:
        """Whether it is retired, all is sent and all calls are answered: nothing keeps it open."""
        return self.state is _RETIRED and not self._in_flight and not self._held

    def connection_made(self, now: float) -> None:
        """Begin the handshake."""
        self._ask(next(self._exchange), now)

    def send(
        self,
        request: Request[R],
        now: float,
        on_answer: Callable[[R | ProducerError], None] | None = None,
        version: int | None = None,
        decode: Decode = decode_response,
    ) -> None:
        """Put *request* behind all others. Without *on_answer* the broker is not to answer; if it does, no harm.

        Without *version* it is the highest that both sides know.

        Raises: ConnectionFailed if the connection takes no requests, UnsupportedVersion if the broker does not know
            such ones. There is no call then.
        """
        if self.state is not READY:
            raise self.refusal()
        if version is None:
            version = self.versions.pick(type(request))
        if self._held is not None:
            self._held.append(_Held(request, version, decode, on_answer))
            return
        if on_answer is None:
            self.is_one_way = True
        self._enqueue(request, version, decode, on_answer, now)

    def ask(self, request: Request[R], now: float, on_answer: Callable[[R | ProducerError], None]) -> None:
        """Put *request*, one of a login, behind all others, but before those that are held back.

        Raises: as `send`.
        """
        if self.state in {ConnectionState.HANDSHAKE, ConnectionState.CLOSED}:
            raise self.refusal()
        last_used = self.last_used

        def answered(outcome: R | ProducerError) -> None:
            self._logins -= 1
            on_answer(outcome)

        self._enqueue(request, self.versions.pick(type(request)), decode_response, answered, now)
        self._logins += 1
        self.last_used = last_used

    def logged_in(self) -> None:
        """Take requests from now on."""
        if self.state is ConnectionState.LOGIN:
            self.state = ConnectionState.READY

    def hold(self) -> None:
        """Hold back what is sent from now on: a broker in the middle of a login has no use for it (KIP-368)."""
        self._held = []

    def release(self, now: float) -> None:
        """Send what was held back, and hold back no more."""
        held, self._held = self._held, None
        if not self.is_closed:
            for each in held or ():
                self._enqueue(*each, now)

    def refusal(self) -> ConnectionFailed:
        """Return what to raise for a request that is not taken."""
        why = {
            ConnectionState.HANDSHAKE: "the handshake is not over",
            ConnectionState.LOGIN: "the login is not over",
        }.get(self.state, "the connection is closed")
        return caused(ConnectionFailed(f"{self}: {why}", written=False), self.error)

    def data_to_send(self) -> list[bytearray]:
        """Return the requests that are to be written now, in this order; the next time there are others."""
        frames, self._to_send = self._to_send, []
        return frames

    def receive_data(self, data: bytes, now: float) -> Iterator[Answered]:
        """Yield each call that is answered with *data*, none after `connection_lost`.

        The data is consumed when the iterator is exhausted; an answer counts as soon as it is yielded.

        Raises: ProtocolError, after the answers before it, where the bytes make no sense; whatever ends the handshake.
            Undecoded, after the answers before it, at a large answer: call `decoded`, then `receive_data` with no bytes,
            and feed nothing in between.
        """
        if self.state is _CLOSED:
            return
        frames, in_flight = self._frames, self._in_flight
        if not self._logins or len(in_flight) > self._logins:
            self.last_used = now
        try:
            for payload in frames.feed(data):
                answered = in_flight.match(payload)
                if answered is None:
                    continue
                call, answer, _ = answered
                if call.version >= call.response.CLIENT_PAUSES_FROM and answer.throttle_time_ms:
                    throttle_s = min(answer.throttle_time_ms / 1000, self._settings.throttle_max_s)
                    self.throttled_until = max(self.throttled_until, now + throttle_s)
                if call.on_answer is _of_the_exchange:
                    self._go_on(answer, now)
                else:
                    self._is_heard = True
                yield answered
                if self.state is _CLOSED:
                    return
            if frames.begun:
                self._look_at_the_rest()
        except ProtocolError as error:
            raise ProtocolError(f"{self}: {error}") from error

    def decoded(self, call: Call, result: Callable[[], tuple[Any, int]]) -> None:
        """Let `receive_data` go on with *result* for *call*, which it left undecoded."""
        self._in_flight.decoded(call, result)

    def handle_timeout(self, now: float) -> None:
        """Check that the broker has not been silent for too long.

        A broker that throttles reads nothing (KIP-219), so the request timeout begins again at the end of the throttle.

        Raises: ConnectionFailed if it has been, caused by a TimeoutError: the connection has to be closed.
        """
        waited_s, answer_by = self._settings.request_timeout_s, self._in_flight.next_deadline
        if answer_by < inf:
            answer_by = max(answer_by, self.throttled_until + waited_s)
        self.next_timeout = min(answer_by, self._retired_until)
        if self._retired_until <= now:
            unanswered = "1 request is" if self.in_flight == 1 else f"{self.in_flight} requests are"
            retired = ConnectionFailed(f"{self}: retired, and {unanswered} unanswered")
            raise caused(retired, TimeoutError())
        if self.next_timeout <= now:
            oldest = self._in_flight.oldest
            silent = ConnectionFailed(f"{self}: no answer in {waited_s:.3g} s to {oldest}")
            raise caused(silent, TimeoutError("request_timeout_ms"))

    def retire(self, until: float = inf) -> None:
        """Accept no more requests; `handle_timeout` raises if responses are outstanding at *until* (loop time)."""
        if not self.is_closed:
            self.state = ConnectionState.RETIRED
            self._retired_until = min(self._retired_until, until)
            self.next_timeout = min(self.next_timeout, until)

    def connection_lost(self, cause: ProducerError | None, unwritten: int | None) -> list[Failed]:
        """Close; return all calls in flight, oldest first, and what to tell each. None of it is left after that.

        Without *cause* it was this side that wanted it so. Of what `data_to_send` has given out the last *unwritten*
        bytes have surely not left; None if nobody can tell, and then all of it counts as written.
        """
        unsent = sum(map(len, self._to_send)) + (unwritten or 0)
        self._to_send, self.next_timeout = [], inf
        left_us = self._accepted - unsent
        self.state, self.error = ConnectionState.CLOSED, cause
        reason = ConnectionFailed(f"{self}: closed by this side") if cause is None else cause
        calls = [
            *self._in_flight.take_all(),
            *(each.never_sent for each in self._held or () if each.on_answer),
        ]
        self._held = None
        return [
            (call, reason)
            if call.starts_at < left_us
            else (call, caused(ConnectionFailed(str(reason), written=False), reason))
            for call in calls
        ]

    def story(self, now: float) -> str:
        """Tell how far the connection got: for whoever wonders why it was lost."""
        calls = "1 call" if self.in_flight == 1 else f"{self.in_flight} calls"
        story = f"after {now - self.opened_at:.3g} s with {calls} in flight"
        if self._frames.begun:
            story += f", {len(self._frames.begun)} bytes into an answer"
        if self.state is ConnectionState.HANDSHAKE:
            story += ", before the handshake was over: does this listener want TLS or SASL?"
        elif self._in_flight and not self._is_heard:
            story += ", before it answered anything but the handshake: does this listener want SASL?"
        return story

    def _enqueue(
        self,
        request: Request[Any],
        version: int,
        decode: Decode,
        on_answer: Callable[[Any], None] | None,
        now: float,
    ) -> None:
        correlation_id = self._in_flight.new_id()
        frame = encode_request(request, version, correlation_id, self._settings.client_id)
        if on_answer is not None:
            deadline = now + self._settings.request_timeout_s
            # As Call(…), without its frame.
            fields = correlation_id, request.RESPONSE, version, decode, on_answer, deadline, self._accepted
            self._in_flight.add(tuple.__new__(Call, (*fields, request.count_records)))
            if deadline < self.next_timeout:  # noqa: PLR1730 - a call would take longer than all of that
                self.next_timeout = deadline
        self._accepted += len(frame)
        self._to_send.append(frame)
        self.last_used = now

    def _ask(self, ask: Ask, now: float) -> None:
        self._enqueue(ask.request, ask.version, ask.decode, _of_the_exchange, now)

    def _expected_bytes(self) -> int:
        """Return the maximum size of the next response, which bounds the memory and time that a broker can cost."""
        if self.state < READY:
            return LOGIN_RESPONSE_BYTES
        if not self._in_flight:
            return RESPONSE_BYTES
        oldest = self._in_flight.oldest
        if oldest.response.LARGE:
            return self._settings.max_response_bytes
        size = RESPONSE_BYTES + BYTES_PER_REQUEST_BYTE * (self._accepted - oldest.starts_at)
        if oldest.count_records is not None:
            size += BYTES_PER_RECORD * oldest.count_records()
        return min(size, self._settings.max_response_bytes)

    def _postpone(self, payload: bytes) -> None:
        """Raise Undecoded for *payload*, which is large, unless its caller decodes it later."""
        call = self._in_flight.expect(payload)
        if call is not None and call.decode is not decode_unless_large:
            raise Undecoded(call, payload)

    def _look_at_the_rest(self) -> None:
        """Look at what has come of an answer that is not whole: nonsense of a hundred megabytes is not waited for."""
        if not self._in_flight.may_be_answered:
            raise ProtocolError(f"{len(self._frames.begun)} bytes came that no request was waiting for")
        begun = self._frames.begun_payload
        if begun:
            _ = self._in_flight.expect(begun)

    def _go_on(self, answer: Message, now: float) -> None:
        """Let the exchange that is under way have its answer."""
        try:
            ask = self._exchange.send(answer)
        except StopIteration as over:
            self.versions, self.is_exchanging = over.value, False
            if self.state is ConnectionState.HANDSHAKE:
                self.state = ConnectionState.LOGIN if self._logs_in else ConnectionState.READY
        else:
            self._ask(ask, now)


class _Held(NamedTuple):
    """A request that is held back during a login."""

    request: Request[Any]
    version: int
    decode: Decode
    on_answer: Callable[[Any], None] | None

    @property
    def never_sent(self) -> Call:
        """The call, of which no byte has left."""
        assert self.on_answer is not None, "what is not to be answered is no call"
        return Call(-1, self.request.RESPONSE, self.version, self.decode, self.on_answer, inf, NEVER_SENT)


def _of_the_exchange(outcome: Any) -> None:
    """Stand in as `on_answer` of a call of the connection itself: `receive_data` has given the answer to the exchange."""


def caused(error: E, cause: BaseException | None) -> E:
    """As `raise error from cause`, for an error that is handed over instead of raised."""
    error.__cause__ = cause
    return error
