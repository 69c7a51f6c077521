"""The jars of Spark's own Kafka source and sink, for comparisons in tests; users do not need them.

To move to another release: change CONNECTORS, then `python -m tests.spark.jars` rewrites the lock files.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pyspark

from tests.kafka.apache.jars import fetched, pin

CONNECTORS: Final = {"4.0": "4.0.3", "4.1": "4.1.3", "4.2": "4.2.0"}
"""Spark's release, and the newest connector for it that the central repository has. 4.3 runs with the last one, too."""

VERSION: Final = CONNECTORS.get(pyspark.__version__.rpartition(".")[0], CONNECTORS["4.2"])
"""The connector for the Spark that is installed."""

JARS: Final = (
    "org.apache.commons:commons-pool2:2.12.1",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.spark:spark-sql-kafka-0-10_2.13:{version}",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",  # the newest release
)
WHAT = f"Spark's Kafka connector {VERSION}"


def connector(say: Callable[[str], None] = print) -> list[Path]:
    """Return the connector's jars, after fetching those that are missing (8 MB).

    Raises:
        JarsUnavailable: a jar could not be fetched or is not the pinned one; the message says what to do.
    """
    return fetched(lock_of(VERSION), WHAT, say)


def lock_of(version: str) -> Path:
    """Return the file with the pins of a connector."""
    return Path(__file__).with_name(f"jars-{version}.lock")


if __name__ == "__main__":
    for version in CONNECTORS.values():
        coordinates = [jar.format(version=version) for jar in JARS]
        pin(coordinates, lock_of(version), f"Spark's Kafka connector {version}", "tests.spark.jars")
