"""The transaction.version of a cluster, from the versions and features of its nodes."""

from __future__ import annotations

from typing import Any

from aioproducer._core.protocol.schema import ApiVersionTable
from aioproducer._core.transactions.transaction_manager import ClusterVersion
from tests.cases import for_each

OFFERED = {0: (3, 12), 26: (0, 5), 28: (0, 5)}


def versions(level: int, *, epoch: int = 1, offered: dict[int, tuple[int, int]] = OFFERED) -> ApiVersionTable:
    features = {"transaction.version": level}
    return ApiVersionTable(offered, finalized_features=features, finalized_features_epoch=epoch)


@for_each(
    ("told", "version"),
    [
        ({}, 0),
        ({"finalized_features": {"other": 9}, "finalized_features_epoch": 5}, 0),
        *(({"finalized_features": {"transaction.version": each}}, each) for each in (0, 1, 2)),
        ({"finalized_features": {"transaction.version": 3}, "finalized_features_epoch": 0}, 2),
    ],
)
def test_version_is_the_finalized_level_up_to_2(told: dict[str, Any], version: int) -> None:
    assert ClusterVersion().update(1, ApiVersionTable(OFFERED, **told)) == version


def test_features_of_the_newest_epoch_count() -> None:
    cluster = ClusterVersion()
    for epoch, level, version in ((5, 2, 2), (4, 1, 2), (6, 1, 1), (6, 2, 2)):
        assert cluster.update(1, versions(level, epoch=epoch)) == version


@for_each(("api_key", "highest"), [(0, 11), (26, 4), (28, 4), (28, None)])
def test_version_is_1_while_a_node_lacks_a_request(api_key: int, highest: int | None) -> None:
    cluster = ClusterVersion()
    offered = {key: each for key, each in OFFERED.items() if key != api_key}
    if highest is not None:
        offered[api_key] = (0, highest)
    assert cluster.update(1, versions(2)) == 2
    assert cluster.update(2, versions(2, offered=offered)) == 1
    assert cluster.update(1, versions(2)) == 1
    assert cluster.update(2, versions(2)) == 2
