"""A producer with transactions, and coordinators that say yes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aioproducer import Producer
from aioproducer._core.transactions.coordinator import Coordinators
from aioproducer._core.transactions.transaction_manager import Api
from aioproducer.config import ProducerConfig
from aioproducer.errors import ProducerFenced
from aioproducer.testing import Cluster
from tests.unit._core.transactions.transactions_rig import ID, FakeCoordinators
from tests.unit.producer_rig import started as started_without


@asynccontextmanager
async def started(
    monkeypatch: pytest.MonkeyPatch, *, version: int = 2, **options: Any
) -> AsyncIterator[tuple[Producer, FakeCoordinators, Cluster]]:
    """Yield a producer with transactions and fake coordinators that accept every request at once.

    The broker receives the records as those of an idempotent producer.
    """
    sender_settings = ProducerConfig.sender_settings
    fake = FakeCoordinators(version)
    fake.answers_at_once = True

    def connected(self: Coordinators, node_id: int) -> None:
        self.transaction_version = version

    async def request(self: Coordinators, *args: Any, **more: Any) -> Any:
        return await fake.request(*args, **more)

    monkeypatch.setattr(
        ProducerConfig,
        "sender_settings",
        lambda config: sender_settings(config)._replace(transactional_id=None),
    )
    monkeypatch.setattr(Coordinators, "connected", connected)
    monkeypatch.setattr(Coordinators, "request", request)
    async with started_without(transactional_id=ID, **options) as (producer, cluster):
        yield producer, fake, cluster


def ends(fake: FakeCoordinators) -> list[Api]:
    """Return the ends of transactions."""
    return [each for each in fake.seen if each in {Api.COMMIT, Api.ABORT}]


def fence(producer: Producer) -> None:
    """Fence the producer."""
    assert producer._engine is not None
    assert producer._engine.transactions is not None
    producer._engine.transactions.records.failed(ProducerFenced("gone"))
