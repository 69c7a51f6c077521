# ruff: noqa: ASYNC240 - these files are small
from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from aioproducer import Producer
from aioproducer.audit import Audit, sequence_of
from aioproducer.cli.send import send_run as run_module
from aioproducer.cli.send.arguments import Format, TransactionOutcome
from aioproducer.cli.send.decoding import Fields
from aioproducer.cli.send.send_run import Sending
from aioproducer.errors import ConnectionFailed, InvalidRecord
from aioproducer.testing import Cluster, in_virtual_time
from tests.unit.cli.send.send_run_rig import LINES, orders, plan_of, send, stored, values

pytestmark = pytest.mark.usefixtures("small_calls")


@in_virtual_time
async def test_all_records_arrive_in_order_with_progress(input_file: Path) -> None:
    progress: list[int] = []
    async with orders() as cluster:
        arguments = plan_of(cluster, input_file)
        outcome = await Sending(arguments, lambda outcome: progress.append(outcome.acknowledged)).run()
        assert values(cluster) == [LINES]
    assert (outcome.sent, outcome.acknowledged, outcome.complete) == (1_000, 1_000, True)
    assert (outcome.prefix.size, outcome.prefix.records) == (input_file.stat().st_size, 1_000)
    assert outcome.prefix.place == f"{input_file}, line 1000"
    assert progress == sorted(progress)
    assert len(progress) > 30


@in_virtual_time
async def test_records_arrive_in_order_with_little_memory(input_file: Path) -> None:
    async with orders() as cluster:
        options = {"buffer_memory": 500, "batch_size": 200}
        outcome = await send(plan_of(cluster, input_file, options=options))
        assert values(cluster) == [LINES]
    assert outcome.complete


@in_virtual_time
async def test_send_limits_concurrent_calls(input_file: Path) -> None:
    async with orders() as cluster:
        begun = asyncio.Event()
        sending = Sending(plan_of(cluster, input_file), lambda _: begun.set())
        running = asyncio.create_task(sending.run())
        await begun.wait()
        cluster.freeze_broker(1)
        await asyncio.sleep(5)
        assert 0 < sending.outcome.sent - sending.outcome.acknowledged <= run_module.CALLS * 30
        cluster.thaw_broker(1)
        assert (await running).complete


@in_virtual_time
async def test_json_fields_select_key_and_partition(tmp_path: Path) -> None:
    path = tmp_path / "in"
    path.write_text('{"k": "a", "h": {"x": "y"}, "p": 2}\n\n{"k": "b", "p": 0}\n')
    form = Format(name="json", fields=Fields(value="k", key="k", headers="h", partition="p"))
    async with orders(partitions=3) as cluster:
        outcome = await send(plan_of(cluster, path, format=form, run="nightly-7"))
        assert values(cluster, 3) == [[b"b"], [], [b"a"]]
        [first] = cluster.records("orders", 2)
    assert outcome.prefix.records == 2
    assert first.key == b"a"
    assert first.headers == (("aioproducer-run", b"nightly-7"), ("aioproducer-seq", b"0"), ("x", b"y"))


@in_virtual_time
async def test_rate_spreads_records_over_time(input_file: Path) -> None:
    async with orders() as cluster:
        outcome = await send(plan_of(cluster, input_file, rate=100))
        assert values(cluster) == [LINES]
    assert outcome.seconds == pytest.approx(10, abs=0.1)


@in_virtual_time
async def test_huge_rate_is_accepted(input_file: Path) -> None:
    async with orders() as cluster:
        assert (await send(plan_of(cluster, input_file, rate=1e308))).acknowledged == 1_000


@in_virtual_time
async def test_rate_is_kept_when_acknowledgements_are_late(input_file: Path) -> None:
    async with Cluster(topics={"orders": 1}, transport="memory", latency_s=0.5) as cluster:
        outcome = await send(plan_of(cluster, input_file, rate=50))
        assert values(cluster) == [LINES]
    assert outcome.seconds == pytest.approx(20, abs=3)


