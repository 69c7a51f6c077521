"""How Spark finds the format "aioproducer": it looks into every package whose name begins with `pyspark_`.

If one of them cannot be imported, Spark finds the formats of none of them. So this one imports nothing that could be
missing; what is wrong with the rest is said to those who use the format.
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
    """Stands in for `aioproducer.spark.AioProducerSource` until it is used."""

    @classmethod
    def name(cls) -> str:
        """Return what stands in `format(…)`."""
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
        """Return what writes a DataFrame."""
        return self._source().writer(schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: FBT001, N802 - likewise
        """Return what writes a stream."""
        return self._source().streamWriter(schema, overwrite)

    def _source(self) -> AioProducerSource:
        from aioproducer.spark import AioProducerSource  # noqa: PLC0415 - only if it is used

        return AioProducerSource(self.options)
