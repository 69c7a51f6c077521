"""Persistence of a batch: the one place that knows whether it may be in the log. Pure: no clock, no loop, no I/O.

librdkafka calls the three answers NOT_PERSISTED, POSSIBLY_PERSISTED and PERSISTED. A batch is made of attempts; an
attempt that may have reached the log leaves a doubt that a later refusal of another attempt does not remove. What
removes it is in `_denied` and `ruled_out`.
"""

from __future__ import annotations

from typing import Final

from aioproducer.errors import BrokerError, InvalidProducerEpoch, OutOfOrderSequenceNumber, UnknownProducerId

SEQUENCE_REFUSALS: Final = (OutOfOrderSequenceNumber, InvalidProducerEpoch, UnknownProducerId)
"""The leader does not know the batch, and does not want it under this sequence."""
DENIALS_BELIEVED: Final = 3
"""So many of these in a row prove that the batch is not in the log."""


class Persistence:
    """What the attempts to append one batch leave open."""

    __slots__ = (
        "_attempt_is_out",
        "_denials",
        "_in_doubt",
        "_remains_possible",
        "half_of_possibly_persisted",
    )

    def __init__(self) -> None:
        self._attempt_is_out = False
        self._in_doubt = False
        self._denials = 0
        self._remains_possible = False
        self.half_of_possibly_persisted: bool = False
        """Whether it is a part of a batch that may be in the log whole: there the leader does not recognise it."""

    @property
    def possible(self) -> bool:
        """Whether the batch may be in the log, as far as its sequence is concerned: nobody else may have that."""
        return self._in_doubt or self._attempt_is_out

    @property
    def possibly_persisted(self) -> bool:
        """Whether to say so where it fails. A leader may have forgotten what it has: to believe it is no promise."""
        return self.possible or self._remains_possible

    @property
    def in_doubt(self) -> bool:
        """Whether an attempt that is over may be in the log. A batch in doubt keeps its sequence."""
        return self._in_doubt

    @property
    def attempt_is_out(self) -> bool:
        """Whether the batch was handed to a socket, and its answer is still to come."""
        return self._attempt_is_out

    @property
    def denials(self) -> int:
        """How often in a row the leader has refused its sequence, while it was the oldest without an outcome."""
        return self._denials

    def written(self) -> None:
        """The batch is handed to a socket."""
        self._attempt_is_out = True

    def not_written(self) -> None:
        """It was not after all: the request could not be made."""
        self._attempt_is_out = False

    def answered(self) -> None:
        """The attempt has its answer; what that says comes next."""
        self._attempt_is_out = False

    def refused(self, kind: type[BrokerError], *, in_turn: bool, newest: bool = True) -> None:
        """The answer is an error of *kind*.

        *in_turn*: nothing before it in its partition keeps the leader from taking it. *newest*: nothing behind it may
        be in the log, as far as anybody knows, so that a leader that has it knows it in any case.
        """
        self._attempt_is_out = False
        # A leader never recognises a half, so that it does not says nothing.
        if in_turn and issubclass(kind, SEQUENCE_REFUSALS) and not self.half_of_possibly_persisted:
            self._denials += 1
            if newest and self._denials >= DENIALS_BELIEVED:
                self._believe_denials()
        else:
            self._denials = 0
        if not kind.definitely_refused:
            self._in_doubt = True

    def forget_denials(self) -> None:
        """Somebody else leads, or the log is another one: what was said before does not count."""
        self._denials = 0

    def connection_lost(self, *, reached_socket: bool) -> None:
        """There will be no answer. *reached_socket*: bytes of the request may have left."""
        if self._attempt_is_out and reached_socket:
            self._in_doubt = True
        self._attempt_is_out = False
        self._denials = 0

    def answer_not_understood(self) -> None:
        """There was an answer, and a bug of ours kept us from taking it: it may have said anything."""
        self._in_doubt = True

    def leave_log(self) -> None:
        """The cluster changed: the new one does not have the batch, while the old one may have it."""
        if self.possible:
            self._remains_possible = True
        self._in_doubt = self.half_of_possibly_persisted = False
        self._denials = 0

    def ruled_out(self) -> None:
        """It is surely not in the log: one before it, under the same identity, is not (KIP-98 leaves no gaps)."""
        self._in_doubt = self.half_of_possibly_persisted = False

    def of_part(self, *, keeps_sequence: bool) -> Persistence:
        """Return what is known of a part of the batch; *keeps_sequence*: it goes under its share of the sequences."""
        part = Persistence()
        part._in_doubt = self._in_doubt
        part._remains_possible = self._remains_possible
        part.half_of_possibly_persisted = self._in_doubt and keeps_sequence
        return part

    def _believe_denials(self) -> None:
        """Believe a leader that keeps refusing the sequence of the oldest batch without an outcome.

        It looks for duplicates before it looks at the sequence. It remembers the last five batches, and no more than
        five follow the oldest that is not settled (PartitionQueue.next_batch): it would recognise this one. Only a
        leader that was started again from its snapshot knows no more than the last batch of each producer: it has
        been asked for those behind this one first (PartitionQueue.to_ask). What should have come before may have
        failed, or have been lost with the end of a log, or with a topic that was made anew. The JVM client believes
        the first OUT_OF_ORDER_SEQUENCE_NUMBER or UNKNOWN_PRODUCER_ID for the batch that is next, and takes the next
        epoch (TransactionManager.canRetry; KIP-360); the first INVALID_PRODUCER_EPOCH fails the batch there. We want
        to be told several times, since a batch that is in the log after all would be there twice.
        """
        if self._in_doubt:
            self._in_doubt = False
            self._remains_possible = True
