from __future__ import annotations

import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from aioproducer.testing import ThreadedCluster
from tests.unit.cli.entry_point import COMMAND, ENVIRONMENT, run

pytestmark = pytest.mark.slow

OF_A_CLUSTER = [
    ("send", "odrers"),
    ("perf", "odrers"),
    ("audit", "odrers", "--run", "r"),
    ("tail", "odrers"),
    ("topics",),
    ("transactions", "list"),
    ("transactions", "describe", "id"),
    ("transactions", "fence", "id"),
    ("demo", "--records", "100"),
]
ABOUT_TOPICS = OF_A_CLUSTER[:4]
LOGIN = ("--security-protocol", "SASL_PLAINTEXT", "--sasl-mechanism", "PLAIN", "--username", "alice")


@pytest.fixture(scope="module")
def cluster() -> Iterator[ThreadedCluster]:
    with ThreadedCluster(topics={"orders": 1}, auto_create_topics=False) as cluster:
        yield cluster


@pytest.fixture
def file(tmp_path: Path) -> tuple[str, str]:
    """A configuration that the log warns of."""
    path = tmp_path / "client.properties"
    path.write_text("group.id=orders\nmetric.reporters=odd\n")
    return "--config", str(path)


@pytest.mark.parametrize("command", OF_A_CLUSTER, ids=" ".join)
def test_unreachable_servers_are_one_error(command: tuple[str, ...], file: tuple[str, str]) -> None:
    done = run(*command, *file, "-b", "127.0.0.1:1")
    assert done.returncode == 1
    assert not done.stdout
    assert done.stderr == (
        "Error: ConnectionFailed: connection refused by 127.0.0.1:1\n"
        "Is a Kafka cluster there? `aioproducer broker` runs one for development.\n"
    )


@pytest.mark.parametrize("command", ABOUT_TOPICS, ids=" ".join)
def test_unknown_topic_is_one_error(
    command: tuple[str, ...], file: tuple[str, str], cluster: ThreadedCluster
) -> None:
    done = run(*command, *file, "-b", cluster.bootstrap_servers)
    assert (done.returncode, done.stdout) == (1, "")
    [line] = done.stderr.splitlines()
    assert line.startswith("Error: ")
    assert "odrers" in line
    assert line.endswith("is the name right?")


@pytest.mark.parametrize("command", OF_A_CLUSTER, ids=" ".join)
def test_refused_login_is_one_error(
    command: tuple[str, ...], cluster: ThreadedCluster, tmp_path: Path
) -> None:
    password = tmp_path / "password"
    password.write_text("wrong")
    done = run(*command, *LOGIN, "--password-file", str(password), "-b", cluster.bootstrap_servers)
    assert (done.returncode, done.stdout) == (1, "")
    [line] = done.stderr.splitlines()
    assert line.startswith("Error: AuthenticationFailed: ")


def test_silent_address_is_one_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        done = run("topics", "-b", address, "-o", "socket.connection.setup.timeout.ms=2500")
    assert done.returncode == 1
    assert done.stderr.startswith(f"Error: ConnectionFailed: {address}: connected, but the handshake did not")


def test_fenced_transaction_has_no_log_lines(file: tuple[str, str], cluster: ThreadedCluster) -> None:
    servers = ("-b", cluster.bootstrap_servers)
    with subprocess.Popen(
        [*COMMAND, "send", "orders", "--transactional-id", "nightly", *file, *servers],
        env=ENVIRONMENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as sending:
        assert sending.stdin is not None
        sending.stdin.write("first\n")
        sending.stdin.flush()
        while not cluster.records("orders", 0):
            assert sending.poll() is None
        assert run("transactions", "fence", "nightly", *servers).returncode == 0
        out, told = sending.communicate("second\n", timeout=60)
    assert (sending.returncode, out) == (1, "")
    assert "ProducerFenced" in told
    assert "WARNING" not in told


@pytest.mark.parametrize("command", OF_A_CLUSTER[2:], ids=" ".join)
def test_ctrl_c_is_one_word(command: tuple[str, ...], file: tuple[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with subprocess.Popen(
            [*COMMAND, *command, *file, "-b", address],
            env=ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            peer, _ = silent.accept()
            with peer:  # the command waits for an answer
                process.send_signal(signal.SIGINT)
                out, told = process.communicate(timeout=60)
    assert (process.returncode, out, told.strip()) == (1, "", "Aborted!")


@pytest.mark.parametrize(
    "command",
    [("tail", "orders", "-n", "50000"), ("topics",), ("topics", "--json"), ("audit", "orders", "--run", "r")],
    ids=" ".join,
)
@pytest.mark.parametrize("output", ["| head -c 1", "| true"])
def test_reader_that_leaves_is_no_traceback(
    command: tuple[str, ...], output: str, cluster: ThreadedCluster
) -> None:
    if not cluster.records("orders", 0):
        filled = run("perf", "orders", "--records", "50000", "-b", cluster.bootstrap_servers)
        assert filled.returncode == 0
    shell = f'"$@" {output}'
    done = subprocess.run(
        ["sh", "-c", shell, "sh", *COMMAND, *command, "-b", cluster.bootstrap_servers],
        env=ENVIRONMENT,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert not done.stderr
