"""Limits of a topic's batches: at which size one is ready to be sent, and how far it grows until it is (KIP-782)."""

from __future__ import annotations

import math
from typing import Final

from aioproducer.batching.batch import Batch
from aioproducer.batching.batching_settings import BatchingSettings

GROWS_FOR_S: Final = 1.0
"""A batch that is ready takes no more beyond its size this long after it was opened: its records share the first one's
deadline, and the last of them should not have much less time than it was promised."""


class BatchLimits:
    """Sizes in bytes, as they are counted while records are appended: not compressed."""

    __slots__ = ("_cap", "_settings", "capped_until", "full", "ready")

    def __init__(self, settings: BatchingSettings) -> None:
        self.ready: int = settings.batch_bytes
        """A batch of this size waits for no more records, but takes those that come before it is sent."""
        self.full: int = settings.batch_max_bytes
        """A batch takes none that would make it larger."""
        self.capped_until: float = math.inf
        self._cap: float = math.inf
        self._settings = settings

    def to_grow_to(self, batch: Batch, size: int, now: float) -> int:
        """Return how large *batch* may become with *size* bytes more: no larger than it is, if it is old."""
        return min(batch.size + size, self.full) if now <= batch.created_at + GROWS_FOR_S else 0

    def cap(self, batch_bytes: int, now: float) -> None:
        """Make no batch larger than *batch_bytes* for a while: the broker would refuse it again."""
        self._cap = min(self._cap, batch_bytes)
        self.capped_until = now + self._settings.batch_cap_s
        self._set()

    def uncap(self) -> None:
        """Try the full size again: the topic's limit may have been raised."""
        self._cap = self.capped_until = math.inf
        self._set()

    def _set(self) -> None:
        self.ready = int(min(self._settings.batch_bytes, self._cap))
        self.full = int(min(self._settings.batch_max_bytes, self._cap))
