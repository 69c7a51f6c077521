"""Cuts a stream of bytes into frames; no I/O.

Shape:  (length:int32 payload:byte[length])*
Source: https://kafka.apache.org/protocol.html#protocol_common
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final

from aioproducer.errors import ProtocolError

LENGTH: Final = Struct(">i")
MIN_PAYLOAD_BYTES: Final = 4
"""Requests and answers alike hold at least four bytes of header; an answer's are its correlation id."""

_FOREIGN: Final = (
    (b"\x15\x03", "a TLS alert: this port expects TLS, and was spoken to in plaintext"),
    (b"\x16\x03", "a TLS handshake: TLS is spoken to a plaintext port"),
    (b"HTTP", "an HTTP response: this is a web server's port"),
    (b"SSH-", "an SSH greeting: this is an SSH server's port"),
)


class FrameReader:
    """Takes the stream in chunks of any size and gives back the payloads of its frames."""

    def __init__(self, max_payload_bytes: int) -> None:
        self._max = max_payload_bytes
        self._begun = bytearray()  # a frame that has begun, with its length
        self._wanted = LENGTH.size  # how long _begun has to be before looking at it pays

    @property
    def buffered(self) -> int:
        """How many bytes of an unfinished frame have come, its length included."""
        return len(self._begun)

    @property
    def begun_payload(self) -> bytes:
        """The first bytes of an unfinished frame's payload: none, or as many as the shortest has."""
        start = bytes(self._begun[LENGTH.size : LENGTH.size + MIN_PAYLOAD_BYTES])
        return start if len(start) == MIN_PAYLOAD_BYTES else b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield each payload that is complete with *data*; the chunk is consumed when the iterator is exhausted.

        Raises: ProtocolError at a length that cannot be, after the payloads before it were yielded. The reader
            is of no use after that: where the next frame begins is not known.
        """
        if self._begun:
            self._begun += data
            if len(self._begun) < self._wanted:
                return
            data = bytes(self._begun)
            self._begun.clear()
        pos, end = 0, LENGTH.size
        while end <= len(data):
            end += self._payload_bytes(data, pos)
            if end > len(data):
                break
            yield data[pos + LENGTH.size : end]
            pos, end = end, end + LENGTH.size
        self._begun += memoryview(data)[pos:]
        self._wanted = end - pos

    def _payload_bytes(self, data: bytes, pos: int) -> int:
        (length,) = LENGTH.unpack_from(data, pos)
        if MIN_PAYLOAD_BYTES <= length <= self._max:
            return int(length)
        head = data[pos : pos + LENGTH.size]
        likeness = next((f", like {what}" for start, what in _FOREIGN if head.startswith(start)), "")
        raise ProtocolError(
            f"a Kafka frame cannot be {length} bytes long ({MIN_PAYLOAD_BYTES} to {self._max} are possible);"
            f" it begins with {head!r}{likeness}"
        )
