"""CRC-32C (Castagnoli), the checksum of record batches: `crc32c(data, value=0)`, *value* that of what is before."""

from __future__ import annotations

from crc32c import crc32c as crc32c  # noqa: PLC0414 - a re-export: the one place that names the package
