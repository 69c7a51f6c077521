from __future__ import annotations

import io
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from aioproducer.cli.output import OutputLost, checked
from aioproducer.testing import ThreadedCluster
from tests.unit.cli.entry_point import COMMAND, ENVIRONMENT

SEND = ("send", "orders")
COMMANDS = [
    ("--version",),
    ("send", "--help"),
    ("config",),
    ("completion", "bash"),
    ("broker", "--port", "0"),
    ("demo", "--records", "100"),
]
OF_A_CLUSTER = [
    ("topics",),
    ("tail", "orders"),
    ("audit", "orders", "--run", "r"),
    ("perf", "orders", "--records", "100"),
    ("transactions", "list"),
    SEND,
    (*SEND, "--json"),
]
LOST = {">&-": "Bad file descriptor", ">/dev/full": "No space left on device"}
FULL_DISK = pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux and some others have it")


@pytest.fixture(scope="module")
def cluster() -> Iterator[ThreadedCluster]:
    with ThreadedCluster(topics={"orders": 1}) as cluster:
        code, _ = run(cluster, SEND, "")
        assert code == 0
        yield cluster


def run(cluster: ThreadedCluster, command: tuple[str, ...], output: str) -> tuple[int, str]:
    """Run a command with this redirection of its output; return its exit code and standard error."""
    servers = ("-b", cluster.bootstrap_servers) if command in OF_A_CLUSTER else ()
    done = subprocess.run(
        ["sh", "-c", f'{{ "$@"; echo "code $?" >&2; }} {output}', "sh", *COMMAND, *command, *servers],
        input="hello\n",
        env=ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    told, _, code = done.stderr.rpartition("code ")
    return int(code), told


@pytest.mark.slow
@FULL_DISK
@pytest.mark.parametrize(
    ("command", "output"),
    [
        *((command, ">/dev/full") for command in (*COMMANDS, *OF_A_CLUSTER)),
        *((command, ">&-") for command in (("--version",), ("topics",), SEND, (*SEND, "--json"))),
    ],
)
def test_lost_output_is_an_error(command: tuple[str, ...], output: str, cluster: ThreadedCluster) -> None:
    code, told = run(cluster, command, output)
    assert code == 1
    *before, error = told.splitlines()
    assert error == f"Error: standard output: cannot write, {LOST[output]}"
    if command[:2] == SEND:
        [result] = before
        assert result.startswith("1 record acknowledged")
    else:
        assert not before


@pytest.mark.slow
@pytest.mark.parametrize("command", [*COMMANDS, *OF_A_CLUSTER], ids=" ".join)
def test_reader_that_has_left_is_no_error_line(command: tuple[str, ...], cluster: ThreadedCluster) -> None:
    reader, end = os.pipe()
    os.close(reader)
    servers = ("-b", cluster.bootstrap_servers) if command in OF_A_CLUSTER else ()
    done = subprocess.run(
        [*COMMAND, *command, *servers],
        input="hello\n",
        env=ENVIRONMENT,
        stdout=end,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    os.close(end)
    assert done.returncode == 1
    assert done.stderr.startswith("1 record acknowledged" if command[:2] == SEND else "")
    assert len(done.stderr.splitlines()) == (command[:2] == SEND)


@FULL_DISK
def test_output_reports_a_full_disk() -> None:
    with Path("/dev/full").open("wb", buffering=0) as full:
        stream = io.TextIOWrapper(io.BufferedWriter(full), encoding="ascii", errors="replace")
        output = checked(stream)
        assert (output.encoding, output.errors) == ("ascii", "replace")
        _ = output.write("text")  # buffered
        with pytest.raises(OutputLost, match="standard output: cannot write, No space left on device"):
            output.flush()
        with pytest.raises(OutputLost):
            _ = output.write("text" * 100_000)
        with pytest.raises(OSError, match="No space left"):
            stream.buffer.close()


def test_output_that_is_no_file_is_left_alone() -> None:
    stream = io.StringIO()
    assert checked(stream) is stream


def test_closed_output_refuses_text() -> None:
    output = checked(None)
    output.flush()
    assert not output.isatty()
    with pytest.raises(OutputLost, match="Bad file descriptor"):
        _ = output.write("text")
