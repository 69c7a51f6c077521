"""The response handler, and responses of a broker."""

from __future__ import annotations

from aioproducer._core.batching.batch import Batch
from aioproducer._core.protocol.produce import (
    BaseOffsets,
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from aioproducer._core.sender.requests import ResponseHandler
from aioproducer.errors import BrokerError
from tests.fakes import FakeConnection
from tests.unit.floor_rig import TOPIC, FloorRig, sender_settings


class Rig(FloorRig):
    """With an answer handler on top."""

    def __init__(
        self,
        *,
        partitions: int = 1,
        retries: int = 2**31 - 1,
        idempotent: bool = True,
        transactional_id: str | None = None,
        passes_refusals: bool = False,
    ) -> None:
        super().__init__(partitions=partitions, idempotent=idempotent, passes_refusals=passes_refusals)
        self.connection = FakeConnection()
        settings = sender_settings(retries=retries, transactional_id=transactional_id)
        self.handler = ResponseHandler(settings, self.completion, self.updater.real)

    def take(self, batches: list[Batch], *answers: PartitionProduceResponse) -> None:
        response = ProduceResponse(
            responses=[TopicProduceResponse(name=TOPIC, partition_responses=list(answers))]
        )
        self.handler.take(self.connection.real, batches, response)

    def acknowledge(self, batches: list[Batch], **offsets: tuple[int, int]) -> None:
        """Answer with acknowledgements only; *offsets* are those of the partitions `p0`, `p1` and so on."""
        by_partition = {(TOPIC, int(name[1:])): each for name, each in offsets.items()}
        self.handler.take(self.connection.real, batches, BaseOffsets(0, by_partition))

    def refuse(self, batch: Batch, kind: type[BrokerError], message: str | None = None) -> None:
        self.take([batch], refused(kind, batch.topic_partition.partition, message=message))

    def resend(self) -> Batch:
        """Drain the one batch that may be sent now, as if its backoff were over."""
        self.accumulator.schedule.collect(self.loop.time() + 1_000, hurry=True)
        [batch] = self.accumulator.schedule.drain(1, self.loop.time() + 1_000, 2**31)
        batch.persistence.written()
        return batch


def accepted(
    base_offset: int = 0, partition: int = 0, *, log_append_time_ms: int = -1
) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=partition, error_code=0, base_offset=base_offset, log_append_time_ms=log_append_time_ms
    )


def refused(
    kind: type[BrokerError] | int,
    partition: int = 0,
    *,
    message: str | None = None,
    records: dict[int, str | None] | None = None,
    leader: tuple[int, int] = (-1, -1),
) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=partition,
        error_code=kind if isinstance(kind, int) else kind.code,
        base_offset=-1,
        error_message=message,
        record_errors=[
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=text)
            for index, text in (records or {}).items()
        ],
        current_leader=LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1]),
    )
