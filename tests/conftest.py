"""What every test needs."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """Let Ctrl-C mean something: a shell has programs in the background ignore it, and those that they start."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
