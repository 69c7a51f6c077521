"""What is imported, and when."""

from __future__ import annotations

import subprocess
import sys

from aioproducer import arrow
from aioproducer._core.extras import needs


def run(program: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, timeout=60, text=True
    ).stdout.strip()


def test_the_public_names_are_these() -> None:
    assert set(arrow.__all__) == {"OffsetRange", "SendTableError", "TableResult", "send_table"}
    assert all(hasattr(arrow, name) for name in arrow.__all__)


def test_a_producer_needs_no_pyarrow() -> None:
    assert run("import sys; from aioproducer import Producer; print('pyarrow' in sys.modules)") == "False"


def test_without_pyarrow_the_error_says_what_to_install() -> None:
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
