"""Registration of the format "aioproducer": Spark imports each package whose name begins with `pyspark_`.

If an import fails, Spark finds no format at all. So this package imports only pyspark; a missing dependency is reported
when the format is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

    from aioproducer.spark import AioProducerSource


class DefaultSource(DataSource):
    """Proxy of `aioproducer.spark.AioProducerSource`, which is imported at the first use."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "aioproducer"

    def schema(self) -> StructType:
        """Raise the error of a format that only writes."""
        return self._source().schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        """Raise the error of a format that only writes."""
        return self._source().reader(schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return a reader that raises the error of a format that only writes."""
        return self._source().streamReader(schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001 - Spark's signature
        """Return the writer of a DataFrame."""
        return self._source().writer(schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: FBT001, N802 - Spark's signature
        """Return the writer of a stream."""
        return self._source().streamWriter(schema, overwrite)

    def _source(self) -> AioProducerSource:
        from aioproducer.spark import AioProducerSource  # noqa: PLC0415 - imported at the first use

        return AioProducerSource(self.options)
