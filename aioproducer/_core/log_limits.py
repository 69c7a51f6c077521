"""Rate limit for log events that repeat: the first occurrence, one line every 30 s with counts, then the end."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Final, Literal, TypeAlias

from aioproducer._core.logfmt import Pairs
from aioproducer._core.steps import Log

REMINDER_S: Final = 30.0
"""Interval between two lines about an ongoing event, in seconds. An event without an occurrence in this time ends."""
STEADY_S: Final = 1.0
"""Minimum duration of a recovery, in seconds, before the next occurrence is logged as new. The duration doubles with each
return of the event, up to `REMINDER_S`."""
MAX_EPISODES: Final = 20
"""Maximum number of subjects (topics, nodes) per event. Further subjects share one episode."""
OTHERS: Final = Pairs(subject="others")
Subject: TypeAlias = Pairs | Literal[""]


class LogLimits:
    """Episodes of repeated log events, by event and subject; one object per producer.

    An episode ends by `over`, or after `REMINDER_S` without an occurrence, so the state is bounded.
    """

    __slots__ = ("_episodes", "_timed", "_timer")

    def __init__(self, *, timed: bool = True) -> None:
        """Without *timed*, for use by several threads and event loops, no timer runs and only `over` ends an episode."""
        self._episodes: dict[str, dict[Subject, _Episode]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timed = timed

    def log(
        self,
        logger: Log,
        level: int,
        subject: Subject,
        message: str,
        *args: object,
        event: str | None = None,
        error: BaseException | None = None,
    ) -> None:
        """Log one occurrence of an event about *subject*: at *level* if new or due as a reminder, else at DEBUG.

        *event* is by default the first word of *message*. An occurrence above the level of the last line is logged at
        once. A *subject* is shown at the end (`topic=orders`), unless empty. The traceback of *error* is logged.
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
            self._schedule_check()
        elif not episode.occurs(now, level):
            level = logging.DEBUG
        elif episode.times > 1:
            message, args = f"{message} %s", (*args, episode.counts(now))
        logger.log(level, message, *args, exc_info=error, stacklevel=2)

    def over(self, event: str, subject: Subject, message: str, *args: object) -> bool:
        """Record the end of *event* for *subject*; return True if there was an occurrence since the last call of `over`.

        The end is logged at INFO: *message* with counts. The end of a flapping event is logged once the recovery is steady.
        """
        episode = self._episodes.get(event, {}).get(subject)
        if episode is None or episode.over_at is not None:
            return False
        write = episode.recovers(_now(), message, args)
        self._schedule_check()
        write()
        return True

    def close(self) -> None:
        """Log the counts of ongoing episodes, and stop the timer."""
        self._timed = False
        if self._timer is not None:
            self._timer.cancel()
        lines = [
            episode.ends(event, subject)
            for event, episodes in self._episodes.items()
            for subject, episode in episodes.items()
            if episode.times > 1 and not episode.is_end_logged
        ]
        self._episodes.clear()
        for line in lines:
            line()

    def _schedule_check(self) -> None:
        """Set the timer for the next episode that ends or expires."""
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
                if episode.is_end_logged or episode.over_at is None:
                    del episodes[subject]
                if not episode.is_end_logged and episode.times > 1:
                    lines.append(episode.ends(event, subject))
            if not episodes:
                del self._episodes[event]
        self._schedule_check()
        for line in lines:  # lines are logged last, because a handler may log one more event
            line()


class _Episode:
    """One event about one subject, from the first occurrence to the end."""

    def __init__(self, logger: Log, now: float, level: int) -> None:
        self.logger = logger
        self._steady_s = STEADY_S
        self._begin(now, level)

    def _begin(self, now: float, level: int) -> None:
        self.began_at: float = now
        self.last_at: float = now
        self.over_at: float | None = None
        """Time of the recovery; None while the event is ongoing."""
        self.times: int = 1
        self.is_end_logged: bool = False
        """True if the last line of the episode reports its end."""
        self._logged_at = now
        self._level = level
        self._end: tuple[str, tuple[object, ...]] = "", ()
        self._flaps = False

    def occurs(self, now: float, level: int) -> bool:
        """Count one more occurrence; return True if it must be logged."""
        if self.over_at is not None and now - self.over_at >= self._steady_s:
            self._steady_s = min(2 * self._steady_s, REMINDER_S)
            self._begin(now, level)
            return True
        self.over_at, self.last_at, self.is_end_logged = None, now, False
        self.times += 1
        if level <= self._level and now - self._logged_at < REMINDER_S:
            return False
        self._level, self._logged_at = max(level, self._level), now
        return True

    def recovers(self, now: float, message: str, args: tuple[object, ...]) -> Callable[[], None]:
        """Record the recovery; return a function that logs the recovery, at DEBUG if the event has recovered before."""
        self.over_at, self._end = now, (message, args)
        if self._flaps:
            return partial(self.logger.debug, message, *args)
        self._flaps = True
        return self.ends("", "")

    def ends(self, event: str, subject: Subject) -> Callable[[], None]:
        """Return a function that logs the final line: the recovery, or `.ended` after a time without occurrences."""
        self.is_end_logged = True
        ended_at = self.last_at if self.over_at is None else self.over_at
        if self.over_at is not None:
            message, args = self._end
        else:
            message, args = (f"{event}.ended %s", (subject,)) if subject else (f"{event}.ended", ())
        return partial(self.logger.info, f"{message} %s", *args, self.counts(ended_at))

    def counts(self, at: float) -> Pairs:
        """Return the pairs that end every line after the first line."""
        return Pairs(times=self.times, for_s=round(at - self.began_at, 1))

    def due_at(self) -> float:
        """Return the time at which the episode ends or expires."""
        if self.over_at is None:
            return self.last_at + REMINDER_S
        return self.over_at + (REMINDER_S if self.is_end_logged else self._steady_s)


def _now() -> float:
    try:
        return asyncio.get_running_loop().time()
    except RuntimeError:
        return time.monotonic()
