"""The check on an executor: a task without the driver's aioproducer, packages or files fails with one sentence."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from pyspark import cloudpickle

from aioproducer.errors import ConfigError
from aioproducer.version import __version__

if TYPE_CHECKING:
    from aioproducer.spark.sink_options import ProducerSettings

dumps: Final[Callable[[object], bytes]] = cloudpickle.dumps
"""Spark's own pickle function."""


def check_options(settings: ProducerSettings) -> None:
    """Check that this executor accepts the options that the driver has accepted.

    Raises: ConfigError: a package of an extra, a file or a module is missing here.
    """
    try:
        settings.config()
    except ConfigError as error:
        raise ConfigError(
            f"executor on {socket.gethostname()}: {error}; the driver accepts the option: give all executors the driver's"
            f" packages, files and variables (Python: {sys.executable})"
        ) from None


def reduced(kind: type, state: dict[str, object]) -> tuple[Callable[..., object], tuple[str, bytes]]:
    """Return what `__reduce__` returns for an object of *kind* with *state*."""
    return _by_value(), (__version__, dumps((kind, state)))


def restored(content: bytes) -> object:
    """Return the object that was pickled."""
    kind, state = cloudpickle.loads(content)
    made = object.__new__(kind)
    made.__dict__.update(state)
    return made


def _by_value() -> Callable[..., object]:
    """Return a function that cloudpickle pickles by value, as any local one: it runs where aioproducer is missing."""

    def arrive(version: str, content: bytes) -> Any:
        import os  # noqa: PLC0415 - the function travels without its module
        import socket  # noqa: PLC0415
        import sys  # noqa: PLC0415
        from importlib import import_module  # noqa: PLC0415

        from pyspark.errors import PySparkRuntimeError  # noqa: PLC0415

        try:
            found = import_module("aioproducer.version").__version__
            if found == version:
                return import_module("aioproducer.spark.arrival").restored(content)
            problem = (
                f"aioproducer is {found} here, and {version} on the driver; install the driver's version"
            )
        except ImportError as error:
            problem = f"aioproducer cannot be imported: {error}; install aioproducer[spark]"
        spec = getattr(sys.modules["__main__"], "__spec__", None)
        if spec is not None and spec.name.startswith("pyspark."):
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise PySparkRuntimeError(
            f"executor on {socket.gethostname()}: {problem} on all executors (Python: {sys.executable}), or ship an"
            " environment with --archives"
        )

    return arrive