@in_virtual_time
async def test_malformed_line_ends_send_after_earlier_lines(tmp_path: Path) -> None:
    path = tmp_path / "in"
    path.write_text('{"n": 1}\n{"n": 2}\nnonsense\n{"n": 3}\n')
    async with orders() as cluster:
        arguments = plan_of(cluster, path, format=Format(name="json"), checkpoint=True)
        outcome = await send(arguments)
        assert values(cluster) == [[b'{"n": 1}', b'{"n": 2}']]
        assert outcome.stopped == f"{path}, line 3: it is not JSON: Expecting value, at character 1"
        assert (stored(path)["records"], stored(path)["bytes"]) == (2, 18)

        path.write_text('{"n": 1}\n{"n": 2}\n{"n": "mended"}\n{"n": 3}\n')
        outcome = await send(arguments)
        assert values(cluster) == [[b'{"n": 1}', b'{"n": 2}', b'{"n": "mended"}', b'{"n": 3}']]
    assert (outcome.skipped, outcome.sent, outcome.complete) == (2, 2, True)


@in_virtual_time
async def test_first_failed_record_ends_send_and_prefix(input_file: Path) -> None:
    input_file.write_bytes(b"a\nb\n" + b"x" * 200 + b"\nd\n" + b"more\n" * 1_000)
    async with orders() as cluster:
        outcome = await send(plan_of(cluster, input_file, checkpoint=True, options={"max_request_size": 200}))
        [in_topic] = values(cluster)
        assert in_topic[:3] == [b"a", b"b", b"d"]
        assert len(in_topic) == outcome.acknowledged < 300, "it stopped soon"
    [failure] = outcome.failures
    assert failure.startswith("RecordTooLarge: ")
    assert outcome.first_failure == f"{input_file}, line 3"
    assert (outcome.stopped, outcome.possibly_persisted, outcome.unknown) == ("a record failed", 0, 0)
    assert (outcome.prefix.records, stored(input_file)["bytes"]) == (2, 4)
    assert not outcome.complete


@in_virtual_time
async def test_refused_record_fails_without_doubt(input_file: Path) -> None:
    async with orders() as cluster:
        cluster.on("produce", times=None).answer(InvalidRecord)
        outcome = await send(plan_of(cluster, input_file))
    assert outcome.failures.total() == outcome.sent > 0
    assert outcome.first_failure == f"{input_file}, line 1"
    assert outcome.prefix.place is None


@in_virtual_time
async def test_interrupt_waits_for_sent_records(input_file: Path) -> None:
    async with orders() as cluster:
        sending = Sending(plan_of(cluster, input_file, rate=100, checkpoint=True, run="r"), lambda _: None)
        running = asyncio.create_task(sending.run())
        await asyncio.sleep(3)
        sending.interrupt()
        outcome = await running
        [in_topic] = values(cluster)
        assert in_topic == LINES[: outcome.sent]
        assert outcome.sent == outcome.acknowledged == pytest.approx(300, abs=10)
        assert (outcome.stopped, outcome.complete) == ("interrupted", False)
        assert stored(input_file)["records"] == outcome.sent

        again = await send(plan_of(cluster, input_file, checkpoint=True, run="r"))
        assert (again.skipped, again.sent) == (outcome.sent, 1_000 - outcome.sent)
        assert values(cluster) == [LINES]
        audit = Audit("r", expect=1_000)
        for record in cluster.records("orders", 0):
            audit.add(0, record.offset, sequence_of(record.headers))
        assert audit.report().ok


@in_virtual_time
async def test_second_interrupt_ends_the_waiting(input_file: Path) -> None:
    async with orders() as cluster:
        sending = Sending(plan_of(cluster, input_file, rate=100), lambda _: None)
        running = asyncio.create_task(sending.run())
        await asyncio.sleep(2)
        cluster.freeze_broker(1)
        await asyncio.sleep(1)
        sending.interrupt()
        await asyncio.sleep(5)
        assert not running.done()
        sending.interrupt()
        gave_up_at = asyncio.get_running_loop().time()
        outcome = await running
        assert asyncio.get_running_loop().time() - gave_up_at < 1
    assert outcome.prefix.records == outcome.acknowledged == pytest.approx(200, abs=10)
    assert 0 < outcome.unknown <= 110
    assert not outcome.complete


