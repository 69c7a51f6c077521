"""Producers that append to lists in transactions. New instances with the same transactional id replace the producers."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any, Final

from tests.jepsen.clients import Client, Refused, Start
from tests.jepsen.history import FAIL, OK, UNKNOWN, Append, Recorder

PRODUCERS: Final = 4
KEYS: Final = 24
PARTITIONS: Final = 6
LIFETIME_S: Final = 15.0
"""Mean time after which an instance is replaced."""
ZOMBIE_S: Final = 4.0
"""Time for which a replaced instance continues to work."""
PAUSES_S: Final = (0.0, 0.02, 0.3)
"""Maximum pauses between two records, in seconds. Each transaction uses one of these values."""
TIMEOUT_S: Final = 30.0
"""Time limit of each call, in seconds. A producer whose call exceeds the limit is replaced."""


class Workload:
    """All producers of a run."""

    def __init__(self, start: Start, record: Recorder, seed: str) -> None:
        self._start = start
        self._record = record
        self._seed = seed
        self._stop = asyncio.Event()
        self._zombies: set[asyncio.Task[None]] = set()

    async def run(self, stop: asyncio.Event) -> None:
        """Run transactions until *stop* is set; return after all producers are closed."""
        self._stop = stop
        async with asyncio.TaskGroup() as tasks:
            for number in range(PRODUCERS):
                tasks.create_task(self._instances(f"p{number}"))
        if self._zombies:
            await asyncio.wait(self._zombies)

    async def _instances(self, producer: str) -> None:
        random = Random(f"{self._seed}/{producer}")
        instance = 0
        while not self._stop.is_set():
            instance += 1
            self._record("start", producer=producer, instance=instance)
            try:
                client = await asyncio.wait_for(self._start(producer, f"{producer}-{instance}"), TIMEOUT_S)
            except Exception as error:  # noqa: BLE001 - errors of any client
                self._record("start failed", producer=producer, instance=instance, error=described(error))
                await asyncio.sleep(0.5)
                continue
            self._record("started", producer=producer, instance=instance)
            retired = asyncio.Event()
            work = asyncio.create_task(self._work(client, f"{producer}/{instance}", retired))
            await asyncio.wait([work], timeout=random.expovariate(1 / LIFETIME_S))
            self._zombies.add(work)
            work.add_done_callback(self._zombies.discard)
            asyncio.get_running_loop().call_later(ZOMBIE_S, retired.set)

    async def _work(self, client: Client, instance: str, retired: asyncio.Event) -> None:
        random = Random(f"{self._seed}/{instance}")
        number = 0
        is_usable = True
        while is_usable and not (retired.is_set() or self._stop.is_set()):
            number += 1
            is_usable = await self._transact(client, f"{instance}/{number}", random)
            await asyncio.sleep(random.uniform(0, 0.05))
        try:
            await asyncio.wait_for(client.close(), TIMEOUT_S)
        except Exception as error:  # noqa: BLE001 - errors of any client
            self._record("close failed", instance=instance, error=described(error))

    async def _transact(self, client: Client, name: str, random: Random) -> bool:
        """Run one transaction. Return False if the producer must be replaced."""
        keys = [random.randrange(KEYS) for _ in range(random.randint(1, 6))]
        appends = [Append(key % PARTITIONS, f"k{key}", f"{name}/{index}") for index, key in enumerate(keys)]
        commits, pause_s = random.random() < 0.8, random.choice(PAUSES_S)
        self._record("begin", transaction=name, appends=appends)
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await client.begin()
                for append in appends:
                    await client.append(append)
                    await asyncio.sleep(random.uniform(0, pause_s))
        except Exception as error:  # noqa: BLE001 - errors of any client
            return await self._abort(client, name, error=described(error))
        if not commits:
            return await self._abort(client, name)
        self._record("commit", transaction=name)
        try:
            await asyncio.wait_for(client.commit(), TIMEOUT_S)
        except Refused as error:
            return await self._abort(client, name, error=str(error))
        except Exception as error:  # noqa: BLE001 - errors of any client
            self._record("outcome", transaction=name, outcome=UNKNOWN, error=described(error))
            return False
        self._record("outcome", transaction=name, outcome=OK)
        return True

    async def _abort(self, client: Client, name: str, **facts: Any) -> bool:
        self._record("outcome", transaction=name, outcome=FAIL, **facts)
        try:
            await asyncio.wait_for(client.abort(), TIMEOUT_S)
        except Exception as error:  # noqa: BLE001 - errors of any client
            self._record("abort failed", transaction=name, error=described(error))
            return False
        return True


def described(error: BaseException) -> str:
    """Return the type and the message of *error*."""
    return f"{type(error).__name__}: {error}"[:300]
