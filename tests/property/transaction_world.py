"""World of the transaction machine: packets and batches in flight, and coordinators that pass requests on."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from aioproducer._core.batching.batch import Batch
from aioproducer._core.idempotence import ProducerIdentity
from aioproducer._core.transactions.coordinator import CoordinatorRequest, _final, _worst_refusal
from aioproducer._core.transactions.transaction_manager import Api, Reaction
from tests.unit._core.transactions.transactions_rig import FakeCoordinators, TransactionsRig


async def settle() -> None:
    """Let everything happen that can happen now; in fewer steps than unit tests allow for, since there are many."""
    for _ in range(20):
        await asyncio.sleep(0)


PARTITIONS = 2
LIMIT_S = 60.0


@dataclass
class Packet:
    """Request on its way to the coordinator. It is late if no task waits for its response."""

    api: Api
    request: Any
    version: int
    number: int
    answered: asyncio.Future[Any]


@dataclass
class Produced:
    """A batch, as it was written."""

    batch: Batch
    identity: ProducerIdentity
    sequence: int
    values: list[bytes]
    number: int
    version: int


class ModelCoordinators(FakeCoordinators):
    """Retries like the real coordinators, without pauses; the test decides each attempt in *packets*."""

    def __init__(self, rig: TransactionsRig, packets: list[Packet], version: int) -> None:
        super().__init__(version)
        self.rig = rig
        self.packets = packets

    async def request(self, api: Api, key: Any, request: Any, refusals: Any, **more: Any) -> Any:
        version, check = more["version"], more.pop("check", None)
        nothing = lambda: None  # noqa: E731
        wanted = CoordinatorRequest(
            api, request, refusals,
            on_written=more.get("on_written", nothing), on_uncertain=more.get("on_uncertain", nothing),
        )  # fmt: skip
        async with self._turn:
            step = check or wanted
            while True:
                answer = await self._ask(step, version)
                refused = None if answer is None else _worst_refusal(step.api, step.refusals(answer), version)
                if answer is not None and refused is None:
                    if step is wanted:
                        return answer
                    step = wanted
                    continue
                if refused is not None and refused[0] in {Reaction.ABORTABLE, Reaction.FATAL}:
                    raise _final(refused[1], step.api, key, "the model", refused[0])  # type: ignore[arg-type]
                step = check or wanted

    async def _ask(self, step: CoordinatorRequest, version: int) -> Any:
        answered = asyncio.get_running_loop().create_future()
        self.packets.append(Packet(step.api, step.request, version, self.rig.transactions.number, answered))
        step.on_written()
        try:
            answer = await answered
        except asyncio.CancelledError:
            step.on_uncertain()
            raise
        if answer is None:
            step.on_uncertain()
        return answer
