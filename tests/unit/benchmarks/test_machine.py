from __future__ import annotations

import platform
import socket
from importlib.metadata import version
from pathlib import Path

from benchmarks.machine import machine, processor, versions


def test_the_machine_is_told_without_its_name_or_paths() -> None:
    told = " ".join(machine().values())
    assert socket.gethostname() not in told
    assert "/" not in told.replace("GiB", "")
    assert platform.system() in told
    assert "cores" in told


def test_the_processor_is_the_first_that_the_system_names(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor\t: 0\nmodel name\t: One @ 2 GHz\nmodel name\t: Two\n")
    assert processor(cpuinfo) == "One @ 2 GHz"
    assert processor(tmp_path / "none") == platform.processor()


def test_versions_are_of_what_takes_part() -> None:
    told = versions(["aioproducer", "aioproducer-nowait", "aiokafka", "jvm"])
    assert list(told) == [platform.python_implementation(), "aiokafka", "aioproducer"]
    assert told["aiokafka"] == version("aiokafka")
