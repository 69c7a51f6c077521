"""Spark's DataFrames and streams to Kafka: `df.write.format("aioproducer")`.

Spark finds the format by itself where aioproducer is installed (through the package `pyspark_aioproducer`);
`spark.dataSource.register(AioProducerSource)` makes it known where it is not, say with `--py-files`.
"""

from __future__ import annotations

from aioproducer._core.extras import needs

try:
    import pyspark.sql.datasource  # noqa: F401 - asked for here, so that its absence is explained
except ImportError as _missing:
    raise ImportError(needs("aioproducer.spark", "spark", "pyspark>=4.0")) from _missing

from aioproducer.spark.sink_source import AioProducerSource as AioProducerSource

__all__ = ["AioProducerSource"]
