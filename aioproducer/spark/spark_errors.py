"""Conversion of this package's errors to PySpark's errors, of which Spark shows the text and no traceback."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pickle import PicklingError
from typing import Final

from pyspark.errors import PySparkException, PySparkRuntimeError, PySparkValueError

from aioproducer.errors import ConfigError, ProducerError

HIDE_TRACEBACK: Final = "SPARK_HIDE_TRACEBACK"
"""Spark's own variable: a Python process with it reports an exception without its traceback."""


class PlanningError(PySparkRuntimeError, PicklingError):
    """An error while Spark pickles a writer. PySpark wraps and prints every exception except PickleError."""


@contextmanager
def sparks_errors(*, pickling: bool = False) -> Iterator[None]:
    """Raise each error of this package as PySpark's, in one line that begins with the error's class.

    The line of a ConfigError has no class.

    Other exceptions are faults of this package: these exceptions pass, with their traceback.
    """
    try:
        yield
    except (ProducerError, PySparkException) as error:
        hide_traceback()
        raise (PlanningError(_line(error)) if pickling else _converted(error)) from None


def _converted(error: ProducerError | PySparkException) -> PySparkException:
    if isinstance(error, PySparkException):
        return error
    return (PySparkValueError if isinstance(error, ConfigError) else PySparkRuntimeError)(_line(error))


def _line(error: ProducerError | PySparkException) -> str:
    text = "; ".join((str(error), *getattr(error, "__notes__", ())))
    if not isinstance(error, ConfigError | PySparkException):
        text = f"{type(error).__name__}: {text}"
    return " ".join(text.split("\n"))


def hide_traceback() -> None:
    """Hide the traceback of the next error if this is one of Spark's processes, which ends with the error."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is not None and spec.name.startswith("pyspark."):
        os.environ[HIDE_TRACEBACK] = "1"
