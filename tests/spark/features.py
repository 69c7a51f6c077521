"""Features that some of the supported Sparks lack, as reasons to skip a test."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
from pyspark.sql import datasource

HAS_STREAM_SINK = hasattr(datasource, "DataSourceStreamArrowWriter")
NO_STREAM_SINK = "Spark 4.0 has no Arrow writer for streams"

needs_stream_sink = pytest.mark.skipif(not HAS_STREAM_SINK, reason=NO_STREAM_SINK)
needs_worker_logs = pytest.mark.skipif(
    find_spec("pyspark.logger.worker_io") is None, reason="python_worker_logs() came with Spark 4.1"
)
