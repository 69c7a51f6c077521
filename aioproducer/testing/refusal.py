"""How the parts of the in-process broker say no."""

from __future__ import annotations

from collections.abc import Mapping

from aioproducer.errors import BrokerError


class Refused(Exception):
    """A request, or its part for one partition, is answered with an error.

    *record_errors* says which records of a batch are to blame, by position, and why (KIP-467).
    """

    def __init__(
        self, error: type[BrokerError], message: str = "", *, record_errors: Mapping[int, str] | None = None
    ) -> None:
        super().__init__(message)
        self.code: int = error.code
        self.message: str = message or error.__name__
        self.record_errors: Mapping[int, str] = record_errors or {}
