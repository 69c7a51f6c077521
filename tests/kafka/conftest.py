"""A real Apache Kafka for the tests of this directory: started once, a topic of its own for every test."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Protocol

import pytest

from tests.kafka.apache.broker import ApacheKafka
from tests.kafka.apache.fetching import fetch_for
from tests.kafka.apache.secured import SecuredKafka
from tests.kafka.apache.shared_classes import share_classes
from tests.kafka.apache.stand import Stand, stand_of
from tests.logged_errors import no_bugs_logged  # noqa: F401 - a fixture of every test

HERE = Path(__file__).parent
WHOLE = os.environ.get("TRANSACTIONS") == "all"
"""Whether to run what is marked as long, too: `make test-transactions`."""
topic_numbers = itertools.count()


class NewTopic(Protocol):
    """Creates a topic that no other test uses; returns its name."""

    def __call__(self, partitions: int = 1, **config: str) -> str: ...


@pytest.fixture(scope="session")
def kafka() -> Iterator[ApacheKafka]:
    """One broker for the whole session. A test that restarts or kills brokers starts its own."""
    with ApacheKafka() as kafka:
        yield kafka


@pytest.fixture(scope="session")
def spare_kafka() -> Iterator[ApacheKafka]:
    """A broker for tests that end and restart it, name their topics themselves, or want no topic created unasked."""
    with ApacheKafka(properties={"auto.create.topics.enable": "false"}) as kafka:
        yield kafka


@pytest.fixture(scope="session")
def three_brokers() -> Iterator[ApacheKafka]:
    """Three brokers, two of which must have a record; a test that ends one starts it again."""
    # new leaders soon after a broker has stopped
    soon = {"broker.session.timeout.ms": 2_000, "broker.heartbeat.interval.ms": 200}
    with ApacheKafka(brokers=3, properties={"auto.create.topics.enable": "false", **soon}) as kafka:
        yield kafka


@pytest.fixture(scope="session")
def secured() -> Iterator[SecuredKafka]:
    """One broker with listeners for TLS and SASL, and an authorizer."""
    secured = SecuredKafka()
    with secured.kafka:
        yield secured


@pytest.fixture(scope="session")
def stands() -> Iterator[Callable[[int], Stand]]:
    """A broker of each transaction version behind a proxy, started at its first use."""
    with ExitStack() as running:
        yield cache(lambda version: running.enter_context(stand_of(version)))


@pytest.fixture(scope="session")
def brokers() -> Iterator[Callable[[int], ApacheKafka]]:
    """A broker of each transaction version, started at its first use; a test that stops it restarts it."""
    with ExitStack() as running:
        yield cache(lambda version: running.enter_context(ApacheKafka(transaction_version=version)))


@pytest.fixture(params=[1, 2], ids=["TV1", "TV2"])
def stand(stands: Callable[[int], Stand], request: pytest.FixtureRequest) -> Stand:
    """A broker behind a proxy that does nothing to requests yet."""
    stand = stands(request.param)
    stand.proxy.clear()
    return stand


@pytest.fixture
async def stand_topic(stand: Stand, request: pytest.FixtureRequest) -> str:
    """A fresh topic of three partitions on that broker, named after the test."""
    name = f"{re.sub(r'[^a-zA-Z0-9]+', '-', request.node.name)}-{next(topic_numbers)}"
    await asyncio.to_thread(stand.kafka.create_topic, name, 3)
    return name


@pytest.fixture
def new_topic(kafka: ApacheKafka, request: pytest.FixtureRequest) -> NewTopic:
    """Topics named after the test; *config* takes Kafka's names with _ for a dot."""

    def create(partitions: int = 1, **config: str) -> str:
        name = f"{request.node.originalname}-{next(topic_numbers)}"
        settings = {key.replace("_", "."): value for key, value in config.items()}
        kafka.create_topic(name, partitions, config=settings)
        return name

    return create


@pytest.fixture
def secured_topic(secured: SecuredKafka, request: pytest.FixtureRequest) -> str:
    """A new topic of three partitions on the broker with the authorizer."""
    name = f"{request.node.originalname}-{next(topic_numbers)}"
    secured.kafka.create_topic(name, 3)
    return name


@pytest.fixture
def topic(new_topic: NewTopic) -> str:
    """A fresh topic of three partitions."""
    return new_topic(partitions=3)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what lies in this directory, so that `-m "not kafka"` leaves it out; leave out what is for the long run."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.kafka)
    if not WHOLE:
        items[:] = [item for item in items if not is_long(item)]


def is_long(item: pytest.Item) -> bool:
    """True if *item* has the mark, and its parameters are no exception."""
    marker = item.get_closest_marker("long")
    if marker is None:
        return False
    unless = marker.kwargs.get("unless")
    return unless is None or not (isinstance(item, pytest.Function) and unless(item.callspec.params))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Fetch the jars of the broker, and let a first broker create the shared class archive."""
    fetch_for(session, "kafka", share_classes)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the logs of the brokers of a failed test."""
    report = yield
    if report.failed and isinstance(item, pytest.Function):
        for value in item.funcargs.values():
            kafka = value.kafka if isinstance(value, SecuredKafka | Stand) else value
            if isinstance(kafka, ApacheKafka):
                for node_id, tail in kafka.log_tail().items():
                    report.sections.append((f"log of broker {node_id}", tail))
    return report
