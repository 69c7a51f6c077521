"""Requests of transactions and their versions per transaction.version."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from aioproducer import GroupMetadata, TopicPartition
from aioproducer._core.idempotence import ProducerIdentity
from aioproducer._core.protocol.produce import InitProducerIdRequest, InitProducerIdResponse
from aioproducer._core.protocol.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    TransactionState as Described,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from aioproducer._core.transactions.coordinator import CoordinatorRequest, Key, KeyType
from aioproducer._core.transactions.transaction_manager import Api, TransactionManager
from aioproducer._core.transactions.transaction_requests import (
    Ending,
    TransactionRequests,
    refusal_of_identity,
)
from aioproducer._core.transactions.transaction_types import OffsetAndMetadata, topics_of
from aioproducer.errors import ProducerFenced, RebootstrapRequired, UnsupportedVersion
from aioproducer.testing import in_virtual_time
from tests.cases import for_each
from tests.unit._core.transactions.transactions_rig import ID, Asked, FakeCoordinators, refused, settings
from tests.unit.floor_rig import settle

OURS = ProducerIdentity(7, 3)
OFFSETS = {TopicPartition("in", 1): OffsetAndMetadata(42, "mine", 5)}
GROUP = GroupMetadata("g", 3, "m", "i")
OF_TRANSACTION, OF_GROUP = Key(KeyType.TRANSACTION, ID), Key(KeyType.GROUP, "g")

Ask = Callable[[TransactionRequests], Coroutine[Any, Any, Any]]


class Rig:
    def __init__(
        self,
        version: int = 1,
        identity: ProducerIdentity | None = OURS,
        *,
        reachable: bool = True,
        **changes: Any,
    ) -> None:
        self.manager = TransactionManager(ID, on_wanted=lambda: None, on_moved=lambda _: None)
        self.manager.current, self.manager.version = identity, version
        self.coordinators = FakeCoordinators(version)
        self.coordinators.reachable = reachable
        self.requests = TransactionRequests(settings(**changes), self.manager, self.coordinators.real)

    async def asked(self, ask: Ask, answer: Any = None) -> tuple[Asked, Any]:
        """Return the request of *ask*, and its result for *answer*."""
        task = asyncio.create_task(ask(self.requests))
        await settle()
        asked = self.coordinators.answer(answer)
        return asked, await task


def end(*, commit: bool) -> Ask:
    return lambda requests: requests.end(Ending(commits=commit))


ALL: dict[Api, Ask] = {
    Api.INIT_PRODUCER_ID: lambda requests: requests.init_producer_id(fails_refused=False),
    Api.ADD_PARTITIONS: lambda requests: requests.add_partitions([TopicPartition("out", 0)]),
    Api.ADD_OFFSETS: lambda requests: requests.add_offsets("g"),
    Api.OFFSET_COMMIT: lambda requests: requests.commit_offsets(OFFSETS, GROUP),
    Api.COMMIT: end(commit=True),
    Api.ABORT: end(commit=False),
}
ENDS = {Api.COMMIT, Api.ABORT}
CAPPED = {Api.OFFSET_COMMIT, Api.COMMIT, Api.ABORT}


@for_each("version", [0, 1, 2])
@for_each("api", ALL)
@in_virtual_time
async def test_request_versions_match_the_transaction_version(api: Api, version: int) -> None:
    asked, _ = await Rig(version).asked(ALL[api])
    assert (asked.api, asked.version) == (api, version)
    assert asked.fails_refused is (api not in {Api.INIT_PRODUCER_ID, *ENDS})
    if api is Api.INIT_PRODUCER_ID:
        assert (asked.at_least, asked.at_most) == (3, 5)
    else:
        at_least = 5 if api in ENDS and version == 2 else 0
        assert (asked.at_least, asked.at_most) == (at_least, 4 if api in CAPPED and version < 2 else None)
    assert asked.key == (OF_GROUP if api is Api.OFFSET_COMMIT else OF_TRANSACTION)


@pytest.mark.parametrize("two_phase_commit", [False, True])
@in_virtual_time
async def test_unsupported_version_names_option_and_broker_setting(two_phase_commit: bool) -> None:
    refused = UnsupportedVersion("up to version 5")
    refused.fatal = True
    rig = Rig(two_phase_commit=two_phase_commit)
    with pytest.raises(UnsupportedVersion) as raised:
        await rig.asked(ALL[Api.INIT_PRODUCER_ID], refused)
    assert (raised.value.abortable, raised.value.fatal) == (False, True)
    if not two_phase_commit:
        assert raised.value is refused
        return
    assert raised.value.__cause__ is refused
    assert str(raised.value) == (
        "transaction_two_phase_commit_enable: the brokers do not allow two-phase commit (up to version 5); set"
        " transaction.two.phase.commit.enable=true in the brokers, and in Kafka 4.3 also"
        " unstable.api.versions.enable=true"
    )


@for_each(
    ("identity", "two_phase_commit", "versions"),
    [
        (None, False, (0, 5)),
        (OURS, False, (3, 5)),
        (ProducerIdentity(0, 0), False, (3, 5)),
        (None, True, (6, 6)),
        (OURS, True, (6, 6)),
    ],
)
@in_virtual_time
async def test_init_producer_id_has_its_fields_and_versions(
    identity: ProducerIdentity | None, two_phase_commit: bool, versions: tuple[int, int]
) -> None:
    rig = Rig(identity=identity, two_phase_commit=two_phase_commit, timeout_ms=4_711)
    asked, got = await rig.asked(
        lambda requests: requests.init_producer_id(fails_refused=True),
        InitProducerIdResponse(producer_id=8, producer_epoch=4),
    )
    assert asked.fails_refused
    assert (asked.check is None) is (identity is None)
    own = identity or ProducerIdentity(-1, -1)
    assert asked.request == InitProducerIdRequest(
        transactional_id=ID,
        transaction_timeout_ms=4_711,
        producer_id=own.producer_id,
        producer_epoch=own.epoch,
        enable2_pc=two_phase_commit,
        keep_prepared_txn=False,
    )
    assert (asked.at_least, asked.at_most) == versions
    assert got == ProducerIdentity(8, 4)
    assert not rig.manager.attempted
    assert asked.refusals(InitProducerIdResponse(error_code=53, producer_epoch=-1)) == [(53, "")]
    too_long = InitProducerIdResponse(error_code=50, producer_epoch=-1)
    assert asked.refusals(too_long) == [(50, "transaction_timeout_ms = 4711")]


@in_virtual_time
async def test_add_partitions_groups_partitions_by_topic() -> None:
    partitions = [TopicPartition("a", 3), TopicPartition("b", 0), TopicPartition("a", 1)]
    rig = Rig()
    asked, _ = await rig.asked(lambda requests: requests.add_partitions(partitions))
    assert asked.request == AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=ID,
        v3_and_below_producer_id=7,
        v3_and_below_producer_epoch=3,
        v3_and_below_topics=[
            AddPartitionsToTxnTopic(name="a", partitions=[3, 1]),
            AddPartitionsToTxnTopic(name="b", partitions=[0]),
        ],
    )
    assert rig.manager.attempted
    answer = AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(
                name=name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
                ],
            )
            for name, index, code in (("a", 3, 29), ("b", 0, 0))
        ]
    )
    assert asked.refusals(answer) == [(29, "a-3"), (0, "b-0")]


@in_virtual_time
async def test_add_offsets_names_the_group() -> None:
    rig = Rig()
    asked, _ = await rig.asked(ALL[Api.ADD_OFFSETS])
    assert asked.request == AddOffsetsToTxnRequest(
        transactional_id=ID, producer_id=7, producer_epoch=3, group_id="g"
    )
    assert rig.manager.attempted
    assert asked.refusals(AddOffsetsToTxnResponse(error_code=30)) == [(30, "group 'g'")]


@in_virtual_time
async def test_offset_commit_has_group_metadata_and_offsets() -> None:
    rig = Rig()
    asked, _ = await rig.asked(ALL[Api.OFFSET_COMMIT])
    assert asked.request == TxnOffsetCommitRequest(
        transactional_id=ID,
        group_id="g",
        producer_id=7,
        producer_epoch=3,
        generation_id=3,
        member_id="m",
        group_instance_id="i",
        topics=topics_of(OFFSETS),
    )
    assert rig.manager.attempted
    answer = TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name="in", partitions=[TxnOffsetCommitResponsePartition(partition_index=1, error_code=22)]
            )
        ]
    )
    assert asked.refusals(answer) == [(22, "in-1")]


@for_each("commit", [True, False])
@for_each(
    ("version", "answer", "goes_on_as"),
    [
        (0, EndTxnResponse(), None),
        (1, EndTxnResponse(), None),
        (1, EndTxnResponse(producer_id=7, producer_epoch=4), None),
        (2, EndTxnResponse(), None),
        (2, EndTxnResponse(producer_id=7, producer_epoch=4), ProducerIdentity(7, 4)),
        (2, EndTxnResponse(producer_id=0, producer_epoch=0), ProducerIdentity(0, 0)),
    ],
)
@in_virtual_time
async def test_end_returns_the_next_identity_and_tracks_uncertainty(
    commit: bool, version: int, answer: EndTxnResponse, goes_on_as: ProducerIdentity | None
) -> None:
    rig, ending = Rig(version), Ending(commits=commit)
    asked, got = await rig.asked(lambda requests: requests.end(ending), answer)
    assert asked.api is (Api.COMMIT if commit else Api.ABORT)
    assert asked.request == EndTxnRequest(
        transactional_id=ID, producer_id=7, producer_epoch=3, committed=commit
    )
    assert (got, ending.is_out, ending.is_uncertain) == (goes_on_as, True, False)
    assert asked.refusals(EndTxnResponse(error_code=90)) == [(90, "")]
    asked.on_uncertain()
    assert ending.is_uncertain
    assert rig.manager.needs_bump


@for_each("reachable", [True, False])
@for_each("api", [api for api in ALL if api is not Api.INIT_PRODUCER_ID])
@in_virtual_time
async def test_cancelled_request_needs_a_bump_if_it_was_sent(api: Api, reachable: bool) -> None:
    rig = Rig(reachable=reachable)
    task = asyncio.create_task(ALL[api](rig.requests))
    await settle()
    task.cancel()
    await asyncio.wait([task])
    assert rig.manager.needs_bump is reachable


@in_virtual_time
async def test_cancelled_init_producer_id_needs_no_bump() -> None:
    rig = Rig()
    task = asyncio.create_task(ALL[Api.INIT_PRODUCER_ID](rig.requests))
    await settle()
    task.cancel()
    await asyncio.wait([task])
    assert not rig.manager.needs_bump


@for_each("api", [api for api in ALL if api is not Api.INIT_PRODUCER_ID])
@in_virtual_time
async def test_requests_after_a_change_of_the_cluster_fail(api: Api) -> None:
    """The producer id belonged to the old cluster."""
    rig = Rig(identity=None)
    rig.coordinators.leave_cluster(RebootstrapRequired("the cluster changed"))
    with pytest.raises(RebootstrapRequired, match="the transaction has failed: the cluster changed"):
        await ALL[api](rig.requests)


@in_virtual_time
async def test_transaction_version_is_that_of_the_coordinators() -> None:
    rig = Rig(1)
    rig.coordinators.transaction_version = 2
    assert rig.requests.transaction_version == 2


MINE, NEXT, AFTER = OURS, ProducerIdentity(7, 4), ProducerIdentity(7, 5)
OTHERS, LAST = ProducerIdentity(8, 3), ProducerIdentity(7, 32_766)
OURS_STATES = ("Empty", "Ongoing", "CompleteCommit", "CompleteAbort")


def described(identity: ProducerIdentity, state: str, code: int = 0) -> Described:
    return Described(
        error_code=code,
        transactional_id=ID,
        transaction_state=state,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
    )


@for_each("asked", [False, True])
@for_each("version", [0, 1, 2])
@for_each("state", [*OURS_STATES, "PrepareCommit", "PrepareAbort", "PrepareEpochFence"])
@for_each("identity", [MINE, NEXT, AFTER, OTHERS, ProducerIdentity(8, 0)])
def test_description_shows_a_successor(
    identity: ProducerIdentity, state: str, version: int, asked: bool
) -> None:
    code, about = refusal_of_identity(described(identity, state), MINE, version=version, initialized=asked)
    by_lost_end = (
        identity == NEXT and version == 2 and state.startswith(("Complete", "PrepareCo", "PrepareAb"))
    )
    by_lost_init = identity == NEXT and asked and state == "Empty"
    if identity == MINE or by_lost_end or by_lost_init:
        assert (code, about) == (51 if state.startswith("Prepare") else 0, "")
    else:
        assert (code, about) == (90, f"producer id {identity.producer_id}, epoch {identity.epoch}, {state}")


def test_description_after_the_last_epoch_has_another_id() -> None:
    following = described(ProducerIdentity(9, 0), "CompleteCommit")
    assert refusal_of_identity(following, LAST, version=2, initialized=False)[0] == 0
    assert refusal_of_identity(following, MINE, version=2, initialized=False)[0] == 90
    assert (
        refusal_of_identity(
            described(ProducerIdentity(7, 32_767), "PrepareAbort"), LAST, version=2, initialized=False
        )[0]
        == 51
    )
    assert (
        refusal_of_identity(described(ProducerIdentity(9, -1), "Empty"), MINE, version=1, initialized=True)[0]
        == 0
    )
    assert refusal_of_identity(described(MINE, "", 105), MINE, version=1, initialized=True) == (105, "")


def refusals(
    check: Asked | CoordinatorRequest, identity: ProducerIdentity, state: str, code: int = 0
) -> list[int]:
    """Return the error codes that *check* finds in a description."""
    answer = DescribeTransactionsResponse(transaction_states=[described(identity, state, code)])
    return [each for each, _ in check.refusals(answer)]


@pytest.mark.parametrize("version", [0, 1, 2])
@in_virtual_time
async def test_next_epoch_is_preceded_by_a_description(version: int) -> None:
    asked, _ = await Rig(version).asked(ALL[Api.INIT_PRODUCER_ID])
    check = asked.check
    assert check is not None
    assert (check.api, check.request) == (Api.DESCRIBE, DescribeTransactionsRequest(transactional_ids=[ID]))
    assert refusals(check, MINE, "Ongoing") == [0]
    assert refusals(check, NEXT, "Ongoing") == [90]
    assert refusals(check, NEXT, "CompleteCommit") == [0 if version == 2 else 90]
    assert refusals(check, NEXT, "Empty") == [0], "asked already, so it may be ours"
    for code in (105, 53):
        assert refusals(check, MINE, "", code) == [], "no evidence"
    assert refusals(check, MINE, "", 16) == [16]


@in_virtual_time
async def test_next_epoch_is_a_successors_before_init_producer_id() -> None:
    asked, _ = await Rig(reachable=False).asked(ALL[Api.INIT_PRODUCER_ID])
    assert asked.check is not None
    assert refusals(asked.check, NEXT, "Empty") == [90]


class TestFencedAbort:
    """While markers are written, version 2 returns ProducerFenced to the next epoch; EndTxn compares the epoch."""

    async def fenced(
        self, rig: Rig, *answers: Any, commit: bool = False
    ) -> tuple[list[Asked], asyncio.Task[Any]]:
        """Return the requests of an end that is fenced, *answers* to further requests, and the task of the end."""
        ending = asyncio.create_task(end(commit=commit)(rig.requests))
        seen = []
        for answer in (refused(90, fatal=True), *answers):
            await settle()
            seen.append(rig.coordinators.answer(answer))
        await settle()
        return seen, ending

    @in_virtual_time
    async def test_abort_is_repeated_if_the_epoch_is_current(self) -> None:
        rig = Rig(2)
        (_, description, again), ending = await self.fenced(rig, None, None)
        assert (description.api, description.key, description.version) == (Api.DESCRIBE, OF_TRANSACTION, 2)
        assert description.request == DescribeTransactionsRequest(transactional_ids=[ID])
        assert refusals(description, MINE, "Ongoing") == [0]
        assert refusals(description, NEXT, "Empty") == [90]
        assert (again.api, again.request.producer_epoch) == (Api.ABORT, OURS.epoch)
        assert await ending == NEXT

    @pytest.mark.parametrize("code", [90, 105, 53])
    @in_virtual_time
    async def test_abort_is_not_repeated_under_another_epoch(self, code: int) -> None:
        seen, ending = await self.fenced(Rig(2), refused(code, fatal=True))
        assert [each.api for each in seen] == [Api.ABORT, Api.DESCRIBE]
        with pytest.raises(ProducerFenced, match="refused with 90"):
            await ending

    @in_virtual_time
    async def test_abort_is_repeated_once(self) -> None:
        _, ending = await self.fenced(Rig(2), None, refused(90, fatal=True))
        with pytest.raises(ProducerFenced):
            await ending

    @for_each(("version", "commit"), [(0, False), (1, False), (1, True), (2, True)])
    @in_virtual_time
    async def test_other_fenced_end_is_not_repeated(self, version: int, commit: bool) -> None:
        _, ending = await self.fenced(Rig(version), commit=commit)
        assert ending.done()
        with pytest.raises(ProducerFenced):
            await ending
