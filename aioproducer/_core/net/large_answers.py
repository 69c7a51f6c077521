"""Large responses, left undecoded for a worker thread so that no frame can block the event loop."""

# ruff: noqa: I002 - else typing compiles each annotation of a NamedTuple, for which every process waits

from typing import Any, Final, NamedTuple

from aioproducer._core.net.in_flight import Call
from aioproducer._core.protocol.fields import field_specs
from aioproducer._core.protocol.schema import decode_response, response_body
from aioproducer._core.wire.primitives import read_int32

DECODE_OFF_LOOP_BYTES: Final = 64 * 1024
"""Minimum size of a response that is decoded in a thread, in bytes. Decoding takes about 20 ms per 100 KiB of small items."""


class LargeAnswer(NamedTuple):
    """A response that is not decoded yet."""

    response: type[Any]
    version: int
    payload: bytes
    throttle_time_ms: int
    """Pause of the connection that begins immediately."""

    def decode(self) -> tuple[Any, int]:
        """Return the message and the number of bytes behind it. Raises: ProtocolError."""
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
    """Raised at a large response whose place among the other responses matters."""

    def __init__(self, call: Call, payload: bytes) -> None:
        super().__init__(call, len(payload))
        self.call: Final = call
        self.payload: Final = payload

    def decode(self) -> tuple[Any, int]:
        """Return the answer and the number of bytes behind it. Raises: ProtocolError."""
        return self.call.decode(self.call.response, self.call.version, self.payload)
