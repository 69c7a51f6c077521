"""Protocol state of a connection to a broker, without I/O: from bytes and the time to responses and bytes to write.

- Every call is settled exactly once, in the order of the calls: by its response (`receive_data`), or by the error that
  closed the connection (`connection_lost`).
- After a loss, a call of which certainly no byte was sent gets ConnectionFailed with `written` false.
- Malformed responses raise an error. After this error the connection has to be closed, because later bytes are untrusted.
"""

# ruff: noqa: I002 - typing would compile each annotation of a NamedTuple at every start

from collections.abc import Awaitable, Callable, Iterator, Mapping
from enum import IntEnum, auto
from math import inf
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar

from aioproducer._core.acceleration import new_tuple
from aioproducer._core.address import Address
from aioproducer._core.backoff import Backoff
from aioproducer._core.net.handshake import Ask, Exchange, ExpectedNode, handshake
from aioproducer._core.net.in_flight import (
    IDS,
    LENGTH,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    Call,
    Decode,
    FrameReader,
    InFlight,
    TokenReader,
    Undecoded,
    decode_unless_large,
)
from aioproducer._core.protocol.schema import (
    ApiVersionTable,
    Message,
    Request,
    decode_response,
    encode,
    encode_request,
)
from aioproducer.errors import ConnectionFailed, ProducerError, ProtocolError

E = TypeVar("E", bound=ProducerError)
R = TypeVar("R", bound=Message)

NEVER_SENT: Final = 2**63
"""Position behind every byte that a connection can send."""


LOGIN_RESPONSE_BYTES: Final = 512 * 1024
"""Maximum size of a response before the authentication has succeeded."""
RESPONSE_BYTES: Final = 1024 * 1024
"""Maximum size of a response to a small request, except responses about a whole cluster (`Message.LARGE`)."""
BYTES_PER_REQUEST_BYTE: Final = 4
"""Addition to `RESPONSE_BYTES` per byte of the request and of later requests: responses have an item per partition."""
BYTES_PER_RECORD: Final = 512
"""Addition to `RESPONSE_BYTES` per record of the request: brokers name each refused record, with a message (KIP-467)."""


class ConnectionSettings(NamedTuple):
    """Settings of connections, with durations in seconds and sizes in bytes."""

    client_id: str | None
    """Client name in the logs and quotas of brokers."""
    request_timeout_s: float
    """Maximum time for a response; after this time the connection is closed."""
    setup_timeout_s: float
    """Maximum time for dial and handshake; doubles with each consecutive failure, up to `setup_timeout_max_s`."""
    setup_timeout_max_s: float
    """Upper bound of the growing `setup_timeout_s` (KIP-601)."""
    idle_timeout_s: float | None
    """Idle time after which a connection is closed; None or 0 for never."""
    reconnect_backoff: Backoff
    """Delay of the next dial after a failed attempt or a lost connection."""
    send_buffer_bytes: int
    """SO_SNDBUF of the socket; -1 leaves the size to the operating system."""
    receive_buffer_bytes: int
    """SO_RCVBUF of the socket; -1 leaves the size to the operating system."""
    throttle_max_s: float = inf
    """Maximum throttle, in seconds. If a broker requests a longer throttle, the client pauses for this maximum."""
    max_response_bytes: int = 100 * 1024 * 1024
    """Maximum size of a response; a larger frame is a protocol error."""
    version_caps: Mapping[int, int] = MappingProxyType({})
    """Highest version to use, by API key; lower than the highest supported version."""
    dial: Callable[[str, int], Awaitable[Any]] | None = None
    """The user's replacement of name lookup and TCP connect; None without a replacement."""


class ConnectionState(IntEnum):
    """State of a connection."""

    HANDSHAKE = auto()
    """The connection runs its handshake."""
    AUTHENTICATION = auto()
    """The connection accepts only SASL requests."""
    READY = auto()
    """The connection accepts requests."""
    RETIRED = auto()
    """The connection accepts no requests; requests in flight still get their responses."""
    CLOSED = auto()


READY, _RETIRED, _CLOSED = ConnectionState.READY, ConnectionState.RETIRED, ConnectionState.CLOSED
"""States compared for every request: before Python 3.12, looking up a member of an Enum costs more than a call."""


