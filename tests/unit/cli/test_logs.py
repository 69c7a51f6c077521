from __future__ import annotations

import json
import logging
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Timer

import click
import pytest

from aioproducer.cli import logs
from aioproducer.cli.logs import logged, logging_options
from aioproducer.testing import ThreadedCluster
from tests.unit.cli.entry_point import run

LOG = logging.getLogger("aioproducer.net.pool")
EVENT = "connection.failed address=a:1 attempt=2"
UNUSED = "bootstrap.servers={servers}\ngroup.id=orders\n"


def call(work: Callable[[], object], *arguments: str) -> int:
    """Run *work* as a command with options of the log, and return its exit code."""

    @click.group()
    @logging_options
    def program() -> None:
        """Have commands."""

    @program.command()
    @logging_options
    def command() -> None:
        work()

    try:
        with program.make_context("program", list(arguments)) as context, logged(context):
            program.invoke(context)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.exceptions.Exit as end:
        return end.exit_code
    return 0


def log_a_bug() -> None:
    try:
        int("odd")
    except ValueError:
        LOG.exception("task.crashed")


def fail() -> None:
    LOG.warning(EVENT)
    raise click.ClickException("no broker is there")


@pytest.mark.parametrize("code", [0, 1])
def test_warnings_are_shown_when_a_command_succeeds(code: int, capsys: pytest.CaptureFixture[str]) -> None:
    def work() -> None:
        LOG.info("connection.opened")
        LOG.warning(EVENT)
        raise click.exceptions.Exit(code)

    assert call(work, "command") == code
    shown = capsys.readouterr().err
    if code:
        assert not shown
    else:
        assert re.fullmatch(rf"\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{{3}}Z WARNING {EVENT}\n", shown)


def test_error_stands_alone_without_options_of_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(fail, "command") == 1
    assert capsys.readouterr().err == "Error: no broker is there\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("-v", "command"),
        ("command", "-v"),
        ("command", "-vv"),
        ("command", "--log-level", "WARNING"),
        ("command", "--log-format", "text"),
    ],
)
def test_options_of_the_log_show_warnings_at_once(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(fail, *arguments) == 1
    event, error = capsys.readouterr().err.splitlines()
    assert event.endswith(f"WARNING {EVENT}")
    assert error == "Error: no broker is there"


@pytest.mark.parametrize(
    ("option", "levels"),
    [
        (("-v",), ["INFO", "WARNING", "ERROR"]),
        (("-vv",), ["DEBUG", "INFO", "WARNING", "ERROR"]),
        (("--log-level", "debug"), ["DEBUG", "INFO", "WARNING", "ERROR"]),
        (("--log-level", "error"), ["ERROR"]),
        (("--log-level", "critical"), []),
    ],
)
def test_level_selects_log_records(
    option: tuple[str, ...], levels: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    def work() -> None:
        for level in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR):
            LOG.log(level, "some.event")

    before = logging.getLogger("aioproducer").level
    assert call(work, "command", *option) == 0
    assert [line.split()[1] for line in capsys.readouterr().err.splitlines()] == levels
    assert logging.getLogger("aioproducer").level == before
    assert not [each for each in logging.getLogger().handlers if type(each).__module__ == logs.__name__]


def test_contradicting_options_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(fail, "-v", "command", "--log-level", "debug") == 2
    assert "give one of them" in capsys.readouterr().err
    assert call(lambda: None, "-v", "command", "--log-level", "info") == 0


def test_logfmt_and_json_have_a_line_per_record(capsys: pytest.CaptureFixture[str]) -> None:
    def work() -> None:
        LOG.warning(EVENT, extra={"attempt": 2})
        logging.getLogger("asyncio").warning('took "2" s\nand more')
        log_a_bug()

    assert call(work, "command", "--log-format", "logfmt") == 0
    event, text, bug = capsys.readouterr().err.splitlines()
    assert event.endswith(f"Z level=WARNING logger={LOG.name} event={EVENT}")
    assert text.endswith(r'level=WARNING logger=asyncio msg="took \"2\" s\nand more"')
    assert r'event=task.crashed exception="Traceback (most recent call last):\n' in bug

    assert call(work, "command", "--log-format", "json") == 0
    event, text, bug = map(json.loads, capsys.readouterr().err.splitlines())
    assert event.pop("time")
    assert event == {"level": "WARNING", "logger": LOG.name, "message": EVENT, "attempt": 2}
    assert text["message"] == 'took "2" s\nand more'
    assert bug["exception"].endswith("literal for int() with base 10: 'odd'")


def test_traceback_is_shown_without_options_of_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    def work() -> None:
        LOG.warning(EVENT)
        log_a_bug()
        raise click.ClickException("the producer has crashed")

    assert call(work, "command") == 1
    lines = capsys.readouterr().err.splitlines()
    assert [lines[0].split()[1], lines[1].split()[1]] == ["WARNING", "ERROR"]
    assert lines[2] == "Traceback (most recent call last):"
    assert lines[-1] == "Error: the producer has crashed"


def test_warning_is_shown_while_a_long_command_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(logs, "BUFFER_S", 0)
    shown = ""

    def work() -> None:
        nonlocal shown
        LOG.warning(EVENT)
        while not shown:  # a thread prints it
            time.sleep(0.001)
            shown = capsys.readouterr().err
        fail()

    assert call(work, "command") == 1
    assert shown.endswith(f"WARNING {EVENT}\n")


def test_warning_waits_for_the_end_without_a_thread(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def start(_: Timer) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(Timer, "start", start)
    assert call(lambda: LOG.warning(EVENT), "command") == 0
    assert capsys.readouterr().err.endswith(f"WARNING {EVENT}\n")


def test_closed_standard_error_ends_no_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    assert call(lambda: LOG.warning(EVENT), "command") == 0
    assert not capsys.readouterr().out


@pytest.mark.slow
def test_log_of_the_command_line(tmp_path: Path) -> None:
    with ThreadedCluster(topics={"orders": 1}) as cluster:
        file = tmp_path / "producer.properties"
        file.write_text(UNUSED.format(servers=cluster.bootstrap_servers))
        good = run("send", "orders", "--config", str(file), given="v\n")
        assert good.returncode == 0
        assert good.stderr.endswith("Z WARNING config.other_clients names=group.id\n")
        bad = run("tail", "odrers", "--config", str(file))
        assert bad.returncode == 1
        assert bad.stderr == (
            "Error: UnknownTopicOrPartition: there is no topic odrers: is the name right?\n"
        )
        shown = run("send", "orders", "--config", str(file), "-v", "--log-format", "json", given="v\n")
        events = [json.loads(line)["message"].split()[0] for line in shown.stderr.splitlines()]
    assert {"config.other_clients", "connection.opened"} <= set(events)
