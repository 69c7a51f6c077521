from __future__ import annotations

import pytest

from aioproducer._core.net.in_flight import LENGTH, UNCHECKED_BYTES, FrameReader
from aioproducer.errors import ProtocolError

STREAM = LENGTH.pack(4) + b"abcd" + LENGTH.pack(6) + b"efghij"
PAYLOADS = [b"abcd", b"efghij"]


def test_a_chunk_of_whole_frames_gives_all_of_them() -> None:
    reader = FrameReader(6)
    assert list(reader.feed(STREAM)) == PAYLOADS
    assert len(reader.begun) == 0


def test_frames_are_put_together_from_single_bytes() -> None:
    reader = FrameReader(6)
    assert [payload for byte in STREAM for payload in reader.feed(bytes([byte]))] == PAYLOADS


def test_what_is_left_over_begins_the_next_frame() -> None:
    reader = FrameReader(6)
    assert list(reader.feed(STREAM[:-2])) == PAYLOADS[:1]
    assert len(reader.begun) == 8
    assert list(reader.feed(STREAM[-2:] + STREAM)) == [PAYLOADS[1], *PAYLOADS]
    assert len(reader.begun) == 0


def test_how_an_unfinished_payload_begins_is_told_once_four_bytes_of_it_are_there() -> None:
    reader = FrameReader(6)
    seen = [(list(reader.feed(bytes([byte]))), reader.begun_payload)[1] for byte in STREAM[8:]]
    assert seen == [b""] * 7 + [b"efgh"] * 2 + [b""]


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 3, 7, 2**31 - 1])
def test_a_length_that_cannot_be_is_refused_before_its_payload_comes(length: int) -> None:
    with pytest.raises(ProtocolError, match=rf" {length} bytes long \(4 to 6 are possible\)"):
        list(FrameReader(6).feed(LENGTH.pack(length)))


@pytest.mark.parametrize(
    ("start", "likeness"),
    [
        (b"\x15\x03\x03\x00\x02\x02\x28", "TLS alert: this port expects TLS"),
        (b"\x16\x03\x01\x02\x00\x01", "TLS handshake"),
        (b"HTTP/1.1 400 Bad Request\r\n", "HTTP response: this is a web server's port"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "SSH greeting"),
    ],
)
def test_other_protocols_are_called_by_their_name(start: bytes, likeness: str) -> None:
    with pytest.raises(ProtocolError, match=likeness):
        list(FrameReader(100 * 1024 * 1024).feed(start))


def test_a_payload_before_an_impossible_length_is_given_first() -> None:
    frames = iter(FrameReader(6).feed(STREAM + b"junk"))
    assert [next(frames), next(frames)] == PAYLOADS
    with pytest.raises(ProtocolError, match="it begins with b'junk'"):
        next(frames)


@pytest.mark.parametrize("size", [3, 7])
def test_a_whole_frame_of_an_impossible_length_is_none(size: int) -> None:
    with pytest.raises(ProtocolError, match=f"cannot be {size} bytes long"):
        list(FrameReader(6).feed(LENGTH.pack(size) + bytes(size)))


def test_what_comes_later_of_a_payload_is_no_frame_though_it_looks_like_one() -> None:
    reader, payload = FrameReader(8), LENGTH.pack(4) + b"abcd"
    assert list(reader.feed(LENGTH.pack(8))) == []
    assert list(reader.feed(payload)) == [payload]


def test_what_is_like_no_other_protocol_is_likened_to_none() -> None:
    with pytest.raises(ProtocolError, match=r"it begins with b'junk'$"):
        list(FrameReader(6).feed(b"junk"))


def test_limit_of_the_expected_answer_counts_for_large_frames() -> None:
    reader = FrameReader(10**9, lambda: UNCHECKED_BYTES + 10)
    assert list(reader.feed(LENGTH.pack(UNCHECKED_BYTES + 10))) == []
    with pytest.raises(ProtocolError, match=r"cannot be 65547 bytes long \(4 to 65546 are possible\)"):
        list(FrameReader(10**9, lambda: UNCHECKED_BYTES + 10).feed(LENGTH.pack(UNCHECKED_BYTES + 11)))


def test_small_frames_are_not_compared_with_the_expected_answer() -> None:
    payload = bytes(UNCHECKED_BYTES)
    assert list(FrameReader(10**9, lambda: 0).feed(LENGTH.pack(len(payload)) + payload + b"\0")) == [payload]


def test_limit_counts_for_large_frames_in_one_chunk() -> None:
    length = UNCHECKED_BYTES + 1
    with pytest.raises(ProtocolError, match="cannot be 65537 bytes long"):
        list(FrameReader(10**9, lambda: UNCHECKED_BYTES).feed(LENGTH.pack(length) + bytes(length)))


def test_large_frames_in_one_chunk_are_reported() -> None:
    large: list[int] = []
    reader = FrameReader(10**9, on_large=lambda payload: large.append(len(payload)))
    for length in (UNCHECKED_BYTES, UNCHECKED_BYTES + 1):
        assert [*map(len, reader.feed(LENGTH.pack(length) + bytes(length)))] == [length]
    assert large == [UNCHECKED_BYTES + 1]
