from __future__ import annotations

import pytest

from aioproducer._core.wire.primitives import MEMO_ENTRIES, VARINTS, Memo, field_size, varint, varints_after


def test_a_memo_makes_each_entry_once() -> None:
    made = list[int]()

    def make(number: int) -> bytes:
        made.append(number)
        return b"%d" % number

    memo = Memo(make)
    assert [memo[5], memo[6], memo[5]] == [b"5", b"6", b"5"]
    assert made == [5, 6]


def test_a_memo_does_not_grow_without_bound() -> None:
    memo = Memo(str)
    for number in range(MEMO_ENTRIES + 1):
        assert memo[number] == str(number)
    assert len(memo) == 1


@pytest.mark.parametrize(
    ("number", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (1 << 63 - 1, "80808080808080808001"),
    ],
)
def test_varints_are_zigzag_coded(number: int, encoded: str) -> None:
    assert varint(number).hex() == VARINTS[number].hex() == encoded


def test_varints_can_stand_behind_a_prefix() -> None:
    assert varints_after(b"\1")[64] == b"\1\x80\1"
    assert varints_after(b"")[64] == b"\x80\1"


@pytest.mark.parametrize(("length", "size"), [(-1, 1), (0, 1), (1, 2), (63, 64), (64, 66), (8192, 8195)])
def test_a_field_is_its_length_and_its_bytes(length: int, size: int) -> None:
    assert field_size(length) == size
