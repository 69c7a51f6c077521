from __future__ import annotations

import subprocess
import sys

import psutil
import pytest

from benchmarks.spark.engine import Cpu, Engine

USED_S = 0.3
WORK = f"import time; all(iter(lambda: time.process_time() < {USED_S}, False))"
JVM = """
import subprocess, sys
subprocess.run([sys.executable, "-c", {ended!r}])
child = subprocess.Popen([sys.executable, "-c", {alive!r}], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.readline()
print("worked", flush=True)
sys.stdin.read()
child.communicate()
"""
ALIVE = "import sys; print(flush=True); sys.stdin.read()"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ended", "alive"), [(WORK, ALIVE), ("", f"{WORK}; {ALIVE}")], ids=["that have ended", "that live"]
)
def test_the_cpu_of_python_is_that_of_all_processes(ended: str, alive: str) -> None:
    code = JVM.format(ended=ended, alive=alive)
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "worked\n"
        engine = Engine.__new__(Engine)
        engine._jvm = psutil.Process(process.pid)
        used = engine.cpu()
        process.communicate()
    assert used.python > 0.9 * USED_S
    assert used.jvm > 0


def test_what_was_used_before_is_not_counted() -> None:
    assert Cpu(3.0, 2.0).since(Cpu(1.0, 0.5)) == Cpu(2.0, 1.5)
