"""Spark's DataFrames and streams to Kafka: `df.write.format("aioproducer")`.

Spark finds the format of an installed aioproducer through the package `pyspark_aioproducer`. With `--py-files`, register
the format: `spark.dataSource.register(AioProducerSource)`.
"""

from __future__ import annotations

from aioproducer._core.extras import needs

try:
    import pyspark.sql.datasource  # noqa: F401 - checks that pyspark is installed
except ImportError as _missing:
    raise ImportError(needs("aioproducer.spark", "spark", "pyspark>=4.0")) from _missing

from aioproducer.spark.sink_source import AioProducerSource as AioProducerSource

__all__ = ["AioProducerSource"]
