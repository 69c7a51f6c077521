"""`aioproducer transactions` and `aioproducer send --transactional-id`, read back with other clients."""

from __future__ import annotations

import asyncio
import itertools
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from aioproducer import PreparedTransaction, Producer
from aioproducer.cli.commands import program
from tests.kafka.apache.broker import ApacheKafka
from tests.kafka.readback import read_with_librdkafka

RECORDS = 2_000
numbers = itertools.count()


@pytest.fixture
def name() -> str:
    return f"command-{next(numbers)}"


def call(*arguments: str | Path, input: str | None = None) -> Result:  # noqa: A002 - click's name for it
    return CliRunner().invoke(
        program, list(map(str, arguments)), prog_name="aioproducer", catch_exceptions=False, input=input
    )


def committed(kafka: ApacheKafka, topic: str) -> list[bytes | None]:
    read = read_with_librdkafka(kafka.bootstrap_servers, topic, isolation_level="read_committed")
    return [each.value for each in read]


def ended(kafka: ApacheKafka, name: str) -> str:
    """Return the end of the last transaction of the id, once its markers are written."""
    while True:
        shown = call("transactions", "describe", name, "-b", kafka.bootstrap_servers, "--json")
        state = json.loads(shown.stdout)[name]["state"]
        if state not in {"PrepareCommit", "PrepareAbort"}:
            return str(state)


def prepare(kafka: ApacheKafka, topic: str, name: str) -> PreparedTransaction:
    async def run() -> PreparedTransaction:
        async with (
            Producer(kafka.bootstrap_servers, transactional_id=name) as producer,
            producer.transaction() as transaction,
        ):
            await producer.send(topic, b"prepared", partition=0)
            return await transaction.prepare()

    return asyncio.run(run())


