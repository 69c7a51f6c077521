"""Client that sends the requests of a test, and returns the responses."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any, Self, cast

from aioproducer._core.protocol.consumer import FetchPartition, FetchRequest, FetchTopic
from aioproducer._core.protocol.metadata import MetadataRequest, MetadataRequestTopic
from aioproducer._core.protocol.produce import (
    BY_NAME,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from aioproducer._core.protocol.schema import R, Request, decode_response, encode_request, read_correlation_id
from aioproducer._core.protocol.types import NO_TOPIC_ID
from aioproducer.testing import Cluster, ThreadedCluster
from aioproducer.testing.handlers.connect import OFFERED
from tests.unit._core.net.streams import dial_streams
from tests.unit.testing.batches import batch


class Client:
    """One connection to one node."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._ids = itertools.count(1)
        self._answered = 0

    @classmethod
    async def to(cls, cluster: Cluster | ThreadedCluster, node_id: int = 1) -> Self:
        host, port = cluster.bootstrap_servers.split(",")[node_id - 1].split(":")
        return cls(*await dial_streams(host, int(port)))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()
        await asyncio.gather(self.writer.wait_closed(), return_exceptions=True)

    def send(self, request: Request[Any], version: int | None = None) -> None:
        version = newest(request) if version is None else version
        self.writer.write(encode_request(request, version, next(self._ids), "test"))

    async def frame(self) -> bytes:
        """Return the next answer as it came, without its length."""
        length = int.from_bytes(await self.reader.readexactly(4), "big")
        return await self.reader.readexactly(length)

    async def answer_to(self, request: Request[R], version: int | None = None) -> R:
        """Return the next response, decoded as that to *request*: responses arrive in order."""
        version = newest(request) if version is None else version
        frame = await self.frame()
        answer, surplus = decode_response(request.RESPONSE, version, frame)
        self._answered += 1
        assert (read_correlation_id(frame), surplus) == (self._answered, 0)
        return cast("R", answer)

    async def ask(self, request: Request[R], version: int | None = None) -> R:
        self.send(request, version)
        return await self.answer_to(request, version)

    async def produce(
        self, data: bytes | bytearray | None = None, *, partition: int = 0, version: int | None = None
    ) -> PartitionProduceResponse:
        """Produce one batch to one partition of "orders"."""
        request = produce_request({partition: batch() if data is None else data})
        if version is not None and version > BY_NAME:
            request.topic_data[0].topic_id = await self.topic_id("orders")
        response = await self.ask(request, version)
        return response.responses[0].partition_responses[0]

    async def topic_id(self, name: str) -> bytes:
        """Ask for the id of a topic."""
        answer = await self.ask(MetadataRequest(topics=[MetadataRequestTopic(name=name)]))
        return answer.topics[0].topic_id

    async def is_closed(self) -> bool:
        """Wait for the end of the stream, by whichever way; there must be nothing before it."""
        try:
            return await self.reader.read() == b""
        except ConnectionError:
            return True


def newest(request: Request[Any]) -> int:
    """Return the highest version that both sides know, in which topics have names if the request has no ids."""
    version = min(request.VERSIONS[1], OFFERED[request.API_KEY][1])
    if isinstance(request, ProduceRequest) and all(
        topic.topic_id == NO_TOPIC_ID for topic in request.topic_data
    ):
        return min(version, BY_NAME)
    return version


def produce_request(
    batches: dict[int, bytes | bytearray], *, acks: int = -1, topic: str = "orders"
) -> ProduceRequest:
    data = [PartitionProduceData(index=index, records=records) for index, records in batches.items()]
    topics = [TopicProduceData(name=topic, partition_data=data)]
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=topics)


def fetch_request(
    offsets: dict[int, int],
    *,
    topic: str = "orders",
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1_000_000,
    partition_max_bytes: int = 1_000_000,
    leader_epoch: int = -1,
) -> FetchRequest:
    partitions = [
        FetchPartition(
            partition=partition,
            fetch_offset=offset,
            partition_max_bytes=partition_max_bytes,
            current_leader_epoch=leader_epoch,
        )
        for partition, offset in offsets.items()
    ]
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        topics=[FetchTopic(topic=topic, partitions=partitions)],
    )


def metadata_request(*names: str, may_create: bool = False) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=may_create)
