"""Calls in flight on one connection, and the frames of its byte stream; no I/O.

    (length:int32 payload:byte[length])*

A broker handles the requests of a connection one after the other, so responses arrive in the order of the requests.
A worker thread decodes large responses, so that no frame blocks the event loop.

Source: https://kafka.apache.org/protocol.html#protocol_network
"""

# ruff: noqa: I002 - typing would compile each annotation of a NamedTuple at every start

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from math import inf
from struct import Struct
from typing import Any, Final, NamedTuple, TypeAlias

from aioproducer._core.protocol.fields import field_specs
from aioproducer._core.protocol.schema import Message, decode_response, read_correlation_id, response_body
from aioproducer._core.wire import read_int32
from aioproducer.errors import ProtocolError

LENGTH: Final = Struct(">i")
LENGTH_BYTES: Final = LENGTH.size
MIN_PAYLOAD_BYTES: Final = 4
"""Minimum size of a payload: the correlation id of a response."""
SASL_HANDSHAKE: Final = 17
SASL_AUTHENTICATE: Final = 36
"""API keys of SaslHandshake and SaslAuthenticate; `protocol.client` is imported only with SASL or telemetry."""
TOKEN_START: Final = Struct(">ihhi")
"""Fields before the token in a response to SaslAuthenticate v0: correlation id, error code, message and length."""

UNCHECKED_BYTES: Final = 64 * 1024
"""Size in bytes up to which a frame may answer any request."""

_FOREIGN: Final = (
    (b"\x15\x03", "a TLS alert: this port expects TLS, and received plaintext"),
    (b"\x16\x03", "a TLS handshake: the peer starts TLS"),
    (b"HTTP", "an HTTP response: this is a web server's port"),
    (b"SSH-", "an SSH greeting: this is an SSH server's port"),
)


class FrameReader:
    """Splits a byte stream, received in chunks of any size, into the payloads of its frames."""

    _min = MIN_PAYLOAD_BYTES

    def __init__(
        self,
        max_payload_bytes: int,
        expected_bytes: Callable[[], int] | None = None,
        on_large: Callable[[bytes], None] | None = None,
    ) -> None:
        """*expected_bytes* returns the maximum size of the next frame, which depends on the answered request.

        *on_large* is called with each payload of more than `UNCHECKED_BYTES`. If *on_large* raises, the next `feed`
        returns the large payload first, without another call of *on_large*.
        """
        self._max = max_payload_bytes
        self._unchecked = min(max_payload_bytes, UNCHECKED_BYTES)
        self._expected_bytes = expected_bytes
        self._on_large = on_large
        self._postponed: bytes | None = None  # the payload for which on_large has raised
        self.begun: bytearray = bytearray()
        """Bytes of an unfinished frame, including the length field."""
        self._wanted = LENGTH_BYTES  # length of `begun` at which the frame is read again

    @property
    def begun_payload(self) -> bytes:
        """First `MIN_PAYLOAD_BYTES` bytes of an unfinished frame's payload; empty if the payload has fewer bytes."""
        start = bytes(self.begun[LENGTH_BYTES : LENGTH_BYTES + MIN_PAYLOAD_BYTES])
        return start if len(start) == MIN_PAYLOAD_BYTES else b""

    def feed(self, data: bytes) -> Iterable[bytes]:
        """Return each payload that is complete with *data*. *data* is consumed once the iterable is exhausted.

        Raises, while iterating: ProtocolError at an invalid length, after the payloads of earlier frames. The reader
            cannot be used after a ProtocolError, because the start of the next frame is unknown.
        """
        # Nearly every response arrives as one whole small frame, which needs no generator.
        if not self.begun and len(data) > LENGTH_BYTES:
            (length,) = LENGTH.unpack_from(data)
            if self._min <= length <= self._unchecked and length == len(data) - LENGTH_BYTES:
                return (data[LENGTH_BYTES:],)
        return self._payloads(data)

    def _payloads(self, data: bytes) -> Iterator[bytes]:
        if self._postponed is not None:
            postponed, self._postponed = self._postponed, None
            yield postponed
        if self.begun:
            self.begun += data
            if len(self.begun) < self._wanted:
                return
            data = bytes(self.begun)
            self.begun.clear()
        pos, end, size = 0, LENGTH_BYTES, len(data)
        while end <= size:
            (length,) = LENGTH.unpack_from(data, pos)
            most = self._max
            if UNCHECKED_BYTES < length <= most and self._expected_bytes is not None:
                most = self._expected_bytes()
            if not self._min <= length <= most:
                head = data[pos:end]
                likeness = next((f", like {what}" for start, what in _FOREIGN if head.startswith(start)), "")
                raise ProtocolError(
                    f"a Kafka frame cannot be {length} bytes long ({self._min} to {most} are possible);"
                    f" it begins with {head!r}{likeness}"
                )
            end += length
            if end > size:
                break
            payload = data[pos + LENGTH_BYTES : end]
            pos, end = end, end + LENGTH_BYTES
            if length > UNCHECKED_BYTES and self._on_large is not None:
                self.begun += memoryview(data)[pos:]
                self._wanted, self._postponed = LENGTH_BYTES, payload
                self._on_large(payload)
                yield from self._payloads(b"")
                return
            yield payload
        if pos < size:
            self.begun += memoryview(data)[pos:]
        self._wanted = end - pos


