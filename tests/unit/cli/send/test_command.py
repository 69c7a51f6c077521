from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from aioproducer.cli.commands import program
from aioproducer.cli.send import send_report
from aioproducer.cli.send.arguments import Format, SendArguments
from aioproducer.cli.send.decoding import Fields
from aioproducer.cli.send.written_files import Checkpoint

NEEDED = ("send", "orders", "--bootstrap-servers", "a:1,b:1")


def call(*arguments: str) -> Result:
    return CliRunner().invoke(program, (*NEEDED, *arguments), prog_name="aioproducer")


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[SendArguments]:
    plans: list[SendArguments] = []

    async def send_and_report(arguments: SendArguments, *, as_json: bool) -> bool:
        assert not as_json
        plans.append(arguments)
        return arguments.rate is None

    monkeypatch.setattr(send_report, "send_and_report", send_and_report)
    return plans


def test_send_reads_lines_of_standard_input_by_default(plans: list[SendArguments]) -> None:
    assert call().exit_code == 0
    [arguments] = plans
    assert (arguments.topic, arguments.paths, arguments.format) == ("orders", ("-",), Format())
    assert arguments.config.bootstrap_servers == ("a:1", "b:1")
    assert (arguments.rate, arguments.run, arguments.checkpoint) == (None, None, None)


def test_send_passes_options_and_sets_exit_code(plans: list[SendArguments], tmp_path: Path) -> None:
    (tmp_path / "in").write_text("")
    paths = (str(tmp_path / "in"), "-")
    done = call(
        *paths,
        *("--format", "json", "--value-field", "v", "--key-field", "k", "--headers-field", "h"),
        *("--partition-field", "p", "--rate", "2.5", "--compression", "lz4", "-o", "linger.ms=7"),
        *("--checkpoint", "cp", "--run", "nightly"),
    )
    assert done.exit_code == 1
    [arguments] = plans
    assert arguments.paths == paths
    assert arguments.format == Format(
        name="json", fields=Fields(value="v", key="k", headers="h", partition="p")
    )
    assert (arguments.config.compression_type, arguments.config.linger_ms) == ("lz4", 7)
    assert (arguments.rate, arguments.run) == (2.5, "nightly")
    assert arguments.checkpoint == Checkpoint(
        Path("cp"), {"topic": "orders", "format": "json", "run": "nightly"}
    )


def test_key_separator_accepts_escaped_tab(plans: list[SendArguments]) -> None:
    assert call("--key-separator", r"\t").exit_code == 0
    assert plans[0].format == Format(key_separator=b"\t")


def test_send_options_override_configuration_file(plans: list[SendArguments], tmp_path: Path) -> None:
    file = tmp_path / "p"
    file.write_text("bootstrap.servers=c:1\nlinger.ms=9\ncompression.type=gzip")
    arguments = ("send", "orders", "--config", str(file), "--compression", "lz4")
    assert CliRunner().invoke(program, arguments).exit_code == 0
    config = plans[0].config
    assert (config.bootstrap_servers, config.linger_ms, config.compression_type) == (("c:1",), 9, "lz4")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--value-field", "v"], "--…-field need --format json"),
        (["--format", "json", "--key-separator", ":"], "--key-separator needs --format lines"),
        (["--key-separator", ""], "--key-separator must not be empty"),
        (["--format", "xml"], "'xml' is not one of 'lines', 'json', 'length-prefixed'"),
        (["-", "-"], "standard input can be read only once"),
        (["/nowhere/in"], "File '/nowhere/in' does not exist"),
        (["/"], "File '/' is a directory"),
        (["--checkpoint", "/"], "File '/' is a directory"),
        (["--rate", "0"], "0.0 is not in the range"),
        (["--rate", "nan"], "nan is not a number of records"),
        (["--run", ""], "a run's id has 1 to 4,096 bytes, not 0"),
        (["--compression", "zip"], "compression.type = 'zip': expected one of none"),
        (
            ["--compression", "lz4", "-o", "compression.type=zstd"],
            "--compression already sets compression.type",
        ),
        (
            ["--compression", "lz4", "-o", "compression_type=zstd"],
            "--compression already sets compression.type",
        ),
        (["-o", "acks=0", "--checkpoint", "cp"], "--checkpoint needs acknowledgements"),
        (["--chekpoint", "cp"], "No such option '--chekpoint'"),
    ],
)
def test_send_refuses_contradicting_options(
    plans: list[SendArguments], arguments: list[str], complaint: str
) -> None:
    done = call(*arguments)
    assert done.exit_code == 2
    assert complaint in done.output
    assert not plans


