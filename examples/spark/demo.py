"""`make spark-demo`: clickstream.py and killed.py, with the Spark, the Apache Kafka and the Java of this project's tests.

python -m examples.spark.demo [clicks]
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from unittest import mock

from examples.spark import clickstream, killed
from tests.kafka.apache.broker import ApacheKafka
from tests.kafka.apache.jars import JarsUnavailable
from tests.kafka.apache.java import JavaNotFound
from tests.spark.program import submit_environment
from tests.spark.session import spark_session

DIRECTORY = Path(__file__).parents[2] / ".cache" / "spark-demo"
CLICKS = "clicks"
CLICKS_PARTITIONS = 6
EVENTS = "events"
EVENTS_PARTITIONS = 3


def main(clicks: int) -> int:
    """Run both, and return the exit code."""
    shutil.rmtree(DIRECTORY, ignore_errors=True)
    DIRECTORY.mkdir(parents=True)
    print("starting Apache Kafka and Spark ...", flush=True)
    try:
        with ApacheKafka() as kafka:
            good = [send_clicks(kafka, clicks), survive_a_kill(kafka)]
    except (JarsUnavailable, JavaNotFound) as error:
        print(error, file=sys.stderr)
        return 1
    except Exception as error:
        error.add_note(f"What Spark said is in {DIRECTORY}")
        raise
    return 0 if all(good) else 1


def send_clicks(kafka: ApacheKafka, clicks: int) -> bool:
    """Write clicks in a batch, and draw what came of them; return whether all is well."""
    with spark_session(DIRECTORY) as spark:
        kafka.create_topic(CLICKS, CLICKS_PARTITIONS)
        page = DIRECTORY / "clickstream.html"
        return clickstream.run_through(spark, kafka.bootstrap_servers, CLICKS, page, clicks=clicks).ok


def survive_a_kill(kafka: ApacheKafka) -> bool:
    """Write events in a stream, exactly once, and kill it in between; return whether each is there once."""
    kafka.create_topic(EVENTS, EVENTS_PARTITIONS)
    directory = DIRECTORY / "killed"
    directory.mkdir()
    with mock.patch.dict(os.environ, submit_environment(directory)):
        return killed.run_through(kafka.bootstrap_servers, EVENTS, directory, DIRECTORY / "killed.html")


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 200_000))
