"""The listings and reports of `aioproducer transactions`."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.text import Text

from aioproducer._core.logfmt import escaped
from aioproducer._core.transactions.administration import TransactionDescription
from aioproducer._core.transactions.transaction_types import PreparedTransaction
from aioproducer.cli.output import echo, echo_json, escaping, plain_table, show_table
from aioproducer.config import ProducerConfig
from aioproducer.transaction_admin import TransactionAdmin
from aioproducer.types import TopicPartition


async def show_list(
    config: ProducerConfig,
    pattern: str | None,
    states: Sequence[str],
    longer_than_ms: int | None,
    *,
    as_json: bool,
) -> None:
    """Show matching transactional ids. Raises: ProducerError; ValueError: unknown state."""
    async with TransactionAdmin.from_config(config) as admin:
        found = await admin.list(pattern, states, longer_than_ms)
    if as_json:
        echo_json([each._asdict() for each in found])
        return
    table = plain_table("transactional id", "producer id", "state")
    for each in found:
        table.add_row(
            Text(escaped(each.transactional_id), "bold"), str(each.producer_id), Text(escaped(each.state))
        )
    if found:
        show_table(_console(), table)
    else:
        echo("There are no such transactional ids.")


async def show_descriptions(config: ProducerConfig, ids: Sequence[str], *, as_json: bool) -> bool:
    """Show the state of *ids*; return True if all ids are known. Raises: ProducerError."""
    async with TransactionAdmin.from_config(config) as admin:
        found = await admin.describe(*ids)
    if as_json:
        echo_json({name: _to_dict(each) for name, each in found.items()})
    else:
        table = plain_table(
            "transactional id", "state", "producer id", "epoch", "timeout", "began", "partitions"
        )
        for name, each in found.items():
            if each is None:
                table.add_row(Text(escaped(name), "bold"), Text("not known", "bold red"), "", "", "", "", "")
                continue
            table.add_row(
                Text(escaped(name), "bold"),
                Text(escaped(each.state)),
                str(each.producer_id),
                str(each.epoch),
                f"{each.timeout_ms / 1000:,g} s",
                _time(each.began_at_ms) or "-",
                Text(_partitions(each.partitions)),
            )
        show_table(_console(), table)
    return None not in found.values()


async def end_and_report(
    config: ProducerConfig, prepared: Sequence[PreparedTransaction], *, commit: bool, as_json: bool
) -> bool:
    """End *prepared* and show the outcomes; return True if all ended. Raises: ProducerError: no broker responds."""
    async with TransactionAdmin.from_config(config) as admin:
        outcomes = await admin.end_many(prepared, commit=commit)
    done = "committed" if commit else "aborted"
    failed = {each: error for each, error in outcomes.items() if error is not None}
    if as_json:
        rows = [
            {
                "transactional_id": each.transactional_id,
                "producer_id": each.producer_id,
                "epoch": each.epoch,
                "outcome": done if error is None else type(error).__name__,
                "message": None if error is None else str(error),
            }
            for each, error in outcomes.items()
        ]
        echo_json(rows)
    else:
        echo(f"{len(outcomes) - len(failed):,} of {len(outcomes):,} {done}")
        for each, error in failed.items():
            echo(f"{escaped(each.transactional_id)}: {type(error).__name__}: {error}", err=True)
    return not failed


async def fence_and_report(config: ProducerConfig, ids: Collection[str], *, as_json: bool) -> None:
    """Fence *ids*. Raises: ProducerError: the first error."""
    async with TransactionAdmin.from_config(config) as admin:
        await admin.fence(*ids)
    echo(json.dumps({"fenced": list(ids)}, indent=2) if as_json else f"{len(ids):,} fenced")


def _to_dict(each: TransactionDescription | None) -> dict[str, Any] | None:
    if each is None:
        return None
    partitions = [{"topic": topic, "partition": number} for topic, number in sorted(each.partitions)]
    return {**each._asdict(), "partitions": partitions}


def _partitions(partitions: Collection[TopicPartition]) -> str:
    by_topic = groupby(sorted(partitions), lambda each: each.topic)
    return ", ".join(
        f"{escaped(topic)}: {','.join(str(each.partition) for each in those)}" for topic, those in by_topic
    )


def _time(at_ms: int | None) -> str | None:
    return None if at_ms is None else f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _console() -> Console:
    return escaping(Console(highlight=False))