def test_send_refuses_illegal_topic_name(plans: list[SendArguments]) -> None:
    done = CliRunner().invoke(program, ["send", "or ders", "--bootstrap-servers", "a:1"])
    assert done.exit_code == 2
    assert "topic 'or ders' is not a legal name" in done.output


def test_send_fails_when_standard_input_is_closed(
    plans: list[SendArguments], monkeypatch: pytest.MonkeyPatch
) -> None:
    from aioproducer.cli.send import command  # noqa: PLC0415 - after CliRunner has put its own there

    class Closed:
        stdin = None

    monkeypatch.setattr(command, "sys", Closed)
    done = call()
    assert (done.exit_code, plans) == (2, [])
    assert "standard input is closed; name a file" in done.output
    assert call(sys.executable).exit_code == 0


class TestTransactionalId:
    def test_transactional_id_is_the_option_of_the_producer(self, plans: list[SendArguments]) -> None:
        assert call("--transactional-id", "nightly").exit_code == 0
        assert call("--option", "transactional.id=nightly").exit_code == 0
        assert [arguments.config.transactional_id for arguments in plans] == ["nightly", "nightly"]

    def test_transactional_id_is_refused_twice(self, plans: list[SendArguments]) -> None:
        done = call("--transactional-id", "nightly", "--option", "transactional.id=daily")
        assert (done.exit_code, plans) == (2, [])
        assert "--transactional-id already sets transactional.id" in done.output

    def test_checkpoint_is_refused_in_a_transaction(self, plans: list[SendArguments]) -> None:
        done = call("--option", "transactional.id=nightly", "--checkpoint", "cp")
        assert (done.exit_code, plans) == (2, [])
        assert "commits the whole input or nothing" in " ".join(done.output.split())


def test_send_takes_constant_key_and_headers(plans: list[SendArguments]) -> None:
    assert call("--record-key", "k", "--header", "source=shop", "--header", "empty=").exit_code == 0
    [arguments] = plans
    assert arguments.format == Format(key=b"k", headers=(("source", b"shop"), ("empty", b"")))


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--header", "source"), "'source': expected NAME=VALUE, such as source=shop"),
        (("--header", "=shop"), "'=shop': expected NAME=VALUE, such as source=shop"),
        (("--record-key", "k", "--key-separator", ":"), "--record-key sets the key of every record"),
        (
            ("--record-key", "k", "--format", "json", "--key-field", "id"),
            "--record-key sets the key of every record",
        ),
    ],
)
def test_send_refuses_malformed_key_and_headers(
    plans: list[SendArguments], arguments: tuple[str, ...], complaint: str
) -> None:
    done = call(*arguments)
    assert done.exit_code == 2
    assert complaint in done.output
    assert not plans


def test_send_passes_json_option(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []

    async def send_and_report(_: SendArguments, *, as_json: bool) -> bool:
        asked.append(as_json)
        return True

    monkeypatch.setattr(send_report, "send_and_report", send_and_report)
    assert call("--json").exit_code == 0
    assert asked == [True]


def test_on_error_selects_dead_letters(plans: list[SendArguments], tmp_path: Path) -> None:
    for asked in ("stop", "skip", str(tmp_path / "dead")):
        call("--on-error", asked)
    stop, skip, file = (arguments.dead_letters for arguments in plans)
    assert stop is None
    assert skip is not None
    assert skip.path is None
    assert file is not None
    assert file.path == tmp_path / "dead"


def test_send_refuses_on_error_in_transaction(plans: list[SendArguments]) -> None:
    done = call("--transactional-id", "t", "--on-error", "skip")
    assert (done.exit_code, plans) == (2, [])
    assert "commits the whole input or nothing" in " ".join(done.output.split())
