"""The mock cluster of librdkafka, from the shared library in confluent-kafka's wheel, and its control functions."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import POINTER, c_char_p, c_int, c_int16, c_int32, c_size_t, c_void_p
from functools import cache
from typing import Final

from confluent_kafka import cimpl

_FUNCTIONS: Final = {
    "rd_kafka_conf_new": (c_void_p, ()),
    "rd_kafka_new": (c_void_p, (c_int, c_void_p, c_char_p, c_size_t)),
    "rd_kafka_destroy": (None, (c_void_p,)),
    "rd_kafka_mock_cluster_new": (c_void_p, (c_void_p, c_int)),
    "rd_kafka_mock_cluster_destroy": (None, (c_void_p,)),
    "rd_kafka_mock_cluster_bootstraps": (c_char_p, (c_void_p,)),
    "rd_kafka_mock_topic_create": (c_int, (c_void_p, c_char_p, c_int, c_int)),
    "rd_kafka_mock_push_request_errors_array": (None, (c_void_p, c_int16, c_size_t, POINTER(c_int))),
    "rd_kafka_mock_partition_set_leader": (c_int, (c_void_p, c_char_p, c_int32, c_int32)),
    "rd_kafka_mock_broker_set_down": (c_int, (c_void_p, c_int32)),
    "rd_kafka_mock_broker_set_up": (c_int, (c_void_p, c_int32)),
    "rd_kafka_mock_coordinator_set": (c_int, (c_void_p, c_char_p, c_char_p, c_int32)),
}


@cache
def _library() -> ctypes.CDLL:
    """Return librdkafka, which the extension module of confluent-kafka has loaded."""
    library = ctypes.CDLL(cimpl.__file__)
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


class MockCluster:
    """A running mock cluster, with brokers 1 to 3."""

    def __init__(self, cluster: int) -> None:
        self._cluster = cluster
        self.bootstrap_servers: Final = _library().rd_kafka_mock_cluster_bootstraps(cluster).decode()

    def create_topic(self, topic: str, partitions: int) -> None:
        """Create a topic with a single replica per partition."""
        self._check(_library().rd_kafka_mock_topic_create(self._cluster, topic.encode(), partitions, 1))

    def fail(self, key: int, code: int, count: int = 1) -> None:
        """Answer the next *count* requests with this API key by the error *code*; `CONNECTION_LOST` closes the connection."""
        codes = (c_int * count)(*[code] * count)
        _library().rd_kafka_mock_push_request_errors_array(self._cluster, key, count, codes)

    def lead(self, topic: str, partition: int, broker: int) -> None:
        """Make *broker* the leader of the partition."""
        self._check(
            _library().rd_kafka_mock_partition_set_leader(self._cluster, topic.encode(), partition, broker)
        )

    def coordinate(self, transactional_id: str, broker: int) -> None:
        """Make *broker* the coordinator of the transactions."""
        kind = b"transaction"
        self._check(
            _library().rd_kafka_mock_coordinator_set(self._cluster, kind, transactional_id.encode(), broker)
        )

    def stop(self, broker: int) -> None:
        """Close the broker's connections and its port."""
        self._check(_library().rd_kafka_mock_broker_set_down(self._cluster, broker))

    def start(self, broker: int) -> None:
        """Accept connections again."""
        self._check(_library().rd_kafka_mock_broker_set_up(self._cluster, broker))

    @staticmethod
    def _check(code: int) -> None:
        assert code == 0, f"librdkafka's mock refused with error {code}"


@contextmanager
def mock_cluster(brokers: int = 3) -> Iterator[MockCluster]:
    """Run a mock cluster in threads of this process."""
    library = _library()
    reason = ctypes.create_string_buffer(500)
    handle = library.rd_kafka_new(0, library.rd_kafka_conf_new(), reason, len(reason))
    assert handle, reason.value
    cluster = library.rd_kafka_mock_cluster_new(handle, brokers)
    assert cluster, "librdkafka's mock did not start"
    try:
        yield MockCluster(cluster)
    finally:
        library.rd_kafka_mock_cluster_destroy(cluster)
        library.rd_kafka_destroy(handle)
