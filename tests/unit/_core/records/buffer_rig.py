"""RecordBuffers of the accelerator; without the accelerator, tests that import this module are skipped."""

from __future__ import annotations

from typing import Any

import pytest

from tests.encoding import encode_records

accelerator: Any = pytest.importorskip(
    "aioproducer._core._accelerator", reason="it was not built", exc_type=ImportError
)


def buffer_of(*values: bytes | None) -> Any:
    buffer = accelerator.RecordBuffer()
    for number, value in enumerate(values):
        buffer.append(value, None, (), 1_000 + number)
    return buffer


def contents(buffer: Any) -> tuple[Any, ...]:
    return encode_records(buffer), buffer.size, buffer.held, len(buffer), buffer.span
