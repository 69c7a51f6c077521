from __future__ import annotations

import platform
import subprocess
import sys

import pytest

BLOCK_BYTES = 1024 * 1024
PROGRAM = f"""
import resource
from pathlib import Path
from aioproducer.allocator import keep_freed_memory

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
keep_freed_memory()
more_pages = resident() - pages
faults(2)
print(before, faults(10), more_pages)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is about glibc")
def test_blocks_are_used_again_instead_of_being_asked_for_anew() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60
    )
    before, after, more_pages = map(int, ran.stdout.split())
    assert after < before / 10
    assert more_pages < 256, "the large block itself was never touched"
