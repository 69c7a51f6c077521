"""Known bytes: worked out with another implementation, so that writer and reader cannot be wrong together."""

from __future__ import annotations

from aioproducer._core.protocol.schema import Message, decode, encode

TOPIC_ID = bytes(range(16))


def check(message: Message, version: int, wire: str) -> None:
    """Assert that *message* is encoded as *wire*, and that the decoded message is encoded as *wire* again."""
    expected = bytes.fromhex(wire)
    assert encode(message, version).hex(" ") == expected.hex(" ")
    assert encode(decode(type(message), version, expected), version) == expected
