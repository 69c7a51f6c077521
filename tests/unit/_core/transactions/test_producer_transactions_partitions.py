"""Partitions that are added to a transaction."""

from __future__ import annotations

import asyncio

import pytest

from aioproducer._core.transactions.transaction_manager import Api, TransactionState as State
from aioproducer.errors import ProducerError, TopicAuthorizationFailed
from aioproducer.testing import in_virtual_time
from tests.unit._core.transactions.transactions_rig import refused, rig
from tests.unit.floor_rig import settle


class TestPartitions:
    @in_virtual_time
    async def test_partitions_are_added_before_a_write_below_version_2(self) -> None:
        async with rig(version=1, partitions=3) as made:
            for partition in (0, 1):
                _ = made.append(partition=partition)
            assert made.drain() == []
            await settle()
            _ = made.append(partition=2)  # while the others are being added
            assert made.drain() == []
            added = [(await made.answers()).request.v3_and_below_topics[0].partitions for _ in range(2)]
            assert added == [[0, 1], [2]]
            assert {each.topic_partition.partition for each in made.drain()} == {0, 1, 2}
            assert made.coordinators.seen[1:] == [Api.ADD_PARTITIONS, Api.ADD_PARTITIONS]

    @in_virtual_time
    async def test_partitions_are_not_added_from_version_2_on(self) -> None:
        async with rig() as made:
            _ = made.append()
            assert len(made.drain()) == 1
            assert made.coordinators.seen == [Api.INIT_PRODUCER_ID]

    @in_virtual_time
    async def test_refused_partition_fails_its_records(self) -> None:
        async with rig(version=1) as made:
            future = made.append()
            assert made.drain() == []
            await made.answers(refused(29))
            failed = future.exception()
            assert isinstance(failed, TopicAuthorizationFailed)
            assert (failed.abortable, failed.fatal, failed.possibly_persisted) == (True, False, False)
            assert made.transactions.has_failed

    @in_virtual_time
    async def test_bug_while_partitions_are_added_ends_the_producer(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Otherwise the commit would wait for partitions that are never added."""
        async with rig(version=1) as made:
            future = made.append()
            assert made.drain() == []
            await settle()
            made.coordinators.asked[0].answered.set_exception(ZeroDivisionError("oops"))
            await settle()
            with pytest.raises(ProducerError, match=r"bug in aioproducer: ZeroDivisionError\('oops'\)"):
                await future
            assert made.manager.state is State.FATAL
            [line] = [each for each in caplog.records if each.getMessage().startswith("task.crashed")]
            assert line.getMessage() == 'task.crashed task="aioproducer: add partitions"'
            assert line.exc_info is not None
            assert isinstance(line.exc_info[1], ZeroDivisionError)

    @in_virtual_time
    async def test_bug_in_a_commit_ends_the_producer(self) -> None:
        async with rig() as made:
            made.manager.request_written()
            committing = asyncio.create_task(made.transactions.commit(None))
            await settle()
            made.coordinators.asked[0].answered.set_exception(ZeroDivisionError("oops"))
            with pytest.raises(ProducerError, match="ZeroDivisionError"):
                await committing
            with pytest.raises(ProducerError, match="ZeroDivisionError") as raised:
                await made.transactions.begin()
            assert raised.value.fatal

    @in_virtual_time
    async def test_partitions_are_added_again_in_the_next_transaction(self) -> None:
        async with rig(version=1) as made:
            for _ in range(2):
                _ = made.append()
                assert made.drain() == []
                await made.answers()
                [batch] = made.drain()
                made.records.write([batch])
                batch.persistence.written()
                made.completion.complete(batch, 0)
                await made.answered(made.transactions.commit(None))
                await made.transactions.begin()
            assert made.coordinators.seen[1:] == [Api.ADD_PARTITIONS, Api.COMMIT] * 2
