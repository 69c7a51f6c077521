"""The declaration of an option."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from aioproducer.config.kinds import Kind


def option(default: object, kind: Kind, meaning: str) -> Any:
    """Declare an option; *meaning* is its line in docs/reference/configuration.md."""
    return field(default=default, metadata={"kind": kind, "meaning": meaning})
