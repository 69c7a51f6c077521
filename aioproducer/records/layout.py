"""The header of a record batch, magic 2 (KIP-98): 61 bytes before the records.

    at  0  base offset int64      at 17  crc uint32 (CRC-32C of all that follows it)   at 43  producer id int64
    at  8  length int32 (of all   at 21  attributes int16                              at 51  producer epoch int16
           that follows it)       at 23  last offset delta int32                       at 53  base sequence int32
    at 12  leader epoch int32     at 27  base timestamp int64 (ms)                     at 57  record count int32
    at 16  magic int8             at 35  max timestamp int64 (ms)                      at 61  records

All big-endian. Source: https://kafka.apache.org/documentation/#recordbatch
"""

from __future__ import annotations

from struct import Struct

MAGIC = 2

HEADER = Struct(">qiibIhiqqqhii")
"""All the fields, in the order of their positions."""

LENGTH_AT = 8
"""Where the length stands: batches are skipped by it."""
LENGTH_PREFIX = 12
"""Base offset and length: what the length does not count."""
CRC_AT = 17
CHECKED_FROM = 21
"""Where the part that the CRC covers begins; a broker changes only what is before it."""
IDENTITY_AT = 43

LENGTH = Struct(">i")
CRC = Struct(">I")
IDENTITY = Struct(">qhi")
"""Producer id, producer epoch and base sequence (KIP-98)."""

CODEC_MASK = 0b111
LOG_APPEND_TIME = 0b1000
TRANSACTIONAL = 0b1_0000
CONTROL = 0b10_0000
