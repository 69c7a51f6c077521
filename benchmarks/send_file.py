"""Send a large file of JSON lines with `aioproducer send`, and with kcat if kcat is on the PATH.

    python -m benchmarks.send_file --megabytes 1000

Each command runs as a process, and its time includes start and exit. Both programs wait for all replicas and send
without compression; all other options keep their defaults. `--key-field` parses every line; kcat has no equivalent
option.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Final, NamedTuple

import click
import psutil

from benchmarks.parent.process import last_line
from benchmarks.parent.session import broker
from benchmarks.parent.topics import Topics
from benchmarks.payload import json_value
from benchmarks.settings import PARTITIONS
from benchmarks.summary import Spread

KCAT: Final = "kcat"
COMMAND: Final = (sys.executable, "-m", "aioproducer", "send", "{topic}", "{file}", "-b", "{servers}")
COMMANDS: Final[Mapping[str, Sequence[str]]] = {
    "send": COMMAND,
    "send --format json": (*COMMAND, "--format", "json"),
    "send --format json --key-field customer": (*COMMAND, "--format", "json", "--key-field", "customer"),
    KCAT: (KCAT, "-P", "-b", "{servers}", "-t", "{topic}", "-l", "{file}"),
}
EVENT_BYTES: Final = 250
"""Size that fits exactly one event, in bytes."""
EVENTS: Final = 10_000
"""Number of distinct events."""
WARM_UP: Final = 20
"""The file of the warm-up is smaller by this factor."""
LOOK_EVERY_S: Final = 0.02
MB: Final = 10**6
MIB: Final = 2**20


class Taken(NamedTuple):
    """Time, CPU and memory of a command for the whole file."""

    seconds: float
    cpu_s: float
    rss_bytes: int
    """Largest resident set size, in bytes."""


def write_events(path: Path, size: int) -> int:
    """Write a file of at least *size* bytes with one JSON event per line; return the number of lines."""
    chance = random.Random(1)
    events = [json_value(chance, number, EVENT_BYTES).strip()[1:-1] + b"\n" for number in range(EVENTS)]
    block = b"".join(events)
    blocks = -(-size // len(block))
    with path.open("wb") as file:
        for _ in range(blocks):
            file.write(block)
    return blocks * EVENTS


def run(command: Sequence[str]) -> Taken:
    """Run a command until it exits. Raises: RuntimeError with the last line of output if the command fails."""
    sizes = [0]
    with TemporaryFile() as said:
        began = time.perf_counter()
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
        while not (ended := os.wait4(process.pid, os.WNOHANG))[0]:
            with suppress(psutil.NoSuchProcess):  # the process has ended
                sizes.append(psutil.Process(process.pid).memory_info().rss)
            time.sleep(LOOK_EVERY_S)
        seconds = time.perf_counter() - began
        _, status, usage = ended
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            said.seek(0)
            raise RuntimeError(f"{command[0]} failed: {last_line(said.read().decode(errors='replace'))}")
    return Taken(seconds, usage.ru_utime + usage.ru_stime, max(sizes))


def rounds_of(
    names: Sequence[str], path: Path, records: int, servers: str, rounds: int
) -> Iterator[dict[str, Taken]]:
    """Yield the costs of all commands per round. Each round starts with a different command.

    Raises: MissingRecordsError unless the topic has every line exactly once.
    """
    topics, numbers = Topics(servers), count(1)
    for first in range(rounds):
        taken: dict[str, Taken] = {}
        for name in (*names[first % len(names) :], *names[: first % len(names)]):
            with topics.fresh(f"file-{next(numbers)}", PARTITIONS) as topic:
                where = {"topic": topic, "file": str(path), "servers": servers}
                taken[name] = run([part.format(**where) for part in COMMANDS[name]])
                topics.check(topic, PARTITIONS, records)
        yield taken


def told(name: str, played: Sequence[Mapping[str, Taken]], size: int) -> str:
    """Return one line about a command: medians with minimum and maximum, and the ratio to kcat per round."""
    megabytes = size / MB
    parts = [
        f"{name}: {_spread((megabytes / each[name].seconds for each in played), '.0f')} MB/s",
        f"CPU {_spread((each[name].cpu_s / megabytes * 1_000 for each in played), '.1f')} s per GB",
        f"at most {max(each[name].rss_bytes for each in played) / MIB:.0f} MiB",
    ]
    if KCAT in played[0] and name != KCAT:
        ratios = (each[KCAT].seconds / each[name].seconds for each in played)
        parts.append(f"{_spread(ratios, '.2f')} of kcat's rate")
    return ", ".join(parts)


def _spread(values: Iterable[float], form: str) -> str:
    spread = Spread.of(values)
    if spread is None:
        raise ValueError("there are no values")
    return f"{spread.median:{form}} ({spread.low:{form}} to {spread.high:{form}})"


def kcat_version() -> str:
    """Return the versions of kcat and of its librdkafka."""
    said = subprocess.run([KCAT, "-V"], check=True, capture_output=True, text=True).stdout
    own, library = re.search(r"Version (\S+)", said), re.search(r"librdkafka (\S+)", said)
    return ", ".join(f"{what} {found[1]}" for what, found in ((KCAT, own), ("librdkafka", library)) if found)


@click.command()
@click.option(
    "--megabytes", type=click.IntRange(1), default=1_000, show_default=True, help="Size of the file."
)
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True)
@click.option(
    "--bootstrap-servers",
    metavar="HOST:PORT",
    help="Existing cluster. By default an Apache Kafka is started.",
)
def main(megabytes: int, rounds: int, bootstrap_servers: str | None) -> None:
    """Send a file with each command in turn, and print rate, CPU and memory of each command."""
    names = [name for name in COMMANDS if name != KCAT or shutil.which(KCAT)]
    with TemporaryDirectory() as directory, broker(bootstrap_servers) as (servers, _):
        small, large = Path(directory, "small.jsonl"), Path(directory, "large.jsonl")
        few, records = write_events(small, megabytes * MB // WARM_UP), write_events(large, megabytes * MB)
        size = large.stat().st_size
        [_] = rounds_of(names, small, few, servers, 1)
        played = [*rounds_of(names, large, records, servers, rounds)]
    click.echo(f"{size / MB:,.0f} MB, {records:,} lines, {PARTITIONS} partitions")
    click.echo(kcat_version() if KCAT in names else "kcat is not on the PATH; skipped")
    for name in names:
        click.echo(told(name, played, size))


if __name__ == "__main__":
    main()
