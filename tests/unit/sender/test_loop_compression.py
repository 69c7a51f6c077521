from __future__ import annotations

import pytest

from aioproducer.batching.batch import Batch
from aioproducer.batching.failure import Failure
from aioproducer.batching.state import BatchState
from aioproducer.errors import ProducerError
from aioproducer.records.compression import Codec
from aioproducer.testing import in_virtual_time
from tests.unit.sender.loop_bench import LARGE, LINGER_S, Bench, Thread, pass_time
from tests.unit.workbench import settle


def spoil(batch: Batch) -> None:
    """Let encoding *batch* fail."""
    batch.columns.timestamps[0] = "not a time"  # type: ignore[call-overload]


class TestCompression:
    """No time passes while a thread is out, so nothing may linger here."""

    @in_virtual_time
    async def test_nothing_overtakes_a_batch_that_is_compressed_in_a_thread(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        thread = Thread(monkeypatch)
        async with Bench(codec=Codec.GZIP, partitions=2) as bench:
            bench.accumulator.flushing = 1
            bench.fill(LARGE)
            await settle()
            bench.fill(b"small")
            bench.fill(b"of another partition", partition=1)
            await settle()
            assert bench.sent_values() == []
            await thread.ends(bench)
            first, second = bench.sent_values()
            assert first == [LARGE]
            assert set(second) == {b"small", b"of another partition"}

    @in_virtual_time
    async def test_what_expires_meanwhile_is_not_written(self, monkeypatch: pytest.MonkeyPatch) -> None:
        thread = Thread(monkeypatch)
        async with Bench(codec=Codec.GZIP) as bench:
            bench.accumulator.flushing = 1
            batch = bench.fill(LARGE)
            await settle()
            assert batch.state is BatchState.IN_FLIGHT
            bench.settler.fail_everything(Failure(ProducerError, "enough"))
            await thread.ends(bench)
            assert bench.connection.calls == []
            assert bench.sender._preparing == {}

    @in_virtual_time
    async def test_what_cannot_be_compressed_fails_alone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        thread = Thread(monkeypatch)
        async with Bench(codec=Codec.GZIP, partitions=2) as bench:
            bench.accumulator.flushing = 1
            good, bad = bench.append(LARGE), bench.append(LARGE, partition=1)
            spoil(bench.queue(1).batches[0])
            await settle()
            await thread.ends(bench)
            assert isinstance(bad.exception(), ProducerError)
            bench.accept()
            assert good.result().offset == 0

    @in_virtual_time
    async def test_what_cannot_be_encoded_fails_alone_on_the_loop_too(self) -> None:
        async with Bench(partitions=2) as bench:
            good, bad = bench.append(b"good"), bench.append(b"bad", partition=1)
            spoil(bench.queue(1).batches[0])
            await pass_time(LINGER_S)
            assert isinstance(bad.exception(), ProducerError)
            bench.accept()
            assert good.result().offset == 0

    @in_virtual_time
    async def test_what_fails_meanwhile_and_cannot_be_encoded_either_has_failed_once(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        thread = Thread(monkeypatch)
        async with Bench(codec=Codec.GZIP, partitions=2) as bench:
            bench.accumulator.flushing = 1
            bench.fill(LARGE)
            spoil(bench.fill(b"bad", partition=1))
            await settle()
            bench.settler.fail_everything(Failure(ProducerError, "enough"))
            await thread.ends(bench)
            assert len(bench.witness.failures) == 2
            assert not bench.running.done()
