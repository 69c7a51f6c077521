"""Several mistakes of a configuration in one error."""

from __future__ import annotations

from collections.abc import Sequence

from aioproducer.errors import ConfigError


def raise_all(mistakes: Sequence[str | ConfigError]) -> None:
    """Raise one error for all *mistakes*, one per line. A single ConfigError keeps its cause."""
    if len(mistakes) == 1 and isinstance(mistakes[0], ConfigError):
        raise mistakes[0]
    if mistakes:
        raise ConfigError("\n".join(map(str, mistakes)))
