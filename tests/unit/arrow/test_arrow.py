"""Imports of aioproducer.arrow and pyarrow."""

from __future__ import annotations

import subprocess
import sys

from aioproducer import arrow
from aioproducer._core.extras import needs


def run(program: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, timeout=60, text=True
    ).stdout.strip()


def test_all_lists_the_public_names() -> None:
    assert set(arrow.__all__) == {"OffsetRange", "SendTableError", "TableResult", "send_table"}
    assert all(hasattr(arrow, name) for name in arrow.__all__)


def test_producer_imports_no_pyarrow() -> None:
    assert run("import sys; from aioproducer import Producer; print('pyarrow' in sys.modules)") == "False"


def test_import_error_names_the_extra_without_pyarrow() -> None:
    program = """
import sys
sys.modules["pyarrow"] = None
try:
    import aioproducer.arrow
except ImportError as error:
    print(error)
"""
    expected = needs("aioproducer.arrow", "spark")
    assert run(program) == expected
