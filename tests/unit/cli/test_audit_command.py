from __future__ import annotations

import json
import re

import pytest

from aioproducer import Producer, UnknownTopicOrPartition, _topic_client
from aioproducer.audit import stamp
from aioproducer.cli.audit_command import audit_and_report
from aioproducer.config import ProducerConfig
from aioproducer.testing import Cluster


async def send(cluster: Cluster, *logs: list[int], run: str = "nightly-7") -> None:
    async with Producer(cluster.bootstrap_servers) as producer:
        for partition, log in enumerate(logs):
            headers = [stamp(run, sequence) for sequence in log]
            await producer.send_many("orders", [b"v"] * len(log), partition=partition, headers=headers)


async def audited(
    cluster: Cluster, *, expect: int | None = None, as_json: bool = False, order: bool = False
) -> bool:
    return await audit_and_report(
        ProducerConfig(bootstrap_servers=cluster.bootstrap_servers),
        "orders",
        "nightly-7",
        expect=expect,
        as_json=as_json,
        order=order,
    )


async def test_audit_reports_complete_run(capsys: pytest.CaptureFixture[str]) -> None:
    async with Cluster(topics={"orders": 2}) as cluster:
        await send(cluster, [0, 2], [1, 3])
        assert await audited(cluster, expect=4)
    told, complaints = capsys.readouterr()
    assert "Topic orders has 4 records, 4 of run nightly-7" in told
    assert "Of 4 records expected: each is in the topic once, in order\n" in told
    assert "Without --expect" not in told
    assert complaints == ""


async def test_audit_ignores_records_of_other_runs(capsys: pytest.CaptureFixture[str]) -> None:
    async with Cluster(topics={"orders": 2}) as cluster:
        await send(cluster, [9, 9], [], run="another")
        await send(cluster, [0, 1])
        async with Producer(cluster.bootstrap_servers) as producer:
            await producer.send("orders", b"no headers", partition=1)
        assert await audited(cluster, expect=2)
    assert "Topic orders has 5 records, 2 of run nightly-7" in capsys.readouterr().out


async def test_audit_table_has_counts_and_offsets(capsys: pytest.CaptureFixture[str]) -> None:
    async with Cluster(topics={"orders": 2}) as cluster:
        await send(cluster, [0, 2, 1, 0], [7, 2])
        assert not await audited(cluster, expect=6, order=True)
    told = capsys.readouterr().out
    rows = [re.split(r"\s{2,}", line.strip()) for line in told.splitlines()]
    assert ["0", "0 - 3", "4", "1", "1", "0"] in rows
    assert ["from offset 3", "from offset 2"] in rows
    assert ["1", "0 - 1", "2", "1", "0", "1"] in rows
    assert ["from offset 1", "from offset 0"] in rows
    assert ["all", "6", "2", "1", "1"] in rows
    verdict = "Of 6 records expected: FAILED, 3 lost, 2 duplicated, 1 out of order, 1 unexpected"
    assert f"{verdict}\nLost: 3, 4, 5\n" in told


async def test_audit_without_expect_has_a_note(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with Cluster(topics={"orders": 1}) as cluster:
        await send(cluster, [0, 30])
        assert not await audited(cluster)
    told = capsys.readouterr().out
    assert f"Lost: {', '.join(map(str, range(1, 21)))}, …\n" in told
    assert told.endswith("Without --expect, records lost at the end of the run are not detected.\n")


async def test_audit_of_unknown_run_fails(capsys: pytest.CaptureFixture[str]) -> None:
    async with Cluster(topics={"orders": 1}) as cluster:
        await send(cluster, [0, 1], run="another")
        assert not await audited(cluster)
    told = capsys.readouterr().out
    assert "Topic orders has 2 records, 0 of run nightly-7" in told
    assert "FAILED, no record of this run was found: check --run" in told


async def test_audit_checks_order_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    async with Cluster(topics={"orders": 1}) as cluster:
        await send(cluster, [1, 0])
        assert await audited(cluster, expect=2)
        told = capsys.readouterr().out
        assert told.endswith(
            "Of 2 records expected: each is in the topic once\n"
            "1 out of order in their partition; with --order this is a failure.\n"
        )
        assert not await audited(cluster, expect=2, order=True)
    assert "FAILED, 1 out of order" in capsys.readouterr().out


async def test_audit_checks_order_per_lane(capsys: pytest.CaptureFixture[str]) -> None:
    async with Cluster(topics={"orders": 1}) as cluster:
        async with Producer(cluster.bootstrap_servers) as producer:
            for sequence in (2, 0, 3, 1):
                await producer.send(
                    "orders", b"v", headers=stamp("nightly-7", sequence, f"task {sequence // 2}")
                )
        assert await audited(cluster, expect=4, order=True)
    assert "each is in the topic once, in order" in capsys.readouterr().out


async def test_json_is_all_that_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    async with Cluster(topics={"orders": 1}) as cluster:
        await send(cluster, [0, 2])
        assert not await audited(cluster, expect=3, as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert (told["run"], told["ok"], told["lost"], told["first_lost"]) == ("nightly-7", False, 1, [1])


async def test_topic_that_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_topic_client, "UNKNOWN_TOPIC_S", 0)
    async with Cluster() as cluster:
        with pytest.raises(UnknownTopicOrPartition, match="there is no topic orders: is the name right"):
            await audited(cluster)


async def test_audit_distinguishes_duplicates_from_losses(capsys: pytest.CaptureFixture[str]) -> None:
    async with Cluster(topics={"orders": 2}) as cluster:
        await send(cluster, [2, 1], [0, 1])
        assert not await audited(cluster, expect=3)
    told = capsys.readouterr().out
    verdict = "Of 3 records expected: DOUBLED ONLY, 1 duplicated; nothing is lost, and the order is kept"
    assert f"{verdict}\n" in told
