"""Transactional producer that sends the requests of a test to a broker of `aioproducer.testing`."""

from __future__ import annotations

from collections.abc import Mapping

from aioproducer._core.protocol.produce import InitProducerIdRequest, PartitionProduceResponse
from aioproducer._core.protocol.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from aioproducer.testing.state import Consumer
from tests.unit.testing.batches import batch
from tests.unit.testing.client import Client, produce_request

ID = "tx"


class TxnClient:
    """Producer of the id. Calls return the error code of the response; the epoch follows the responses."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.producer_id = -1
        self.epoch = -1

    async def init(self, *, own: bool = False, timeout_ms: int = 60_000, version: int | None = None) -> int:
        request = InitProducerIdRequest(
            transactional_id=ID,
            transaction_timeout_ms=timeout_ms,
            producer_id=self.producer_id if own else -1,
            producer_epoch=self.epoch if own else -1,
        )
        answer = await self.client.ask(request, version)
        if answer.error_code == 0:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return answer.error_code

    async def add(self, *partitions: int, version: int | None = None) -> Mapping[int, int]:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=ID,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name="orders", partitions=partitions)],
        )
        (topic,) = (await self.client.ask(request, version)).results_by_topic_v3_and_below
        return {each.partition_index: each.partition_error_code for each in topic.results_by_partition}

    async def add_group(self, group: str, version: int | None = None) -> int:
        request = AddOffsetsToTxnRequest(
            transactional_id=ID, producer_id=self.producer_id, producer_epoch=self.epoch, group_id=group
        )
        return (await self.client.ask(request, version)).error_code

    async def write(
        self,
        *values: bytes,
        sequence: int,
        partition: int = 0,
        transactional: bool = True,
        named: bool = True,
        version: int | None = None,
    ) -> PartitionProduceResponse:
        data = batch(
            *values,
            producer_id=self.producer_id,
            epoch=self.epoch,
            sequence=sequence,
            transactional=transactional,
        )
        request = produce_request({partition: data})
        request.transactional_id = ID if named else None
        response = await self.client.ask(request, version)
        return response.responses[0].partition_responses[0]

    async def commit_offset(
        self,
        group: str,
        offset: int,
        *,
        partition: int = 0,
        consumer: Consumer = Consumer(),  # noqa: B008 - a tuple
        version: int | None = None,
    ) -> int:
        committed = TxnOffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata="m"
        )
        request = TxnOffsetCommitRequest(
            transactional_id=ID,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            generation_id=consumer.generation,
            member_id=consumer.member_id,
            group_instance_id=consumer.instance_id,
            topics=[TxnOffsetCommitRequestTopic(name="orders", partitions=[committed])],
        )
        return (await self.client.ask(request, version)).topics[0].partitions[0].error_code

    def end_request(self, *, committed: bool = True) -> EndTxnRequest:
        return EndTxnRequest(
            transactional_id=ID,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=committed,
        )

    async def end(self, *, committed: bool = True, version: int | None = None) -> int:
        answer = await self.client.ask(self.end_request(committed=committed), version)
        if answer.error_code == 0 and answer.producer_id >= 0:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return answer.error_code
