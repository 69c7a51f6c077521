"""Registration of the format "aioproducer": Spark imports each package whose name begins with `pyspark_`.

If an import fails, Spark finds no format at all. So this package imports only pyspark; a missing dependency is reported
when the format is used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql.datasource import DataSource


def _of_source(name: str) -> Callable[..., Any]:
    """Return the method *name* of `aioproducer.spark.AioProducerSource`, which is imported at the first use."""

    def call(self: DefaultSource, *args: Any, **named: Any) -> Any:
        from aioproducer.spark import AioProducerSource  # noqa: PLC0415 - see above

        return getattr(AioProducerSource(self.options), name)(*args, **named)

    return call


class DefaultSource(DataSource):
    """Proxy of `aioproducer.spark.AioProducerSource`."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "aioproducer"

    schema = _of_source("schema")
    reader = _of_source("reader")
    streamReader = _of_source("streamReader")  # noqa: N815 - Spark's name
    writer = _of_source("writer")
    streamWriter = _of_source("streamWriter")  # noqa: N815 - Spark's name
