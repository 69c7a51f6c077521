from __future__ import annotations

from itertools import pairwise

from hypothesis import given, strategies as st

from aioproducer._core.net.in_flight import LENGTH, FrameReader
from aioproducer.errors import ProtocolError

MAX = 64

payloads = st.lists(st.binary(min_size=4, max_size=MAX), max_size=8)


def framed(payloads: list[bytes]) -> bytes:
    return b"".join(LENGTH.pack(len(payload)) + payload for payload in payloads)


def split(stream: bytes, cuts: list[int]) -> list[bytes]:
    bounds = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    return [stream[start:end] for start, end in pairwise(bounds)]


def read(chunks: list[bytes]) -> tuple[list[bytes], str, int]:
    """Return the payloads, the text of the error that ended the stream, and the remaining bytes."""
    reader, got = FrameReader(MAX), list[bytes]()
    try:
        for chunk in chunks:
            for payload in reader.feed(chunk):
                got.append(payload)
    except ProtocolError as error:
        return got, str(error), 0
    return got, "", len(reader.begun)


@given(payloads, st.lists(st.integers(min_value=0)))
def test_frames_are_equal_for_any_split_of_the_stream(payloads: list[bytes], cuts: list[int]) -> None:
    assert read(split(framed(payloads), cuts)) == (payloads, "", 0)


@given(payloads, st.lists(st.integers(min_value=0)), st.integers(min_value=1))
def test_unfinished_frame_is_counted_and_completed(
    payloads: list[bytes], cuts: list[int], missing: int
) -> None:
    whole = framed([b"last"])
    tail = whole[: -(missing % len(whole)) or -1]
    chunks = split(framed(payloads) + tail, cuts)
    assert read(chunks) == (payloads, "", len(tail))
    assert read([*chunks, whole[len(tail) :]]) == ([*payloads, b"last"], "", 0)


@given(st.binary(max_size=200), st.lists(st.integers(min_value=0)))
def test_errors_are_equal_for_any_split_of_garbage(stream: bytes, cuts: list[int]) -> None:
    assert read(split(stream, cuts)) == read([stream])


@given(
    payloads,
    st.one_of(st.integers(-(2**31), 3), st.integers(MAX + 1, 2**31 - 1)),
    st.lists(st.integers(min_value=0)),
)
def test_frames_before_an_impossible_length_are_kept(
    payloads: list[bytes], length: int, cuts: list[int]
) -> None:
    got, error, _ = read(split(framed(payloads) + LENGTH.pack(length), cuts))
    assert got == payloads
    assert f" {length} bytes" in error
