"""Why records failed, told to each of them."""

from __future__ import annotations

from typing import NamedTuple

from aioproducer.errors import ProducerError


class Failure(NamedTuple):
    """One reason for many records: each gets an exception instance of its own, they share the cause.

    A shared instance would collect the tracebacks of all who await it.
    """

    kind: type[ProducerError]
    message: str
    possibly_persisted: bool = False
    cause: BaseException | None = None

    def error(self) -> ProducerError:
        """Return a fresh exception."""
        error = self.kind(self.message, possibly_persisted=self.possibly_persisted)
        error.__cause__ = self.cause
        return error
