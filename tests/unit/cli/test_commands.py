from __future__ import annotations

import asyncio
import errno
import json
import os
import re
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from aioproducer import Producer
from aioproducer.cli import audit_command, commands, demo_command, perf_command, topics
from aioproducer.cli.commands import serve
from aioproducer.cli.demo_command import DemoArguments
from aioproducer.config import ProducerConfig
from tests.cases import for_each


def call(*arguments: str) -> Result:
    return CliRunner().invoke(commands.program, arguments, prog_name="aioproducer")


def test_help_names_every_command() -> None:
    listed = call("--help").output.partition("Commands:")[2].partition("Examples:")[0]
    assert re.findall(r"^  ([\w-]+)", listed, flags=re.MULTILINE) == [
        "audit",
        "broker",
        "completion",
        "config",
        "demo",
        "perf",
        "send",
        "spark-recover",
        "tail",
        "topics",
        "transactions",
    ]


def test_misspelt_command_suggests_the_nearest() -> None:
    done = call("sned")
    assert done.exit_code == 2
    assert done.output.endswith("Error: No such command 'sned'. Did you mean 'send'?\n")
    assert call("frobnicate").output.endswith("Error: No such command 'frobnicate'.\n")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_a_script_for_that_shell(shell: str) -> None:
    done = call("completion", shell)
    assert done.exit_code == 0
    assert f"_AIOPRODUCER_COMPLETE={shell}_complete" in done.output


def test_completion_knows_commands_and_options() -> None:
    asked = {
        "_AIOPRODUCER_COMPLETE": "bash_complete",
        "COMP_WORDS": "aioproducer send --che",
        "COMP_CWORD": "2",
    }
    done = CliRunner().invoke(commands.program, prog_name="aioproducer", env=asked)
    assert done.output == "plain,--checkpoint\n"


def test_missing_cluster_is_one_error() -> None:
    done = call("topics", "--bootstrap-servers", "127.0.0.1:1,127.0.0.1:2")
    assert done.exit_code == 1
    assert done.output.startswith(
        "Error: ConnectionFailed: connection refused by 127.0.0.1:1, 127.0.0.1:2 (2 brokers tried)\n"
    )


@pytest.mark.parametrize(("good", "code"), [(True, 0), (False, 1)])
def test_topics_passes_options_and_sets_exit_code(
    monkeypatch: pytest.MonkeyPatch, good: bool, code: int
) -> None:
    asked: list[tuple[object, ...]] = []

    async def show_topics(config: ProducerConfig, names: tuple[str, ...], *, as_json: bool) -> bool:
        asked.append((config.bootstrap_servers, names, as_json))
        return good

    monkeypatch.setattr(topics, "show_topics", show_topics)
    assert call("topics", "--bootstrap-servers", "a:1").exit_code == code
    assert call("topics", "orders", "clicks", "--bootstrap-servers", "a:1", "--json").exit_code == code
    assert asked == [(("a:1",), (), False), (("a:1",), ("orders", "clicks"), True)]
    done = call("topics", "or ders", "--bootstrap-servers", "a:1")
    assert (done.exit_code, len(asked)) == (2, 2)
    assert "topic 'or ders' is not a legal name" in done.output


def test_wrong_option_is_one_line_and_exit_code_2() -> None:
    done = call("demo", "--compression", "zip")
    assert done.exit_code == 2
    [line] = done.output.splitlines()
    assert line.startswith("Error: ConfigError: compression.type = 'zip'")


@pytest.mark.parametrize(("good", "code"), [(True, 0), (False, 1)])
def test_demo_passes_options_and_sets_exit_code(
    monkeypatch: pytest.MonkeyPatch, good: bool, code: int
) -> None:
    plans: list[DemoArguments] = []

    async def run_and_report(arguments: DemoArguments) -> bool:
        plans.append(arguments)
        return good

    monkeypatch.setattr(demo_command, "run_and_report", run_and_report)
    assert call("demo").exit_code == code
    assert (
        call(
            *("demo", "--bootstrap-servers", "a:1,b:1", "--records", "500"),
            *("--partitions", "2", "--compression", "lz4"),
        ).exit_code
        == code
    )
    in_process, on_a_cluster = plans
    assert in_process == DemoArguments(None, records=200_000, partitions=6, compression="zstd")
    config = on_a_cluster.config
    assert on_a_cluster == DemoArguments(config, records=500, partitions=2, compression="lz4")
    assert config is not None
    assert (config.bootstrap_servers, config.compression_type) == (("a:1", "b:1"), "lz4")


def test_demo_requires_servers_for_cluster_options() -> None:
    for options in (("--username", "alice"), ("--option", "linger.ms=5")):
        done = call("demo", *options)
        assert (done.exit_code, "Missing option '-b'" in done.output) == (2, True)


