"""A bulk intake on top of the rig of the intake, and a broker that acknowledges."""

from __future__ import annotations

import asyncio
from typing import Any

from aioproducer._core.batching.batch import Batch
from aioproducer._core.intake.many import ManyIntake, OrderedCalls
from aioproducer.errors.send_many import SendManyResult
from tests.unit._core.intake.intake_rig import Rig as IntakeRig, checked
from tests.unit.floor_rig import settle


class Rig(IntakeRig):
    """With a bulk intake on top; acknowledges whatever is drained."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.many = ManyIntake(
            self.intake,
            accumulator=self.accumulator,
            completion=self.completion,
            updater=self.updater.real,
        )
        self.offsets: dict[int, int] = {}

    def send(
        self,
        values: Any,
        *,
        timeout_s: float | None = None,
        ordered: OrderedCalls | None = None,
        **columns: Any,
    ) -> asyncio.Task[SendManyResult]:
        settings = self.intake.settings
        rows = checked(
            values,
            **columns,
            serialized_later=(settings.value_serializer is not None, settings.key_serializer is not None),
        )
        return asyncio.create_task(self.many.send(rows, timeout_s, ordered))

    async def delivered(self, sending: asyncio.Task[SendManyResult]) -> SendManyResult:
        """Acknowledge batch after batch until *sending* is done; return its result."""
        await settle()
        while not sending.done():
            if not self.acknowledge():
                await asyncio.sleep(1)
            await settle()
        return sending.result()

    def acknowledge(self) -> list[Batch]:
        """Acknowledge one batch of each partition, without linger if a call waits for memory."""
        self.accumulator.schedule.collect(self.loop.time(), hurry=self.accumulator.hurries())
        batches = self.accumulator.schedule.drain(1, self.loop.time(), 2**31)
        for batch in batches:
            partition = batch.topic_partition.partition
            offset = self.offsets.get(partition, 0)
            self.offsets[partition] = offset + len(batch)
            self.completion.complete(batch, offset)
        return batches

    def queued_values(self, partition: int) -> list[bytes | None]:
        return [value for batch in self.queue(partition).batches for value in batch.columns.values]
