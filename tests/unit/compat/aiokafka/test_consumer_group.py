from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import aiokafka
import pytest

from aioproducer import GroupMetadata
from aioproducer.compat.aiokafka import group_metadata_of


def consumer(*, generation: int = 3, member: str = "m-1", subscribed: bool = True, **more: Any) -> Any:
    """Return what is looked at of a consumer."""
    return SimpleNamespace(
        **{
            "_group_id": "readers",
            "_group_instance_id": "i-1",
            "_coordinator": SimpleNamespace(generation=generation, member_id=member),
            "_subscription": SimpleNamespace(partitions_auto_assigned=lambda: subscribed),
            **more,
        }
    )


def test_a_member_is_told_with_its_generation() -> None:
    assert group_metadata_of(consumer()) == GroupMetadata("readers", 3, "m-1", "i-1")


def test_while_it_is_no_member_the_group_refuses_it() -> None:
    assert group_metadata_of(consumer(generation=-1, member="")) == GroupMetadata("readers", 0, "", "i-1")


def test_one_that_was_assigned_its_partitions_is_not_checked() -> None:
    assert group_metadata_of(consumer(subscribed=False, generation=-1)) == GroupMetadata("readers")


def test_without_a_group_or_a_start_there_is_nothing_to_tell() -> None:
    with pytest.raises(ValueError, match="no group_id"):
        group_metadata_of(consumer(_group_id=None))
    with pytest.raises(ValueError, match="not started"):
        group_metadata_of(consumer(_coordinator=None))


def test_a_release_that_is_not_known_is_not_read(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(aiokafka, "__version__", "0.140.0")
    with caplog.at_level(logging.WARNING, "aioproducer"):
        assert group_metadata_of(SimpleNamespace(_group_id="readers")) == GroupMetadata("readers")
    assert caplog.messages == ["compat.group_unchecked group=readers aiokafka=0.140.0"]


async def test_a_consumer_of_aiokafka_has_what_is_read() -> None:
    made = aiokafka.AIOKafkaConsumer("in", group_id="readers", group_instance_id="i-1")
    made._coordinator = SimpleNamespace(generation=1, member_id="m")
    assert group_metadata_of(made) == GroupMetadata("readers", 1, "m", "i-1")
    made._coordinator = None
    await made.stop()
