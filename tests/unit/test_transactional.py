"""The public API of transactions: the exits of a block, and `close`."""

from __future__ import annotations

import asyncio

import pytest

from aioproducer import PreparedTransaction
from aioproducer._core.transactions.transaction_manager import Api
from aioproducer.errors import (
    CommitFailed,
    ProducerClosed,
    ProducerFenced,
    RecordTooLarge,
    TransactionOutcomeUnknown,
    TransactionStateError,
    TransactionTimeout,
)
from aioproducer.testing import in_virtual_time
from tests.unit._core.transactions.transactions_rig import ID, refused
from tests.unit.floor_rig import settle
from tests.unit.producer_rig import TOPIC
from tests.unit.transactional_rig import ends, fence, started


class TestBlock:
    @pytest.mark.parametrize("version", [1, 2])
    @in_virtual_time
    async def test_block_commits(self, monkeypatch: pytest.MonkeyPatch, version: int) -> None:
        async with started(monkeypatch, version=version) as (producer, fake, cluster):
            for _ in range(3):
                async with producer.transaction() as transaction:
                    assert "tx" in repr(transaction)
                    await producer.send(TOPIC, b"v", partition=0)
            assert ends(fake) == [Api.COMMIT] * 3
            assert len(cluster.records(TOPIC, 0)) == 3

    @in_virtual_time
    async def test_block_aborts_and_raises_the_error_of_its_body(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with started(monkeypatch) as (producer, fake, _):

            async def block() -> None:
                async with producer.transaction():
                    await producer.send(TOPIC, b"v")
                    raise ZeroDivisionError

            with pytest.raises(ZeroDivisionError):
                await block()
            assert ends(fake) == [Api.ABORT]

    @in_virtual_time
    async def test_cancelled_block_aborts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with started(monkeypatch) as (producer, fake, _):

            async def block() -> None:
                async with asyncio.timeout(1), producer.transaction():
                    await producer.send(TOPIC, b"v")
                    await asyncio.sleep(10)

            with pytest.raises(TimeoutError):
                await block()
            assert ends(fake) == [Api.ABORT]
            async with producer.transaction():
                pass

    @in_virtual_time
    async def test_cancelled_block_waits_at_most_request_timeout(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with started(monkeypatch, request_timeout_ms=3_000, max_block_ms=50_000) as (producer, fake, _):
            began_at = asyncio.get_running_loop().time()

            async def block() -> None:
                async with asyncio.timeout(1), producer.transaction():
                    await producer.send(TOPIC, b"v")
                    fake.answers_at_once = False
                    await asyncio.sleep(10)

            with pytest.raises(TimeoutError):
                await block()
            assert asyncio.get_running_loop().time() - began_at == 4
            fake.answer()

    @in_virtual_time
    async def test_block_raises_commit_failed_for_an_unawaited_failure(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with started(monkeypatch) as (producer, fake, _):

            async def block() -> None:
                async with producer.transaction():
                    await producer.send(TOPIC, b"v")
                    with pytest.raises(RecordTooLarge):
                        await producer.send(TOPIC, b"v" * 2_000_000)

            with pytest.raises(CommitFailed) as raised:
                await block()
            assert isinstance(raised.value.__cause__, RecordTooLarge)
            assert ends(fake) == [Api.ABORT]
            async with producer.transaction():
                await producer.send(TOPIC, b"v")

    @in_virtual_time
    async def test_block_aborts_after_a_refused_commit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with started(monkeypatch) as (producer, fake, _):
            fake.refusing[Api.COMMIT] = refused(48)

            async def block() -> None:
                async with producer.transaction():
                    await producer.send(TOPIC, b"v")

            with pytest.raises(CommitFailed, match="refused with 48"):
                await block()
            assert ends(fake) == [Api.COMMIT, Api.ABORT]

    @in_virtual_time
    async def test_block_does_not_abort_a_commit_without_an_answer(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with started(monkeypatch, max_block_ms=1_000) as (producer, fake, _):

            async def block() -> None:
                async with producer.transaction():
                    await producer.send(TOPIC, b"v")
                    fake.answers_at_once = False

            with pytest.raises(TransactionOutcomeUnknown):
                await block()
            assert ends(fake) == [Api.COMMIT]
            fake.answer()
            await producer.commit_transaction()

    @in_virtual_time
    async def test_block_aborts_when_records_are_unacknowledged_in_time(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with started(monkeypatch, max_block_ms=1_000) as (producer, fake, cluster):
            await asyncio.sleep(0)

            async def block() -> None:
                async with producer.transaction():
                    await producer.send(TOPIC, b"v")
                    cluster.freeze_broker(1)
                    _ = await producer.enqueue(TOPIC, b"v")
                    asyncio.get_running_loop().call_later(1.5, cluster.thaw_broker, 1)

            with pytest.raises(
                CommitFailed, match="the transaction was aborted: cannot commit within 1 s"
            ) as raised:
                await block()
            assert isinstance(raised.value.__cause__, TransactionTimeout)
            assert ends(fake) == [Api.ABORT]

    @pytest.mark.parametrize("commit", [True, False])
    @in_virtual_time
    async def test_ended_in_its_body(self, monkeypatch: pytest.MonkeyPatch, commit: bool) -> None:
        async with started(monkeypatch) as (producer, fake, _):
            async with producer.transaction():
                await producer.send(TOPIC, b"v")
                await (producer.commit_transaction() if commit else producer.abort_transaction())
            assert ends(fake) == [Api.COMMIT if commit else Api.ABORT]

    @in_virtual_time
    async def test_block_leaves_a_prepared_transaction_open(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with started(monkeypatch) as (producer, fake, _):
            prepared = list[PreparedTransaction]()

            async def block() -> None:
                async with producer.transaction() as transaction:
                    await producer.send(TOPIC, b"v")
                    prepared.append(await transaction.prepare())
                    raise ZeroDivisionError

            with pytest.raises(ZeroDivisionError):
                await block()
            assert [each[:3] for each in prepared] == [(ID, 7, 0)]
            assert ends(fake) == []
        assert ends(fake) == []

    @in_virtual_time
    async def test_block_cancelled_during_prepare_aborts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The caller received no PreparedTransaction, so no other process could end the transaction."""
        async with started(monkeypatch) as (producer, fake, cluster):

            async def block() -> None:
                async with producer.transaction() as transaction:
                    await producer.send(TOPIC, b"v")
                    cluster.freeze_broker(1)
                    _ = await producer.enqueue(TOPIC, b"v")
                    await transaction.prepare()

            asyncio.get_running_loop().call_later(2, cluster.thaw_broker, 1)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(block(), 1)
            assert ends(fake) == [Api.ABORT]

    @in_virtual_time
    async def test_block_ignores_another_transaction_begun_in_its_body(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with started(monkeypatch) as (producer, _, _):
            async with producer.transaction() as first:
                await producer.commit_transaction()
                second = await producer.begin_transaction()
                with pytest.raises(
                    TransactionStateError, match="cannot send offsets: this transaction is over"
                ):
                    await first.send_offsets({}, "g")
            await second.send_offsets({}, "g")
            await producer.commit_transaction()

    @in_virtual_time
    async def test_transaction_cannot_be_used_before_its_begin(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with started(monkeypatch) as (producer, _, _):
            with pytest.raises(TransactionStateError, match="cannot prepare: this transaction has not begun"):
                await producer.transaction().prepare()


class TestNoFalseCommit:
    """A block that exits without an error has committed all its records."""

    @in_virtual_time
    async def test_block_raises_when_its_producer_failed_meanwhile(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with started(monkeypatch) as (producer, fake, _):

            async def block() -> None:
                async with producer.transaction():
                    await producer.send(TOPIC, b"v")
                    fence(producer)

            with pytest.raises(ProducerFenced, match="close this producer"):
                await block()
            assert ends(fake) == []
            assert producer.state == "failed"

    @pytest.mark.parametrize("timeout_s", [0, None])
    @in_virtual_time
    async def test_block_raises_when_its_producer_was_closed_meanwhile(
        self, monkeypatch: pytest.MonkeyPatch, timeout_s: float | None
    ) -> None:
        async with started(monkeypatch) as (producer, fake, _):

            async def block() -> None:
                async with producer.transaction():
                    await producer.send(TOPIC, b"v")
                    await producer.close(timeout_s)

            with pytest.raises(ProducerClosed):
                await block()
            assert ends(fake) == ([Api.ABORT] if timeout_s is None else [])

    @in_virtual_time
    async def test_block_returns_when_its_producer_fails_after_the_commit(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with started(monkeypatch) as (producer, fake, _):
            async with producer.transaction():
                await producer.send(TOPIC, b"v")
                await producer.commit_transaction()
                fence(producer)
            assert ends(fake) == [Api.COMMIT]


class TestClose:
    @in_virtual_time
    async def test_close_aborts_an_open_transaction(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with started(monkeypatch) as (producer, fake, _):
            await producer.begin_transaction()
            await producer.send(TOPIC, b"v")
            await producer.close()
            assert ends(fake) == [Api.ABORT]

    @in_virtual_time
    async def test_close_waits_for_a_commit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with started(monkeypatch) as (producer, fake, _):
            await producer.begin_transaction()
            await producer.send(TOPIC, b"v")
            fake.answers_at_once = False
            committing = asyncio.create_task(producer.commit_transaction())
            await settle()
            closing = asyncio.create_task(producer.close())
            await settle()
            fake.answer()
            await committing
            assert await closing == 0
            assert ends(fake) == [Api.COMMIT]
