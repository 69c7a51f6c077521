"""How fast is aioproducer next to other clients? On a real Apache Kafka, in interleaved rounds.

Run: python -m benchmarks.compare [--rounds 5] [--work closed fire bulk] [--uvloop]

Broker and client share the machine, so believe the ratios, not the figures. Every run is checked: a
time counts only if the topic holds as many records as were sent.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
from statistics import median

from confluent_kafka import Consumer, TopicPartition

from tests.kafka.apache.broker import THROUGHPUT, ApacheKafka

PARTITIONS = 6
RECORDS = {"closed": 50_000, "fire": 100_000, "bulk": 1_000_000}
CLIENTS = {
    "closed": ("aioproducer", "aiokafka", "confluent-aio"),
    "fire": ("aioproducer", "aiokafka", "confluent-aio"),
    "bulk": ("aioproducer", "confluent-batch"),
}
SLOW = {("confluent-aio", "closed"): 1_000, ("confluent-aio", "fire"): 30_000}
"""Clients that would take minutes for the full number."""


def stored(servers: str, topic: str) -> int:
    """Return how many records *topic* holds."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "count"})
    try:
        marks = [consumer.get_watermark_offsets(TopicPartition(topic, each)) for each in range(PARTITIONS)]
    finally:
        consumer.close()
    return sum(high - low for low, high in marks)


def run(kafka: ApacheKafka, client: str, work: str, topic: str, *, uvloop: bool) -> dict[str, float]:
    """Run *client* in a process of its own and return its figures; raise if a record is missing."""
    records = SLOW.get((client, work), RECORDS[work])
    kafka.create_topic(topic, partitions=PARTITIONS)
    command = [
        sys.executable,
        "-m",
        "benchmarks.clients",
        client,
        work,
        kafka.bootstrap_servers,
        topic,
        str(records),
    ]
    output = subprocess.run([*command, *["--uvloop"] * uvloop], check=True, capture_output=True, timeout=120)
    warm_up = 0 if client == "confluent-batch" else 1
    found = stored(kafka.bootstrap_servers, topic)
    if found != records + warm_up:
        sys.exit(f"{client}, {work}: {records + warm_up:,} records were sent, the topic holds {found:,}")
    figures: dict[str, float] = json.loads(output.stdout)
    return figures


def main() -> None:
    """Print one line per kind of work and client."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--work", nargs="+", choices=RECORDS, default=list(RECORDS))
    parser.add_argument("--uvloop", action="store_true")
    options = parser.parse_args()
    print(f"Python {platform.python_version()}, {platform.machine()}, {options.rounds} rounds, medians")
    with ApacheKafka(jvm_options=THROUGHPUT) as kafka:
        for work in options.work:
            runs: dict[str, list[dict[str, float]]] = {client: [] for client in CLIENTS[work]}
            for round_number in range(options.rounds + 1):  # the first warms the broker up
                for client in CLIENTS[work]:
                    topic = f"{work}-{client}-{round_number}"
                    figures = run(kafka, client, work, topic, uvloop=options.uvloop)
                    if round_number:
                        runs[client].append(figures)
            ours = median(each["records_s"] for each in runs["aioproducer"])
            for client, figures_of_all in runs.items():
                rate = median(each["records_s"] for each in figures_of_all)
                cpu_us = median(each["cpu_us"] for each in figures_of_all)
                spread = max(each["records_s"] for each in figures_of_all) / min(
                    each["records_s"] for each in figures_of_all
                )
                print(
                    f"{work:8}{client:18}{rate:>12,.0f} records/s{cpu_us:>8.2f} us CPU"
                    f"   ours is {ours / rate:.2f}x   spread {spread:.2f}"
                )


if __name__ == "__main__":
    main()
