from __future__ import annotations

import sys
from collections.abc import Mapping

import pytest
from click.testing import CliRunner, Result

from aioproducer.cli.commands import program
from aioproducer.spark import recover as recovering

WHERE = ("-b", "a:1", "-o", "linger.ms=0")


def call(*arguments: str) -> Result:
    return CliRunner().invoke(
        program, ("spark-recover", "orders", *WHERE, *arguments), prog_name="aioproducer"
    )


def test_it_fails_until_a_loss_is_confirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    def stand_in(options: Mapping[str, str], prefix: str, *, confirm: bool) -> tuple[str, bool]:
        assert options == {"bootstrap.servers": "a:1", "linger.ms": "0"}
        assert prefix == "orders"
        return "what is told", confirm

    monkeypatch.setattr(recovering, "recover", stand_in)
    for arguments, code in (((), 1), (("--confirm",), 0)):
        result = call(*arguments)
        assert result.exit_code == code
        assert result.output == "what is told\n"


def test_without_spark_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("aioproducer.spark", "aioproducer.spark.recover"):
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyspark.sql.datasource", None)
    result = call()
    assert result.exit_code == 1
    assert 'pip install "pyarrow>=18"' in result.output
