"""Columns of bytes in the memory of another object, such as an Arrow array, which the accelerator reads in place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from aioproducer._core.acceleration import fastest

BytesColumn: Final[Any] = fastest("BytesColumn", tuple)
"""An immutable column of bytes or None; without the accelerator a tuple.

`BytesColumn(validity, offsets, data, is_large, start, count)` reads the buffers of Arrow's binary and string arrays. A row costs no
Python object before its record is encoded.
"""

READS_IN_PLACE: Final = BytesColumn is not tuple
"""True if `BytesColumn` reads the memory of another object."""

Sequence.register(BytesColumn)
