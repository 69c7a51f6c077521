from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from aioproducer._core.intake.checks import (
    as_bytes,
    as_headers,
    check_partition,
    check_timeout,
    check_timestamp,
    check_topic,
    legal_headers,
)
from tests.cases import for_each


class BytesSubclass(bytes):
    """A subclass of bytes."""


class TestAsBytes:
    @pytest.mark.parametrize("data", [b"", b"value", None])
    def test_immutable_bytes_are_kept_by_reference(self, data: bytes | None) -> None:
        assert as_bytes("value", data) is data

    def test_bytearray_is_copied(self) -> None:
        data = bytearray(b"before")
        copy = as_bytes("value", data)
        data[:] = b"after!"
        assert copy == b"before"
        assert type(copy) is bytes

    def test_memoryview_is_copied(self) -> None:
        data = bytearray(b"before")
        with memoryview(data) as view:
            copy = as_bytes("value", view[1:4])
        data[:] = b"after!"
        assert copy == b"efo"

    def test_released_view_is_refused(self) -> None:
        view = memoryview(b"gone")
        view.release()
        with pytest.raises(ValueError, match=r"^value cannot be read: "):
            as_bytes("value", view)

    def test_subclass_of_bytes_becomes_plain_bytes(self) -> None:
        assert type(as_bytes("value", BytesSubclass(b"x"))) is bytes

    @for_each("data", ["text", 5, 1.5, [1], object(), True])
    def test_anything_else_is_refused_with_a_hint(self, data: object) -> None:
        with pytest.raises(TypeError, match=r"^key must be bytes.* not \w+; set key_serializer") as refusal:
            as_bytes("key", data)
        assert type(data).__name__ in str(refusal.value)

    def test_error_for_headers_does_not_mention_a_serializer(self) -> None:
        with pytest.raises(TypeError, match=r"not str; add \.encode\(\)$"):
            as_bytes("headers: the value of 'h'", "text")


class TestHeaders:
    @pytest.mark.parametrize("none", [(), [], {}])
    def test_missing_headers_are_empty(self, none: Any) -> None:
        assert as_headers("headers", none) == ()

    def test_pairs_keep_order_and_repetitions(self) -> None:
        pairs: list[tuple[str, bytes | None]] = [("b", b"1"), ("a", None), ("b", b"2")]
        assert as_headers("headers", pairs) == (("b", b"1"), ("a", None), ("b", b"2"))

    def test_mapping_is_accepted_as_headers(self) -> None:
        assert as_headers("headers", {"b": b"1", "a": None}) == (("b", b"1"), ("a", None))

    def test_headers_are_a_snapshot(self) -> None:
        value = bytearray(b"before")
        pairs: list[tuple[str, bytes | bytearray | memoryview | None]] = [("name", value)]
        snapshot = as_headers("headers", pairs)
        value[:] = b"after!"
        pairs.append(("more", None))
        assert snapshot == (("name", b"before"),)

    def test_pairs_may_be_lists(self) -> None:
        assert as_headers("headers", [["name", b"1"]]) == (("name", b"1"),)  # type: ignore[list-item]

    @for_each(
        ("headers", "told"),
        [
            ("text", "headers must be pairs .* not str"),
            (b"text", "headers must be pairs .* not bytes"),
            (5, "headers must be pairs .* not int"),
            (object(), "headers must be pairs .* not object"),
            (["ab"], "headers must be pairs .* got 'ab'"),
            ([("a", b"1", b"2")], "headers must be pairs"),
            ([5], "headers must be pairs .* got 5"),
            ([(b"a", b"1")], "headers: a header's name must be str, not bytes"),
            ([("a", "1")], "headers: the value of 'a' must be bytes, .* not str"),
            ({"a": 1}, "headers: the value of 'a' must be bytes, .* not int"),
        ],
    )
    def test_wrong_types_are_refused(self, headers: Any, told: str) -> None:
        with pytest.raises(TypeError, match=told):
            as_headers("headers", headers)

    def test_header_name_without_a_utf_8_form_is_refused(self) -> None:
        with pytest.raises(ValueError, match=r"headers\[3\]: the header name '\\ud800' cannot be encoded"):
            as_headers("headers[3]", [("\ud800", b"1")])

    @for_each(
        ("headers", "legal"),
        [
            (
                [("a", b"1"), ("b", 5), 7, ("\ud800", b"1"), ("c", bytearray(b"3"))],
                (("a", b"1"), ("c", b"3")),
            ),
            ({"a": b"1", 5: b"2"}, (("a", b"1"),)),
            (5, ()),
            (None, ()),
        ],
    )
    def test_legal_headers_are_kept_from_illegal_ones(self, headers: Any, legal: Any) -> None:
        assert legal_headers(headers) == legal


