"""A pause before the first records of a transaction, so that they find the markers of the last one written."""

from __future__ import annotations

from typing import Final

HELD_S: Final = 0.02
"""So long a broker holds a Produce that finds the markers unwritten (`add.partitions.to.txn.retry.backoff.ms`)."""
STEP_S: Final = 0.0002
"""How much more a transaction waits than one that was held."""
FADING: Final = 0.998
"""What the pause shrinks to with each transaction that was not held, so that one in some hundred tries with less."""
SHORTEST_S: Final = 0.0001
LONGEST_S: Final = HELD_S / 4


class MarkersPause:
    """Learns from the brokers how long the markers take. Pure: it is told of time, and has no clock.

    A coordinator answers EndTxn once it has decided, and then has the markers written. A transaction that writes to
    the same partitions before that is held by their broker for 20 ms (KIP-890, from transaction version 2 on), which
    is ten times what a small transaction takes, where a fraction of a millisecond would have done. The JVM client
    makes no pause.
    """

    def __init__(self) -> None:
        self.seconds: float = 0.0
        """How long after EndTxn's answer nothing is to be written."""
        self._ended_at: float | None = None
        self._end_took_s = 0.0
        self._waited_s: float | None = None
        """How long after that answer the first Produce went out."""

    def ended(self, at: float, took_s: float) -> None:
        """EndTxn was answered at *at*, within *took_s*."""
        self._ended_at, self._end_took_s = at, took_s
        self._waited_s = None

    def wrote(self, at: float) -> None:
        """A Produce goes out at *at*."""
        if self._ended_at is not None and self._waited_s is None:
            self._waited_s = at - self._ended_at

    def answered(self, took_s: float) -> None:
        """A Produce was answered within *took_s*: the first one of a transaction tells whether it was held."""
        waited_s = self._waited_s
        if waited_s is None:
            return
        self._ended_at = self._waited_s = None
        if took_s < max(HELD_S, 2 * self._end_took_s):  # where everything takes long, the markers are not why
            self.seconds = self.seconds * FADING if self.seconds >= SHORTEST_S else 0.0
        elif waited_s < LONGEST_S:
            waited_s = max(waited_s, self.seconds)  # some loops read their clock once a millisecond
            self.seconds = waited_s + STEP_S
        else:  # a pause does not help
            self.seconds = 0.0
