"""A session of its own is tested in the stories of tests/scenarios/test_telemetry.py: here, when there is one."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from aioproducer._core.metrics_push import GET_TELEMETRY_SUBSCRIPTIONS, MetricsPush
from aioproducer._core.protocol.client import GetTelemetrySubscriptionsRequest
from aioproducer._core.protocol.schema import ApiVersionTable
from tests.fakes import FakePool

TELEMETRY = {GET_TELEMETRY_SUBSCRIPTIONS: (0, 0), 72: (0, 0)}


class Versioned(FakePool):
    """Pool of brokers with the given API versions."""

    def offers(self, node_id: int, apis: Mapping[int, tuple[int, int]]) -> None:
        connection: Any = self.connections[node_id]
        connection.versions = ApiVersionTable(apis)
        connection.is_throttled = False
        connection.requests = []

        async def request(message: Any) -> Any:
            connection.requests.append(message)
            await asyncio.get_running_loop().create_future()

        connection.request = request


def push(pool: FakePool, *, enabled: bool = True) -> MetricsPush:
    return MetricsPush(
        pool.real,
        brokers=lambda: (1, 2),
        report=lambda: {"producer": {}, "topics": {}, "nodes": {}},
        topics={},
        transactional_id=None,
        enabled=enabled,
    )


def asked(pool: FakePool) -> list[int]:
    return [len(getattr(each, "requests", ())) for each in pool.connections.values()]


async def test_telemetry_starts_once_with_the_first_supporting_broker() -> None:
    pool = Versioned(1, 2)
    pool.offers(1, {})
    pool.offers(2, TELEMETRY)
    pushing = push(pool)
    pushing.connected(1)
    await asyncio.sleep(0)
    assert asked(pool) == [0, 0]
    pushing.connected(2)
    pushing.connected(2)
    await asyncio.sleep(0)
    assert asked(pool) == [0, 1], "the one that offers it, and once"
    assert pushing.client_instance_id is None
    await pushing.stop()
    await pushing.finish()
    assert asked(pool) == [0, 1], "nothing was asked for: nothing is said at the end"


async def test_push_does_not_start_when_disabled() -> None:
    pool = Versioned(1)
    pool.offers(1, TELEMETRY)
    pushing = push(pool, enabled=False)
    pushing.connected(1)
    await asyncio.sleep(0)
    assert asked(pool) == [0]
    await pushing.finish()


async def test_lost_connection_starts_no_telemetry() -> None:
    pool = FakePool()
    pushing = push(pool)
    pushing.connected(1)
    await pushing.finish()
    await pushing.stop()


def test_telemetry_is_imported_on_demand() -> None:
    program = (
        "import asyncio, sys\n"
        "from aioproducer import Producer\n"
        "from aioproducer.testing import Cluster\n"
        "async def main():\n"
        "    async with Cluster() as cluster, Producer(cluster.bootstrap_servers) as producer:\n"
        "        await producer.send('orders', b'v')\n"
        "asyncio.run(main())\n"
        "print('aioproducer._core.telemetry_session' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout == "False\n"


def test_telemetry_api_key_is_that_of_the_message() -> None:
    assert GetTelemetrySubscriptionsRequest.API_KEY == GET_TELEMETRY_SUBSCRIPTIONS
