from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner, Result

from aioproducer.cli.commands import program
from tests.kafka.apache.broker import ApacheKafka
from tests.kafka.readback import read_with_librdkafka

RECORDS = 20_000
FIRST = 12_000


def call(*arguments: str | Path) -> Result:
    return CliRunner().invoke(
        program, list(map(str, arguments)), prog_name="aioproducer", catch_exceptions=False
    )


def order(number: int) -> str:
    return json.dumps({"order": number, "by": f"customer-{number % 50}", "meta": {"trace": f"{number:x}"}})


def test_file_sent_in_two_parts_is_stored_once_in_order(
    kafka: ApacheKafka, topic: str, tmp_path: Path
) -> None:
    """The first call stops at an invalid line; after a correction the second call continues there."""
    orders, checkpoint = tmp_path / "orders.jsonl", tmp_path / "checkpoint"
    lines = [order(number) for number in range(RECORDS)]
    where = ("--bootstrap-servers", kafka.bootstrap_servers)
    send: list[str | Path] = [
        "send",
        topic,
        orders,
        *where,
        "--format",
        "json",
        "--key-field",
        "by",
        "--headers-field",
        "meta",
    ]
    send += ["--compression", "zstd", "--checkpoint", checkpoint, "--run", "nightly-7"]

    orders.write_text("\n".join([*lines[:FIRST], "nonsense", *lines[FIRST + 1 :]]))
    stopped = call(*send)
    assert stopped.exit_code == 1
    assert f"orders.jsonl, line {FIRST + 1}: it is not JSON" in stopped.output
    orders.write_text("\n".join(lines))
    done = call(*send)
    assert done.exit_code == 0, done.output
    assert done.output.startswith(f"{FIRST:,} records had been acknowledged before, and not sent again.\n")

    audit = ("audit", *where, "--topic", topic, "--run", "nightly-7", "--expect", str(RECORDS), "--json")
    assert json.loads(call(*audit).stdout)["ok"]
    found = read_with_librdkafka(kafka.bootstrap_servers, topic)
    assert sorted((each.value or b"").decode() for each in found) == sorted(lines)
    for each in found:
        told = json.loads(each.value or b"")
        assert each.key == told["by"].encode()
        assert dict(each.headers)["trace"] == told["meta"]["trace"].encode()


def test_topics_command_shows_the_topics_of_the_broker(kafka: ApacheKafka, topic: str) -> None:
    where = ("--bootstrap-servers", kafka.bootstrap_servers)
    told = json.loads(call("topics", topic, *where, "--json").stdout)
    assert [f"{each['host']}:{each['port']}" for each in told["brokers"]] == [kafka.bootstrap_servers]
    assert told["controller"] == told["brokers"][0]["id"]
    [shown] = told["topics"]
    assert [(each["partition"], each["leader"], each["isr"]) for each in shown["partitions"]] == [
        (partition, told["controller"], [told["controller"]]) for partition in range(3)
    ]
    assert topic in call("topics", *where).output
    missing = call("topics", f"{topic}-not", *where)
    assert (missing.exit_code, "UnknownTopicOrPartition" in missing.output) == (1, True)