class TokenReader(FrameReader):
    """Reads SASL tokens without headers, which follow SaslHandshake v0, as responses to SaslAuthenticate v0 (KIP-43)."""

    _min = 0

    def __init__(self, max_payload_bytes: int, in_flight: "InFlight") -> None:
        """*in_flight* contains the calls that the tokens answer."""
        super().__init__(max_payload_bytes)
        self._in_flight = in_flight

    @property
    def begun_payload(self) -> bytes:
        """Always empty: a token has no correlation id."""
        return b""

    def feed(self, data: bytes) -> Iterable[bytes]:
        """Return each payload that is complete with *data*, with a header before a token. Raises: ProtocolError."""
        return map(self._with_header, super().feed(data))

    def _with_header(self, payload: bytes) -> bytes:
        calls = self._in_flight
        if not calls or calls.oldest.response.API_KEY != SASL_AUTHENTICATE:
            return payload
        return TOKEN_START.pack(calls.oldest.correlation_id, 0, -1, len(payload)) + payload


Decode: TypeAlias = Callable[[type[Any], int, bytes], tuple[Any, int]]
"""Like `protocol.schema.decode_response`: takes response class, version and payload, and returns the response and the
number of surplus bytes. The response has its `throttle_time_ms` if its class has this field."""


IDS: Final = 0x8000_0000
"""Number of correlation ids; the lowest correlation id is 0."""


class Call(NamedTuple):
    """A request passed to the transport, and the callable for its response."""

    correlation_id: int
    response: type[Message]
    version: int
    decode: Decode
    on_answer: Callable[[Any], None]
    deadline: float
    """Deadline of the response (loop clock)."""
    starts_at: int
    """Number of bytes passed to the transport before the request."""
    count_records: Callable[[], int] | None = None
    """Returns the number of records in the request; None for a request without records."""

    @property
    def api(self) -> str:
        """Name of the API."""
        return self.response.__name__.removesuffix("Response")

    def __str__(self) -> str:
        """Return the API's name and the version."""
        return f"{self.api} v{self.version}"


