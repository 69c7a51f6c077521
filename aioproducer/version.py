"""The version, for the package, its metadata and the handshake."""

from __future__ import annotations

from typing import Final

__version__: Final = "0.1.0"
"""The handshake sends it to brokers, so only letters, digits, dots and dashes are allowed (KIP-511)."""
