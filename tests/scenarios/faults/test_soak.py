"""A little of `make soak`, always with the same seeds."""

from __future__ import annotations

import pytest

from aioproducer import Producer
from aioproducer.testing import Cluster, in_virtual_time, virtual_time
from tests.scenarios.faults.chaos import chaos
from tests.scenarios.faults.faults import may_move
from tests.scenarios.faults.world import play


@pytest.mark.parametrize("seed", range(12))
def test_producer_keeps_every_promise_under_random_faults(seed: int) -> None:
    scenario, mode = chaos(seed, seconds=5.0)
    verdict = virtual_time.run(play(scenario, mode, seed=seed), debug=False)
    assert not verdict.broken, f"{mode}, {dict(scenario.options)}\n{verdict}"


@in_virtual_time
async def test_soak_keeps_a_broker_of_a_single_bootstrap_server() -> None:
    cluster = Cluster(3, transport="memory")
    async with cluster:
        producer = Producer(cluster.bootstrap_servers)
        for node in 1, 2:
            assert may_move(cluster, producer, node)
            await cluster.move_broker(node)
        assert not may_move(cluster, producer, 3)
        assert may_move(cluster, producer, 1)
        await cluster.exchange_addresses(1, 3)
        assert not may_move(cluster, producer, 1)
        assert may_move(cluster, producer, 3)
