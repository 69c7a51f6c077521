"""Programs that end without `close()`: pending records are delivered at exit."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from aioproducer.testing import ThreadedCluster
from tests.unit.contrib.threads_rig import TOPIC, values

RECORDS = 300
BEGIN = """
import atexit, os, sys, threading, time
from aioproducer.contrib.threads import ThreadedProducer

def no_thread(*_):
    raise RuntimeError("can't create new thread at interpreter shutdown")

producer = ThreadedProducer(sys.argv[1], linger_ms=1000, **eval(sys.argv[2]))
"""
SEND = f"""
producer.start()
producer.send("{TOPIC}", b"first")
for number in range({RECORDS}):
    producer.enqueue("{TOPIC}", os.urandom(1000))
"""
CODECS = [{"compression_type": codec} for codec in ("none", "gzip", "zstd", "lz4")]


def run(cluster: ThreadedCluster, program: str, options: object, *, fails: bool = False) -> None:
    cluster.on("produce", times=None).delay(0.02)
    command = [sys.executable, "-W", "error", "-c", BEGIN + program, cluster.bootstrap_servers, repr(options)]
    quiet = {**os.environ, "PYTHONASYNCIODEBUG": ""}
    ended = subprocess.run(command, check=False, capture_output=True, timeout=60, env=quiet)
    assert bool(ended.returncode) is fails, ended.stderr
    assert fails or ended.stderr == b""
    assert len(values(cluster)) == RECORDS + 1


@pytest.mark.parametrize("options", CODECS, ids=str)
def test_end_of_program_delivers_pending_records(cluster: ThreadedCluster, options: object) -> None:
    run(cluster, SEND, options)


@pytest.mark.parametrize(
    ("end", "fails"),
    [
        ("raise ValueError('the program failed')", True),
        ("sys.exit(3)", True),
        ("atexit.register(producer.flush)", False),
        ("atexit.register(producer.close)", False),
        ("threading.Thread(target=time.sleep, args=[60], daemon=True).start()", False),
        ("threading.Thread.start = no_thread  # as of Python 3.12", False),
        ("import concurrent.futures as f; f.ThreadPoolExecutor(1).submit(int).result()", False),
    ],
)
def test_pending_records_are_delivered_at_every_kind_of_exit(
    cluster: ThreadedCluster, end: str, fails: bool
) -> None:
    run(cluster, SEND + end, {"compression_type": "zstd"}, fails=fails)


@pytest.mark.parametrize("daemon", [False, True])
def test_producer_of_a_thread_continues_after_main(cluster: ThreadedCluster, daemon: bool) -> None:
    joined = ".join()" if daemon else ""
    body = SEND.replace("\n", "\n    ")
    program = f"def work():{body}\nthread = threading.Thread(target=work, daemon={daemon})\nthread.start()\n"
    run(cluster, f"{program}thread{joined}", {"compression_type": "zstd"})


def test_end_of_program_may_be_the_first_use(cluster: ThreadedCluster) -> None:
    body = SEND.replace("\n", "\n    ")
    run(
        cluster,
        f"def work():{body}\n    producer.close()\natexit.register(work)\n",
        {"compression_type": "zstd"},
    )


def test_user_code_that_never_returns_does_not_keep_the_program(cluster: ThreadedCluster) -> None:
    program = """
from aioproducer.contrib import threads
threads.EXIT_MARGIN_S = 0.2
def serialize(value):
    if value == "stuck":
        time.sleep(600)
    return value.encode()
producer = ThreadedProducer(
    sys.argv[1], value_serializer=serialize, delivery_timeout_ms=500, request_timeout_ms=400, linger_ms=0
)
producer.start()
threading.Thread(target=producer.send, args=["orders", "stuck"], daemon=True).start()
time.sleep(0.1)
"""
    command = [sys.executable, "-c", BEGIN + program, cluster.bootstrap_servers, "{}"]
    subprocess.run(command, check=True, timeout=30)
