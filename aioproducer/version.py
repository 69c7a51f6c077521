"""The version, in the one place that the package, its metadata and the handshake read it from."""

from __future__ import annotations

from typing import Final

__version__: Final = "0.1.0"
"""Brokers are told it, too: letters, digits, dots and dashes only (KIP-511)."""
