from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from aioproducer.cli.commands import program
from tests.kafka.apache.broker import ApacheKafka
from tests.kafka.readback import read_with_librdkafka

RECORDS = 5_000


def call(*arguments: str) -> str:
    done = CliRunner().invoke(program, arguments, prog_name="aioproducer", catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.parametrize("rate", [(), ("--rate", "20000")])
def test_perf_run_is_in_the_topic_as_the_audit_reports(
    kafka: ApacheKafka, topic: str, rate: tuple[str, ...]
) -> None:
    where = ("--bootstrap-servers", kafka.bootstrap_servers, "--topic", topic)
    told = json.loads(
        call("perf", *where, "--records", str(RECORDS), "-o", "compression.type=lz4", *rate, "--json")
    )
    assert told["acknowledged"] == RECORDS
    report = json.loads(call("audit", *where, "--run", told["run"], "--expect", str(RECORDS), "--json"))
    assert report["records"] == RECORDS
    records = read_with_librdkafka(kafka.bootstrap_servers, topic)
    assert {dict(each.headers)["aioproducer-run"] for each in records} == {told["run"].encode()}
    assert sorted(int(dict(each.headers)["aioproducer-seq"] or b"") for each in records) == list(
        range(RECORDS)
    )
