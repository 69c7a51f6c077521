"""Kafka's tool org.apache.kafka.tools.ProducerPerformance, from the jars of the broker."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks.figures import Run
from benchmarks.payload import window_of
from benchmarks.settings import TRANSACTION, Settings, Tuning, Work
from tests.kafka.apache.jars import class_path
from tests.kafka.apache.java import find_java

TOOL: Final = "org.apache.kafka.tools.ProducerPerformance"
RECORDS_PER_SECOND: Final = 500_000
"""Estimated records of 100 bytes per second. The tool has an option for the number of records and no option for a
time."""
WARM_UP_S: Final = 1.0
"""Duration of the warm-up, in seconds. The just-in-time compiler needs this time, so the first records do not count."""
RATE: Final = re.compile(r"([\d.]+) records/sec")
LATENCIES: Final = re.compile(
    r"([\d.]+) ms avg latency, .* (\d+) ms 50th, \d+ ms 95th, (\d+) ms 99th, (\d+) ms 99\.9th"
)
"""Latencies in the tool's last lines: of the whole run, then of the part after the warm-up."""


def measure(servers: str, topic: str, settings: Settings) -> Run:
    """Run the tool and return its figures after the warm-up. Raises: RuntimeError if the tool fails."""
    if settings.work is Work.TRANSACTIONS:
        return transactions(servers, topic, settings)
    records, warm_up = numbers(settings)
    throughput = str(settings.rate or -1)
    sized = ["--record-size", str(settings.value_bytes)]
    with TemporaryDirectory() as directory:
        payload = Path(directory) / "payload"
        payload.write_bytes(b"\n".join(window_of(settings).values))
        done = subprocess.run(
            [
                *(find_java(), "-cp", class_path(), TOOL),
                *("--bootstrap-server", servers, "--topic", topic, "--throughput", throughput),
                *("--num-records", str(records), "--warmup-records", str(warm_up)),
                *(["--payload-file", payload] if settings.json_like else sized),
                "--command-property",
                *properties(settings),
            ],
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    if done.returncode != 0:
        raise RuntimeError(f"{TOOL} failed:\n{done.stdout}")
    said = done.stdout.splitlines()
    figures = {"records_s": steady_rate(said)}
    return Run(sent=records, figures={**figures, **latencies(said)} if settings.rate else figures)


def transactions(servers: str, topic: str, settings: Settings) -> Run:
    """Run Transactions.java, because the tool limits transactions only by time. Requires a JDK."""
    program = Path(__file__).with_name("Transactions.java")
    asked = (TRANSACTION, settings.warm_up_s, settings.seconds, settings.value_bytes)
    done = subprocess.run(
        [find_java(), "-cp", class_path(), program, servers, topic, *map(str, asked), *properties(settings)],
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    found = re.search(r"^(\d+) records, (\d+) in ([\d.]+) s$", done.stdout, re.MULTILINE)
    if done.returncode != 0 or found is None:
        raise RuntimeError(f"{program.name} failed:\n{done.stdout}")
    sent, counted, seconds = found.groups()
    return Run(sent=int(sent), figures={"records_s": int(counted) / float(seconds)})


def numbers(settings: Settings) -> tuple[int, int]:
    """Return the number of records to send, and the number of warm-up records, which are part of the first number."""
    per_second = settings.rate or RECORDS_PER_SECOND * 100 / max(100, settings.value_bytes)
    warm_up = int(per_second * (settings.warm_up_s if settings.rate else WARM_UP_S))
    return warm_up + (settings.records or int(per_second * settings.seconds)), warm_up


def properties(settings: Settings) -> list[str]:
    """Return the producer's configuration."""
    given = [f"compression.type={settings.compression}"]
    if settings.tuning is not Tuning.DEFAULTS:
        given += ["acks=all", "enable.idempotence=true"]
    if settings.tuning is Tuning.EQUAL:
        given += [f"batch.size={settings.batch_bytes}", f"linger.ms={settings.linger_ms}"]
    return given + [f"{name}={value}" for name, value in settings.options.items()]


def steady_rate(said: Iterable[str]) -> float:
    """Return the records per second of the tool's last line with a rate, which covers the time after the warm-up."""
    rates = [float(found.group(1)) for line in said if (found := RATE.search(line))]
    if not rates:
        raise RuntimeError(f"{TOOL} printed no records/sec")
    return rates[-1]


def latencies(said: Iterable[str]) -> dict[str, float]:
    """Return the mean and percentiles of latencies, in milliseconds, of the tool's last line with latencies."""
    lines = [found for line in said if (found := LATENCIES.search(line))]
    if not lines:
        raise RuntimeError(f"{TOOL} printed no latencies")
    names = ("mean_ms", "p50_ms", "p99_ms", "p999_ms")
    return {name: float(told) for name, told in zip(names, lines[-1].groups(), strict=True)}
