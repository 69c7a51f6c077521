"""Losses as shown to the operator, and their confirmation."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from aioproducer.errors import ConfigError
from aioproducer.spark.committing import recover
from aioproducer.spark.decision_protocol import End
from aioproducer.spark.decision_records import TOPIC, Share, decision
from aioproducer.spark.delivery import BatchId, Guarantee
from aioproducer.spark.kafka_port import KafkaPort
from aioproducer.spark.worker import Worker
from aioproducer.testing import ThreadedCluster
from tests.unit.spark.test_kafka_port import port, prepared

pytestmark = pytest.mark.kafka_cluster(topics={"orders": 1})


@pytest.fixture(autouse=True)
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    host = Worker()
    monkeypatch.setattr("aioproducer.spark.committing.worker", lambda: host)
    yield
    host.close()


async def decide(cluster: ThreadedCluster, *, lose: bool) -> Share:
    """Leave a decision behind whose transactions are not committed."""
    share = await prepared(cluster)  # type: ignore[arg-type]
    async with port(cluster) as kafka:  # type: ignore[arg-type]
        batch = BatchId("query a", 7, "")
        await kafka.write(await kafka.take_over("p.d"), decision("p", batch, Guarantee.LOG, [share]))
        if lose:
            await kafka.fence([share.transactional_id])
    return share


def call(cluster: ThreadedCluster, *, confirm: bool = False) -> tuple[str, bool]:
    given = {"bootstrap.servers": cluster.bootstrap_servers, "max.block.ms": "3000"}
    return recover(given, "p", confirm=confirm)


def test_lost_batch_is_shown_until_it_is_confirmed(kafka_cluster: ThreadedCluster) -> None:
    share = asyncio.run(decide(kafka_cluster, lose=True))
    for _ in range(2):
        told, ok = call(kafka_cluster)
        assert not ok
        assert told.startswith("batch 7 of query a: 1 transactions are not committed\n")
        assert f"p.t.r.0.0: lost: orders-0 up to offset {share.last_offset}," in told
    told, ok = call(kafka_cluster, confirm=True)
    assert ok
    assert told.endswith("confirmed: the query continues after the batch")
    assert call(kafka_cluster) == ("nothing is lost", True)


def test_unknown_outcomes_are_listed_and_confirmed(
    kafka_cluster: ThreadedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a query whose records retention has deleted could never continue."""

    async def unknown(self: KafkaPort, share: Share) -> End:
        return End.UNKNOWN

    async def all_unknown(self: KafkaPort, shares: tuple[Share, ...]) -> dict[Share, End]:
        return dict.fromkeys(shares, End.UNKNOWN)

    asyncio.run(decide(kafka_cluster, lose=True))
    monkeypatch.setattr(KafkaPort, "outcome_in_log", unknown)
    monkeypatch.setattr(KafkaPort, "commit", all_unknown)
    told, ok = call(kafka_cluster)
    assert not ok
    assert "p.t.r.0.0: possibly lost, outcome unknown: orders-0" in told
    assert call(kafka_cluster, confirm=True)[1]
    assert call(kafka_cluster) == ("nothing is lost", True)


def test_lost_decisions_are_shown_until_they_are_confirmed(kafka_cluster: ThreadedCluster) -> None:
    asyncio.run(decide(kafka_cluster, lose=False))
    kafka_cluster.delete_topic(TOPIC)
    for _ in range(2):
        told, ok = call(kafka_cluster)
        assert not ok
        assert "so it was deleted or recreated" in told
    told, ok = call(kafka_cluster, confirm=True)
    assert ok
    assert told.endswith("confirmed: the query continues after the batch")
    assert call(kafka_cluster) == ("nothing is lost", True)


def test_prefix_that_was_never_used_has_lost_nothing(kafka_cluster: ThreadedCluster) -> None:
    assert call(kafka_cluster) == ("nothing is lost", True)


def test_recover_commits_decided_transactions(kafka_cluster: ThreadedCluster) -> None:
    asyncio.run(decide(kafka_cluster, lose=False))
    assert call(kafka_cluster) == ("nothing is lost", True)
    assert len(kafka_cluster.records("orders", 0, isolation_level="read_committed")) == 3


def test_recover_refuses_invalid_options(kafka_cluster: ThreadedCluster) -> None:
    with pytest.raises(ConfigError, match=r"lingerr\.ms"):
        recover({"bootstrap.servers": kafka_cluster.bootstrap_servers, "lingerr.ms": "1"}, "p", confirm=False)
