"""`aioproducer tail --json | aioproducer send --format json` copies records byte for byte."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from hypothesis import given, settings, strategies as st

from aioproducer import Producer
from aioproducer.cli import stored_records
from aioproducer.cli.output import printable
from aioproducer.cli.send.arguments import Format, SendArguments
from aioproducer.cli.send.decoding import Fields, objects
from aioproducer.cli.send.send_run import Sending
from aioproducer.cli.stored_records import to_dict
from aioproducer.config import ProducerConfig
from aioproducer.testing import Cluster, in_virtual_time
from tests.property.profiles import share

DATA = st.none() | st.binary(max_size=20) | st.text(max_size=20).map(lambda text: text.encode())
NAME = st.text(max_size=10)
RECORD = st.tuples(DATA, DATA, st.lists(st.tuples(NAME, DATA), max_size=3), st.integers(0, 1_700_000_000_123))


@given(st.lists(RECORD, max_size=10))
def test_printed_record_is_read_back(records: list[Any]) -> None:
    lines = [
        printable(
            json.dumps(
                to_dict("t", 0, _decoded(offset, each)),
                ensure_ascii=False,
            )
        ).encode()
        for offset, each in enumerate(records)
    ]
    assert not any(b"\n" in line for line in lines)
    columns = objects(Fields(), {0})(lines)
    assert (columns.bad, columns.values) == ([], [value for value, *_ in records])
    assert (columns.keys or [None] * len(records)) == [key for _, key, *_ in records]
    assert (columns.headers or [[]] * len(records)) == [headers for *_, headers, _ in records]
    assert (columns.timestamps_ms or []) == [timestamp_ms for *_, timestamp_ms in records]


def _decoded(offset: int, record: tuple[Any, ...]) -> Any:
    value, key, headers, timestamp_ms = record
    return SimpleNamespace(offset=offset, value=value, key=key, headers=headers, timestamp_ms=timestamp_ms)


@settings(max_examples=share(0.25))
@given(st.lists(RECORD, min_size=1, max_size=5))
def test_topic_is_copied_by_tail_and_send(records: Sequence[Any]) -> None:
    in_virtual_time(_copy)(records)


async def _copy(records: Sequence[Any]) -> None:
    printed: list[str] = []
    async with Cluster(topics={"a": 1, "b": 1}, transport="memory") as cluster:
        async with Producer(cluster.bootstrap_servers) as producer:
            for value, key, headers, timestamp_ms in records:
                await producer.send("a", value, key, headers=headers, timestamp_ms=timestamp_ms)
        config = ProducerConfig(bootstrap_servers=cluster.bootstrap_servers)
        with patch.object(stored_records, "echo", lambda text: printed.append(printable(text))):
            await stored_records.tail_and_show(config, "a", last=100, as_json=True)
        with TemporaryDirectory() as folder:
            path = Path(folder) / "a.jsonl"
            path.write_text("".join(f"{line}\n" for line in printed), encoding="utf-8", newline="")
            plan = SendArguments(config=config, topic="b", paths=[str(path)], format=Format(name="json"))
            outcome = await Sending(plan, lambda _: None).run()
        assert outcome.complete
        before, after = (
            [
                (each.value, each.key, list(each.headers), each.timestamp_ms)
                for each in cluster.records(topic, 0)
            ]
            for topic in ("a", "b")
        )
    assert before == after == list(records)
