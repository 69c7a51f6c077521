"""`make spark-demo`: clickstream.py, with the Spark, the Apache Kafka and the Java of this project's tests.

python -m examples.spark.demo [clicks]
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from examples.spark.clickstream import run_through
from tests.kafka.apache.broker import ApacheKafka
from tests.kafka.apache.jars import JarsUnavailable
from tests.kafka.apache.java import JavaNotFound
from tests.spark.session import spark_session

DIRECTORY = Path(__file__).parents[2] / ".cache" / "spark-demo"
TOPIC = "clicks"
PARTITIONS = 6


def main(clicks: int) -> int:
    """Run it, and return the exit code."""
    shutil.rmtree(DIRECTORY, ignore_errors=True)
    DIRECTORY.mkdir(parents=True)
    print("starting Apache Kafka and Spark ...", flush=True)
    try:
        with ApacheKafka() as kafka, spark_session(DIRECTORY) as spark:
            kafka.create_topic(TOPIC, PARTITIONS)
            page = DIRECTORY / "clickstream.html"
            report = run_through(spark, kafka.bootstrap_servers, TOPIC, page, clicks=clicks)
    except (JarsUnavailable, JavaNotFound) as error:
        print(error, file=sys.stderr)
        return 1
    except Exception as error:
        error.add_note(f"What Spark said is in {DIRECTORY / 'spark.log'}")
        raise
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 200_000))