def serve_nothing(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    served: list[dict[str, Any]] = []

    async def serve(*, port: int, brokers: int, topics: Mapping[str, int]) -> None:
        served.append({"port": port, "brokers": brokers, "topics": topics})

    monkeypatch.setattr(commands, "serve", serve)
    return served


def test_broker_passes_options(monkeypatch: pytest.MonkeyPatch) -> None:
    served = serve_nothing(monkeypatch)
    call("broker")
    call("broker", "--port", "0", "--brokers", "3", "--topic", "orders:6", "--topic", "clicks")
    assert served == [
        {"port": 9092, "brokers": 1, "topics": {}},
        {"port": 0, "brokers": 3, "topics": {"orders": 6, "clicks": 1}},
    ]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--topic", "orders:six"], "'orders:six' should be like orders:6"),
        (["--topic", "orders:"], "'orders:' should be like orders:6"),
        (
            ["--port", "65535", "--brokers", "2"],
            "2 ports from 65535 up are more than there are; the last is 65535",
        ),
        (["--port", "65536"], "65536 is not in the range"),
    ],
)
def test_broker_refuses_illegal_options(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], complaint: str
) -> None:
    served = serve_nothing(monkeypatch)
    done = call("broker", *arguments)
    assert done.exit_code == 2
    assert complaint in done.output
    assert not served


def test_config_lists_options_or_checks_file(tmp_path: Path) -> None:
    assert "linger_ms = 5 ms" in call("config").output
    path = tmp_path / "producer.properties"
    path.write_text("bootstrap.servers=a:9092\nliger.ms=20\n")
    done = call("config", str(path))
    assert done.exit_code == 2
    said = f"Error: ConfigError: {path}: unknown option 'liger.ms'; did you mean 'linger.ms'?\n"
    assert done.output == said
    path.write_text("bootstrap.servers=a:9092\nlinger.ms=20\n")
    assert call("config", str(path)).exit_code == 0
    assert json.loads(call("config", str(path), "--json").output)["changes"]["linger_ms"] == 20
    assert json.loads(call("config", "--json").output)
    assert call("config", str(tmp_path / "missing")).exit_code == 2


@pytest.mark.parametrize(("good", "code"), [(True, 0), (False, 1)])
def test_audit_passes_options_and_sets_exit_code(
    monkeypatch: pytest.MonkeyPatch, good: bool, code: int
) -> None:
    audits: list[tuple[object, ...]] = []

    async def audit_and_report(
        config: ProducerConfig, *what: str, expect: int | None, as_json: bool, order: bool
    ) -> bool:
        audits.append((config.bootstrap_servers, *what, expect, as_json, order))
        return good

    monkeypatch.setattr(audit_command, "audit_and_report", audit_and_report)
    needed = ("--bootstrap-servers", "a:1,b:1", "--topic", "orders", "--run", "nightly-7")
    assert call("audit", *needed).exit_code == code
    assert call("audit", *needed, "--expect", "0", "--json", "--order").exit_code == code
    assert audits == [
        (("a:1", "b:1"), "orders", "nightly-7", None, False, False),
        (("a:1", "b:1"), "orders", "nightly-7", 0, True, True),
    ]
    for missing in ("--bootstrap-servers", "--run"):
        at = needed.index(missing)
        done = call("audit", *needed[:at], *needed[at + 2 :])
        assert (done.exit_code, "Missing option" in done.output and missing in done.output) == (2, True)
    assert call("audit", *needed, "--expect", "-1").exit_code == 2
    assert call("audit", *needed, "--run", "").exit_code == 2
    assert call("audit", *needed, "--topic", "").exit_code == 2
    assert len(audits) == 2


@pytest.mark.parametrize(("good", "code"), [(True, 0), (False, 1)])
def test_perf_passes_options_and_sets_exit_code(
    monkeypatch: pytest.MonkeyPatch, good: bool, code: int
) -> None:
    plans: list[perf_command.PerfArguments] = []

    async def run_and_report(plan: perf_command.PerfArguments, *, as_json: bool) -> bool:
        plans.append(plan)
        return good == (not as_json)

    monkeypatch.setattr(perf_command, "run_and_report", run_and_report)
    needed = ("perf", "--bootstrap-servers", "a:1,b:1", "--topic", "orders")
    assert call(*needed).exit_code == code
    options = ("-o", "linger.ms=7", "--option", "acks = 1", "--run", "nightly-7", "--json")
    assert call(*needed, "--records", "5", "--value-bytes", "9", "--rate", "2.5", *options).exit_code != code
    first, second = plans
    assert (first.topic, first.records, first.value_bytes, first.rate) == ("orders", 1_000_000, 100, None)
    assert first.config.bootstrap_servers == ("a:1", "b:1")
    assert re.fullmatch(r"perf-[0-9a-f]{8}", first.run)
    assert (second.records, second.value_bytes, second.rate, second.run) == (5, 9, 2.5, "nightly-7")
    assert (second.config.linger_ms, second.config.acks) == (7, 1)


