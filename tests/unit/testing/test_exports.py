from __future__ import annotations

import pytest

from aioproducer import testing


def test_every_name_is_found_where_it_is_promised() -> None:
    assert testing.__all__ == [
        "Cluster",
        "CommittedOffset",
        "Deadlock",
        "DecodedBatch",
        "DecodedRecord",
        "MetricsPushed",
        "PushedMetric",
        "Refused",
        "Rule",
        "ThreadedCluster",
        "in_virtual_time",
    ]
    for name in testing.__all__:
        assert getattr(testing, name).__name__ == name


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"'aioproducer\.testing' has no attribute 'Broker'"):
        testing.Broker  # noqa: B018 - __getattr__ is what is tested
