from __future__ import annotations

import pytest

from aioproducer._core.batching.topic import AGREE_S, MissingPartitions, failure_of_missing
from aioproducer.errors import UnknownTopicOrPartition
from aioproducer.types import TopicPartition


def evidence(*, has_same_id: bool = False, has_other_id: bool = False) -> MissingPartitions:
    missing = MissingPartitions()
    missing.has_same_id, missing.has_other_id = has_same_id, has_other_id
    return missing


@pytest.mark.parametrize("node_id", [1, 2, -1])
def test_deletion_is_confirmed_by_two_answers_with_another_id(node_id: int) -> None:
    missing = evidence(has_other_id=True)
    assert not missing.confirm(1, 10.0, is_only_broker=False)
    assert not missing.confirm(node_id, 10.0 + AGREE_S - 0.1, is_only_broker=False)
    assert missing.confirm(node_id, 10.0 + AGREE_S, is_only_broker=False)
    assert missing.are_deleted
    assert missing.confirm(node_id, 10.0 + AGREE_S, is_only_broker=False)


def test_deletion_without_topic_ids_is_confirmed_by_two_brokers() -> None:
    missing = evidence()
    assert not missing.confirm(1, 10.0, is_only_broker=False)
    assert not missing.confirm(2, 10.0 + AGREE_S - 0.1, is_only_broker=False)
    assert not missing.confirm(1, 10.0 + AGREE_S, is_only_broker=False)
    assert missing.confirm(2, 11.0 + AGREE_S, is_only_broker=False)


@pytest.mark.parametrize(("first", "other"), [(0, 1), (1, 0), (2, 1)])
def test_brokers_that_agree_may_have_any_id(first: int, other: int) -> None:
    missing = evidence()
    assert not missing.confirm(first, 10.0, is_only_broker=False)
    assert not missing.confirm(other, 11.0, is_only_broker=False)
    assert not missing.confirm(first, 10.0 + AGREE_S, is_only_broker=False)
    assert missing.confirm(other, 10.0 + AGREE_S, is_only_broker=False)


def test_unknown_broker_agrees_with_none() -> None:
    missing = evidence()
    assert not missing.confirm(-1, 10.0, is_only_broker=False)
    assert not missing.confirm(-1, 10.0 + AGREE_S, is_only_broker=False)
    assert not missing.confirm(1, 10.0 + AGREE_S, is_only_broker=False)
    assert not missing.confirm(-1, 10.0 + AGREE_S, is_only_broker=False)
    assert missing.confirm(2, 10.0 + AGREE_S, is_only_broker=False)


def test_deletion_is_confirmed_twice_by_the_only_broker() -> None:
    missing = evidence()
    assert not missing.confirm(1, 10.0, is_only_broker=True)
    assert missing.confirm(1, 10.0 + AGREE_S, is_only_broker=True)


def test_answers_with_the_same_topic_id_never_suffice() -> None:
    missing = evidence(has_same_id=True)
    for node_id in (1, 2, 3):
        assert not missing.confirm(node_id, 10.0 + node_id * AGREE_S, is_only_broker=True)


@pytest.mark.parametrize(("count", "those"), [(1, "1 partition, 0"), (2, "2 partitions, 0 to 1")])
def test_failure_names_the_partitions_that_exist(count: int, those: str) -> None:
    error = failure_of_missing(TopicPartition("orders", 5), count, possibly_persisted=True).error()
    assert isinstance(error, UnknownTopicOrPartition)
    assert str(error) == f"orders-5: no such partition, 'orders' was recreated with {those}"
    assert error.possibly_persisted
