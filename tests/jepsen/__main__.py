"""Run the workload against a client under faults, check the history and print a row of docs/reliability.md."""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from random import Random

from tests.jepsen.checker import check, longest_unavailability
from tests.jepsen.clients import CLIENTS, PYTHON_CLIENTS, Java, Start
from tests.jepsen.history import FAIL, History, Recorder, load
from tests.jepsen.nemesis import Nemesis
from tests.jepsen.network import Network, ProxiedKafka
from tests.jepsen.readers import Readers
from tests.jepsen.workload import PARTITIONS, Workload

HISTORIES = Path(__file__).parents[2] / ".cache" / "jepsen"
TOPIC = "lists"
COLUMNS = (
    *("client", "version", "seed", "minutes", "faults", "committed", "failed", "unknown", "anomalies"),
    "longest time without a commit",
)


def run(client: str, version: int, seed: str, minutes: float, name: str = "") -> tuple[Path, History]:
    """Run the workload; return the path of the history, and the history."""
    path = HISTORIES / f"{name or client}-{version}-{seed}.jsonl"
    with Recorder(path) as record:
        record("run", client=client, transaction_version=version, seed=seed, minutes=minutes)
        asyncio.run(_run(client, version, seed, minutes * 60, record))
    return path, load(path)


async def _run(client: str, version: int, seed: str, seconds: float, record: Recorder) -> None:
    pool = ThreadPoolExecutor(64)  # calls of confluent-kafka block
    asyncio.get_running_loop().set_default_executor(pool)
    async with AsyncExitStack() as stack:
        network = Network(Random(f"{seed}/network"), record)
        stack.push_async_callback(network.close)
        kafka = ProxiedKafka(network, version)
        stack.push_async_callback(asyncio.to_thread, kafka.stop)
        await kafka.open()
        await asyncio.to_thread(kafka.create_topic, TOPIC, PARTITIONS)
        start = await _start_of(client, kafka.proxied_servers, stack)
        readers = Readers(kafka.bootstrap_servers, TOPIC, record)
        stop = asyncio.Event()
        asyncio.get_running_loop().call_later(seconds, stop.set)
        workload = asyncio.create_task(Workload(start, record, seed).run(stop))
        await Nemesis(kafka, network, record, seed).run(stop)
        await workload
        await asyncio.to_thread(kafka.await_in_sync, TOPIC, timeout_s=60)
        await asyncio.to_thread(readers.finish)


async def _start_of(client: str, servers: str, stack: AsyncExitStack) -> Start:
    if client in PYTHON_CLIENTS:
        return partial(PYTHON_CLIENTS[client].start, servers, TOPIC)
    java = await Java.launch(servers, TOPIC)
    stack.push_async_callback(java.stop)
    return java.start


def row(client: str, version: int, seed: str, minutes: float, history: History) -> str:
    """Return the row of the table in docs/reliability.md."""
    transactions = history.transactions.values()
    counts = (
        sum(each.is_committed for each in transactions),
        sum(each.outcome == FAIL for each in transactions),
        sum(each.may_be_committed and not each.is_committed for each in transactions),
    )
    found = {kind: len(anomalies) for kind, anomalies in check(history).items() if anomalies}
    summary = ", ".join(f"{number} {kind}" for kind, number in found.items()) or 0
    gap = f"{longest_unavailability(history):.0f} s"
    cells = (client, version, seed, f"{minutes:g}", len(history.faults), *counts, summary, gap)
    return f"| {' | '.join(map(str, cells))} |"


def main(arguments: list[str] | None = None) -> int:
    """Return 1 if the history has anomalies."""
    parser = argparse.ArgumentParser(prog="python -m tests.jepsen", description=__doc__)
    parser.add_argument("--client", choices=CLIENTS, default="aioproducer")
    parser.add_argument("--transaction-version", type=int, choices=(1, 2), default=2)
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--seed", default=str(random.randrange(1_000_000)))
    given = parser.parse_args(arguments)
    logging.getLogger("aioproducer").setLevel(logging.ERROR)
    path, history = run(given.client, given.transaction_version, given.seed, given.minutes)
    anomalies = [f"{kind}: {each}" for kind, found in check(history).items() for each in found]
    result = row(given.client, given.transaction_version, given.seed, given.minutes, history)
    lines = (*anomalies[:50], f"seed {given.seed}, history {path}", f"| {' | '.join(COLUMNS)} |", result)
    sys.stdout.write("\n".join(lines) + "\n")
    return int(bool(anomalies))


if __name__ == "__main__":
    sys.exit(main())
