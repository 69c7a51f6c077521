from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import aioproducer
from aioproducer._core import acceleration
from aioproducer._core.murmur2 import key_partitions, python_key_partitions

ROOT = Path(__file__).parents[3]
ASKED = """
import sys
if "absent" in sys.argv:
    sys.modules["aioproducer._core._accelerator"] = None
import aioproducer
from aioproducer._core.murmur2 import key_partitions, python_key_partitions
print(aioproducer.accelerated, key_partitions is not python_key_partitions)
"""


def asked(pure: str | None, *arguments: str) -> list[str]:
    """Return the output of another process: `accelerated`, and whether its functions are those in C."""
    environment = {name: value for name, value in os.environ.items() if name != "AIOPRODUCER_PURE"}
    if pure is not None:
        environment["AIOPRODUCER_PURE"] = pure
    command = (sys.executable, "-c", ASKED, *arguments)
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.split()


def built() -> bool:
    try:
        import_module("aioproducer._core._accelerator")
    except ImportError:
        return False
    return True


def test_accelerated_flag_matches_the_functions_in_use() -> None:
    assert (
        aioproducer.accelerated is acceleration.accelerated is (key_partitions is not python_key_partitions)
    )


@pytest.mark.parametrize("pure", [None, "", "0"])
def test_compiled_accelerator_is_used_by_default(pure: str | None) -> None:
    assert asked(pure) == [str(built())] * 2


def test_acceleration_can_be_disabled() -> None:
    assert asked("1") == ["False", "False"]


def test_missing_accelerator_falls_back_to_python() -> None:
    assert asked(None, "absent") == ["False", "False"]


@pytest.mark.skipif(os.name != "posix", reason="the flag hides symbols with GCC and Clang")
@pytest.mark.skipif(not built(), reason="the accelerator was not built")
def test_accelerator_exports_its_init_function_alone() -> None:
    module = import_module("aioproducer._core._accelerator")
    assert module.__file__ is not None
    library = ctypes.CDLL(module.__file__)
    shared = re.findall(
        r"^PyObject \*(\w+)\(", (ROOT / "aioproducer/_core/_c/_accelerator.h").read_text(), re.MULTILINE
    )
    assert all(name.startswith("aioproducer_") for name in shared)
    assert hasattr(library, "PyInit__accelerator")
    assert [name for name in shared if hasattr(library, name)] == []
