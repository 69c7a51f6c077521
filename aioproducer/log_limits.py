"""Log levels for what keeps going wrong: an outage is two lines in the log, not a thousand."""

from __future__ import annotations

import logging
from typing import Final

REMINDER_S: Final = 30.0
"""How often to say that it is no better."""
BURST: Final = 20
"""So many failures in a second are told one by one."""


class Outage:
    """One thing that is well or is not: news of it is a warning, and so is a reminder; the rest is for debugging."""

    __slots__ = ("_quiet_until",)

    def __init__(self) -> None:
        self._quiet_until: float | None = None

    def level(self, now: float) -> int:
        """Return the level to log one more failure at; *now* is in any seconds that go on."""
        if self._quiet_until is not None and now < self._quiet_until:
            return logging.DEBUG
        self._quiet_until = now + REMINDER_S
        return logging.WARNING

    def is_over(self) -> bool:
        """Note that all is well; return whether that is news."""
        was_outage, self._quiet_until = self._quiet_until is not None, None
        return was_outage


class Trouble:
    """An outage of many things, which is over when the last of them is well: partitions whose batches are sent again."""

    __slots__ = ("_outage", "ill")

    def __init__(self) -> None:
        self._outage = Outage()
        self.ill: set[object] = set()

    def level(self, what: object, now: float) -> int:
        """Return the level to log one more failure of *what* at."""
        self.ill.add(what)
        return self._outage.level(now)

    def is_over(self, what: object) -> bool:
        """Note that *what* is well; return whether all is, and that is news."""
        self.ill.discard(what)
        return not self.ill and self._outage.is_over()


class Burst:
    """Failures that are each worth a line, but not a thousand lines at once: writing those would hold up the loop."""

    __slots__ = ("_count", "_second")

    def __init__(self) -> None:
        self._second = -1
        self._count = 0

    def level(self, now: float) -> int:
        """Return the level to log one more failure at; *now* is in seconds."""
        if int(now) != self._second:
            self._second, self._count = int(now), 0
        self._count += 1
        return logging.WARNING if self._count <= BURST else logging.DEBUG
