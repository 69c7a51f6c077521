"""Inputs, a cluster, and the outcome of a send."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aioproducer.cli.send.arguments import SendArguments, SendOutcome
from aioproducer.cli.send.send_run import Sending
from aioproducer.cli.send.written_files import Checkpoint
from aioproducer.config import ProducerConfig
from aioproducer.testing import Cluster

LINES = [b"%d" % number for number in range(1_000)]


@asynccontextmanager
async def orders(partitions: int = 1) -> AsyncIterator[Cluster]:
    async with Cluster(topics={"orders": partitions}, transport="memory") as cluster:
        yield cluster


def plan_of(
    cluster: Cluster, path: Path, *, checkpoint: bool = False, run: str | None = None, **more: Any
) -> SendArguments:
    options = more.pop("options", {})
    work = {"topic": "orders", "format": "lines", "run": run}
    return SendArguments(
        config=ProducerConfig(bootstrap_servers=cluster.bootstrap_servers, **options),
        topic="orders",
        paths=[str(path)],
        checkpoint=Checkpoint(path.with_name("cp"), work) if checkpoint else None,
        run=run,
        **more,
    )


async def send(arguments: SendArguments) -> SendOutcome:
    return await Sending(arguments, lambda _: None).run()


def values(cluster: Cluster, partitions: int = 1) -> list[list[bytes | None]]:
    return [[each.value for each in cluster.records("orders", number)] for number in range(partitions)]


def stored(path: Path) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(path.with_name("cp").read_text())
    return told
