"""Hardware and package versions of a measurement, without host name and paths."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Final

import psutil

from benchmarks.clients import JVM, adapter

GIB: Final = 1024**3


def machine() -> dict[str, str]:
    """Return processor, cores, memory and system of the machine."""
    return {
        "processor": processor() or platform.machine(),
        "cores": f"{os.cpu_count()} cores",
        "memory": f"{psutil.virtual_memory().total / GIB:.0f} GiB",
        "system": f"{platform.system()} {platform.machine()}",
    }


def versions(clients: Iterable[str]) -> dict[str, str]:
    """Return the versions of Python and of the packages of *clients*."""
    names = {adapter(client).distribution for client in clients if client != JVM}
    return {platform.python_implementation(): platform.python_version()} | {
        name: version(name) for name in sorted(names)
    }


def processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Return the model name of the processor; empty if unknown."""
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor()
