"""PySpark's exceptions in place of ours, without Spark."""

from __future__ import annotations

import os
import pickle
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest
from pyspark.errors import PySparkException, PySparkRuntimeError, PySparkTypeError, PySparkValueError

from aioproducer.errors import ConfigError, ConnectionFailed, ProducerError
from aioproducer.spark.delivery import BatchLost, DeliveryError
from aioproducer.spark.spark_errors import HIDE_TRACEBACK, PlanningError, sparks_errors


@pytest.fixture(autouse=True)
def no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(HIDE_TRACEBACK, raising=False)


@pytest.mark.parametrize(
    ("error", "kind", "line"),
    [
        (ConfigError("unknown option 'a'"), PySparkValueError, "unknown option 'a'"),
        (DeliveryError("batch 1\nfailed"), PySparkRuntimeError, "DeliveryError: batch 1 failed"),
        (BatchLost("batch 1"), PySparkRuntimeError, "BatchLost: batch 1"),
        (ConnectionFailed("a:9092"), PySparkRuntimeError, "ConnectionFailed: a:9092"),
        (PySparkTypeError("value attribute"), PySparkTypeError, "value attribute"),
    ],
)
def test_an_error_is_one_line_of_a_pyspark_exception(
    error: Exception, kind: type[PySparkException], line: str
) -> None:
    with pytest.raises(kind) as raised, sparks_errors():
        raise error from OSError("cause")
    assert str(raised.value) == line
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__


def test_a_note_is_part_of_the_line() -> None:
    error = ProducerError("row 3: too large")
    error.add_note("rows are counted from 0")
    line = r"^ProducerError: row 3: too large; rows are counted from 0$"
    with pytest.raises(PySparkRuntimeError, match=line), sparks_errors():
        raise error


def test_an_error_of_planning_passes_pickle_unchanged() -> None:
    """PySpark passes a PickleError, and wraps all other exceptions."""
    with (
        pytest.raises(pickle.PickleError, match=r"^BatchLost: batch 1$") as raised,
        sparks_errors(pickling=True),
    ):
        raise BatchLost("batch 1")
    assert isinstance(raised.value, PlanningError)
    assert isinstance(raised.value, PySparkRuntimeError)


@pytest.mark.parametrize("error", [KeyError("a"), ValueError("b")])
def test_a_fault_of_the_package_keeps_its_traceback(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "__main__", main_of("pyspark.daemon"))
    with pytest.raises(type(error)) as raised, sparks_errors():
        raise error
    assert raised.value is error
    assert HIDE_TRACEBACK not in os.environ


@pytest.mark.parametrize(
    ("name", "hidden"),
    [
        ("pyspark.daemon", True),
        ("pyspark.sql.worker.write_into_data_source", True),
        ("job", False),
        (None, False),
    ],
)
def test_only_a_process_of_spark_hides_the_traceback(
    name: str | None, hidden: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "__main__", main_of(name))
    monkeypatch.setenv(HIDE_TRACEBACK, "")
    with pytest.raises(PySparkValueError), sparks_errors():
        raise ConfigError("unknown option")
    assert bool(os.environ[HIDE_TRACEBACK]) is hidden


def main_of(name: str | None) -> ModuleType:
    main = ModuleType("__main__")
    main.__spec__ = None if name is None else ModuleSpec(name, None)
    return main
