"""The judge: what has to be true of a load, whatever happened to the brokers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from typing import Final

from aioproducer import OutOfOrderSequenceNumber
from tests.kafka.load import Load
from tests.kafka.readback import Record

GRACE_S: Final = 1.0
"""Past the delivery timeout."""

MOST_SHOWN: Final = 3


def judge(load: Load, log: list[Record]) -> None:
    """Compare what the records of *load* were told with what another client reads in the *log*.

    A record before `load.fresh_from` may have been acknowledged and be gone, with a topic that was deleted;
    all else holds for it, too.
    """
    config = load.producer.config
    latest_s = config.delivery_timeout_ms / 1_000 + GRACE_S
    none_of("not resolved in time", (s for s in load.sent if s.resolved_at > s.called_at + latest_s))
    found = {(each.partition, each.offset): each.value or b"" for each in log}
    none_of(
        "acknowledged, and not where we were told",
        (s for s in load.sent[load.fresh_from :] if s.place is not None and found.get(s.place) != s.value),
    )
    copies = Counter(found.values())
    none_of(
        "failed unasked, and not because a lowered limit keeps a broker from recognising what it has",
        (
            s
            for s in load.sent
            if s.error
            and not s.asked_for
            and not (isinstance(s.error, OutOfOrderSequenceNumber) and s.value in copies)
        ),
    )
    none_of(
        "surely not persisted, and in the log",
        (s for s in load.sent if s.error and not s.error.possibly_persisted and s.value in copies),
    )
    none_of("in the log, and never sent", copies.keys() - {s.value for s in load.sent})
    if config.idempotent:
        none_of("more than once in the log", (value for value, count in copies.items() if count > 1))
    for partition in {each.partition for each in log}:
        # of a plain producer's copies the first counts: a batch may be there twice, but not out of its turn
        values = dict.fromkeys(value for (of, _), value in found.items() if of == partition)
        none_of("overtaken", ((one, two) for one, two in pairwise(values) if one > two))


def none_of(broken: str, witnesses: Iterable[object]) -> None:
    """Fail, naming a few of the records that a promise was broken to, if there are any."""
    broken_to = list(witnesses)
    assert not broken_to, f"{broken}: {len(broken_to)} records, e.g. {broken_to[:MOST_SHOWN]}"
