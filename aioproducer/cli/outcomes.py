"""What became of records, in the words that commands share."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aioproducer.config import ProducerConfig


class Failures(Counter[str]):
    """How many records failed, by error; the message is that of the first of its kind."""

    def add(self, error: BaseException) -> None:
        """Count a record that failed."""
        kind = f"{type(error).__name__}: "
        self[next((message for message in self if message.startswith(kind)), f"{kind}{error}")] += 1


def counted(records: int) -> str:
    """Return `1 record`, or `2,000 records`."""
    return f"{records:,} record{'' if records == 1 else 's'}"


def done(config: ProducerConfig) -> str:
    """Return what has become of a record that did not fail: with acks=0 nobody acknowledges it."""
    return "written, acks=0" if config.acks == 0 else "acknowledged"


def audit_hint(config: ProducerConfig, topic: str, run: str, expect: int) -> str:
    """Return how to find out whether a run is in its topic."""
    servers = ",".join(config.bootstrap_servers)
    return (
        f"Is all of it there? aioproducer audit --bootstrap-servers {servers} --topic {topic}"
        f" --run {run} --expect {expect}\n"
    )


@contextmanager
def told_once(logger: str) -> Iterator[None]:
    """Keep what *logger* warns of out of the log: the command tells it in its own words."""
    quiet = logging.getLogger(logger)
    before = quiet.level
    quiet.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        quiet.setLevel(before)
