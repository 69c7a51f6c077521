"""Large responses, decoded in a worker thread so that no frame can block the event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from aioproducer.errors import ProtocolError
from aioproducer.protocol.fields import field_specs
from aioproducer.protocol.schema import decode_response, response_body
from aioproducer.wire.primitives import read_int32
from aioproducer.worker_threads import WORK_THREADS

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
