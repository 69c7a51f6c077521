"""The jars of Spark's own Kafka source and sink, which the tests compare with; no user of ours needs them.

To move to another release: change COORDINATES, then `python -m tests.spark.jars` rewrites jars.lock.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.kafka.apache.jars import fetched, pin

LOCK = Path(__file__).with_name("jars.lock")
WHAT = "Spark's Kafka connector 4.2.0"
COORDINATES = (
    "org.apache.commons:commons-pool2:2.12.1",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",  # the newest one that the central repository has
)


def connector(say: Callable[[str], None] = print) -> list[Path]:
    """Return the connector's jars, after fetching those that are missing (8 MB).

    Raises:
        JarsUnavailable: a jar could not be fetched or is not the pinned one; the message says what to do.
    """
    return fetched(LOCK, WHAT, say)


if __name__ == "__main__":
    pin(COORDINATES, LOCK, WHAT, "tests.spark.jars")