@for_each(
    ("arguments", "complaint"),
    [
        (["-o", "linger"], "'linger' should be like linger.ms=0"),
        (["-o", "liger.ms=1"], "unknown option 'liger.ms'; did you mean 'linger.ms'?"),
        (["-o", "bootstrap_servers=b:1"], "cannot be set with --option: give --bootstrap-servers"),
        (["--run", ""], "a run's id has 1 to 4,096 bytes, not 0"),
        (["--topic", "or ders"], "topic 'or ders' is not a legal name"),
        (["--rate", "0"], "0.0 is not in the range"),
        (["--records", "0"], "0 is not in the range"),
    ],
)
def test_perf_refuses_illegal_options(arguments: list[str], complaint: str) -> None:
    done = call("perf", "--bootstrap-servers", "a:1", "--topic", "orders", *arguments)
    assert done.exit_code == 2
    assert complaint in done.output


@pytest.mark.parametrize("command", [("demo",), ("perf", "--topic", "orders")])
def test_commands_without_transaction_refuse_transactional_id(command: tuple[str, ...]) -> None:
    done = call(*command, "-b", "a:1", "--option", "transactional.id=nightly")
    assert done.exit_code == 2
    assert "leave out transactional.id" in done.output


@pytest.mark.parametrize("command", [("perf",), ("audit", "--run", "r")])
def test_topic_is_an_argument_and_is_required_once(command: tuple[str, ...]) -> None:
    missing = call(*command, "-b", "a:1")
    assert (
        missing.exit_code,
        "Missing argument 'TOPIC'" in missing.output,
    ) == (2, True)
    twice = call(*command, "orders", "--topic", "orders", "-b", "a:1")
    assert (twice.exit_code, "the topic is given twice" in twice.output) == (2, True)
    illegal = call(*command, "or ders", "-b", "a:1")
    assert (illegal.exit_code, "not a legal name" in illegal.output) == (2, True)


def test_perf_takes_the_topic_and_the_compression(monkeypatch: pytest.MonkeyPatch) -> None:
    plans: list[perf_command.PerfArguments] = []

    async def run_and_report(plan: perf_command.PerfArguments, *, as_json: bool) -> bool:
        plans.append(plan)
        return not as_json

    monkeypatch.setattr(perf_command, "run_and_report", run_and_report)
    assert call("perf", "orders", "-b", "a:1", "--compression", "lz4").exit_code == 0
    assert [(plan.topic, plan.config.compression_type) for plan in plans] == [("orders", "lz4")]
    twice = call("perf", "orders", "-b", "a:1", "--compression", "lz4", "-o", "compression.type=zstd")
    assert (twice.exit_code, "--compression already sets compression.type" in twice.output) == (2, True)


async def first_output(capsys: pytest.CaptureFixture[str], serving: asyncio.Task[None]) -> str:
    """Wait until the broker prints its address; its sockets are open then."""
    output = ""
    while "bootstrap servers" not in output and not serving.done():
        await asyncio.sleep(0)
        output += capsys.readouterr().out
    return output


@pytest.fixture
def hangup() -> Iterator[None]:
    """Let SIGHUP end processes, also if the tests run under nohup."""
    previous = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, previous)


@pytest.mark.usefixtures("hangup")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_broker_prints_its_servers_and_ends_with_a_signal(
    number: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    serving = asyncio.create_task(serve(port=0, brokers=2, topics={"orders": 3}))
    servers = re.findall(r"127\.0\.0\.1:\d+", await first_output(capsys, serving))
    assert len(servers) == 2
    async with Producer(servers) as producer:
        assert await producer.partitions_for("orders") == {0, 1, 2}
        assert (await producer.send("orders", b"value", partition=2)).offset == 0
    os.kill(os.getpid(), number)
    await serving


@pytest.mark.parametrize(("brokers", "ports"), [(1, "port {0}"), (2, "ports {0} to {1}")])
async def test_broker_reports_port_in_use(brokers: int, ports: str) -> None:
    taken = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = taken.sockets[0].getsockname()[1]
    async with taken:
        with pytest.raises(
            click.ClickException, match=f"cannot listen on {ports.format(port, port + 1)}: .* another --port"
        ):
            await serve(port=port, brokers=brokers, topics={})


async def test_broker_raises_output_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def echo(_: str, *, err: bool = False) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(click, "echo", echo)
    with pytest.raises(OSError, match="No space left on device"):
        await serve(port=0, brokers=1, topics={})


@pytest.mark.parametrize(("topic", "partitions"), [("no spaces", 1), ("orders", 0)])
async def test_broker_reports_illegal_topic(topic: str, partitions: int) -> None:
    with pytest.raises(click.ClickException, match=r"illegal topic name|cannot have 0 partitions"):
        await serve(port=0, brokers=1, topics={topic: partitions})
