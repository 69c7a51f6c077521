"""A real Spark and a real Apache Kafka for the tests of this directory: one of each, a topic per test."""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Protocol

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.kafka.apache.broker import ApacheKafka
from tests.kafka.apache.fetching import fetch_for
from tests.kafka.apache.shared_classes import share_classes
from tests.spark.gate import Gate
from tests.spark.jars import connector
from tests.spark.log import SparkLog
from tests.spark.session import spark_session

HERE = Path(__file__).parent
topic_numbers = itertools.count()


class NewTopic(Protocol):
    """Creates a topic that no other test uses; returns its name."""

    def __call__(self, partitions: int = 3, **config: str) -> str: ...


class Save(Protocol):
    """Writes a DataFrame through our sink; *options* are Kafka's names with _ for a dot, without `kafka.`.

    *times* is the `timestampColumn`.
    """

    def __call__(
        self, rows: DataFrame, topic: str | None = None, *, times: object = None, **options: object
    ) -> None: ...


@pytest.fixture(scope="session")
def spark_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("spark")


@pytest.fixture(scope="session")
def spark(spark_directory: Path) -> Iterator[SparkSession]:
    """One Spark for the whole session, because its start costs seconds."""
    with spark_session(spark_directory) as spark:
        yield spark


@pytest.fixture
def spark_log(spark: SparkSession, spark_directory: Path) -> SparkLog:
    """The log of Spark and its processes from now on."""
    return SparkLog(spark_directory / "spark.log")


@pytest.fixture(scope="session")
def kafka() -> Iterator[ApacheKafka]:
    """One broker for the whole session; unknown topics stay unknown."""
    with ApacheKafka(properties={"auto.create.topics.enable": "false"}) as kafka:
        yield kafka


@pytest.fixture
def new_topic(kafka: ApacheKafka, request: pytest.FixtureRequest) -> NewTopic:
    """Topics named after the test; *config* takes Kafka's names with _ for a dot."""

    def create(partitions: int = 3, **config: str) -> str:
        name = f"{request.node.originalname}-{next(topic_numbers)}"[:200]
        settings = {key.replace("_", "."): value for key, value in config.items()}
        kafka.create_topic(name, partitions, config=settings)
        return name

    return create


@pytest.fixture
def topic(new_topic: NewTopic) -> str:
    """A fresh topic of three partitions."""
    return new_topic()


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    """Something for rows to wait at."""
    return Gate(tmp_path / "gate")


@pytest.fixture
def save(kafka: ApacheKafka) -> Save:
    """Write to the broker of the session by default."""

    def save(rows: DataFrame, topic: str | None = None, *, times: object = None, **options: object) -> None:
        options = {"bootstrap_servers": kafka.bootstrap_servers, **options}
        writer = rows.write.format("aioproducer").mode("append")
        for name, value in options.items():
            writer = writer.option(f"kafka.{name.replace('_', '.')}", str(value))
        if topic is not None:
            writer = writer.option("topic", topic)
        if times is not None:
            writer = writer.option("timestampColumn", str(times))
        writer.save()

    return save


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what lies in this directory, so that `-m "not spark"` leaves it out; jobs take longer than most tests."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.timeout(180))
            # pyspark leaves its sockets to the JVM to the garbage collector; all sockets here are pyspark's
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Fetch the jars of the broker and of Spark's Kafka connector; a first broker creates the shared class archive."""
    fetch_for(session, "spark", share_classes, connector)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the log of Spark during a failed test."""
    report = yield
    if report.failed and isinstance(item, pytest.Function):
        for log in item.funcargs.values():
            if isinstance(log, SparkLog):
                report.sections.append(("Spark's log", log.text()))
    return report