class InFlight:
    """Calls of one connection, oldest first.

    Requests with acks=0 have no response and are no calls. librdkafka's mock cluster nevertheless responds to requests
    with acks=0, in order, so `match` can recognise a response without a call.
    """

    def __init__(self) -> None:
        self._calls: deque[Call] = deque()
        self.add: Final = self._calls.append
        """Adds a call behind all other calls."""
        self.last_id: int = 0
        """Correlation id of the newest request, with or without a response; the next id is 1 higher, modulo `IDS`."""
        self._last_answered = 0

    def __len__(self) -> int:
        return len(self._calls)

    @property
    def may_be_answered(self) -> bool:
        """True if a sent request, possibly with acks=0, has no response yet."""
        return self._last_answered != self.last_id

    @property
    def oldest(self) -> Call:
        """Oldest call, which the next response answers. Requires a call."""
        return self._calls[0]

    @property
    def next_deadline(self) -> float:
        """Deadline of the oldest call (loop clock); infinity without a call."""
        return self._calls[0].deadline if self._calls else inf

    def match(self, payload: bytes) -> tuple[Call, Any, int] | None:
        """Remove the call that *payload* answers; return the call, the decoded response and the number of surplus bytes.

        Return None for a response to a request with acks=0.

        Raises: ProtocolError, without removing a call: *payload* answers another call or none, or cannot be decoded.
        """
        correlation_id = read_correlation_id(payload)
        call = self._calls[0] if self._calls else None
        if call is None or correlation_id != call[0]:  # equal ids mean the oldest call
            self.expect(payload)
            self._last_answered = correlation_id
            return None
        # An index reads `decode`, `response` and `version`: a field of a NamedTuple costs three times as much (3.11 to 3.13).
        answer, surplus = call[3](call[1], call[2], payload)
        self._calls.popleft()
        self._last_answered = correlation_id
        return call, answer, surplus

    def expect(self, payload: bytes) -> Call | None:
        """Return the call that *payload*, perhaps incomplete, answers; None for a response to a request with acks=0.

        Raises: ProtocolError if *payload* answers another call or no call.
        """
        correlation_id = read_correlation_id(payload)
        call = self._calls[0] if self._calls else None
        if call is not None and correlation_id == call.correlation_id:
            return call
        # Between the last answered request and the oldest call there are only requests with acks=0.
        end = self.last_id + 1 if call is None else call.correlation_id
        if 0 < self._since_answered(correlation_id) < self._since_answered(end):
            return None
        expected = (
            ": no request is in flight" if call is None else f"; {call.correlation_id} ({call}) is next"
        )
        raise ProtocolError(f"unexpected response with correlation id {correlation_id}{expected}")

    def _since_answered(self, correlation_id: int) -> int:
        return (correlation_id - self._last_answered) % IDS

    def decoded(self, call: Call, result: Callable[[], tuple[Any, int]]) -> None:
        """Let `match` use *result* for *call*, the oldest; *result* returns or raises as `Call.decode` does."""
        if self._calls and self._calls[0] is call:
            self._calls[0] = call._replace(decode=lambda *_: result())

    def take_all(self) -> list[Call]:
        """Remove and return all calls, oldest first."""
        calls = list(self._calls)
        self._calls.clear()
        return calls


DECODE_OFF_LOOP_BYTES: Final = 64 * 1024
"""Minimum size of a response that is decoded in a thread, in bytes. Decoding takes about 20 ms per 100 KiB of small items."""


class LargeAnswer(NamedTuple):
    """A response that is not decoded yet."""

    response: type[Any]
    version: int
    payload: bytes
    throttle_time_ms: int
    """Pause that the broker requests; the pause begins before the response is decoded."""

    def decode(self) -> tuple[Any, int]:
        """Return the message and the number of bytes behind the message. Raises: ProtocolError."""
        return decode_response(self.response, self.version, self.payload)


def decode_unless_large(response: type[Any], version: int, payload: bytes) -> tuple[Any, int]:
    """Decode *payload* as `decode_response` does, or return a `LargeAnswer` if *payload* is large."""
    if len(payload) < DECODE_OFF_LOOP_BYTES:
        return decode_response(response, version, payload)
    throttle_time_ms = 0
    first, spec = next(iter(field_specs(response).items()))
    if first == "throttle_time_ms" and spec.exists_in(version):
        throttle_time_ms, _ = read_int32(payload, response_body(response, version, payload))
    return LargeAnswer(response, version, payload, throttle_time_ms), 0


class Undecoded(Exception):
    """Raised at a large response that must be decoded before any later response is handled."""

    def __init__(self, call: Call, payload: bytes) -> None:
        super().__init__(call, len(payload))
        self.call: Final = call
        self.payload: Final = payload

    def decode(self) -> tuple[Any, int]:
        """Return the response and the number of bytes behind the response. Raises: ProtocolError."""
        return self.call.decode(self.call.response, self.call.version, self.payload)
