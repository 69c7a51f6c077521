from __future__ import annotations

import pytest
from aiokafka import AIOKafkaProducer

from aioproducer.config import ProducerConfig
from benchmarks.clients import CLIENTS
from benchmarks.settings import Work
from benchmarks.sweep.grid import TUNED_AS, points
from benchmarks.sweep.winners import BEST, Winners
from benchmarks.table import COMPAT, LINGER_0, RACK_AWARE, ROWS

SWEPT = [
    (row.name, client)
    for row in ROWS.values()
    if row.swept
    for client in row.clients
    if client not in TUNED_AS
]
SETS = 8
WITH_DEFAULTS = {LINGER_0, RACK_AWARE, COMPAT}
"""Clients that are in the table of defaults only."""


def test_clients_have_equally_many_sets_and_begin_with_defaults() -> None:
    for row, client in SWEPT:
        tried = points(client, ROWS[row].work)
        assert tried[0] == {}, (row, client)
        assert len(tried) == len({str(sorted(each.items())) for each in tried}) == SETS, (row, client)


def test_every_client_is_swept_at_something() -> None:
    assert {client for _, client in SWEPT} == set(CLIENTS) - WITH_DEFAULTS - set(TUNED_AS)


@pytest.mark.parametrize("work", [Work.LONE, Work.FIRE])
def test_options_exist_in_clients(work: Work) -> None:
    for options in points("aioproducer", work):
        ProducerConfig(bootstrap_servers="here:1", **options)
    for options in points("aiokafka", work):
        assert set(options) <= set(AIOKafkaProducer.__init__.__code__.co_varnames)


def test_committed_winners_are_in_the_grid() -> None:
    winners = Winners.load(BEST)
    for row, client in SWEPT:
        assert winners.options(row, client) in points(client, ROWS[row].work), (row, client)


def test_client_tuned_as_another_is_in_no_row_without_it() -> None:
    for client, other in TUNED_AS.items():
        for row in ROWS.values():
            assert client not in row.clients or not row.swept or other in row.clients
