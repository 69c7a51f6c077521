from __future__ import annotations

import json
from typing import Any, Self

import pytest

from aioproducer._core.transactions.administration import TransactionDescription, TransactionListing
from aioproducer._core.transactions.transaction_types import PreparedTransaction
from aioproducer.cli import transaction_report
from aioproducer.cli.transaction_report import (
    end_and_report,
    fence_and_report,
    show_descriptions,
    show_list,
)
from aioproducer.config import ProducerConfig
from aioproducer.errors import ProducerError, TransactionLost
from aioproducer.types import TopicPartition

CONFIG = ProducerConfig(bootstrap_servers="a:1")
FIRST = PreparedTransaction("orders-1", 7, 3, 2, began_at_ms=1_000, timeout_ms=60_000)
SECOND = FIRST._replace(transactional_id="orders-2")
OPEN = TransactionDescription(
    "orders-1",
    "Ongoing",
    7,
    3,
    60_000,
    1_700_000_000_000,
    frozenset({TopicPartition("in", 2), TopicPartition("in", 0), TopicPartition("a", 1)}),
)


class FakeAdmin:
    """Knows two ids, one of which cannot be committed."""

    fenced: tuple[str, ...] = ()
    listed: tuple[TransactionListing, ...] = (TransactionListing("orders-1", 7, "Ongoing"),)

    @classmethod
    def from_config(cls, config: ProducerConfig) -> Self:
        assert config is CONFIG
        return cls()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def list(
        self, pattern: str | None, states: Any, longer_than_ms: int | None
    ) -> list[TransactionListing]:
        assert (pattern, states, longer_than_ms) == ("o.*", ["Ongoing"], 5)
        return list(self.listed)

    async def describe(self, *ids: str) -> dict[str, TransactionDescription | None]:
        return {name: OPEN if name == "orders-1" else None for name in ids}

    async def end_many(
        self, prepared: Any, *, commit: bool
    ) -> dict[PreparedTransaction, ProducerError | None]:
        return {each: TransactionLost("gone") if commit and each == SECOND else None for each in prepared}

    async def fence(self, *ids: str) -> None:
        type(self).fenced = ids


@pytest.fixture(autouse=True)
def admin(monkeypatch: pytest.MonkeyPatch) -> type[FakeAdmin]:
    monkeypatch.setattr(transaction_report, "TransactionAdmin", FakeAdmin)
    return FakeAdmin


async def test_list_shows_ids(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    await show_list(CONFIG, "o.*", ["Ongoing"], 5, as_json=False)
    assert capsys.readouterr().out.splitlines()[-1].split() == ["orders-1", "7", "Ongoing"]
    await show_list(CONFIG, "o.*", ["Ongoing"], 5, as_json=True)
    assert json.loads(capsys.readouterr().out) == [
        {"transactional_id": "orders-1", "producer_id": 7, "state": "Ongoing"}
    ]
    monkeypatch.setattr(FakeAdmin, "listed", ())
    await show_list(CONFIG, "o.*", ["Ongoing"], 5, as_json=False)
    assert capsys.readouterr().out == "There are no such transactional ids.\n"


async def test_descriptions_show_transactions(capsys: pytest.CaptureFixture[str]) -> None:
    assert await show_descriptions(CONFIG, ["orders-1"], as_json=False)
    line = capsys.readouterr().out.splitlines()[-1]
    assert "60 s" in line
    assert "2023-11-14 22:13:20 UTC" in line
    assert line.rstrip().endswith("a: 1, in: 0,2")
    assert not await show_descriptions(CONFIG, ["orders-1", "other"], as_json=False)
    assert "not known" in capsys.readouterr().out
    assert not await show_descriptions(CONFIG, ["orders-1", "other"], as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert told["other"] is None
    assert told["orders-1"] == {
        "transactional_id": "orders-1",
        "state": "Ongoing",
        "producer_id": 7,
        "epoch": 3,
        "timeout_ms": 60_000,
        "began_at_ms": 1_700_000_000_000,
        "partitions": [
            {"topic": "a", "partition": 1},
            {"topic": "in", "partition": 0},
            {"topic": "in", "partition": 2},
        ],
    }


async def test_ends_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert await end_and_report(CONFIG, [FIRST, SECOND], commit=False, as_json=False)
    assert capsys.readouterr().out == "2 of 2 aborted\n"
    assert not await end_and_report(CONFIG, [FIRST, SECOND], commit=True, as_json=False)
    assert capsys.readouterr() == ("1 of 2 committed\n", "orders-2: TransactionLost: gone\n")
    assert not await end_and_report(CONFIG, [FIRST, SECOND], commit=True, as_json=True)
    first, second = json.loads(capsys.readouterr().out)
    assert (first["outcome"], first["message"]) == ("committed", None)
    assert second == {
        "transactional_id": "orders-2", "producer_id": 7, "epoch": 3,
        "outcome": "TransactionLost", "message": "gone",
    }  # fmt: skip


async def test_fencing_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    await fence_and_report(CONFIG, ["a", "b"], as_json=True)
    assert json.loads(capsys.readouterr().out) == {"fenced": ["a", "b"]}
    await fence_and_report(CONFIG, ["a", "b"], as_json=False)
    assert (FakeAdmin.fenced, capsys.readouterr().out) == (("a", "b"), "2 fenced\n")
