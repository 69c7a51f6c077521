from __future__ import annotations

from typing import Any

import pytest

from aioproducer.cli.stored_records import stored_record

TAIL: dict[str, Any] = {
    "topic": "t",
    "partition": 0,
    "offset": 1,
    "timestamp_ms": 5,
    "key": "k",
    "value": "v",
    "headers": [],
}
KCAT: dict[str, Any] = {
    "topic": "t",
    "partition": 0,
    "offset": 1,
    "tstype": "create",
    "ts": 5,
    "broker": 1,
    "headers": ["a", "1", "b", None],
    "key": "k",
    "payload": "v",
}


def without(record: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name not in names}


def test_object_of_tail_is_a_record() -> None:
    assert stored_record(TAIL) == (b"v", b"k", [], 5)
    assert stored_record(TAIL | {"value": None, "key": None, "timestamp_ms": -1}) == (None, None, [], None)
    assert stored_record(TAIL | {"value": "", "key": {"base64": ""}}) == (b"", b"", [], 5)


def test_object_of_kcat_is_a_record() -> None:
    assert stored_record(KCAT) == (b"v", b"k", [("a", b"1"), ("b", None)], 5)
    assert stored_record(without(KCAT, "headers")) == (b"v", b"k", [], 5)
    assert stored_record(without(KCAT, "tstype", "ts")) == (b"v", b"k", [("a", b"1"), ("b", None)], None)
    assert stored_record(KCAT | {"tstype": "unknown", "ts": 0, "key": None, "payload": None}) == (
        None,
        None,
        [("a", b"1"), ("b", None)],
        None,
    )
    assert stored_record(KCAT | {"tstype": "logappend"}) == stored_record(KCAT)


@pytest.mark.parametrize(
    "other",
    [
        None,
        [TAIL],
        "topic",
        {},
        TAIL | {"more": 1},
        *(without(TAIL, name) for name in TAIL),
        KCAT | {"more": 1},
        *(without(KCAT, name) for name in ("topic", "partition", "offset", "broker", "key", "payload")),
    ],
)
def test_other_json_is_no_stored_record(other: object) -> None:
    assert stored_record(other) is None


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (TAIL | {"value": 1}, "value of a stored record: expected text"),
        (TAIL | {"value": {"base64": "a"}}, "value of tail --json: illegal base64"),
        (TAIL | {"value": {"base64": "ä"}}, "value of tail --json: illegal base64"),
        (TAIL | {"key": {"base64": 1}}, "key of a stored record: expected text"),
        (TAIL | {"key": {"base64": "", "more": 1}}, "key of a stored record: expected text"),
        (TAIL | {"key": "\ud800"}, "half of a surrogate pair"),
        (TAIL | {"headers": None}, "expected a list"),
        (TAIL | {"headers": [["a"]]}, r"expected a list of \[name, value\]"),
        (TAIL | {"headers": ["ab"]}, r"expected a list of \[name, value\]"),
        (TAIL | {"headers": [[1, "v"]]}, "a name is no text"),
        (TAIL | {"headers": [["\ud800", "v"]]}, "half of a surrogate pair"),
        (TAIL | {"timestamp_ms": None}, "expected milliseconds"),
        (TAIL | {"timestamp_ms": True}, "expected milliseconds"),
        (TAIL | {"timestamp_ms": -2}, "expected milliseconds"),
        (TAIL | {"timestamp_ms": 2**63}, "expected milliseconds"),
        (without(KCAT, "ts"), "expected milliseconds"),
        (KCAT | {"headers": ["a"]}, "a name without a value"),
        (KCAT | {"headers": {"a": 1}}, "expected a list"),
        (KCAT | {"headers": ["a", 1]}, "expected text"),
        (KCAT | {"payload": {"order": 1}, "value_schema_id": 3}, "run kcat without -s"),
        (KCAT | {"payload": None, "payload_error": "no schema"}, "run kcat without -s"),
        (KCAT | {"key": 7, "key_schema_id": 3}, "run kcat without -s"),
    ],
)
def test_stored_record_with_an_illegal_part_is_refused(found: object, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        stored_record(found)
