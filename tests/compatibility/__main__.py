"""Runs programs written for aiokafka with aioproducer's class: `python -m tests.compatibility PYTHON`.

PYTHON is the interpreter of an environment with these programs. The sources of aiokafka and FastStream are cloned once
into .cache/compatibility, or are the folders of `--aiokafka` and `--faststream`. The broker listens on 9092, which
FastStream's tests require.
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
CACHE = HERE.parents[1] / ".cache" / "compatibility"
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
        for producer in ("aiokafka", "aioproducer"):
            environment = os.environ | where | {"PRODUCER": producer, "PYTHONPATH": str(HERE)}
            for name in PROGRAMS:
                program = [arguments.python, HERE / "substitute.py", HERE / f"programs/with_{name}.py"]
                output = run(program, environment, HERE)
                failed += output is None
                say(producer, name, "failed" if output is None else output.splitlines()[-1])
            for name, label, tests, internals in SUITES:
                command = [
                    arguments.python,
                    *["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "substituting", "-o", "addopts="],
                    *tests,
                ]
                passed, missed = counted(run(command, environment, folders[name], check=False) or "")
                allowed = internals if producer == "aioproducer" else 0
                failed += passed == 0 or missed > allowed
                say(producer, label, f"{passed} of {passed + missed}")
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
    """Return the output of a program; if the program fails, print the output and return None."""
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


def say(producer: str, name: str, result: str) -> None:
    sys.stdout.write(f"{producer:12} {name:20} {result}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
