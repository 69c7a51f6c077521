from __future__ import annotations

import pytest

from aioproducer._core.protocol import schema
from aioproducer._core.protocol.fields import field
from aioproducer._core.protocol.schema import (
    Message,
    Request,
    check_address,
    check_range,
    decode,
    decode_start,
    encode,
    message,
)
from aioproducer._core.protocol.types import INT16, STRING
from aioproducer._core.wire import Writer
from aioproducer.errors import ProtocolError


@message(api_key=99, versions=(1, 3), flexible_from=2)
class EchoResponse(Message):
    """The text of the request."""

    text: str = field(STRING)


@message(api_key=99, versions=(1, 3), flexible_from=2)
class EchoRequest(Request[EchoResponse]):
    """Say it."""

    text: str = field(STRING)
    times: int = field(INT16, since=3, default=1)


def test_message_has_its_api_key_versions_and_response() -> None:
    assert (EchoRequest.API_KEY, EchoRequest.VERSIONS, EchoRequest.FLEXIBLE_FROM) == (99, (1, 3), 2)
    assert EchoRequest.RESPONSE is EchoResponse


@pytest.mark.parametrize(
    ("version", "wire"), [(1, b"\0\2hi"), (2, b"\3hi\0"), (3, b"\3hi\0\1\0")], ids=["v1", "v2", "v3"]
)
def test_version_has_its_own_wire_format(version: int, wire: bytes) -> None:
    request = EchoRequest(text="hi")
    assert encode(request, version) == wire
    assert decode(EchoRequest, version, wire) == request


def test_version_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    @message(api_key=97, versions=(1, 3), flexible_from=2)
    class Unseen(Message):
        """A message that was never written or read before."""

        text: str = field(STRING)

    wires = {1: b"\0\2hi", 2: b"\3hi\0", 3: b"\3hi\0"}
    for _ in range(2):
        for version, wire in wires.items():
            assert encode(Unseen(text="hi"), version) == wire
            assert decode(Unseen, version, wire) == Unseen(text="hi")
        for compiling in ("struct_writer", "struct_reader"):
            monkeypatch.setattr(schema, compiling, lambda *_, **__: pytest.fail("it is there"))


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_decode_reads_any_bytes_like_object(kind: type[bytes]) -> None:
    assert decode(EchoRequest, 2, kind(b"\3hi\0")).text == "hi"


def test_surplus_bytes_are_a_protocol_error() -> None:
    with pytest.raises(ProtocolError, match="EchoRequest v1: 2 bytes are left over"):
        decode(EchoRequest, 1, b"\0\2hi\0\0")


def test_decode_start_counts_the_surplus_bytes() -> None:
    assert decode_start(EchoRequest, 2, b"\3hi\0") == (EchoRequest(text="hi"), 0)
    assert decode_start(EchoRequest, 2, b"\3hi\0\3ho") == (EchoRequest(text="hi"), 3)
    assert decode_start(EchoRequest, 1, b"header\0\2hi", 6) == (EchoRequest(text="hi"), 0)


def test_protocol_error_names_the_message_and_its_version() -> None:
    with pytest.raises(ProtocolError, match="EchoRequest v1: 2 bytes expected at byte 2, 1 left"):
        decode(EchoRequest, 1, b"\0\2h")


@pytest.mark.parametrize("version", [0, 4])
def test_version_outside_the_range_of_a_message_is_a_value_error(version: int) -> None:
    with pytest.raises(ValueError, match=f"EchoRequest has versions 1 to 3, not {version}"):
        encode(EchoRequest(text="hi"), version)
    with pytest.raises(ValueError, match=f"EchoRequest has versions 1 to 3, not {version}"):
        decode(EchoRequest, version, b"\0\2hi")


def test_message_uses_its_faster_writer() -> None:
    @message(api_key=77, versions=(1, 2), flexible_from=9)
    class Shout(Message):
        text: str = field(STRING)

        @staticmethod
        def faster_writer(compiled: Writer, version: int, /) -> Writer:
            """Return a writer that writes the version first."""

            def write(buf: bytearray, shout: Shout) -> None:
                buf += b"%d" % version
                compiled(buf, shout)

            return write

    for version, wire in ((1, b"1\0\2hi"), (2, b"2\0\2hi")):
        assert encode(Shout(text="hi"), version) == wire


@pytest.mark.parametrize("value", [-1, 0, 5])
def test_value_within_its_range_is_accepted(value: int) -> None:
    check_range("epoch", value, -1, 5)


@pytest.mark.parametrize("value", [-2, 6])
def test_value_out_of_range_is_a_protocol_error(value: int) -> None:
    with pytest.raises(ProtocolError, match=f"^epoch={value} is out of range, -1 to 5$"):
        check_range("epoch", value, -1, 5)


@pytest.mark.parametrize(("node_id", "port", "lowest"), [(0, 0, 0), (2**31 - 1, 0xFFFF, 0), (-1, -1, -1)])
def test_address_within_its_range_is_accepted(node_id: int, port: int, lowest: int) -> None:
    check_address(node_id, port, lowest)
    if not lowest:
        check_address(node_id, port)


@pytest.mark.parametrize(
    ("node_id", "port", "name"), [(-1, 9092, "node_id"), (1, -1, "port"), (1, 0x1_0000, "port")]
)
def test_address_out_of_range_is_a_protocol_error(node_id: int, port: int, name: str) -> None:
    with pytest.raises(ProtocolError, match=f"^{name}=-?[0-9]+ is out of range, 0 to "):
        check_address(node_id, port)