class ConnectionProtocol:
    """Protocol state of one connection, from the moment at which bytes can be sent.

    Every method may add frames to `data_to_send` and change `next_timeout`.
    """

    def __init__(
        self,
        address: Address,
        settings: ConnectionSettings,
        node_id: int,
        now: float,
        *,
        has_sasl: bool = False,
        expected: ExpectedNode | None = None,
    ) -> None:
        """A *node_id* below 0 stands for the unknown node at a bootstrap address. The handshake checks *expected*.

        *has_sasl* is true if a session authenticates after the handshake, by `ask` and then `authenticated`.
        """
        self._has_sasl = has_sasl
        self._paused: list[_PausedRequest] | None = None
        self._settings = settings
        # Copies of two settings: a field of a NamedTuple costs three times as much as an attribute (3.11 to 3.13).
        self._client_id, self._timeout_s = settings.client_id, settings.request_timeout_s
        self._frames = self._new_reader()
        self._in_flight = InFlight()
        self._to_send: list[bytearray] = []
        self._accepted = 0  # bytes enqueued; the last may be in _to_send or in the transport
        self._exchange: Exchange = handshake(settings.version_caps, expected)
        self._has_response = False
        self._logins = 0  # SASL requests without a response
        self._retired_until = inf
        self.address: Final = address
        self.node_id: int = node_id
        self.opened_at: Final = now
        self.state: ConnectionState = ConnectionState.HANDSHAKE
        self.versions: ApiVersionTable = ApiVersionTable({})
        """Versions of requests that the broker supports; empty until the handshake is over."""
        self.error: ProducerError | None = None
        """Error that closed the connection; None while it is open, or if this side closed the connection."""
        self.last_used: float = now
        """Time of the last request or received bytes, without SASL (loop clock)."""
        self.next_timeout: float = inf
        """Time to call `handle_timeout` (loop clock). May be too early: an update per response would cost more than an early
        call every half a minute."""
        self.is_exchanging: bool = True
        """True during the handshake, when `receive_data` adds frames to `data_to_send`."""
        self.is_one_way: bool = False
        """True if requests without a response were sent (acks=0)."""
        self.throttled_until: float = 0.0
        """Time at which the broker reads requests again (KIP-219). Callers hold their requests back until this time."""

    def __str__(self) -> str:
        return f"{self.address} ({'bootstrap' if self.node_id < 0 else f'node {self.node_id}'})"

    @property
    def in_flight(self) -> int:
        """Number of calls without a response yet."""
        paused = self._paused
        return len(self._in_flight) + (sum(each.on_answer is not None for each in paused) if paused else 0)

    @property
    def is_closed(self) -> bool:
        """True if the connection is closed."""
        return self.state is _CLOSED

    @property
    def is_done(self) -> bool:
        """True if the connection is retired and every call has its response."""
        return self.state is _RETIRED and not self._in_flight and not self._paused

    @property
    def _sends_tokens(self) -> bool:
        """True during a login whose SASL messages have no header (SaslHandshake v0)."""
        return isinstance(self._frames, TokenReader)

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
        """Enqueue *request*. Without *on_answer* no response is expected; a response that arrives is skipped.

        *version* is by default the highest common version.

        Raises: ConnectionFailed if the connection accepts no requests, UnsupportedVersion if the broker does not support the
            request or a field of the request. If `send` raises, no call is added.
        """
        if self.state is not READY:
            raise self.refusal()
        if version is None:
            version = self.versions.pick(type(request))
        if self._paused is not None:
            # An encoding error is raised here, for this call alone, and not in `resume_requests`.
            encode(request, version)
            self._paused.append(_PausedRequest(request, version, decode, on_answer))
            return
        self._enqueue(request, version, decode, on_answer, now)

    def ask(self, request: Request[R], now: float, on_answer: Callable[[R | ProducerError], None]) -> None:
        """Enqueue the SASL *request*, before requests that are held back.

        After SaslHandshake v0, tokens have no header: Kafka 0.11 has no SaslAuthenticate request (KIP-152).

        Raises: ConnectionFailed, UnsupportedVersion.
        """
        if self.state in {ConnectionState.HANDSHAKE, ConnectionState.CLOSED}:
            raise self.refusal()
        last_used = self.last_used

        def answered(outcome: R | ProducerError) -> None:
            self._logins -= 1
            on_answer(outcome)

        if request.API_KEY == SASL_AUTHENTICATE and self._sends_tokens:
            self._enqueue(request, 0, decode_response, answered, now)
            message: bytes = request.auth_bytes  # type: ignore[attr-defined]  # the class is imported only with SASL
            token = bytearray(LENGTH.pack(len(message)) + message)
            self._accepted += len(token) - len(self._to_send[-1])
            self._to_send[-1] = token
        else:
            version = self.versions.pick(type(request))
            self._enqueue(request, version, decode_response, answered, now)
            if request.API_KEY == SASL_HANDSHAKE and version == 0:
                self._frames = TokenReader(LOGIN_RESPONSE_BYTES, self._in_flight)
        self._logins += 1
        self.last_used = last_used

    def authenticated(self) -> None:
        """Accept requests from now on, and drop the call of the last token, which may have no response (KIP-152)."""
        if self._sends_tokens:
            self._frames, self._logins = self._new_reader(), 0
            self._in_flight.take_all()
        if self.state is ConnectionState.AUTHENTICATION:
            self.state = ConnectionState.READY

    def pause_requests(self) -> None:
        """Hold back later requests: during an authentication a broker accepts only SASL requests (KIP-368)."""
        self._paused = []

    def resume_requests(self, now: float) -> None:
        """Enqueue the requests that were held back; later requests are enqueued at once."""
        paused, self._paused = self._paused, None
        if not self.is_closed:
            for each in paused or ():
                self._enqueue(*each, now)

    def refusal(self) -> ConnectionFailed:
        """Return the error for a request that is not accepted."""
        why = {
            ConnectionState.HANDSHAKE: "the handshake is not over",
            ConnectionState.AUTHENTICATION: "the login is not over",
        }.get(self.state, "the connection is closed")
        return caused(ConnectionFailed(f"{self}: {why}", written=False), self.error)

    def data_to_send(self) -> list[bytearray]:
        """Remove and return the frames to write, in order."""
        frames, self._to_send = self._to_send, []
        return frames

    def receive_data(self, data: bytes, now: float) -> Iterator[tuple[Call, Any, int]]:
        """Yield each call that *data* answers, its response and the number of surplus bytes behind the response.

        No call is yielded after `connection_lost`.

        *data* is consumed once the iterator is exhausted; a response counts as received once yielded.

        Raises: ProtocolError at malformed bytes, after yielding earlier responses; errors of the handshake;
            Undecoded at a large response, after yielding earlier responses: call `decoded`, then
            `receive_data` with no bytes, and pass no other bytes before these two calls.
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
                # `call` is read by index: a field of a NamedTuple costs three times as much (3.11 to 3.13).
                if call[2] >= call[1].CLIENT_PAUSES_FROM and answer.throttle_time_ms:
                    throttle_s = min(answer.throttle_time_ms / 1000, self._settings.throttle_max_s)
                    self.throttled_until = max(self.throttled_until, now + throttle_s)
                if call[4] is _handshake_answered:
                    self._continue_handshake(answer, now)
                else:
                    self._has_response = True
                yield answered
                if self.state is _CLOSED:
                    return
            if frames.begun:
                self._check_incomplete()
        except ProtocolError as error:
            raise ProtocolError(f"{self}: {error}") from error

    def decoded(self, call: Call, result: Callable[[], tuple[Any, int]]) -> None:
        """Set the decoded *result* of *call*, with which `receive_data` continues."""
        self._in_flight.decoded(call, result)

    def handle_timeout(self, now: float) -> None:
        """Check the request timeout, and the deadline of a retired connection.

        A throttling broker reads nothing (KIP-219), so the request timeout restarts at the end of the throttle.

        Raises: ConnectionFailed, caused by a TimeoutError, after a timeout; the caller has to close the connection.
        """
        waited_s = self._settings.request_timeout_s
        answer_by = max(self._in_flight.next_deadline, self.throttled_until + waited_s)
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

    def connection_lost(
        self, cause: ProducerError | None, unwritten: int | None
    ) -> list[tuple[Call, ProducerError]]:
        """Close the connection, and return all calls in flight, oldest first, each call with its error.

        Without *cause* this side has closed the connection. The last *unwritten* bytes of `data_to_send` were certainly not
        sent; None counts all bytes as written.
        """
        unsent = sum(map(len, self._to_send)) + (unwritten or 0)
        self._to_send, self.next_timeout = [], inf
        left_us = self._accepted - unsent
        self.state, self.error = ConnectionState.CLOSED, cause
        reason = ConnectionFailed(f"{self}: closed by this side") if cause is None else cause
        paused = [each.never_sent for each in self._paused or () if each.on_answer]
        calls = self._in_flight.take_all() + paused
        self._paused = None
        return [
            (call, reason)
            if call.starts_at < left_us
            else (call, caused(ConnectionFailed(str(reason), written=False), reason))
            for call in calls
        ]

    def progress(self, now: float) -> str:
        """Return the progress of the connection, for the message about its loss."""
        calls = "1 call" if self.in_flight == 1 else f"{self.in_flight} calls"
        progress = f"after {now - self.opened_at:.3g} s with {calls} in flight"
        if self._frames.begun:
            progress += f", {len(self._frames.begun)} bytes into an answer"
        if self.state is ConnectionState.HANDSHAKE:
            progress += ", before the handshake was over: does this listener require TLS or SASL?"
        elif self._sends_tokens:
            progress += (
                ", during the login; brokers before Kafka 1.0 close the connection after wrong credentials"
            )
        elif self._in_flight and not self._has_response:
            progress += ", before any response but that of the handshake; the listener may require SASL: set security_protocol"
        return progress

    def _enqueue(
        self,
        request: Request[Any],
        version: int,
        decode: Decode,
        on_answer: Callable[[Any], None] | None,
        now: float,
    ) -> None:
        in_flight = self._in_flight
        correlation_id = in_flight.last_id = (in_flight.last_id + 1) % IDS
        frame = encode_request(request, version, correlation_id, self._client_id)
        if on_answer is None:
            self.is_one_way = True
        else:
            deadline = now + self._timeout_s
            response, starts_at, count_records = request.RESPONSE, self._accepted, request.count_records
            # `new_tuple` is Call(…) without its frame.
            fields = correlation_id, response, version, decode, on_answer, deadline, starts_at, count_records
            in_flight.add(new_tuple(Call, fields))
            if deadline < self.next_timeout:  # noqa: PLR1730 - a call of min() costs more
                self.next_timeout = deadline
        self._accepted += len(frame)
        self._to_send.append(frame)
        self.last_used = now

    def _new_reader(self) -> FrameReader:
        return FrameReader(self._settings.max_response_bytes, self._expected_bytes, self._postpone)

    def _ask(self, ask: Ask, now: float) -> None:
        self._enqueue(ask.request, ask.version, ask.decode, _handshake_answered, now)

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
        """Raise Undecoded for the large *payload*, unless the decoder of the call returns a LargeAnswer."""
        call = self._in_flight.expect(payload)
        if call is not None and call.decode is not decode_unless_large:
            raise Undecoded(call, payload)

    def _check_incomplete(self) -> None:
        """Check the start of an incomplete response, so a malformed response is refused before it is complete."""
        if not self._in_flight.may_be_answered:
            raise ProtocolError(f"unexpected {len(self._frames.begun)} bytes: no request is in flight")
        begun = self._frames.begun_payload
        if begun:
            _ = self._in_flight.expect(begun)

    def _continue_handshake(self, answer: Message, now: float) -> None:
        """Pass *answer* to the handshake."""
        try:
            ask = self._exchange.send(answer)
        except StopIteration as over:
            self.versions, self.is_exchanging = over.value, False
            if self.state is ConnectionState.HANDSHAKE:
                self.state = ConnectionState.AUTHENTICATION if self._has_sasl else ConnectionState.READY
        else:
            self._ask(ask, now)


class _PausedRequest(NamedTuple):
    """Request that is held back during an authentication."""

    request: Request[Any]
    version: int
    decode: Decode
    on_answer: Callable[[Any], None] | None

    @property
    def never_sent(self) -> Call:
        """Call of this request, of which no byte was sent."""
        assert self.on_answer is not None, "a request without a response is no call"
        return Call(-1, self.request.RESPONSE, self.version, self.decode, self.on_answer, inf, NEVER_SENT)


def _handshake_answered(outcome: Any) -> None:
    """Stand-in `on_answer` of the handshake's calls: `receive_data` passes their responses to the handshake."""


def caused(error: E, cause: BaseException | None) -> E:
    """Return *error* with *cause* as its cause, as `raise error from cause` would set it."""
    error.__cause__ = cause
    return error
