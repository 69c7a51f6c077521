"""Three brokers of either transaction version, of which one dies or freezes at a step of a transaction, or under load."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import cache
from typing import Any

import pytest

from aioproducer import Producer
from tests.kafka.apache.broker import ApacheKafka
from tests.kafka.conftest import WHOLE
from tests.kafka.ledger import PARTITIONS, STEPS, Ledger, Outcome

NODES = (2, 3)
"""Node 1 is the only controller: without it nobody takes over."""
pytestmark = pytest.mark.timeout(300)
in_thread = asyncio.to_thread


@pytest.fixture(scope="session")
def clusters(request: pytest.FixtureRequest) -> Iterator[Callable[[int], ApacheKafka]]:
    """Three brokers of each transaction version, started at the first use."""
    properties: dict[str, str | int] = {
        "auto.create.topics.enable": "false",
        "broker.session.timeout.ms": 2_000,
        "broker.heartbeat.interval.ms": 200,
        # Time a coordinator waits for a frozen broker to write markers; the default is half a minute.
        "request.timeout.ms": 3_000,
    }
    with ExitStack() as running:

        def start(version: int) -> ApacheKafka:
            if version == 2 and not WHOLE:
                kafka: ApacheKafka = request.getfixturevalue("three_brokers")
            else:
                kafka = running.enter_context(
                    ApacheKafka(brokers=3, transaction_version=version, properties=properties)
                )
            kafka.create_topic("in", 1)
            return kafka

        yield cache(start)


@pytest.fixture(params=[1, 2], ids=["TV1", "TV2"])
def kafka(clusters: Callable[[int], ApacheKafka], request: pytest.FixtureRequest) -> ApacheKafka:
    return clusters(request.param)


@pytest.fixture
async def topic(kafka: ApacheKafka, request: pytest.FixtureRequest) -> str:
    name: str = request.node.name.translate(str.maketrans("[]", "--"))
    await in_thread(kafka.create_topic, name, PARTITIONS)
    await in_thread(kafka.await_in_sync, name)
    return name


def producer_of(kafka: ApacheKafka, name: str) -> Producer:
    return Producer(
        kafka.bootstrap_servers,
        transactional_id=name,
        request_timeout_ms=2_000,
        # the default: a frozen broker delays the markers of the previous transaction by half a minute
        delivery_timeout_ms=120_000,
        transaction_timeout_ms=300_000,
    )


def coordinator_of(kafka: ApacheKafka, name: str) -> int:
    """Return the node that coordinates a transactional id: the leader of the partition by its hash (Java's)."""
    hashed = 0
    for character in name:
        hashed = (31 * hashed + ord(character)) & 0xFFFF_FFFF
    return kafka.leader("__transaction_state", (hashed & 0x7FFF_FFFF) % 4)


async def id_at(kafka: ApacheKafka, stem: str, *, coordinated: bool) -> tuple[str, int]:
    """Return a transactional id and a node, which is its coordinator, or is not."""
    async with producer_of(kafka, stem):
        pass  # since then there are coordinators
    await in_thread(kafka.await_in_sync, "__transaction_state")
    for number in range(1_000):
        name = f"{stem}-{number}"
        coordinator = await in_thread(coordinator_of, kafka, name)
        if coordinator in NODES:
            return name, coordinator if coordinated else NODES[0] + NODES[1] - coordinator
    raise AssertionError("node 1 coordinates everything")


async def everybody_is_back(kafka: ApacheKafka, topic: str) -> None:
    for each in (topic, "__transaction_state", "__consumer_offsets", "in"):
        await in_thread(kafka.await_in_sync, each)


class Trouble:
    """A node that is stopped or frozen until `mended`."""

    def __init__(self, kafka: ApacheKafka, node: int, how: str) -> None:
        self._kafka, self._node, self._how = kafka, node, how
        self.is_on = False

    def happens(self) -> None:
        self.is_on = True
        if self._how == "killed":
            self._kafka.kill(self._node)
        else:
            self._kafka.freeze(self._node)

    async def mended(self) -> None:
        if self.is_on:
            self.is_on = False
            if self._how == "killed":
                await in_thread(self._kafka.restart, self._node)
            else:
                self._kafka.thaw(self._node)


def in_short(case: Mapping[str, Any]) -> bool:
    chosen = {("killed", "acknowledged"), ("frozen", "ending")}
    return (
        case["kafka"] == 2
        and not case["abort"]
        and case["coordinated"]
        and (case["how"], case["step"]) in chosen
    )


@pytest.mark.long(unless=in_short)
@pytest.mark.parametrize("how", ["killed", "frozen"])
@pytest.mark.parametrize("coordinated", [True, False], ids=["coordinator", "broker"])
@pytest.mark.parametrize("abort", [False, True], ids=["commit", "abort"])
@pytest.mark.parametrize("step", STEPS)
async def test_transaction_survives_the_loss_of_a_node_at_a_step(
    kafka: ApacheKafka, topic: str, step: str, abort: bool, coordinated: bool, how: str
) -> None:
    """Nothing fails: other brokers take over, and the producer continues with them and with the returned broker."""
    ledger = Ledger(kafka.bootstrap_servers, topic)
    name, node = await id_at(kafka, topic, coordinated=coordinated)
    trouble = Trouble(kafka, node, how)

    async def at(now: str) -> None:
        if now == step:
            trouble.happens()

    try:
        async with producer_of(kafka, name) as producer:
            assert await ledger.transact(producer) is Outcome.COMMITTED, ledger.errors
            outcome = await ledger.transact(producer, abort=abort, at=at)
            assert outcome is (Outcome.ABORTED if abort else Outcome.COMMITTED), ledger.errors
            assert await ledger.transact(producer) is Outcome.COMMITTED, ledger.errors
            await trouble.mended()
            await everybody_is_back(kafka, topic)
            assert await ledger.transact(producer) is Outcome.COMMITTED, ledger.errors
    finally:
        await trouble.mended()
    await ledger.check(name)


@pytest.mark.long
@pytest.mark.parametrize("how", ["killed", "frozen"])
async def test_transactions_survive_the_loss_of_nodes_in_turn(
    kafka: ApacheKafka, topic: str, how: str
) -> None:
    """Four producers with different coordinators write transactions all the time."""
    ledger = Ledger(kafka.bootstrap_servers, topic)
    ids = [f"{topic}-{number}" for number in range(4)]
    done = asyncio.Event()
    async with (
        producer_of(kafka, ids[0]) as one,
        producer_of(kafka, ids[1]) as two,
        producer_of(kafka, ids[2]) as three,
        producer_of(kafka, ids[3]) as four,
        asyncio.TaskGroup() as group,
    ):
        for producer in (one, two, three, four):
            group.create_task(ledger.run(producer, done))
        await ledger.more(8)
        for node in NODES * 2:
            trouble = Trouble(kafka, node, how)
            trouble.happens()
            try:
                await ledger.more(12)
            finally:
                await trouble.mended()
            await everybody_is_back(kafka, topic)
            await ledger.more(12)
        done.set()
    await ledger.check(*ids)
    assert Outcome.FAILED not in ledger.told, [each for each in ledger.errors if each]
