"""Validate the workload: break aioproducer on purpose, and fail unless the checker finds each break in ten minutes."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final
from unittest.mock import patch

from aioproducer import ProducerError
from aioproducer._core.transactions.producer_transactions import Transactions
from aioproducer._core.transactions.transaction_manager import (
    TransactionManager,
    TransactionState,
    is_fatal,
)
from tests.jepsen.__main__ import run
from tests.jepsen.checker import check

LIMIT_S: Final = 600


@contextmanager
def no_epoch_bump() -> Iterator[None]:
    """Keep the epoch after a request without an answer, so that a late EndTxn can end the next transaction."""
    with patch.object(TransactionManager, "request_epoch_bump", lambda _: None):
        yield


@contextmanager
def failed_records_ignored() -> Iterator[None]:
    """Commit although a record failed."""

    def failed(self: TransactionManager, error: ProducerError) -> None:
        if is_fatal(type(error)) or error.fatal:
            self.failed_fatally(error)

    with patch.object(TransactionManager, "failed", failed):
        yield


@contextmanager
def zombies_not_fenced() -> Iterator[None]:
    """Take a new epoch for each transaction, so that a replaced instance continues."""
    begin = Transactions.begin

    async def begin_unfenced(self: Transactions) -> None:
        if self.manager.state is TransactionState.READY:
            self.manager.current = None
            self.manager.state = TransactionState.UNINITIALIZED
            await self.initialize()
        await begin(self)

    with patch.object(Transactions, "begin", begin_unfenced):
        yield


BREAKS: Final[dict[str, tuple[int, Callable[[], AbstractContextManager[None]]]]] = {
    "no-epoch-bump": (1, no_epoch_bump),
    "failed-records-ignored": (2, failed_records_ignored),
    "zombies-not-fenced": (2, zombies_not_fenced),
}
"""Transaction version and patch of each break."""


def find(name: str, seed: int) -> bool:
    """Run the workload with a break, in rounds of one minute. Return True if the checker has found an anomaly."""
    version, broken = BREAKS[name]
    began = time.monotonic()
    while time.monotonic() < began + LIMIT_S:
        with broken():
            path, history = run("aioproducer", version, str(seed), 1, name)
        found = {kind: len(anomalies) for kind, anomalies in check(history).items() if anomalies}
        passed = time.monotonic() - began
        sys.stdout.write(f"{name}: seed {seed}, {passed:.0f} s: {found or 'no anomaly'}; history {path}\n")
        sys.stdout.flush()
        if found:
            return True
        seed += 1
    return False


def main() -> int:
    """Return 1 if a break was not found."""
    parser = argparse.ArgumentParser(prog="python -m tests.jepsen.breaks", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("names", nargs="*", choices=[*BREAKS, []], default=[*BREAKS])
    given = parser.parse_args()
    logging.getLogger("aioproducer").setLevel(logging.CRITICAL)
    return int(not all(find(name, given.seed) for name in given.names))


if __name__ == "__main__":
    sys.exit(main())
