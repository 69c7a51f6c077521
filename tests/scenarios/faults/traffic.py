"""Random calls: one at a time with pauses, or many without a wait for their outcomes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from tests.scenarios.faults.callers import Callers, How, Wish
from tests.scenarios.faults.chronicle import Chronicle

TOPICS: Final = ("a", "b")


@dataclass(slots=True)
class Traffic:
    """Makes calls until *enough* is set."""

    callers: Callers
    chronicle: Chronicle
    chance: Random
    largest: int
    """How large values are at most."""
    calls_per_s: float
    """How many there are in a busy phase."""
    calm: bool = True
    """While it is not, some calls are for partitions that there are not."""
    enough: bool = False

    async def one_by_one(self) -> None:
        """Have one record under way at a time, and none at some times."""
        while not self.enough:
            wish = self._wish(self.chance.choice(("send", "send", "send_many")), records=1, astray=0.1)
            await asyncio.wait([self.callers.start(wish)])
            await asyncio.sleep(self.chance.choice((0.0, 0.02, 0.3)))

    async def many(self) -> None:
        """Have calls made all the time."""
        hows: Sequence[How] = ("send", "send", "enqueue", "enqueue", "send_nowait", "send_many")
        while not self.enough:
            how = self.chance.choice(hows)
            records = self.chance.randint(2, 10) if how == "send_many" else 1
            # A call for a missing partition delays later calls until new metadata arrives, so such calls are rare.
            _ = self.callers.start(self._wish(how, records, astray=0.005))
            await asyncio.sleep(self.chance.expovariate(self.calls_per_s))

    def _wish(self, how: How, records: int, astray: float) -> Wish:
        """Return a call to make, for a partition that there is not as often as *astray* says."""
        chance = self.chance
        topic = chance.choice(TOPICS)
        partitions = self.chronicle.partitions(topic) or 1
        partition: int | None = chance.randrange(partitions)
        if chance.random() < astray:
            partition = None if self.calm else partitions
        elif chance.random() < 0.2:
            partition = None
        return Wish(
            how,
            topic,
            partition,
            sizes=[self.largest if chance.random() < 0.3 else 20 for _ in range(records)],
            timeout_s=chance.uniform(0.02, 2) if how != "send_nowait" and chance.random() < 0.1 else None,
            cancelled_after_s=chance.uniform(0, 0.5) if chance.random() < 0.1 else None,
        )
