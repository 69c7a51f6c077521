"""`aioproducer topics`: the brokers of a cluster, and the leaders and replicas of partitions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from aioproducer._core.logfmt import escaped
from aioproducer._core.protocol.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from aioproducer._topic_client import Client
from aioproducer.cli.output import echo, echo_json, escaping, plain_table, show_table
from aioproducer.config import ProducerConfig
from aioproducer.errors import UnknownTopicOrPartition, broker_error

NO_NODE: Final = -1


async def show_topics(config: ProducerConfig, names: Sequence[str], *, as_json: bool) -> bool:
    """Show brokers and topics; return True if each topic exists and each partition has a leader.

    Without *names*, all topics except internal ones are shown.

    Raises: ProducerError: no broker responds.
    """
    async with Client(config) as client:
        metadata = await client.describe(dict.fromkeys(names) or None)
    shown = sorted(
        (topic for topic in metadata.topics if names or not topic.is_internal),
        key=lambda topic: topic.name or "",
    )
    if as_json:
        echo_json(to_dict(metadata, shown))
    else:
        console = escaping(Console(highlight=False))
        show_table(console, _brokers(metadata))
        console.print()
        if shown:
            show_table(console, _partitions(shown))
        else:
            console.print("There are no topics.")
        if missing := [
            escaped(topic.name or "?") for topic in shown if topic.error_code == UnknownTopicOrPartition.code
        ]:
            echo(f"Error: {', '.join(missing)}: no topic of this name", err=True)
    return all(not topic.error_code and all(map(_has_leader, topic.partitions)) for topic in shown)


def to_dict(metadata: MetadataResponse, topics: Iterable[MetadataResponseTopic]) -> dict[str, Any]:
    """Return the metadata as JSON values."""
    return {
        "cluster": metadata.cluster_id,
        "controller": None if metadata.controller_id == NO_NODE else metadata.controller_id,
        "brokers": [
            {"id": each.node_id, "host": each.host, "port": each.port, "rack": each.rack}
            for each in sorted(metadata.brokers, key=lambda each: each.node_id)
        ],
        "topics": [
            {
                "name": topic.name,
                "internal": topic.is_internal,
                "error": _error(topic.error_code),
                "partitions": [
                    {
                        "partition": each.partition_index,
                        "leader": each.leader_id if _has_leader(each) else None,
                        "replicas": list(each.replica_nodes),
                        "isr": list(each.isr_nodes),
                        "offline": list(each.offline_replicas),
                        "error": _error(each.error_code),
                    }
                    for each in _sorted(topic)
                ],
            }
            for topic in topics
        ],
    }


def _brokers(metadata: MetadataResponse) -> Table:
    table = plain_table("broker", "address", "rack", "role")
    for each in sorted(metadata.brokers, key=lambda each: each.node_id):
        role = "controller" if each.node_id == metadata.controller_id else ""
        table.add_row(
            str(each.node_id),
            Text(escaped(f"{each.host}:{each.port}")),
            Text(escaped(each.rack or "-")),
            role,
        )
    return table


def _partitions(topics: Iterable[MetadataResponseTopic]) -> Table:
    table = plain_table("topic", "partition", "leader", "replicas", "isr", "problem")
    for topic in topics:
        name = Text(escaped(topic.name or "?"), "bold")
        if topic.error_code:
            table.add_row(name, "", "", "", "", Text(_error(topic.error_code) or "", "bold red"))
        for each in _sorted(topic):
            table.add_row(
                name,
                str(each.partition_index),
                str(each.leader_id) if _has_leader(each) else "none",
                _ids(each.replica_nodes),
                _ids(each.isr_nodes),
                _flaw(each),
            )
    return table


def _flaw(partition: MetadataResponsePartition) -> Text:
    if not _has_leader(partition):
        return Text(_error(partition.error_code) or "no leader", "bold red")
    missing = set(partition.replica_nodes) - set(partition.isr_nodes)
    return Text(f"not in sync: {_ids(sorted(missing))}", "yellow") if missing else Text()


def _has_leader(partition: MetadataResponsePartition) -> bool:
    return partition.leader_id != NO_NODE


def _sorted(topic: MetadataResponseTopic) -> list[MetadataResponsePartition]:
    return sorted(topic.partitions, key=lambda each: each.partition_index)


def _ids(nodes: Iterable[int]) -> str:
    return ",".join(map(str, nodes))


def _error(code: int) -> str | None:
    return broker_error(code).__name__ if code else None
