"""A call for tests of the append lock."""

from __future__ import annotations

from collections.abc import Callable

from aioproducer._core.batching.admission import QueuedCall


class Call(QueuedCall):
    """A call whose attempt is a function; the attempt succeeds if it returns anything but None."""

    def __init__(self, attempt: Callable[[], object] = lambda: None) -> None:
        super().__init__()
        self._attempt = attempt

    def attempt(self) -> bool:
        return self._attempt() is not None
