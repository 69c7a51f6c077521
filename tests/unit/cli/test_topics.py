from __future__ import annotations

import json
import re

import pytest

from aioproducer._core.protocol.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from aioproducer.cli.topics import show_topics, to_dict
from aioproducer.config import ProducerConfig
from aioproducer.errors import ConnectionFailed
from aioproducer.testing import Cluster
from tests.unit.test_topic_client import without_brokers


def of(cluster: Cluster) -> ProducerConfig:
    return ProducerConfig(bootstrap_servers=cluster.bootstrap_servers)


def rows(text: str) -> list[list[str]]:
    return [re.split(r"\s{2,}", line.strip()) for line in text.splitlines()]


async def test_brokers_and_all_topics_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    async with Cluster(2, topics={"orders": 2, "clicks": 1}) as cluster:
        assert await show_topics(of(cluster), [], as_json=False)
        first, second = cluster.bootstrap_servers.split(",")
    shown = rows(capsys.readouterr().out)
    assert ["1", first, "-", "controller"] in shown
    assert ["2", second, "-"] in shown
    names = [row[0] for row in shown]
    assert names.index("clicks") < names.index("orders")
    at = names.index("orders")
    assert [shown[at][:2], shown[at + 1][:2]] == [["orders", "0"], ["orders", "1"]], (
        "each line says of what it is"
    )
    assert {shown[at][2], shown[at + 1][2]} == {"1", "2"}


async def test_long_name_is_whole_without_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    name = "a-" * 100
    async with Cluster(topics={name: 1}) as cluster:
        assert await show_topics(of(cluster), [], as_json=False)
    assert name in capsys.readouterr().out


async def test_topics_reports_empty_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    async with Cluster() as cluster:
        assert await show_topics(of(cluster), [], as_json=False)
    assert "There are no topics." in capsys.readouterr().out


async def test_topics_fails_for_missing_topic_without_creating_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with Cluster(topics={"orders": 1, "clicks": 1}) as cluster:
        for _ in range(2):
            assert not await show_topics(of(cluster), ["nope", "orders"], as_json=False)
            told = capsys.readouterr()
            assert told.err == "Error: nope: no topic of this name\n"
            shown = rows(told.out)
            assert ["nope", "UnknownTopicOrPartition"] in shown
            assert ["orders", "0", "1", "1", "1"] in shown
            assert not any(row[0] == "clicks" for row in shown)


async def test_partition_without_a_leader_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    async with Cluster(2, topics={"orders": 2}) as cluster:
        await cluster.stop_broker(2)
        assert not await show_topics(of(cluster), ["orders"], as_json=False)
    text = capsys.readouterr().out
    assert re.search(r"\d +none .*(no leader|LeaderNotAvailable)", text), text


async def test_json_is_all_that_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    async with Cluster(topics={"orders": 1}) as cluster:
        assert await show_topics(of(cluster), [], as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert told["controller"] == 1
    assert [each["id"] for each in told["brokers"]] == [1]
    [topic] = told["topics"]
    assert (topic["name"], topic["error"]) == ("orders", None)
    assert topic["partitions"] == [
        {"partition": 0, "leader": 1, "replicas": [1], "isr": [1], "offline": [], "error": None}
    ]


def answer(*, isr: list[int]) -> MetadataResponse:
    partitions = [
        MetadataResponsePartition(
            partition_index=1, leader_id=-1, replica_nodes=[1], isr_nodes=[], error_code=5
        ),
        MetadataResponsePartition(partition_index=0, leader_id=1, replica_nodes=[1, 2], isr_nodes=isr),
    ]
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=2, host="b", port=2, rack="east"),
            MetadataResponseBroker(node_id=1, host="a", port=1),
        ],
        topics=[
            MetadataResponseTopic(name="orders", partitions=partitions),
            MetadataResponseTopic(name="__offsets", is_internal=True, partitions=partitions),
        ],
    )


async def shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *names: str, isr: list[int]
) -> str:
    async def describe(*_: object) -> MetadataResponse:
        return answer(isr=isr)

    monkeypatch.setattr("aioproducer._topic_client.Client.describe", describe)
    async with Cluster() as cluster:
        assert not await show_topics(of(cluster), names, as_json=False)
    return capsys.readouterr().out


async def test_replicas_out_of_sync_and_racks_are_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table = rows(await shown(monkeypatch, capsys, isr=[1]))
    assert ["2", "b:2", "east"] in table
    assert ["orders", "0", "1", "1,2", "1", "not in sync: 2"] in table
    assert ["orders", "1", "none", "1", "LeaderNotAvailable"] in table
    assert not any(row[0] == "__offsets" for row in table)


async def test_internal_topics_are_shown_if_they_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = await shown(monkeypatch, capsys, "orders", "__offsets", isr=[2, 1])
    assert "__offsets" in text
    assert "not in sync" not in text
    told = to_dict(answer(isr=[1]), answer(isr=[1]).topics)
    assert told["controller"] is None
    assert [each["rack"] for each in told["brokers"]] == [None, "east"]
    assert [each["internal"] for each in told["topics"]] == [False, True]
    assert told["topics"][0]["partitions"][1]["error"] == "LeaderNotAvailable"
    assert told["topics"][0]["partitions"][1]["leader"] is None


async def test_topics_fails_without_broker() -> None:
    with pytest.raises(ConnectionFailed):
        await show_topics(ProducerConfig(bootstrap_servers="127.0.0.1:1"), [], as_json=False)


async def test_starting_cluster_is_no_empty_cluster() -> None:
    async with Cluster(topics={"orders": 1}) as cluster:
        for names in ([], ["orders"]):
            cluster.on("metadata").rewrite(without_brokers("orders"))
            with pytest.raises(ConnectionFailed, match="the broker lists no brokers"):
                await show_topics(of(cluster), names, as_json=False)
