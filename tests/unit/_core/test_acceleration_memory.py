from __future__ import annotations

import os
import platform
import subprocess
import sys
import sysconfig

import pytest

from aioproducer import accelerated

BLOCK_BYTES = 1024 * 1024
PROGRAM = f"""
import resource
from pathlib import Path
from aioproducer._core.acceleration import LARGEST_BYTES, keep_freed_memory

def faults(times):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(times):
        blocks = [bytearray({BLOCK_BYTES}) for _ in range(8)]
        del blocks
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1])

faults(2)
before = faults(10)
pages = resident()
for _ in range(4):
    keep_freed_memory(LARGEST_BYTES)
more_pages = resident() - pages
faults(2)
print(before, faults(10), more_pages)
"""
OTHERS = ("MALLOC_", "GLIBC_TUNABLES", "PYTHONMALLOC", "LD_PRELOAD")
"""Variables that choose another allocator, or say what it keeps."""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is about glibc")
@pytest.mark.skipif(bool(sysconfig.get_config_var("Py_GIL_DISABLED")), reason="has an allocator of its own")
@pytest.mark.skipif(not accelerated, reason="Python cannot ask for memory without clearing it")
def test_freed_blocks_are_reused() -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith(OTHERS)}
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60, env=env
    )
    before, after, more_pages = map(int, ran.stdout.split())
    assert after < before / 10
    assert more_pages < 256, "the program leaves the large block untouched"