@in_virtual_time
async def test_interrupt_after_last_line_still_waits(input_file: Path) -> None:
    input_file.write_bytes(b"a\n")
    async with orders() as cluster:
        cluster.on("produce").delay(3)
        sending = Sending(plan_of(cluster, input_file), lambda _: None)
        running = asyncio.create_task(sending.run())
        await asyncio.sleep(1)
        assert sending.outcome.sent == 1
        sending.interrupt()
        assert (await running).complete


@in_virtual_time
async def test_interrupt_during_startup_ends_at_once(input_file: Path) -> None:
    async with orders() as cluster:
        cluster.freeze_broker(1)
        sending = Sending(plan_of(cluster, input_file, checkpoint=True), lambda _: None)
        running = asyncio.create_task(sending.run())
        await asyncio.sleep(1)
        sending.interrupt()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert not input_file.with_name("cp").exists()


@in_virtual_time
async def test_send_without_a_cluster_fails(input_file: Path) -> None:
    async with orders() as cluster:
        arguments = plan_of(cluster, input_file)
    with pytest.raises(ConnectionFailed):
        await send(arguments)


@in_virtual_time
async def test_bug_is_raised_by_send(input_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(Sending, "_take", fail)
    async with orders() as cluster:
        with pytest.raises(RuntimeError, match="a bug"):
            await send(plan_of(cluster, input_file))


@in_virtual_time
async def test_transaction_report_names_the_causing_record(
    tmp_path: Path,
) -> None:
    path = tmp_path / "in"
    path.write_bytes(b"small\n" * 40 + b"x" * 2_000 + b"\n" + b"small\n" * 5)
    options = {"transactional_id": "nightly", "max_request_size": 1_000, "linger_ms": 10_000}
    async with orders() as cluster:
        outcome = await send(plan_of(cluster, path, options=options))
    assert outcome.first_failure == f"{path}, line 41"
    [told] = outcome.failures
    assert told.startswith("RecordTooLarge: a record for 'orders' takes 2,")
    assert outcome.transaction is TransactionOutcome.ABORTED


@in_virtual_time
async def test_failed_abort_is_reported(input_file: Path) -> None:
    async with Cluster(topics={"orders": 1}, transport="memory", transaction_version=1) as cluster:
        begun = asyncio.Event()
        arguments = plan_of(cluster, input_file, rate=100.0, options={"transactional_id": "nightly"})
        running = asyncio.create_task(Sending(arguments, lambda _: begun.set()).run())
        await begun.wait()
        async with Producer(cluster.bootstrap_servers, transactional_id="nightly"):
            outcome = await running
    assert outcome.transaction is TransactionOutcome.LEFT_OPEN
    assert outcome.stopped is not None
    assert outcome.stopped.startswith("a record failed; then ProducerFenced: ABORT for transactional id")


@in_virtual_time
@pytest.mark.parametrize("form", ["lines", "json"])
async def test_binary_file_is_refused_before_the_first_record(input_file: Path, form: str) -> None:
    archive = input_file.with_name("orders.zip")
    archive.write_bytes(b"PK\x03\x04\n1\n")
    async with orders() as cluster:
        arguments = plan_of(cluster, input_file, format=Format(name=form))
        outcome = await send(replace(arguments, paths=[str(input_file), str(archive)]))
        assert values(cluster) == [[]]
    assert (outcome.sent, outcome.complete) == (0, False)
    assert outcome.stopped is not None
    assert outcome.stopped.startswith(f"{archive}: it is a zip archive, which --format lines and json refuse")


@in_virtual_time
async def test_forced_binary_file_is_sent(input_file: Path) -> None:
    input_file.write_bytes(b"PK\x03\x04\n1\n")
    async with orders() as cluster:
        outcome = await send(plan_of(cluster, input_file, format=Format(force=True)))
        assert values(cluster) == [[b"PK\x03\x04", b"1"]]
    assert outcome.complete
