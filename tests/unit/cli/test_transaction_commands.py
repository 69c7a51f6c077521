from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import pytest
from click.testing import CliRunner, Result

from aioproducer._core.transactions.transaction_types import PreparedTransaction
from aioproducer.cli import transaction_report
from aioproducer.cli.commands import program
from aioproducer.errors import TransactionTimeout
from aioproducer.spark import committing

FIRST = PreparedTransaction("orders-1", 7, 3, 2, began_at_ms=1_000, timeout_ms=60_000)
SECOND = FIRST._replace(transactional_id="orders-2")
WHERE = ("-b", "a:1")

Called = list[tuple[str, tuple[Any, ...], dict[str, Any]]]


def call(*arguments: str, input: str | None = None) -> Result:  # noqa: A002 - click's name for it
    return CliRunner().invoke(program, ("transactions", *arguments), prog_name="aioproducer", input=input)


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> Called:
    """Calls of the commands without the configuration. The fake reports a partial failure."""
    calls: Called = []

    def stand_in(name: str) -> None:
        async def function(config: Any, *arguments: Any, **options: Any) -> bool:
            assert config.bootstrap_servers == ("a:1",)
            calls.append((name, arguments, options))
            return False

        monkeypatch.setattr(transaction_report, name, function)

    for name in ("show_list", "show_descriptions", "end_and_report", "fence_and_report"):
        stand_in(name)
    return calls


def test_list_passes_filters(called: Called) -> None:
    assert call("list", *WHERE).exit_code == 0
    options = (
        "--pattern",
        "a.*",
        "--state",
        "Ongoing",
        "--state",
        "Empty",
        "--longer-than-ms",
        "5",
        "--json",
    )
    assert call("list", *WHERE, *options).exit_code == 0
    assert called == [
        ("show_list", (None, (), None), {"as_json": False}),
        ("show_list", ("a.*", ("Ongoing", "Empty"), 5), {"as_json": True}),
    ]


def test_unknown_state_is_a_wrong_option(monkeypatch: pytest.MonkeyPatch) -> None:
    async def show_list(*_: Any, **__: Any) -> None:
        raise ValueError("states: nobody knows it")

    monkeypatch.setattr(transaction_report, "show_list", show_list)
    done = call("list", *WHERE)
    assert (done.exit_code, done.output) == (2, "Error: states: nobody knows it\n")


def test_missing_cluster_is_no_wrong_option(monkeypatch: pytest.MonkeyPatch) -> None:
    async def show_list(*_: Any, **__: Any) -> None:
        raise TransactionTimeout("cannot list transactions within 60 s")

    monkeypatch.setattr(transaction_report, "show_list", show_list)
    done = call("list", *WHERE)
    assert (done.exit_code, done.output) == (
        1,
        "Error: TransactionTimeout: cannot list transactions within 60 s\n",
    )


def test_describe_sets_exit_code(called: Called) -> None:
    assert call("describe", "a", "b", *WHERE).exit_code == 1
    assert called == [("show_descriptions", (("a", "b"),), {"as_json": False})]
    assert call("describe", *WHERE).exit_code == 2


def test_end_takes_texts_and_lines(called: Called) -> None:
    done = call("end", "--abort", str(FIRST), "-", *WHERE, input=f"\n{SECOND}\n \n")
    assert done.exit_code == 1
    assert called == [("end_and_report", ([FIRST, SECOND],), {"commit": False, "as_json": False})]


def test_end_requires_commit_or_abort(called: Called) -> None:
    done = call("end", str(FIRST), *WHERE)
    assert done.exit_code == 2
    assert "add --commit or --abort" in done.output


def test_malformed_prepared_transaction_ends_none(called: Called) -> None:
    done = call("end", "--commit", str(FIRST), "orders-1", *WHERE)
    assert done.exit_code == 2
    assert "not a prepared transaction: 'orders-1' is not JSON" in done.output
    assert not called


def test_end_refuses_closed_standard_input(called: Called, monkeypatch: pytest.MonkeyPatch) -> None:
    from aioproducer.cli import transaction_commands  # noqa: PLC0415 - its sys is a stand-in here

    monkeypatch.setattr(transaction_commands, "sys", type("sys", (), {"stdin": None}))
    done = call("end", "--commit", "-", *WHERE)
    assert (done.exit_code, done.output) == (2, "Error: standard input is closed; give the text itself\n")


def test_fence_passes_ids(called: Called) -> None:
    assert call("fence", "a", "b", *WHERE).exit_code == 0
    assert call("fence", "a", "--json", *WHERE).exit_code == 0
    assert called == [
        ("fence_and_report", (("a", "b"),), {"as_json": False}),
        ("fence_and_report", (("a",),), {"as_json": True}),
    ]


SPARK_OPTIONS = ("-b", "a:1", "-o", "linger.ms=0")


def recover(*arguments: str) -> Result:
    return CliRunner().invoke(
        program, ("spark-recover", "orders", *SPARK_OPTIONS, *arguments), prog_name="aioproducer"
    )


def test_spark_recover_fails_until_loss_is_confirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    def stand_in(options: Mapping[str, str], prefix: str, *, confirm: bool) -> tuple[str, bool]:
        assert options == {"bootstrap.servers": "a:1", "linger.ms": "0"}
        assert prefix == "orders"
        return "what is told", confirm

    monkeypatch.setattr(committing, "recover", stand_in)
    for arguments, code in (((), 1), (("--confirm",), 0)):
        result = recover(*arguments)
        assert result.exit_code == code
        assert result.output == "what is told\n"


def test_spark_recover_names_missing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("aioproducer.spark", "aioproducer.spark.committing"):
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyspark.sql.datasource", None)
    result = recover()
    assert result.exit_code == 1
    assert 'pip install "pyarrow>=18"' in result.output