class TestTopic:
    @for_each("topic", ["a", "A.b_c-9", "x" * 249, "...", "__consumer_offsets"])
    def test_legal_names_are_accepted(self, topic: str) -> None:
        assert check_topic(topic) == topic

    @for_each("topic", ["", ".", "..", "x" * 250, "a b", "ä", "a/b", "a\n", "a:b", "٣"])
    def test_illegal_names_are_refused(self, topic: str) -> None:
        with pytest.raises(ValueError, match=r"topic .* is not a legal name"):
            check_topic(topic)

    @for_each("topic", [None, b"orders", 5, ["orders"]])
    def test_wrong_types_are_refused(self, topic: object) -> None:
        with pytest.raises(TypeError, match=r"^topic must be str, not "):
            check_topic(topic)


INTEGERS: list[Callable[[str, object], int]] = [check_partition, check_timestamp]


@for_each("check", INTEGERS)
@for_each("number", [0, 1, 2**31 - 1])
def test_integers_are_accepted(check: Callable[[str, object], int], number: int) -> None:
    assert check("argument", number) == number


@pytest.mark.parametrize("check", INTEGERS)
def test_negative_numbers_are_refused(check: Callable[[str, object], int]) -> None:
    with pytest.raises(ValueError, match=r"^argument must be .* not -1$"):
        check("argument", -1)


@for_each("check", INTEGERS)
@for_each("number", ["1", 1.0, True, b"1"])
def test_number_of_another_type_is_refused(check: Callable[[str, object], int], number: object) -> None:
    with pytest.raises(TypeError, match=r"^argument must be int"):
        check("argument", number)


@pytest.mark.parametrize("check", INTEGERS)
def test_number_too_long_to_print_is_refused(
    check: Callable[[str, object], int],
) -> None:
    with pytest.raises(ValueError, match=r"^argument must be .* not an integer of 33,220 bits$"):
        check("argument", 10**10_000)
    with pytest.raises(ValueError, match=r"^timeout_s must be .* not an integer of 33,220 bits$"):
        check_timeout(10**10_000)


def test_partition_has_to_fit_in_32_bits() -> None:
    with pytest.raises(ValueError, match=r"partition must be 0 to 2\*\*31 - 1, not 2147483648"):
        check_partition("partition", 2**31)


def test_timestamp_has_to_fit_in_64_bits() -> None:
    assert check_timestamp("timestamp_ms", 2**63 - 1) == 2**63 - 1
    with pytest.raises(ValueError, match="timestamp_ms must be milliseconds since the epoch"):
        check_timestamp("timestamp_ms", 2**63)


class TestTimeout:
    @for_each("timeout_s", [0, 1, 0.5, float("inf")])
    def test_durations_pass_as_floats(self, timeout_s: float) -> None:
        checked = check_timeout(timeout_s)
        assert checked == timeout_s
        assert type(checked) is float

    def test_timeout_of_none_is_accepted(self) -> None:
        assert check_timeout(None) is None

    @pytest.mark.parametrize("timeout_s", [-1, -0.001, float("nan")])
    def test_timeout_that_is_no_duration_is_refused(self, timeout_s: float) -> None:
        with pytest.raises(ValueError, match=r"^timeout_s must be 0 or more seconds"):
            check_timeout(timeout_s)

    @for_each("timeout_s", ["1", True, b"1"])
    def test_timeout_of_another_type_is_refused(self, timeout_s: object) -> None:
        with pytest.raises(TypeError, match=r"^timeout_s must be seconds \(int or float\) or None, not "):
            check_timeout(timeout_s)
