"""Three brokers of Kafka 3.9 are upgraded to 4.4 under load, then the cluster's features are raised to 4.4."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator

import pytest

from aioproducer import Producer
from aioproducer._core.address import Address
from aioproducer._core.net.opening import open_connection
from aioproducer._core.protocol.metadata import ApiVersionsRequest
from tests.kafka.apache.releases import RELEASES
from tests.kafka.apache.upgraded import NODES, UpgradedKafka
from tests.kafka.features import UP, switch
from tests.kafka.ledger import PARTITIONS, Ledger, Outcome
from tests.kafka.raw_transactions import SETTINGS
from tests.kafka.under_load import under_load

OLD, NEW = RELEASES["3.9"], RELEASES["4.4"]
FEATURES = ("metadata.version", "transaction.version")
WRITERS = 3


@pytest.fixture
def kafka() -> Iterator[UpgradedKafka]:
    NEW.class_path()
    with UpgradedKafka(OLD) as kafka:
        yield kafka


async def highest_level(servers: str, feature: str) -> int:
    """Return the highest level of *feature* that the broker at *servers* supports."""
    host, port = servers.split(":")
    connection = await open_connection(Address(host, int(port)), SETTINGS)
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    answer = await connection.request(request)
    connection.close()
    await connection.wait_closed()
    return {each.name: each.max_version for each in answer.supported_features}[feature]


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_upgrade_under_load_loses_and_doubles_no_record(kafka: UpgradedKafka) -> None:
    await asyncio.to_thread(kafka.create_topic, "ledger", PARTITIONS)
    await asyncio.to_thread(kafka.create_topic, "in", 1)
    servers = kafka.bootstrap_servers
    ledger = Ledger(servers, "ledger")
    ids = [f"writer-{number}" for number in range(WRITERS)]
    done = asyncio.Event()
    async with under_load(kafka) as loads, asyncio.TaskGroup() as group:
        writers = [await group.create_task(started(Producer(servers, transactional_id=name))) for name in ids]
        running = [group.create_task(ledger.run(writer, done)) for writer in writers]
        for node_id in NODES:
            await ledger.more(9)
            await asyncio.to_thread(kafka.upgrade, node_id, NEW)
            await loads.in_sync()
            await loads.acknowledged_by()
        one = f"127.0.0.1:{kafka.port(1)}"
        for feature in FEATURES:
            await ledger.more(9)
            await switch(one, feature, await highest_level(one, feature), how=UP)
        await ledger.more(9)
        for node_id in NODES:  # a producer reads the level from a new connection
            await asyncio.to_thread(kafka.restart, node_id)
            await loads.in_sync()
        await ledger.more(9)
        await loads.acknowledged_by()
        done.set()
        await asyncio.gather(*running)
        versions = {version_of(each) for each in writers}
        for writer in writers:
            await writer.close()
    await ledger.check(*ids)
    counts = Counter(each.value for each in ledger.told)
    print("records:", [len(load.sent) for load in loads], "transactions:", dict(counts))  # noqa: T201 - for the docs
    assert versions == {2}
    assert {*counts} == {Outcome.COMMITTED.value, Outcome.ABORTED.value}, [
        each for each in ledger.errors if each
    ]


async def started(producer: Producer) -> Producer:
    await producer.start()
    return producer


def version_of(producer: Producer) -> int:
    assert producer._engine is not None
    assert producer._engine.transactions is not None
    return producer._engine.transactions.manager.version
