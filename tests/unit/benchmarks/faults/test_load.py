from __future__ import annotations

import asyncio

from benchmarks.faults.clients import Outcome, Settle
from benchmarks.faults.load import Load, Sent
from benchmarks.faults.terms import PARTITIONS, VALUE_BYTES


class Scripted:
    """Delivers to every partition but the first, which refuses."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.served_the_last = asyncio.Event()

    async def start(self) -> None:
        pass

    async def send(self, partition: int, value: bytes, settle: Settle) -> None:
        if partition == 0:
            raise OSError("not today")
        self.values.append(value)
        settle(Outcome(offset=7))
        if partition == PARTITIONS - 1:
            self.served_the_last.set()


def test_the_first_outcome_counts() -> None:
    sent = Sent(0, 0, probe=False, called_at=0.0)
    sent.settle(Outcome(error="late", possibly_persisted=True))
    sent.settle(Outcome(offset=3))
    assert (sent.offset, sent.error, sent.possibly_persisted) == (None, "late", True)


async def test_what_a_client_raises_is_the_records_outcome_and_others_go_on() -> None:
    load = Load(client := Scripted())
    await load.probe()
    assert [(each.partition, each.offset, each.error) for each in load.sent] == [
        (0, None, "OSError: not today"),
        *((partition, 7, "") for partition in range(1, PARTITIONS)),
    ]
    assert {len(value) for value in client.values} == {VALUE_BYTES}


async def test_the_load_ends_when_it_is_enough_and_all_have_their_outcome() -> None:
    load, enough = Load(client := Scripted()), asyncio.Event()
    running = asyncio.create_task(load.run(enough))
    await client.served_the_last.wait()
    enough.set()
    await running
    assert all(each.resolved_at is not None for each in load.sent)
    assert not any(each.probe for each in load.sent)
