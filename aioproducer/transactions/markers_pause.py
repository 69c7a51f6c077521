"""A pause before the first records of a transaction, so that they find the markers of the last one written."""

from __future__ import annotations

from typing import Final

HELD_S: Final = 0.02
"""So long a broker holds a Produce that finds the markers unwritten (`add.partitions.to.txn.retry.backoff.ms`)."""
STEP_S: Final = 0.001
"""What the pause grows by: event loops count in milliseconds."""
FADING: Final = 0.99
"""What it shrinks to with each transaction that was not held, so that one in some hundred tries without."""
SHORTEST_S: Final = STEP_S / 10
LONGEST_S: Final = HELD_S / 4


class MarkersPause:
    """Learns from the brokers how long the markers take. Pure: it is told of time, and has no clock.

    A coordinator answers EndTxn once it has decided, and then has the markers written. A transaction that writes to
    the same partitions before that is held by their broker for 20 ms (KIP-890, from transaction version 2 on), which
    is ten times what a small transaction takes, where a millisecond's pause would have done. The JVM client makes none.
    """

    def __init__(self) -> None:
        self.seconds: float = 0.0
        self._end_took_s = 0.0
        self._is_first = False

    def ended(self, took_s: float) -> None:
        """EndTxn was answered within *took_s*."""
        self._end_took_s = took_s
        self._is_first = True

    def answered(self, took_s: float) -> None:
        """A Produce was answered within *took_s*: the first one of a transaction tells whether it was held."""
        if not self._is_first:
            return
        self._is_first = False
        if took_s < max(HELD_S, 2 * self._end_took_s):  # where everything takes long, the markers are not why
            self.seconds = self.seconds * FADING if self.seconds >= SHORTEST_S else 0.0
        elif self.seconds < LONGEST_S:
            self.seconds += STEP_S
        else:  # a pause does not help
            self.seconds = 0.0
