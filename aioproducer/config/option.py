"""The declaration of an option."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from aioproducer.config.kinds import Kind


class NotGiven(int):
    """Kafka's default, which reads as it: what it stands for may adapt, since nobody has asked for just this value.

    It stays what it is in copies, pickles and `dataclasses.replace`; the same number, given, is another thing.
    """

    __slots__ = ()


def option(default: object, kind: Kind, meaning: str) -> Any:
    """Declare an option; *meaning* is its line in docs/reference/configuration.md."""
    return field(default=default, metadata={"kind": kind, "meaning": meaning})
