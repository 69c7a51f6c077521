# ruff: noqa: ASYNC240 - these files are small
from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path

import pytest

from aioproducer.cli.send import input_source
from aioproducer.cli.send.send_run import Sending
from aioproducer.cli.send.written_files import CheckpointError
from aioproducer.testing import in_virtual_time
from tests.unit.cli.send.send_run_rig import LINES, orders, plan_of, send, stored, values

pytestmark = pytest.mark.usefixtures("small_calls")


@in_virtual_time
async def test_checkpoint_is_saved_during_send(input_file: Path) -> None:
    async with orders() as cluster:
        sending = Sending(plan_of(cluster, input_file, rate=100, checkpoint=True), lambda _: None)
        running = asyncio.create_task(sending.run())
        for second in range(1, 5):
            await asyncio.sleep(1)
            assert stored(input_file)["records"] >= (second - 1.2) * 100
        running.cancel()  # equivalent to a kill: no state remains in memory
        with pytest.raises(asyncio.CancelledError):
            await running
        before = stored(input_file)["records"]
        [in_topic] = values(cluster)
        again = await send(plan_of(cluster, input_file, checkpoint=True))
        [whole] = values(cluster)
    assert whole == in_topic + LINES[before:]
    assert again.skipped == before <= len(in_topic)


@in_virtual_time
async def test_fully_acknowledged_input_is_skipped(input_file: Path) -> None:
    async with orders() as cluster:
        for skipped in (0, 1_000):
            outcome = await send(plan_of(cluster, input_file, checkpoint=True))
            assert (outcome.skipped, outcome.complete) == (skipped, True)
        assert values(cluster) == [LINES]
        with input_file.open("ab") as file:
            file.write(b"new\n")
        outcome = await send(plan_of(cluster, input_file, checkpoint=True))
        assert (outcome.skipped, outcome.sent) == (1_000, 1)
        assert outcome.prefix.place == f"{input_file}, line 1001"


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"0\n1\n", "the input has 4 bytes, fewer than the 3,890"),
        (b"", "the input has 0 bytes, fewer than the 3,890"),
        (b"x" + b"\n".join(LINES)[1:] + b"\n", "the first 3,890 bytes of the input differ"),
        (b"\n".join(LINES) + b"!\n", "the first 3,890 bytes of the input differ"),
    ],
    ids=["shorter", "empty", "different", "the last line has grown"],
)
@in_virtual_time
async def test_checkpoint_refuses_another_input(input_file: Path, content: bytes, complaint: str) -> None:
    async with orders() as cluster:
        arguments = plan_of(cluster, input_file, checkpoint=True)
        assert (await send(arguments)).complete
        before = stored(input_file)
        input_file.write_bytes(content)
        with pytest.raises(CheckpointError, match=complaint):
            await send(arguments)
        assert values(cluster) == [LINES], "nothing was sent"
    assert stored(input_file) == before


@in_virtual_time
async def test_checkpoint_stays_when_input_is_unreadable(input_file: Path) -> None:
    async with orders() as cluster:
        arguments = plan_of(cluster, input_file, checkpoint=True)
        assert (await send(arguments)).complete
        before = stored(input_file)
        input_file.unlink()
        outcome = await send(arguments)
    assert outcome.stopped == f"{input_file}: No such file or directory"
    assert stored(input_file) == before


@in_virtual_time
async def test_skipping_the_prefix_yields_to_other_tasks(
    input_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_source, "READ_BYTES", 10)
    async with orders() as cluster:
        arguments = plan_of(cluster, input_file, checkpoint=True)
        assert (await send(arguments)).complete
        before = stored(input_file)
        recognising = asyncio.Event()
        sending = Sending(arguments, lambda _: recognising.set())
        running = asyncio.create_task(sending.run())
        await recognising.wait()
        assert sending.interrupt()
        outcome = await running
    assert (outcome.stopped, outcome.prefix_matched, outcome.skipped) == ("interrupted", False, 0)
    assert stored(input_file) == before


@in_virtual_time
async def test_checkpoint_of_another_cluster_is_refused(input_file: Path) -> None:
    async with orders() as cluster:
        assert (await send(plan_of(cluster, input_file, checkpoint=True))).complete
    before = stored(input_file)
    async with orders() as other:
        with pytest.raises(
            CheckpointError, match=f"was made on the cluster {before['cluster']}, not .*: name another"
        ):
            await send(plan_of(other, input_file, checkpoint=True))
        assert values(other) == [[]]
    assert stored(input_file) == before


@in_virtual_time
async def test_checkpoint_excludes_concurrent_send(input_file: Path) -> None:
    async with orders() as cluster:
        arguments = plan_of(cluster, input_file, checkpoint=True, rate=100)
        first = asyncio.create_task(send(arguments))
        await asyncio.sleep(1)
        with pytest.raises(CheckpointError, match="another process uses the checkpoint"):
            await send(arguments)
        assert (await first).complete
        assert values(cluster) == [LINES]


@in_virtual_time
async def test_unwritable_checkpoint_fails_before_first_send(input_file: Path) -> None:
    async with orders() as cluster:
        arguments = plan_of(cluster, input_file, checkpoint=True)
        for name, complaint in (("cp.new", "cp.new is another file"), ("cp.lock", "Is a directory")):
            input_file.with_name(name).mkdir()
            with pytest.raises(CheckpointError, match=f"cannot write the checkpoint .*{complaint}"):
                await send(arguments)
        assert values(cluster) == [[]]


@in_virtual_time
async def test_read_only_checkpoint_fails_before_first_send(
    input_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with orders() as cluster:
        arguments = plan_of(cluster, input_file, checkpoint=True)
        assert (await send(arguments)).complete
        with input_file.open("ab") as file:
            file.write(b"new\n")
        full_disk(monkeypatch, 1)
        with pytest.raises(CheckpointError, match=r"cannot write the checkpoint .*: No space left"):
            await send(arguments)
        assert values(cluster) == [LINES], "nothing was sent"
    assert stored(input_file)["records"] == 1_000


@in_virtual_time
async def test_full_disk_ends_send(input_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full_disk(monkeypatch, 3)
    async with orders() as cluster:
        outcome = await send(plan_of(cluster, input_file, rate=100, checkpoint=True))
    assert re.fullmatch("cannot write the checkpoint .*: No space left on device", outcome.stopped or "")
    assert outcome.sent == outcome.acknowledged == pytest.approx(200, abs=20)
    assert not outcome.is_saved
    assert stored(input_file)["records"] < outcome.acknowledged


@in_virtual_time
async def test_failed_final_checkpoint_is_reported(input_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full_disk(monkeypatch, 2)
    async with orders() as cluster:
        outcome = await send(plan_of(cluster, input_file, checkpoint=True))
    assert outcome.acknowledged == outcome.sent == 1_000
    assert not outcome.complete
    assert not outcome.is_saved
    assert stored(input_file)["records"] == 0


def full_disk(monkeypatch: pytest.MonkeyPatch, first: int) -> None:
    """Let the disk be full from that save on."""
    saves = 0

    def fsync(_: int) -> None:
        nonlocal saves
        saves += 1
        if saves >= first:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fsync)
