from __future__ import annotations

import io
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points

import pytest

from aioproducer import __version__, cli
from aioproducer._core.extras import needs


def test_installed_command_is_this_one() -> None:
    [command] = entry_points(group="console_scripts", name="aioproducer")
    assert command.load() is cli.main


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--version"], 0, f"aioproducer {__version__}"),
        (["--help"], 0, "Usage: aioproducer"),
        (["demo", "--records", "few"], 2, "Usage: aioproducer demo"),
    ],
)
def test_package_can_be_run(arguments: list[str], code: int, said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "aioproducer", *arguments],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == code
    assert (done.stdout + done.stderr).startswith(said)


@pytest.fixture
def hangup() -> Iterator[None]:
    """Let SIGHUP end processes, also if the tests run under nohup."""
    previous = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, previous)


@pytest.mark.slow
@pytest.mark.usefixtures("hangup")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_broker_ends_with_exit_code_0_on_a_signal(number: signal.Signals) -> None:
    command = [sys.executable, "-m", "aioproducer", "broker", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert any(line.startswith("bootstrap servers: 127.0.0.1:") for line in process.stdout)
        process.send_signal(number)
        _, complaints = process.communicate(timeout=30)
    assert process.returncode == 0
    assert complaints == ""


@pytest.mark.parametrize("package", ["click", "rich"])
def test_missing_extra_is_one_line(
    package: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(SystemExit, match="2"):
        cli.main()
    [line] = capsys.readouterr().err.splitlines()
    assert package in line
    assert needs("the command line", "cli") in line


def test_missing_dependency_of_extra_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "rich"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "rich._extension", None)
    with pytest.raises(ModuleNotFoundError, match=r"rich\._extension"):
        cli.main()


def test_streams_that_are_no_files_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    monkeypatch.setattr(sys, "argv", ["aioproducer", "--version"])
    with pytest.raises(SystemExit, match="0"):
        cli.main()


def test_character_outside_of_encoding_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    stdout = io.TextIOWrapper(written, encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stdout)
    monkeypatch.setattr(sys, "argv", ["aioproducer", "config", "--help"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 0
    sys.stdout.write("…")
    sys.stdout.flush()
    assert written.getvalue().endswith(b"?")
