from __future__ import annotations

import pytest
from aiokafka import AIOKafkaProducer

from aioproducer.config import ProducerConfig
from benchmarks.clients import CLIENTS
from benchmarks.settings import Work
from benchmarks.sweep.grid import TUNED_AS, points
from benchmarks.sweep.winners import BEST, Winners
from benchmarks.table import DOOR, LINGER_0, RACK_AWARE, ROWS

SWEPT = [
    (row.name, client)
    for row in ROWS.values()
    if row.swept
    for client in row.clients
    if client not in TUNED_AS
]
SETS = 8
AS_THEY_COME = {LINGER_0, RACK_AWARE, DOOR}
"""Clients that are in the table of defaults only."""


@pytest.mark.parametrize(("row", "client"), SWEPT)
def test_everybody_is_given_the_same_care_and_begins_with_its_defaults(row: str, client: str) -> None:
    tried = points(client, ROWS[row].work)
    assert tried[0] == {}
    assert len(tried) == SETS
    assert len({str(sorted(each.items())) for each in tried}) == SETS


def test_every_client_is_swept_at_something() -> None:
    assert {client for _, client in SWEPT} == set(CLIENTS) - AS_THEY_COME - set(TUNED_AS)


@pytest.mark.parametrize("work", [Work.LONE, Work.FIRE])
def test_options_are_those_that_clients_have(work: Work) -> None:
    for options in points("aioproducer", work):
        ProducerConfig(bootstrap_servers="here:1", **options)
    for options in points("aiokafka", work):
        assert set(options) <= set(AIOKafkaProducer.__init__.__code__.co_varnames)


@pytest.mark.parametrize(("row", "client"), SWEPT)
def test_the_committed_winners_are_of_this_grid(row: str, client: str) -> None:
    assert Winners.load(BEST).options(row, client) in points(client, ROWS[row].work)


def test_client_tuned_as_another_is_in_no_row_without_it() -> None:
    for client, other in TUNED_AS.items():
        for row in ROWS.values():
            assert client not in row.clients or not row.swept or other in row.clients
