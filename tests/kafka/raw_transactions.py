"""A transactional producer of plain requests: the test chooses each request, valid or invalid."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any, Final, Self

from aioproducer._core.address import Address
from aioproducer._core.backoff import Backoff
from aioproducer._core.net.connection import Connection
from aioproducer._core.net.connection_protocol import ConnectionSettings
from aioproducer._core.net.opening import open_connection
from aioproducer._core.protocol.produce import (
    BY_NAME,
    InitProducerIdRequest,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from aioproducer._core.protocol.schema import R, Request
from aioproducer._core.protocol.transactions import (
    GROUP_KEY,
    TRANSACTION_KEY,
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    FindCoordinatorRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from aioproducer._core.records.columns import RecordColumns
from aioproducer._core.records.record_batch import TRANSACTIONAL, encode_batch

NOT_NOW = {14, 15, 16, 51}
"""Codes that only say: ask again."""
TIMEOUT_S = 20.0
PAUSE_S = 0.02
NEWEST: Final[dict[type[Request[Any]], int]] = {ProduceRequest: BY_NAME}
"""It knows no ids of topics."""
NEWEST_BELOW_TV2: Final[dict[type[Request[Any]], int]] = {
    EndTxnRequest: 4,
    ProduceRequest: 11,
    TxnOffsetCommitRequest: 4,
}
"""Versions from which on a request means what it means where `transaction.version` is 2."""

SETTINGS = ConnectionSettings(
    client_id="raw",
    request_timeout_s=20,
    setup_timeout_s=20,
    setup_timeout_max_s=20,
    idle_timeout_s=None,
    reconnect_backoff=Backoff(0.1, 0.1),
    send_buffer_bytes=-1,
    receive_buffer_bytes=-1,
)


class RawProducer:
    """One transactional id at a cluster of one broker; each call returns the code that it was answered with.

    Codes that only say "not now" are not returned: the request is sent again, as every client does.
    """

    def __init__(self, connection: Connection, transactional_id: str) -> None:
        self.connection = connection
        self.transactional_id = transactional_id
        self.transaction_version = connection.versions.finalized_features.get("transaction.version", 0)
        self.producer_id = -1
        self.epoch = -1
        self.sequences: Counter[int] = Counter()
        """The next sequence of each partition."""

    @classmethod
    async def of(cls, bootstrap_servers: str, transactional_id: str) -> Self:
        host, port = bootstrap_servers.split(":")
        return cls(await open_connection(Address(host, int(port)), SETTINGS), transactional_id)

    async def close(self) -> None:
        self.connection.close()
        await self.connection.wait_closed()

    async def ask(self, request: Request[R], *, version: int | None = None) -> R:
        if version is None:
            newest = NEWEST_BELOW_TV2 if self.transaction_version < 2 else NEWEST
            version = self.connection.versions.pick(type(request), at_most=newest.get(type(request)))
        return await self.connection.request(request, version=version)

    async def until_answered(
        self, request: Request[R], code_of: Callable[[R], int], *, version: int | None = None
    ) -> tuple[int, R]:
        """Ask until the answer is one."""
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                answer = await self.ask(request, version=version)
                code = code_of(answer)
                if code not in NOT_NOW:
                    return code, answer
                await asyncio.sleep(PAUSE_S)

    async def find(self, *, group: str | None = None) -> int:
        """Find the coordinator of the id, or of a group; it has to be the one broker."""
        key = self.transactional_id if group is None else group
        request = FindCoordinatorRequest(
            key_type=TRANSACTION_KEY if group is None else GROUP_KEY, coordinator_keys=[key]
        )
        code, _ = await self.until_answered(request, lambda answer: answer.coordinators[0].error_code)
        return code

    async def init(self, *, own: bool = False, timeout_ms: int = 60_000) -> int:
        """Get an id and epoch; with *own*, the next epoch of the id and epoch that it has."""
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=self.producer_id if own else -1,
            producer_epoch=self.epoch if own else -1,
        )
        code, answer = await self.until_answered(request, lambda answer: answer.error_code)
        if code == 0:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        return code

    async def add(self, topic: str, *partitions: int) -> int:
        """Add partitions to the transaction."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=partitions)],
        )
        code, _ = await self.until_answered(
            request,
            lambda answer: max(
                each.partition_error_code
                for topic in answer.results_by_topic_v3_and_below
                for each in topic.results_by_partition
            ),
        )
        return code

    async def produce(
        self,
        topic: str,
        partition: int,
        *values: bytes,
        sequence: int | None = None,
        transactional: bool = True,
        named: bool = True,
        version: int | None = None,
    ) -> int:
        """Send one batch under the next sequence, or another; *named*: the request has the transactional id."""
        columns = RecordColumns()
        columns.extend(list(values), None, None, 1_700_000_000_000)
        batch = encode_batch(
            columns,
            TRANSACTIONAL if transactional else 0,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequences[partition] if sequence is None else sequence,
        )
        data = [
            TopicProduceData(
                name=topic, partition_data=[PartitionProduceData(index=partition, records=batch)]
            )
        ]
        request = ProduceRequest(
            transactional_id=self.transactional_id if named else None,
            acks=-1,
            timeout_ms=10_000,
            topic_data=data,
        )
        code, _ = await self.until_answered(
            request, lambda answer: answer.responses[0].partition_responses[0].error_code, version=version
        )
        if code == 0 and sequence is None:
            self.sequences[partition] += len(values)
        return code

    async def add_group(self, group: str) -> int:
        """Add the offsets of a group to the transaction."""
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            group_id=group,
        )
        code, _ = await self.until_answered(request, lambda answer: answer.error_code)
        return code

    async def commit_offset(
        self,
        group: str,
        topic: str,
        partition: int,
        offset: int,
        *,
        member: str = "",
        generation: int = -1,
        version: int | None = None,
    ) -> int:
        """Commit an offset with the transaction."""
        committed = TxnOffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=None
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            generation_id=generation,
            member_id=member,
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[committed])],
        )
        code, _ = await self.until_answered(
            request, lambda answer: answer.topics[0].partitions[0].error_code, version=version
        )
        return code

    async def end(
        self, *, committed: bool, epoch: int | None = None, adopt: bool = True, version: int | None = None
    ) -> int:
        """End the transaction; with *adopt*, go on under the epoch that is answered, if one is."""
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch if epoch is None else epoch,
            committed=committed,
        )
        code, answer = await self.until_answered(request, lambda answer: answer.error_code, version=version)
        if code == 0 and adopt and answer.producer_id >= 0:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        return code
