from __future__ import annotations

from benchmarks.clients import CLIENTS, JVM, OURS, TITLES, adapter
from benchmarks.row import FIGURES
from benchmarks.settings import Tuning, Work
from benchmarks.table import ROWS

MEASURED = {
    Work.CLOSED: {"records_s", "cpu_us", "p50_ms", "p99_ms"},
    Work.LONE: {"records_s", "cpu_us", "p50_ms", "p99_ms"},
    Work.TRANSACTIONS: {"records_s", "cpu_us", "p50_ms", "p99_ms"},
    Work.FIRE: {"records_s", "cpu_us"},
    Work.CALLBACKS: {"records_s", "cpu_us"},
    Work.GATHER: {"records_s", "cpu_us"},
    Work.BULK: {"records_s", "cpu_us"},
    Work.ONE_BY_ONE: {"records_s", "cpu_us"},
    Work.MEMORY: {"rss_mib", "kept_mib"},
    Work.LAG: {"lag_ms"},
    Work.STEADY: {"records_s", "cpu_us", "requests", "p50_ms", "p99_ms"},
    Work.SLOW_BROKER: {"records_s", "cpu_us", "requests", "slow_share", "mean_ms", "p50_ms", "p99_ms"},
    Work.ZONES: {"records_s", "cpu_us", "requests", "zone_share", "mean_ms", "p50_ms", "p99_ms"},
    Work.COLD: {"import_ms", "first_ms"},
    Work.SCALE: {"growth"},
}


def test_clients_of_rows_support_the_work() -> None:
    for row in ROWS.values():
        assert row.clients[0] == OURS
        for client in row.clients:
            if client != JVM:
                assert row.work in adapter(client).workloads, row.name
            assert client in TITLES


def test_targets_have_clients_and_figures_of_the_row() -> None:
    for row in ROWS.values():
        for target in row.targets:
            assert target.ours in row.clients
            assert not target.against or target.against in row.clients
            assert target.figure in MEASURED[row.work]
            assert target.must is not None or target.goal is not None
            assert target.tuning in row.tunings


def test_goal_is_stricter_than_minimum() -> None:
    for row in ROWS.values():
        for target in row.targets:
            if target.must is not None and target.goal is not None:
                assert (target.goal > target.must) == FIGURES[target.figure].more_is_better


def test_only_rows_with_awaited_calls_do_not_linger() -> None:
    for row in ROWS.values():
        awaited = row.work in {Work.CLOSED, Work.LONE, Work.COLD, Work.TRANSACTIONS}
        assert row.settings.linger_ms == (0 if awaited else 5), row.name


def test_row_tuned_as_another_has_its_clients() -> None:
    for row in ROWS.values():
        if row.tuned_as:
            assert ROWS[row.tuned_as].swept
            assert set(row.clients) <= set(ROWS[row.tuned_as].clients)


def test_tables_have_rows_with_keys_and_headers() -> None:
    for tuning in Tuning:
        assert any(tuning in row.tunings for row in ROWS.values())
    for work in (Work.CLOSED, Work.FIRE, Work.BULK):
        whole = [row for row in ROWS.values() if row.work is work and row.settings.headers]
        assert all(row.settings.keys for row in whole)
        assert {Tuning.DEFAULTS, Tuning.BEST} <= {tuning for row in whole for tuning in row.tunings}


def test_names_are_the_keys_of_rows() -> None:
    assert all(row.name == name for name, row in ROWS.items())
    kinds_of_several_rows = {Work.ONE_BY_ONE, Work.SCALE}
    assert not set(ROWS) & kinds_of_several_rows
    assert set(TITLES) == set(CLIENTS)


def test_rows_with_a_rate_have_its_settings() -> None:
    for row in ROWS.values():
        assert bool(row.settings.rate) == (row.work in {Work.STEADY, Work.SLOW_BROKER, Work.ZONES})
        assert bool(row.settings.slow_ms) == (row.name in {"slow-broker", "memory-full"})


def test_every_kind_of_work_is_in_the_table() -> None:
    assert {row.work for row in ROWS.values()} == set(Work)
