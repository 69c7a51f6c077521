from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aioproducer.cli.send.arguments import Format
from aioproducer.cli.send.written_files import CheckpointError, DeadLetters
from aioproducer.errors import InvalidRecord, TopicAuthorizationFailed
from aioproducer.testing import in_virtual_time
from tests.unit.cli.send.send_run_rig import orders, plan_of, send, stored, values

pytestmark = pytest.mark.usefixtures("small_calls")

JSON = Format(name="json")


@pytest.fixture
def half_bad(tmp_path: Path) -> Path:
    """100 lines, of which each tenth is no JSON: 10, 20, …, 100."""
    path = tmp_path / "in"
    path.write_text("".join(f"{'no' if number % 10 == 0 else number}\n" for number in range(1, 101)))
    return path


def good() -> list[bytes]:
    return [b"%d" % number for number in range(1, 101) if number % 10]


def dead(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@in_virtual_time
async def test_malformed_records_become_dead_letters(half_bad: Path, tmp_path: Path) -> None:
    async with orders() as cluster:
        arguments = plan_of(cluster, half_bad, format=JSON, dead_letters=DeadLetters(tmp_path / "dead"))
        outcome = await send(arguments)
        assert values(cluster) == [good()]
    assert (outcome.complete, outcome.sent, outcome.left_out, outcome.refused) == (True, 90, 10, 0)
    told = dead(tmp_path / "dead")
    assert [each["line"] for each in told] == list(range(10, 101, 10))
    assert told[0] == {
        "file": str(half_bad),
        "line": 10,
        "reason": "it is not JSON: Expecting value, at character 1",
        "input": "no",
    }


@in_virtual_time
async def test_skipped_records_are_counted(half_bad: Path) -> None:
    async with orders() as cluster:
        outcome = await send(plan_of(cluster, half_bad, format=JSON, dead_letters=DeadLetters()))
        assert values(cluster) == [good()]
    assert (outcome.complete, outcome.left_out) == (True, 10)


@in_virtual_time
async def test_refused_records_become_dead_letters(input_file: Path, tmp_path: Path) -> None:
    async with orders() as cluster:
        cluster.on("produce", topic="orders").answer(InvalidRecord, record_errors={0: "bad"})
        arguments = plan_of(cluster, input_file, run="r", dead_letters=DeadLetters(tmp_path / "dead"))
        outcome = await send(arguments)
        [in_topic] = values(cluster)
    assert (outcome.complete, outcome.sent, outcome.acknowledged) == (True, 1_000, 999)
    assert (outcome.left_out, outcome.refused, outcome.unknown) == (1, 1, 0)
    assert outcome.prefix.records == 1_000, "each has its number, for the audit"
    [letter] = dead(tmp_path / "dead")
    assert letter["reason"].startswith("InvalidRecord: ")
    assert letter["input"].encode() not in in_topic


@in_virtual_time
async def test_other_errors_end_send_despite_on_error(input_file: Path, tmp_path: Path) -> None:
    async with orders() as cluster:
        cluster.on("produce", topic="orders", after=2, times=None).answer(TopicAuthorizationFailed)
        outcome = await send(plan_of(cluster, input_file, dead_letters=DeadLetters(tmp_path / "dead")))
    assert not outcome.complete
    assert outcome.stopped == "a record failed"
    assert dead(tmp_path / "dead") == []


@in_virtual_time
async def test_same_command_continues_after_dead_letters(half_bad: Path, tmp_path: Path) -> None:
    async with orders() as cluster:

        async def again() -> Any:
            letters = DeadLetters(tmp_path / "dead")
            return await send(plan_of(cluster, half_bad, format=JSON, checkpoint=True, dead_letters=letters))

        assert (await again()).complete
        assert stored(half_bad)["records"] == 90
        with half_bad.open("a") as file:
            file.write("no\n101\n")
        outcome = await again()
        assert values(cluster) == [[*good(), b"101"]]
    assert (outcome.skipped, outcome.sent, outcome.left_out) == (90, 1, 1)
    assert [each["line"] for each in dead(tmp_path / "dead")][-2:] == [100, 101]


@in_virtual_time
async def test_unwritable_dead_letters_fail_before_first_send(half_bad: Path, tmp_path: Path) -> None:
    async with orders() as cluster:
        with pytest.raises(CheckpointError, match="dead letters"):
            await send(plan_of(cluster, half_bad, dead_letters=DeadLetters(tmp_path)))
        assert values(cluster) == [[]]


@in_virtual_time
async def test_failed_dead_letter_ends_send(half_bad: Path) -> None:
    class Full(DeadLetters):
        def write(self, letters: object) -> None:
            if letters:
                raise CheckpointError("cannot write the dead letters: full")

    async with orders() as cluster:
        outcome = await send(plan_of(cluster, half_bad, format=JSON, checkpoint=True, dead_letters=Full()))
    assert outcome.stopped == "cannot write the dead letters: full"
    assert outcome.first_failure == f"{half_bad}, line 10"
    assert (outcome.complete, outcome.left_out) == (False, 0)
    assert stored(half_bad)["records"] == 0, "they go again, with what stands beside them"
