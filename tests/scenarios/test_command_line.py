"""`aioproducer send` as a process: its pipes, its signals, and the state after a kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from aioproducer.testing import ThreadedCluster

pytestmark = [
    pytest.mark.kafka_cluster(topics={"orders": 1}),
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="there are no such signals"),
]

AT_MOST_S = 30.0
AIOPRODUCER = (sys.executable, "-m", "aioproducer")
ENVIRONMENT = {**os.environ, "PYTHONASYNCIODEBUG": ""}
"""In debug mode asyncio tells on standard error what took long."""


def lines(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def stored(cluster: ThreadedCluster) -> list[bytes | None]:
    return [record.value for record in cluster.records("orders", 0)]


def await_that(happened: Callable[[], bool]) -> None:
    """Poll until an effect of another process is visible."""
    deadline = time.monotonic() + AT_MOST_S
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@contextmanager
def sending(
    cluster: ThreadedCluster, *arguments: str | Path, folder: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    command = [*AIOPRODUCER, "send", "orders", "--bootstrap-servers", cluster.bootstrap_servers]
    with subprocess.Popen(
        [*command, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=folder,
        env=ENVIRONMENT,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def ended(process: subprocess.Popen[bytes]) -> tuple[int, str, str]:
    told, complaints = process.communicate(timeout=AT_MOST_S)
    assert b"Traceback" not in complaints, complaints.decode()
    return process.returncode, told.decode(), complaints.decode()


def write(process: subprocess.Popen[bytes], values: Sequence[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.write(b"".join(value + b"\n" for value in values))
    process.stdin.flush()


def test_send_reads_a_pipe_until_its_end(kafka_cluster: ThreadedCluster) -> None:
    with sending(kafka_cluster) as process:
        for count in (1, 2):
            write(process, lines(count)[-1:])
            await_that(lambda count=count: stored(kafka_cluster) == lines(count))  # type: ignore[misc]
        code, told, complaints = ended(process)
    assert (code, complaints) == (0, "")
    assert told.startswith("2 records acknowledged")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_send_that_waits_for_input(
    kafka_cluster: ThreadedCluster, number: signal.Signals
) -> None:
    with sending(kafka_cluster) as process:
        write(process, lines(500))
        await_that(lambda: len(stored(kafka_cluster)) == 500)
        process.send_signal(number)
        process.wait(AT_MOST_S)  # its input is still open
        code, _, complaints = ended(process)
    assert code == 1
    assert "Acknowledged from the beginning to standard input, line 500: 500 records\n" in complaints
    assert complaints.startswith(
        "Interrupted: waiting for what was sent. Press Ctrl-C again to stop waiting.\n"
    )


def test_second_signal_abandons_unacknowledged_records(kafka_cluster: ThreadedCluster) -> None:
    with sending(kafka_cluster) as process:
        write(process, lines(3))
        await_that(lambda: len(stored(kafka_cluster)) == 3)
        unanswered = kafka_cluster.on("produce", times=None).drop()
        write(process, [b"late"])
        await_that(lambda: unanswered.hits == 1)  # the answer to the first ones is before it
        assert process.stderr is not None
        process.send_signal(signal.SIGINT)
        assert process.stderr.readline().startswith(b"Interrupted: waiting")
        process.send_signal(signal.SIGINT)
        process.wait(AT_MOST_S)
        code, _, complaints = ended(process)
    assert code == 1
    assert "Acknowledged from the beginning to standard input, line 3: 3 records\n" in complaints


def test_closed_standard_error_leaves_a_clean_end(kafka_cluster: ThreadedCluster, tmp_path: Path) -> None:
    """Ctrl-C in `aioproducer send … 2>&1 | tee log` ends `tee` first."""
    (tmp_path / "in").write_bytes(b"v\n" * 20_000)
    with sending(kafka_cluster, "in", "--checkpoint", "cp", "--rate", "2000", folder=tmp_path) as process:
        await_that(lambda: 0 < remembered(tmp_path) < len(stored(kafka_cluster)) - 200)
        for output in (process.stdout, process.stderr):
            assert output is not None
            output.close()
        process.send_signal(signal.SIGINT)
        assert process.wait(AT_MOST_S) == 1
    assert len(stored(kafka_cluster)) == remembered(tmp_path) < 20_000


def remembered(folder: Path) -> int:
    checkpoint = folder / "cp"
    told: dict[str, int] = json.loads(checkpoint.read_text()) if checkpoint.exists() else {}
    return told.get("records", 0)


def test_killed_send_loses_no_record_with_checkpoint(kafka_cluster: ThreadedCluster, tmp_path: Path) -> None:
    values = lines(20_000)
    (tmp_path / "in").write_bytes(b"".join(value + b"\n" for value in values))
    with sending(kafka_cluster, "in", "--checkpoint", "cp", "--rate", "2000", folder=tmp_path) as process:
        await_that(lambda: remembered(tmp_path) > 0)
        process.kill()
    left = remembered(tmp_path)
    with sending(kafka_cluster, "in", "--checkpoint", "cp", folder=tmp_path) as process:
        code, told, _ = ended(process)
    assert code == 0
    assert told.startswith(f"{left:,} records had been acknowledged before, and not sent again.\n")
    found = stored(kafka_cluster)
    before = len(found) - len(values[left:])
    assert 0 < left <= before < len(values)
    assert found == values[:before] + values[left:]


def test_commands_run_with_closed_standard_streams(kafka_cluster: ThreadedCluster) -> None:
    send = f"{' '.join(AIOPRODUCER)} send orders --bootstrap-servers {kafka_cluster.bootstrap_servers}"
    for script, code, complaint in (
        (f"{send} <&-", 2, "Error: standard input is closed; name a file\n"),
        (f"{send} </dev/null", 0, ""),
        (
            f"{' '.join(AIOPRODUCER)} config >&-",
            1,
            "Error: standard output: cannot write, Bad file descriptor\n",
        ),
    ):
        done = subprocess.run(
            ["bash", "-c", script],
            capture_output=True,
            text=True,
            check=False,
            timeout=AT_MOST_S,
            env=ENVIRONMENT,
        )
        assert (done.returncode, done.stderr) == (code, complaint), script


def test_reader_that_has_left_causes_no_traceback() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as gone:
        done = subprocess.run(
            [*AIOPRODUCER, "config"], stdout=gone, stderr=subprocess.PIPE, check=False, timeout=AT_MOST_S
        )
    assert (done.returncode, done.stderr) == (1, b"")


def test_help_is_instant() -> None:
    """Slow imports are absent. A test of milliseconds would prove nothing on a shared machine."""
    program = (
        "import sys, aioproducer.cli.commands;"
        "print(*sys.modules.keys() & {'aioproducer.producer', 'rich.console', 'aioproducer.testing', 'json'})"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=AT_MOST_S
    )
    assert done.stdout.split() == []
