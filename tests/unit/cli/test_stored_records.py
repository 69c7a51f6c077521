from __future__ import annotations

import json
from typing import Any

import pytest

from aioproducer import Producer, UnknownTopicOrPartition, _topic_client
from aioproducer.cli.stored_records import stored_record, tail_and_show
from aioproducer.config import ProducerConfig
from aioproducer.testing import Cluster
from tests.cases import for_each

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


@for_each(
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


@for_each(
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
        (TAIL | {"headers": [[1, "v"]]}, "a name is not a string"),
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


TIME_MS = 1_700_000_000_123


async def tail(cluster: Cluster, *, last: int = 10, as_json: bool = False) -> None:
    config = ProducerConfig(bootstrap_servers=cluster.bootstrap_servers)
    await tail_and_show(config, "orders", last=last, as_json=as_json)


async def test_tail_shows_last_records_of_each_partition(capsys: pytest.CaptureFixture[str]) -> None:
    async with Cluster(topics={"orders": 3}) as cluster:
        async with Producer(cluster.bootstrap_servers) as producer:
            for partition in (0, 2):
                values = [b"%d" % number for number in range(5)]
                await producer.send_many(
                    "orders", values, partition=partition, keys=[b"k"] * 5, timestamps_ms=[TIME_MS] * 5
                )
        await tail(cluster, last=2)
    assert capsys.readouterr().out.splitlines() == [
        f"{partition} {offset} 2023-11-14 22:13:20.123 k: {offset}"
        for partition in (0, 2)
        for offset in (3, 4)
    ]


async def test_tail_escapes_control_characters(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with Cluster(topics={"orders": 1}) as cluster:
        async with Producer(cluster.bootstrap_servers) as producer:
            await producer.send("orders", "grün\n\x1b[2J".encode(), timestamp_ms=TIME_MS)
            await producer.send(
                "orders", None, b"\xff\0", headers=[("a", b"1"), ("b", None)], timestamp_ms=TIME_MS
            )
        await tail(cluster)
    assert capsys.readouterr().out.splitlines() == [
        "0 0 2023-11-14 22:13:20.123 (none): grün\\n\\u001b[2J",
        "0 1 2023-11-14 22:13:20.123 b'\\xff\\x00': (none) | a=1 b=(none)",
    ]


async def test_tail_json_has_an_object_per_line(capsys: pytest.CaptureFixture[str]) -> None:
    async with Cluster(topics={"orders": 1}) as cluster:
        async with Producer(cluster.bootstrap_servers) as producer:
            await producer.send(
                "orders", "grün".encode(), b"\xff", headers=[("a", None)], timestamp_ms=TIME_MS
            )
        await tail(cluster, as_json=True)
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line) == {
        "topic": "orders",
        "partition": 0,
        "offset": 0,
        "timestamp_ms": TIME_MS,
        "key": {"base64": "/w=="},
        "value": "grün",
        "headers": [["a", None]],
    }


async def test_tail_reports_missing_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_topic_client, "UNKNOWN_TOPIC_S", 0.1)
    async with Cluster(auto_create_topics=False) as cluster:
        with pytest.raises(UnknownTopicOrPartition):
            await tail(cluster)


async def test_tail_skips_transaction_markers(capsys: pytest.CaptureFixture[str]) -> None:
    async with Cluster(topics={"orders": 1}) as cluster:
        async with Producer(cluster.bootstrap_servers, transactional_id="t") as producer:
            async with producer.transaction():
                await producer.send("orders", b"seen", timestamp_ms=TIME_MS)
            await producer.begin_transaction()
            await producer.send("orders", b"aborted", timestamp_ms=TIME_MS)
            await producer.abort_transaction()
        assert cluster.records("orders", 0, isolation_level="read_committed")[0].value == b"seen"
        await tail(cluster)
    assert capsys.readouterr().out.splitlines() == [
        "0 0 2023-11-14 22:13:20.123 (none): seen",
        "0 2 2023-11-14 22:13:20.123 (none): aborted",
    ]
