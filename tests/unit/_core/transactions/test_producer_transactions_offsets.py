"""Offsets of consumer groups, committed with a transaction."""

from __future__ import annotations

import asyncio

import pytest

from aioproducer import GroupMetadata, TopicPartition
from aioproducer._core.transactions.coordinator import Key, KeyType
from aioproducer._core.transactions.transaction_manager import Api, TransactionState as State
from aioproducer._core.transactions.transaction_types import OffsetAndMetadata
from aioproducer.errors import (
    CommitFailed,
    GroupAuthorizationFailed,
    ProducerClosed,
    ProducerFenced,
    TransactionAborted,
    TransactionStateError,
    TransactionTimeout,
    UnsupportedVersion,
)
from aioproducer.testing import in_virtual_time
from tests.cases import for_each
from tests.unit._core.transactions.transactions_rig import TransactionsRig, refused, rig
from tests.unit.floor_rig import settle

OFFSETS = {TopicPartition("in", 0): OffsetAndMetadata(42)}
GROUP = GroupMetadata("g")


def sending(made: TransactionsRig, timeout_s: float | None = None) -> asyncio.Task[None]:
    return asyncio.create_task(made.transactions.send_offsets(OFFSETS, GROUP, timeout_s))


class TestOffsets:
    @pytest.mark.parametrize("version", [1, 2])
    @in_virtual_time
    async def test_group_is_added_once_below_version_2(self, version: int) -> None:
        async with rig(version=version) as made:
            for _ in range(2):
                await made.answered(made.transactions.send_offsets(OFFSETS, GROUP, None))
            apis = [Api.OFFSET_COMMIT, Api.OFFSET_COMMIT]
            if version < 2:
                apis.insert(0, Api.ADD_OFFSETS)
            assert made.coordinators.seen[1:] == apis
            await made.answered(made.transactions.commit(None))
            assert made.coordinators.seen[-1] is Api.COMMIT

    @in_virtual_time
    async def test_group_is_added_by_its_id(self) -> None:
        async with rig(version=1) as made:
            task = sending(made)
            assert (await made.answers()).request.group_id == "g"
            await made.answers()
            await task

    @in_virtual_time
    async def test_empty_offsets_send_no_request(self) -> None:
        async with rig() as made:
            await made.transactions.send_offsets({}, GROUP, None)
            assert made.coordinators.seen == [Api.INIT_PRODUCER_ID]

    @in_virtual_time
    async def test_send_offsets_outside_a_transaction_is_refused(self) -> None:
        async with rig() as made:
            await made.transactions.commit(None)
            with pytest.raises(TransactionStateError, match="cannot send offsets: no transaction is open"):
                await made.transactions.send_offsets({}, GROUP, None)

    @in_virtual_time
    async def test_offsets_are_sent_to_the_coordinator_of_the_group(self) -> None:
        async with rig() as made:
            task = sending(made)
            asked = await made.answers()
            assert asked.key == Key(KeyType.GROUP, "g")
            await task

    @pytest.mark.parametrize("code", [22, 25, 82])
    @in_virtual_time
    async def test_offsets_of_a_removed_consumer_fail_the_transaction(self, code: int) -> None:
        async with rig() as made:
            task = sending(made)
            await made.answers(refused(code))
            with pytest.raises(
                CommitFailed, match=f"group 'g' has removed this consumer: refused with {code}"
            ) as raised:
                await task
            assert getattr(raised.value.__cause__, "code", None) == code
            assert raised.value.abortable
            with pytest.raises(CommitFailed, match="has removed this consumer"):
                await made.transactions.commit(None)

    @in_virtual_time
    async def test_refused_group_fails_the_transaction(self) -> None:
        async with rig(version=1) as made:
            task = sending(made)
            await made.answers(refused(30))
            with pytest.raises(GroupAuthorizationFailed, match="refused with 30") as raised:
                await task
            assert raised.value.abortable
            assert made.manager.groups == set()

    @in_virtual_time
    async def test_refused_for_good(self) -> None:
        async with rig() as made:
            task = sending(made)
            await made.answers(refused(90, fatal=True))
            with pytest.raises(ProducerFenced) as raised:
                await task
            assert raised.value.fatal
            assert made.manager.state is State.FATAL

    @in_virtual_time
    async def test_coordinator_without_group_metadata_is_named(self) -> None:
        """Nothing was written, so the transaction continues, with the group id alone."""
        async with rig() as made:
            task = sending(made)
            lacking = UnsupportedVersion("up to version 2")
            await made.answers(lacking)
            with pytest.raises(UnsupportedVersion) as raised:
                await task
            assert str(raised.value) == (
                "send_offsets: the coordinator of group 'g' is older than Kafka 2.5 and lacks group metadata;"
                " pass the group id"
            )
            assert raised.value.__cause__ is lacking
            assert made.manager.state is State.IN_TRANSACTION
            await made.answered(made.transactions.send_offsets(OFFSETS, GROUP, None))

    @in_virtual_time
    async def test_commit_waits_for_offsets(self) -> None:
        async with rig() as made:
            sent = sending(made)
            committing = asyncio.create_task(made.transactions.commit(None))
            await settle()
            assert made.coordinators.seen[1:] == [Api.OFFSET_COMMIT]
            await made.answers()
            await made.answers()
            await asyncio.gather(sent, committing)

    @in_virtual_time
    async def test_cancelled_send_offsets_still_fails_the_commit(self) -> None:
        async with rig() as made:
            sent = sending(made)
            await settle()
            sent.cancel()
            committing = asyncio.create_task(made.transactions.commit(None))
            await made.answers(refused(25))
            with pytest.raises(CommitFailed, match="has removed this consumer"):
                await committing

    @pytest.mark.parametrize("is_lacking", [True, False])
    @in_virtual_time
    async def test_cancelled_send_offsets_without_a_request_fails(self, is_lacking: bool) -> None:
        """No caller learns that the coordinator lacks group metadata."""
        async with rig() as made:
            sent = sending(made)
            await settle()
            sent.cancel()
            lacking = UnsupportedVersion("up to version 2")
            await made.answers(lacking if is_lacking else None)
            assert made.transactions.has_failed is is_lacking
            if is_lacking:
                cause = made.manager.cause
                assert isinstance(cause, CommitFailed)
                assert str(cause).startswith("the offsets were not sent: send_offsets: the coordinator of")
                assert isinstance(cause.__cause__, UnsupportedVersion)

    @in_virtual_time
    async def test_send_offsets_fails_the_transaction_at_its_timeout(self) -> None:
        async with rig(version=1) as made:
            made.coordinators.last_error = refused(7)
            with pytest.raises(
                TransactionTimeout, match=r"^cannot send offsets within 5 s .*: refused with 7$"
            ):
                await made.transactions.send_offsets(OFFSETS, GROUP, 5)
            await settle()
            assert made.coordinators.asked == []
            assert made.manager.needs_bump
            assert made.transactions.has_failed

    @for_each("later", range(6))
    @in_virtual_time
    async def test_offsets_cancelled_at_their_timeout_are_not_forgotten(self, later: int) -> None:
        """Without them nothing may be committed."""
        async with rig() as made:
            sent = sending(made, 5)
            await settle()
            await asyncio.sleep(5)
            for _ in range(later):
                await asyncio.sleep(0)
            sent.cancel()
            await asyncio.wait([sent])
            if made.coordinators.asked:  # cancelled before it was late: they are still on their way
                await made.answers()
                await made.answered(made.transactions.commit(None))
            else:
                with pytest.raises(CommitFailed, match="cannot send offsets"):
                    await made.answered(made.transactions.commit(None))

    @in_virtual_time
    async def test_abort_ends_send_offsets(self) -> None:
        async with rig() as made:
            sent = sending(made)
            await settle()
            aborting = asyncio.create_task(made.transactions.abort(None))
            with pytest.raises(
                TransactionAborted, match=r"^the transaction was aborted before its offsets were committed$"
            ):
                await sent
            await made.answers()
            await aborting

    @in_virtual_time
    async def test_pending_send_offsets_raises_producer_closed(self) -> None:
        async with rig() as made:
            sent = sending(made)
            await settle()
            await made.transactions.stop()
            with pytest.raises(ProducerClosed):
                await sent