class TestSend:
    def test_send_transactional_stores_the_whole_file(
        self, kafka: ApacheKafka, topic: str, tmp_path: Path, name: str
    ) -> None:
        lines = [f"{number}" for number in range(RECORDS)]
        (tmp_path / "in").write_text("\n".join(lines))
        done = call("send", topic, tmp_path / "in", "-b", kafka.bootstrap_servers, "--transactional-id", name)
        assert done.exit_code == 0, done.output
        assert done.output.startswith(f"{RECORDS:,} records acknowledged")
        assert "Committed: readers of committed records see all of it.\n" in done.output
        assert ended(kafka, name) == "CompleteCommit"
        assert sorted(committed(kafka, topic), key=str) == sorted((each.encode() for each in lines), key=str)

    def test_send_transactional_stores_nothing_when_it_fails(
        self, kafka: ApacheKafka, topic: str, tmp_path: Path, name: str
    ) -> None:
        (tmp_path / "in").write_text("1\n" * RECORDS + "nonsense")
        send: list[str | Path] = [
            "send",
            topic,
            tmp_path / "in",
            "-b",
            kafka.bootstrap_servers,
            "--format",
            "json",
        ]
        done = call(*send, "--option", f"transactional.id={name}")
        assert done.exit_code == 1
        assert f"Stopped: {tmp_path / 'in'}, line {RECORDS + 1}: it is not JSON" in done.output
        assert "Aborted: " in done.output
        assert "may be" not in done.output
        assert ended(kafka, name) == "CompleteAbort"
        assert committed(kafka, topic) == []

    def test_audit_ignores_aborted_records(
        self, kafka: ApacheKafka, topic: str, tmp_path: Path, name: str
    ) -> None:
        where = ("-b", kafka.bootstrap_servers)
        orders = tmp_path / "in"
        send: list[str | Path] = ["send", topic, orders, *where, "--format", "json", "--run", name]
        send += ["--transactional-id", name]
        for last, exit_code in (("nonsense", 1), ("2", 0)):
            orders.write_text("1\n" * RECORDS + last)
            assert call(*send).exit_code == exit_code
        assert len(committed(kafka, topic)) == RECORDS + 1
        audit = ("audit", *where, "--topic", topic, "--run", name, "--expect", str(RECORDS + 1))
        done = call(*audit)
        assert done.exit_code == 0, done.output

    def test_signal_aborts_the_transaction(self, kafka: ApacheKafka, topic: str, name: str) -> None:
        send = [sys.executable, "-u", "-m", "aioproducer", "send", topic, "-b", kafka.bootstrap_servers]
        with subprocess.Popen(
            [*send, "--transactional-id", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdin is not None
            process.stdin.write("first\n" * 10)
            process.stdin.flush()
            while len(read_with_librdkafka(kafka.bootstrap_servers, topic)) < 10:
                assert process.poll() is None
            process.send_signal(signal.SIGINT)
            out, told = process.communicate(timeout=30)
        assert (out, process.returncode) == ("", 1)
        assert "Stopped: interrupted\nAborted: " in told
        assert ended(kafka, name) == "CompleteAbort"
        assert committed(kafka, topic) == []

    def test_fenced_command_commits_nothing(self, kafka: ApacheKafka, topic: str, name: str) -> None:
        send = [sys.executable, "-u", "-m", "aioproducer", "send", topic, "-b", kafka.bootstrap_servers]
        with subprocess.Popen(
            [*send, "--transactional-id", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdin is not None
            process.stdin.write("first\n" * 10)
            process.stdin.flush()
            while len(read_with_librdkafka(kafka.bootstrap_servers, topic)) < 10:
                assert process.poll() is None
            assert call("transactions", "fence", name, "-b", kafka.bootstrap_servers).output == "1 fenced\n"
            out, told = process.communicate(timeout=30)
        assert (out, process.returncode) == ("", 1)
        assert "Stopped: ProducerFenced: " in told
        assert "Committed" not in told
        assert committed(kafka, topic) == []


class TestTransactions:
    def test_prepared_transaction_is_listed_described_and_ended(
        self, kafka: ApacheKafka, topic: str, name: str
    ) -> None:
        where = ("-b", kafka.bootstrap_servers)
        first, second = prepare(kafka, topic, f"{name}.1"), prepare(kafka, topic, f"{name}.2")
        listed = call("transactions", "list", *where, "--pattern", rf"{name}\..*", "--state", "Ongoing")
        assert [line.split() for line in listed.output.splitlines()[-2:]] == [
            [each.transactional_id, str(each.producer_id), "Ongoing"] for each in (first, second)
        ]
        shown = call("transactions", "describe", f"{name}.1", f"{name}-not", *where)
        assert shown.exit_code == 1
        assert f"{topic}: 0" in shown.output
        assert "not known" in shown.output
        [told] = json.loads(call("transactions", "end", "--commit", str(first), *where, "--json").stdout)
        assert (told["transactional_id"], told["outcome"]) == (f"{name}.1", "committed")
        assert ended(kafka, f"{name}.1") == "CompleteCommit"
        again = call("transactions", "end", "--commit", "-", *where, input=f"{first}\n\n{second}\n")
        assert again.output == "2 of 2 committed\n"
        assert ended(kafka, f"{name}.2") == "CompleteCommit"
        assert committed(kafka, topic) == [b"prepared"] * 2

    def test_unknown_outcome_is_reported(self, kafka: ApacheKafka, topic: str, name: str) -> None:
        prepared = prepare(kafka, topic, name)
        where = ("-b", kafka.bootstrap_servers)
        assert call("transactions", "fence", name, *where).exit_code == 0
        done = call("transactions", "end", "--commit", str(prepared), *where)
        assert done.exit_code == 1
        assert done.output.startswith(f"0 of 1 committed\n{name}: TransactionOutcomeUnknown: the outcome of")
        assert committed(kafka, topic) == []

    def test_contradicting_filter_is_refused(self, kafka: ApacheKafka) -> None:
        done = call("transactions", "list", "-b", kafka.bootstrap_servers, "--state", "ongoing")
        assert done.exit_code == 2
        assert "knows no ongoing" in done.output
        none = call("transactions", "list", "-b", kafka.bootstrap_servers, "--pattern", "there is no such id")
        assert none.output == "There are no such transactional ids.\n"
