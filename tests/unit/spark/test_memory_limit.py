"""The limit of a task's address space, in processes that have one."""

from __future__ import annotations

import gc
import os
import resource
import subprocess
import sys
from collections import Counter
from importlib.machinery import ModuleSpec
from types import ModuleType

import pyarrow as pa
import pytest

from aioproducer.errors import ProducerError
from aioproducer.spark import memory_limit
from aioproducer.spark.memory_limit import (
    buffer_bytes,
    freeze_heap,
    is_out_of_memory,
    limit_bytes,
    out_of_memory,
)
from aioproducer.spark.sink_options import ProducerSettings, sink_options

MIB = 1024 * 1024
GROWTH = """
import resource, sys, threading
import pyarrow as pa
from aioproducer.spark.memory_limit import limited_address_space

def size():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()

pa.array([b""])  # imports pandas
if sys.argv[1] == "limited":
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
before, started, end = size(), threading.Event(), threading.Event()

def work():
    block = bytearray(1000)  # from the heap of the thread
    started.set()
    end.wait()

with limited_address_space():
    thread = threading.Thread(target=work)
    thread.start()
started.wait()
print(size() - before, pa.default_memory_pool().backend_name, threading.stack_size())
end.set()
"""

ARENA = """
import resource, sys
import pyarrow as pa
from aioproducer.spark.memory_limit import limit_bytes, limited_address_space

def size():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()

pa.set_memory_pool(pa.system_memory_pool())
pa.array([b""])  # imports pandas
before, limit = size(), size() + (int(sys.argv[1]) << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
with limited_address_space():
    assert limit_bytes() == limit
pa.allocate_buffer(100, memory_pool=pa.mimalloc_memory_pool())
soft, hard = resource.getrlimit(resource.RLIMIT_AS)
assert hard == limit
print(soft < limit, size() - before < 64 << 20)
"""


def limited(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (limit, limit))


def test_limit_is_none_by_default() -> None:
    assert limit_bytes() is None
    assert buffer_bytes(32 * MIB, MIB) == 32 * MIB


@pytest.mark.parametrize(
    ("limit", "request_bytes", "expected"),
    [(512 * MIB, MIB, 16 * MIB), (4096 * MIB, MIB, 32 * MIB), (512 * MIB, 20 * MIB, 20 * MIB)],
)
def test_buffer_is_a_share_of_the_limit(
    monkeypatch: pytest.MonkeyPatch, limit: int, request_bytes: int, expected: int
) -> None:
    limited(monkeypatch, limit)
    assert buffer_bytes(32 * MIB, request_bytes) == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, 16 * MIB),
        ({"kafka.buffer.memory": "50000000"}, 50_000_000),
        ({"kafka.buffer_memory": "50000000"}, 50_000_000),
        ({"kafka.max.request.size": "20000000"}, 20_000_000),
    ],
)
def test_buffer_of_the_sink_follows_the_limit_unless_given(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], expected: int
) -> None:
    limited(monkeypatch, 512 * MIB)
    # a setting of its own: the configuration is made once per process
    options = {"kafka.bootstrap.servers": "a:9092", "kafka.client.id": f"limited-{expected}-{len(given)}"}
    settings: ProducerSettings = sink_options({**options, **given}).producer
    assert settings.config().buffer_memory == expected


def test_error_names_the_limit_and_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "do not fit into this process; set" in str(out_of_memory())
    limited(monkeypatch, 500 * MIB)
    message = str(out_of_memory())
    assert "spark.executor.pyspark.memory (500 MiB for this process)" in message
    assert "set spark.sql.execution.arrow.maxBytesPerBatch=8388608" in message
    assert "lower spark.sql.execution.arrow.maxRecordsPerBatch" in message


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's heaps, as /proc shows them")
@pytest.mark.parametrize(("limit", "least", "most"), [("limited", 0, 40), ("free", 60, 1 << 20)])
def test_thread_spares_address_space_under_a_limit(limit: str, least: int, most: int) -> None:
    program = [sys.executable, "-c", GROWTH, limit]
    grown, pool, stack = subprocess.run(program, check=True, capture_output=True, text=True).stdout.split()
    assert least * MIB <= int(grown) <= most * MIB
    assert (pool == "system") == (limit == "limited")
    assert stack == "0", "other threads keep their stacks"


@pytest.mark.skipif(sys.platform != "linux", reason="mimalloc's arenas, as /proc shows them")
@pytest.mark.parametrize(
    ("room", "expected"),
    [(200, "True True"), (2_000, "False False")],
    ids=["room for an arena and little else", "room for all"],
)
def test_arena_of_arrow_takes_no_scarce_address_space(room: int, expected: str) -> None:
    program = [sys.executable, "-c", ARENA, str(room)]
    assert subprocess.run(program, check=True, capture_output=True, text=True).stdout.strip() == expected


def test_memory_error_is_found_among_causes() -> None:
    crashed = ProducerError("the sender task ended")
    crashed.__cause__ = MemoryError()
    failed = ProducerError("row 20")
    failed.__cause__ = crashed
    assert is_out_of_memory(failed)
    assert is_out_of_memory(pa.ArrowMemoryError())
    assert not is_out_of_memory(ProducerError("refused"))


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Calls of the garbage collector in a process forked by the daemon."""
    done: list[str] = []
    monkeypatch.setattr(gc, "collect", lambda: done.append("collect"))
    monkeypatch.setattr(gc, "freeze", lambda: done.append("freeze"))
    monkeypatch.setattr(memory_limit, "_freezes", Counter())
    runs(monkeypatch, "pyspark.daemon")
    return done


def runs(monkeypatch: pytest.MonkeyPatch, program: str | None) -> None:
    main = ModuleType("__main__")
    main.__spec__ = None if program is None else ModuleSpec(program, None)
    monkeypatch.setitem(sys.modules, "__main__", main)


def test_garbage_is_collected_before_the_rest_is_left_alone(done: list[str]) -> None:
    freeze_heap()
    assert done == ["collect", "freeze"]


def test_heap_is_frozen_twice_per_process(monkeypatch: pytest.MonkeyPatch, done: list[str]) -> None:
    for pid in (1, 1, 1, 2, 2, 2):
        monkeypatch.setattr(os, "getpid", lambda pid=pid: pid)
        freeze_heap()
    assert done == ["collect", "freeze"] * 4


@pytest.mark.parametrize("program", [None, "pytest.__main__", "pyspark.daemon.mine"])
def test_heap_of_other_programs_is_not_frozen(
    monkeypatch: pytest.MonkeyPatch, done: list[str], program: str | None
) -> None:
    runs(monkeypatch, program)
    freeze_heap()
    assert done == []
