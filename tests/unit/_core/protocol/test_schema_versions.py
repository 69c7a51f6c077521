from __future__ import annotations

import pytest

from aioproducer._core.protocol.produce import InitProducerIdRequest, ProduceRequest
from aioproducer._core.protocol.schema import ApiVersionTable
from aioproducer.errors import UnsupportedVersion
from tests.cases import for_each


@for_each(
    ("offered", "picked"),
    [((0, 13), 13), ((3, 8), 8), ((12, 20), 13), ((0, 3), 3)],
)
def test_pick_returns_the_highest_common_version(offered: tuple[int, int], picked: int) -> None:
    table = ApiVersionTable({0: offered})
    assert [table.pick(ProduceRequest) for _ in range(2)] == [picked, picked]


OLDEST = "it works with Kafka 0.11 and later"


def test_cap_lowers_the_version_of_one_api() -> None:
    table = ApiVersionTable({0: (0, 13), 22: (0, 5)}, caps={0: 7, 22: 99})
    assert table.pick(ProduceRequest) == 7
    assert table.pick(InitProducerIdRequest) == 5


def test_cap_does_not_raise_the_version() -> None:
    assert ApiVersionTable({0: (0, 99)}, caps={0: 99}).pick(ProduceRequest) == 13


@pytest.mark.parametrize(
    ("offered", "offer"),
    [
        (
            {0: (0, 2)},
            "the broker offers versions 0 to 2, this client needs one of the versions 3 to 13; " + OLDEST,
        ),
        (
            {0: (14, 15)},
            "the broker offers versions 14 to 15, this client needs one of the versions 3 to 13; " + OLDEST,
        ),
        (
            {},
            "the broker does not offer this API, this client needs one of the versions 3 to 13",
        ),  # an API of a later Kafka
    ],
)
def test_missing_common_version_error_has_both_ranges(
    offered: dict[int, tuple[int, int]], offer: str
) -> None:
    with pytest.raises(UnsupportedVersion) as caught:
        ApiVersionTable(offered).pick(ProduceRequest)
    assert str(caught.value) == f"Produce (API 0): {offer}"


def test_cap_below_the_common_versions_is_unsupported() -> None:
    with pytest.raises(UnsupportedVersion, match="Produce"):
        ApiVersionTable({0: (0, 13)}, caps={0: 2}).pick(ProduceRequest)


@for_each(("at_most", "picked"), [(None, 13), (99, 13), (13, 13), (11, 11), (3, 3)])
def test_pick_honours_at_most(at_most: int | None, picked: int) -> None:
    table = ApiVersionTable({0: (0, 13)})
    assert [table.pick(ProduceRequest, at_most=at_most) for _ in range(2)] == [picked, picked]
    assert table.pick(ProduceRequest) == 13


@pytest.mark.parametrize(("offered", "at_most"), [((0, 13), 2), ((12, 13), 11)])
def test_pick_with_at_most_below_the_common_range_is_unsupported(
    offered: tuple[int, int], at_most: int
) -> None:
    lowest, highest = offered
    with pytest.raises(
        UnsupportedVersion, match=f"Produce.*the broker offers versions {lowest} to {highest},"
    ):
        ApiVersionTable({0: offered}).pick(ProduceRequest, at_most=at_most)


def test_finalized_features_are_empty_by_default() -> None:
    table = ApiVersionTable({})
    assert (table.finalized_features, table.finalized_features_epoch) == ({}, -1)
    table = ApiVersionTable({}, finalized_features={"transaction.version": 2}, finalized_features_epoch=7)
    assert (table.finalized_features, table.finalized_features_epoch) == ({"transaction.version": 2}, 7)


def test_offered_versions_are_readable() -> None:
    assert ApiVersionTable({0: (0, 13)}).offered == {0: (0, 13)}


def test_node_is_unchecked_by_default() -> None:
    assert ApiVersionTable({}).is_node_checked is False
    assert ApiVersionTable({}, is_node_checked=True).is_node_checked is True
