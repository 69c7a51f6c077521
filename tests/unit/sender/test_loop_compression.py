from __future__ import annotations

import pytest

from aioproducer.batching.batch import Batch
from aioproducer.batching.batch_state import BatchState
from aioproducer.batching.topic import RATE_MARGIN
from aioproducer.batching.waiters import Failure
from aioproducer.errors import ProducerError
from aioproducer.records.compression import Codec
from aioproducer.testing import in_virtual_time
from tests.unit.floor_rig import TOPIC, settle
from tests.unit.sender.loop_rig import LARGE, LINGER_S, Rig, Thread, pass_time


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
        async with Rig(codec=Codec.GZIP, partitions=2) as rig:
            rig.accumulator.flushing = 1
            rig.fill(LARGE)
            await settle()
            rig.fill(b"small")
            rig.fill(b"of another partition", partition=1)
            await settle()
            assert rig.sent_values() == []
            await thread.ends(rig)
            first, second = rig.sent_values()
            assert first == [LARGE]
            assert set(second) == {b"small", b"of another partition"}

    @in_virtual_time
    async def test_what_came_of_a_batch_is_learnt_once(self) -> None:
        async with Rig(codec=Codec.GZIP) as rig:
            limits = rig.accumulator.topics[TOPIC].limits
            batch = rig.fill(b"x" * 1_000)
            await pass_time(LINGER_S)
            assert rig.sent_values() == [[b"x" * 1_000]]
            assert limits.rate == pytest.approx(0.995 * RATE_MARGIN)
            rig.completion.reenqueue(batch, rig.loop.time())
            await settle()
            assert rig.sent_values() == [[b"x" * 1_000]] * 2
            assert limits.rate == pytest.approx(0.995 * RATE_MARGIN)
            rig.accept()
            follower = rig.fill(b"x")
            assert (follower.limit, follower.rate) == (limits.ready, limits.rate)

    @in_virtual_time
    async def test_without_a_codec_nothing_is_estimated(self) -> None:
        async with Rig() as rig:
            rig.fill(b"x" * 1_000)
            await pass_time(LINGER_S)
            assert rig.sent_values() == [[b"x" * 1_000]]
            assert rig.accumulator.topics[TOPIC].limits.rate == 1.0

    @in_virtual_time
    async def test_what_expires_meanwhile_is_not_written(self, monkeypatch: pytest.MonkeyPatch) -> None:
        thread = Thread(monkeypatch)
        async with Rig(codec=Codec.GZIP) as rig:
            rig.accumulator.flushing = 1
            batch = rig.fill(LARGE)
            await settle()
            assert batch.state is BatchState.IN_FLIGHT
            rig.completion.fail_everything(Failure(ProducerError, "enough"))
            await thread.ends(rig)
            assert rig.connection.calls == []
            assert rig.sender._preparing == {}

    @in_virtual_time
    async def test_what_cannot_be_compressed_fails_alone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        thread = Thread(monkeypatch)
        async with Rig(codec=Codec.GZIP, partitions=2) as rig:
            rig.accumulator.flushing = 1
            good, bad = rig.append(LARGE), rig.append(LARGE, partition=1)
            spoil(rig.queue(1).batches[0])
            await settle()
            await thread.ends(rig)
            assert isinstance(bad.exception(), ProducerError)
            rig.accept()
            assert good.result().offset == 0

    @in_virtual_time
    async def test_what_cannot_be_encoded_fails_alone_on_the_loop_too(self) -> None:
        async with Rig(partitions=2) as rig:
            good, bad = rig.append(b"good"), rig.append(b"bad", partition=1)
            spoil(rig.queue(1).batches[0])
            await pass_time(LINGER_S)
            error = bad.exception()
            assert isinstance(error, ProducerError)
            assert isinstance(error.__cause__, Exception)
            rig.accept()
            assert good.result().offset == 0

    @in_virtual_time
    async def test_what_fails_meanwhile_and_cannot_be_encoded_either_has_failed_once(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        thread = Thread(monkeypatch)
        async with Rig(codec=Codec.GZIP, partitions=2) as rig:
            rig.accumulator.flushing = 1
            rig.fill(LARGE)
            spoil(rig.fill(b"bad", partition=1))
            await settle()
            rig.completion.fail_everything(Failure(ProducerError, "enough"))
            await thread.ends(rig)
            assert len(rig.witness.failures) == 2
            assert not rig.running.done()
