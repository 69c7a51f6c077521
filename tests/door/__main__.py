"""Programs that were written for aiokafka, with our class in its place: `python -m tests.door PYTHON`.

PYTHON is that of an environment that has them. The sources of aiokafka and FastStream, for their tests, are cloned once
into .cache/door, or are folders that `--aiokafka` and `--faststream` name. The broker listens on 9092, as FastStream's
tests want it.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.kafka.apache.broker import ApacheKafka, free_ports
from tests.kafka.apache.secured import with_tls
from tests.unit._core.security.certificates import Authority

HERE = Path(__file__).parent
CACHE = HERE.parents[1] / ".cache" / "door"
PORT = 9092
SOURCES = {
    "aiokafka": ("https://github.com/aio-libs/aiokafka", "v0.14.0"),
    "faststream": ("https://github.com/ag2ai/faststream", "0.7.8"),
}
PROGRAMS = ("faststream", "faust", "kafkaesk", "opentelemetry")
OF_FASTSTREAM = [f"tests/brokers/kafka/test_{each}.py" for each in ("publish", "connect", "parser", "router")]
LIKE_AIOKAFKA = ["--noconftest", "-o", "filterwarnings="]
"""pytest arguments for aiokafka's tests, whose filterwarnings make two warnings errors: pytest-asyncio's about an option,
and the warning of a producer that a failed test left open."""
OF_AIOKAFKA = [*LIKE_AIOKAFKA, "tests/test_producer.py"]
OF_TRANSACTIONS = [
    *LIKE_AIOKAFKA,
    "tests/test_transactional_producer.py",
    "tests/test_transactional_consumer.py",
]
SUITES = (
    ("faststream", "faststream's tests", OF_FASTSTREAM, 0),
    ("aiokafka", "aiokafka's tests", OF_AIOKAFKA, 11),
    ("aiokafka", "its transactions", OF_TRANSACTIONS, 4),
)
"""Project, label, tests, and the number of tests that replace or read the internals of aiokafka's producer."""
TIMEOUT_S = 600


def main() -> int:
    arguments = parsed()
    folders = {name: getattr(arguments, name) or cloned(name) for name in SOURCES}
    authority = Authority()
    tls_port, controller_port = free_ports(2)
    properties = {"num.partitions": 2, **with_tls(authority, PORT, tls_port, controller_port)}
    failed = 0
    with (
        tempfile.NamedTemporaryFile("w", suffix=".pem") as ca,
        ApacheKafka(ports={1: PORT}, properties=properties) as kafka,
    ):
        ca.write(authority.pem)
        ca.flush()
        where = {"KAFKA": kafka.bootstrap_servers, "KAFKA_TLS_PORT": str(tls_port), "KAFKA_CA": ca.name}
        for door in ("theirs", "ours"):
            environment = os.environ | where | {"DOOR": door, "PYTHONPATH": str(HERE)}
            for name in PROGRAMS:
                program = [arguments.python, HERE / "through.py", HERE / f"programs/with_{name}.py"]
                output = run(program, environment, HERE)
                failed += output is None
                say(door, name, "failed" if output is None else output.splitlines()[-1])
            for name, label, tests, internals in SUITES:
                command = [
                    arguments.python,
                    *["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "doorway", "-o", "addopts="],
                    *tests,
                ]
                passed, missed = counted(run(command, environment, folders[name], check=False) or "")
                allowed = internals if door == "ours" else 0
                failed += passed == 0 or missed > allowed
                say(door, label, f"{passed} of {passed + missed}")
    return min(failed, 1)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("python")
    for name in SOURCES:
        parser.add_argument(f"--{name}", type=Path)
    return parser.parse_args()


def cloned(name: str) -> Path:
    """Return the folder with the sources of a release."""
    url, tag = SOURCES[name]
    folder = CACHE / f"{name}-{tag}"
    if not folder.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        subprocess.run(["git", "clone", "-q", "--depth", "1", "--branch", tag, url, folder], check=True)
    return folder


def run(
    command: list[str | Path], environment: dict[str, str], where: Path, *, check: bool = True
) -> str | None:
    """Return what a program prints; None, and say it, if it fails."""
    done = subprocess.run(
        command, env=environment, cwd=where, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    if not check or done.returncode == 0:
        return done.stdout
    sys.stderr.write(done.stdout + done.stderr)
    return None


def counted(output: str) -> tuple[int, int]:
    """Return how many tests passed, and how many did not, by pytest's last line."""
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|error)", output)}
    return counts.get("passed", 0), counts.get("failed", 0) + counts.get("error", 0)


def say(door: str, name: str, result: str) -> None:
    sys.stdout.write(f"{'aioproducer' if door == 'ours' else 'aiokafka':12} {name:20} {result}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
