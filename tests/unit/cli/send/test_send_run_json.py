"""JSON arrays and values over several lines, sent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aioproducer.cli.send.arguments import Format
from aioproducer.cli.send.decoding import Fields
from aioproducer.cli.send.written_files import DeadLetters
from aioproducer.testing import in_virtual_time
from tests.unit.cli.send.send_run_rig import orders, plan_of, send, stored, values

pytestmark = pytest.mark.usefixtures("small_calls")

JSON = Format(name="json")
KEYED = Format(name="json", fields=Fields(key="id", timestamp="at"))


def array(count: int, bad: int | None = None) -> str:
    records: list[dict[str, Any]] = [{"id": number, "at": "2026-11-27T03:09:55Z"} for number in range(count)]
    if bad is not None:
        records[bad]["at"] = "today"
    return json.dumps(records, indent=2)


@in_virtual_time
async def test_elements_of_an_array_are_sent(tmp_path: Path) -> None:
    path = tmp_path / "in"
    path.write_text(array(250))
    async with orders() as cluster:
        outcome = await send(plan_of(cluster, path, format=KEYED))
        records = cluster.records("orders", 0)
    assert (outcome.complete, outcome.acknowledged) == (True, 250)
    assert [json.loads(each.value or b"") for each in records] == json.loads(array(250))
    assert [each.key for each in records] == [b"%d" % number for number in range(250)]
    assert {each.timestamp_ms for each in records} == {1_795_748_995_000}
    assert outcome.prefix.place == f"{path}, record 250 (line {249 * 4 + 2})"


@in_virtual_time
async def test_bad_element_ends_send_and_same_command_continues(tmp_path: Path) -> None:
    path = tmp_path / "in"
    path.write_text(array(250, bad=120))
    async with orders() as cluster:
        arguments = plan_of(cluster, path, format=KEYED, checkpoint=True)
        outcome = await send(arguments)
        assert (outcome.complete, outcome.acknowledged) == (False, 120)
        assert (outcome.stopped or "").startswith(f"{path}, record 121 (line 482): at is no time: 'today'")
        assert stored(path)["records"] == 120
        path.write_text(array(250))
        outcome = await send(arguments)
        assert (outcome.complete, outcome.skipped, outcome.sent) == (True, 120, 130)
        assert [json.loads(each or b"")["id"] for each in values(cluster)[0]] == list(range(250))
        again = await send(arguments)
    assert (again.complete, again.skipped, again.sent) == (True, 250, 0)


@in_virtual_time
async def test_bad_element_is_a_dead_letter(tmp_path: Path) -> None:
    path = tmp_path / "in"
    path.write_text(array(250, bad=120))
    async with orders() as cluster:
        arguments = plan_of(cluster, path, format=KEYED, dead_letters=DeadLetters(tmp_path / "dead"))
        outcome = await send(arguments)
    assert (outcome.complete, outcome.acknowledged, outcome.left_out) == (True, 249, 1)
    told = json.loads((tmp_path / "dead").read_text())
    assert (told["record"], json.loads(told["input"])["id"]) == (121, 120)


@in_virtual_time
async def test_array_without_an_end_fails(tmp_path: Path) -> None:
    path = tmp_path / "in"
    path.write_text(array(250)[:-1])
    async with orders() as cluster:
        outcome = await send(plan_of(cluster, path, format=JSON))
    assert (outcome.complete, outcome.acknowledged) == (False, 250)
    assert outcome.stopped == f"{path}, record 251: the array has no end: is the input whole?"
