"""Large answers about metadata: decoded in a worker thread, since one about 20,000 partitions takes some 30 ms."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from aioproducer.protocol.metadata import MetadataResponse
from aioproducer.protocol.schema import decode_response, response_body
from aioproducer.wire.primitives import read_int32

DECODE_OFF_LOOP_BYTES: Final = 64 * 1024
"""From here on, some 1,500 partitions, decoding takes longer than a few milliseconds."""


class LargeAnswer(NamedTuple):
    """An answer that is not decoded yet."""

    version: int
    payload: bytes
    throttle_time_ms: int
    """What the connection has to know at once."""

    def decode(self) -> MetadataResponse:
        """Return the message. Raises: ProtocolError."""
        message, _ = decode_response(MetadataResponse, self.version, self.payload)
        return message


def decode_unless_large(response: type[Any], version: int, payload: bytes) -> tuple[Any, int]:
    """Do as `decode_response`, but return a `LargeAnswer` for one that takes long to decode."""
    if len(payload) < DECODE_OFF_LOOP_BYTES:
        return decode_response(response, version, payload)
    throttle_time_ms, _ = read_int32(payload, response_body(response, version, payload))
    return LargeAnswer(version, payload, throttle_time_ms), 0
