"""Rate limit for log events that repeat: the first occurrence, one line every 30 s with counts, then the end."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Final, NamedTuple

from aioproducer.steps import Log

REMINDER_S: Final = 30.0
"""Interval between two lines about an event that goes on. After this time without an occurrence the event has ended."""
STEADY_S: Final = 1.0
"""A recovery has to last this long before the next occurrence is news. Doubles with each return, up to `REMINDER_S`."""
MAX_EPISODES: Final = 20
"""Subjects of one event (topics, nodes) that are logged separately. Further subjects share one episode."""
OTHERS: Final = "others"


class LogLimits:
    """Episodes of repeated log events, by event and subject; one object per producer.

    An episode ends by `over`, or after `REMINDER_S` without an occurrence, so the state is bounded.
    """

    __slots__ = ("_episodes", "_timed", "_timer")

    def __init__(self, *, timed: bool = True) -> None:
        """Without *timed* there is no timer, and an episode ends by `over` only: for several threads and event loops."""
        self._episodes: dict[str, dict[str, _Episode]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timed = timed

    def log(
        self,
        logger: Log | logging.Logger,
        level: int,
        subject: str,
        message: str,
        *args: object,
        event: str | None = None,
        error: BaseException | None = None,
    ) -> None:
        """Log one occurrence of an event about *subject*: at *level* if it is news, at DEBUG between two reminders.

        *event* is by default the first word of *message*. A *level* above that of the last line is news. *subject* is
        shown at the end (`topic=orders`) and may be empty. The traceback of *error* is logged, if one is given.
        """
        if level <= logging.DEBUG:
            logger.log(level, message, *args, exc_info=error, stacklevel=2)
            return
        now, event = _now(), event or message.partition(" ")[0]
        episodes = self._episodes.setdefault(event, {})
        if subject not in episodes and len(episodes) >= MAX_EPISODES:
            subject = OTHERS
        episode = episodes.get(subject)
        if episode is None:
            episodes[subject] = _Episode(logger, now, level)
            self._look_again()
        elif not episode.occurs(now, level):
            level = logging.DEBUG
        elif episode.times > 1:
            message += episode.counts(now)
        logger.log(level, message, *args, exc_info=error, stacklevel=2)

    def over(self, event: str, subject: str, message: str, *args: object) -> bool:
        """Note that *event* is over for *subject*; return True if there was an occurrence since the last call.

        The end is logged at INFO, as *message* with counts. The end of a flapping event is logged once it is steady.
        """
        episode = self._episodes.get(event, {}).get(subject)
        if episode is None or episode.over_at is not None:
            return False
        line = episode.recovers(_now(), message % args)
        self._look_again()
        if line is None:
            episode.logger.debug(message, *args)
        else:
            line.write()
        return True

    def close(self) -> None:
        """Log the counts of the episodes that go on, and set no timer any more."""
        self._timed = False
        if self._timer is not None:
            self._timer.cancel()
        lines = [
            episode.ends(event, subject)
            for event, episodes in self._episodes.items()
            for subject, episode in episodes.items()
            if episode.times > 1 and not episode.is_told
        ]
        self._episodes.clear()
        for line in lines:
            line.write()

    def _look_again(self) -> None:
        """Set the timer for the next episode that ends or is to be forgotten."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = [each.due_at() for episodes in self._episodes.values() for each in episodes.values()]
        if due and self._timed:
            try:
                loop = asyncio.get_running_loop()
            except RuntimeError:  # an interceptor chain is also used without a loop
                return
            self._timer = loop.call_at(min(due), self._settle)

    def _settle(self) -> None:
        self._timer = None
        now, lines = _now(), []
        for event, episodes in tuple(self._episodes.items()):
            for subject, episode in tuple(episodes.items()):
                if episode.due_at() > now:
                    continue
                if episode.is_told or episode.over_at is None:
                    del episodes[subject]
                if not episode.is_told and episode.times > 1:
                    lines.append(episode.ends(event, subject))
            if not episodes:
                del self._episodes[event]
        self._look_again()
        for line in lines:  # at the end: a handler may log one more event
            line.write()


class _Line(NamedTuple):
    logger: Log | logging.Logger
    text: str

    def write(self) -> None:
        self.logger.info("%s", self.text)


class _Episode:
    """One event about one subject, from the first occurrence to the end."""

    __slots__ = (
        "_end",
        "_flaps",
        "_level",
        "_logged_at",
        "_steady_s",
        "began_at",
        "is_told",
        "last_at",
        "logger",
        "over_at",
        "times",
    )

    def __init__(self, logger: Log | logging.Logger, now: float, level: int) -> None:
        self.logger = logger
        self._steady_s = STEADY_S
        self._begin(now, level)

    def _begin(self, now: float, level: int) -> None:
        self.began_at: float = now
        self.last_at: float = now
        self.over_at: float | None = None
        """Time of the recovery; None while the event goes on."""
        self.times: int = 1
        self.is_told: bool = False
        """True if the last line is about the end."""
        self._logged_at = now
        self._level = level
        self._end = ""
        self._flaps = False

    def occurs(self, now: float, level: int) -> bool:
        """Count one more occurrence; return True if it is to be logged."""
        if self.over_at is not None and now - self.over_at >= self._steady_s:
            self._steady_s = min(2 * self._steady_s, REMINDER_S)
            self._begin(now, level)
            return True
        self.over_at, self.last_at, self.is_told = None, now, False
        self.times += 1
        if level <= self._level and now - self._logged_at < REMINDER_S:
            return False
        self._level, self._logged_at = max(level, self._level), now
        return True

    def recovers(self, now: float, text: str) -> _Line | None:
        """Note the recovery; return its line if that is to be written at once."""
        self.over_at, self._end = now, text
        if self._flaps:
            return None
        self._flaps = True
        return self.ends("", "")

    def ends(self, event: str, subject: str) -> _Line:
        """Return the line about the end: that of the recovery, or that there were no more occurrences."""
        self.is_told = True
        ended_at = self.last_at if self.over_at is None else self.over_at
        text = f"{event}.ended{subject and f' {subject}'}" if self.over_at is None else self._end
        return _Line(self.logger, text + self.counts(ended_at))

    def counts(self, at: float) -> str:
        """Return the suffix of each line but the first."""
        return f" times={self.times} for_s={at - self.began_at:.1f}"

    def due_at(self) -> float:
        """Return the time at which the episode is to be ended or forgotten."""
        if self.over_at is None:
            return self.last_at + REMINDER_S
        return self.over_at + (REMINDER_S if self.is_told else self._steady_s)


def _now() -> float:
    try:
        return asyncio.get_running_loop().time()
    except RuntimeError:
        return time.monotonic()
