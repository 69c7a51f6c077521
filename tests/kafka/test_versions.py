"""Each supported version of each request, with a broker that supports all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from aioproducer import Producer, ProducerConfig
from aioproducer._core.net import connection_protocol
from aioproducer._core.net.connection_protocol import ConnectionSettings
from aioproducer._core.protocol.metadata import ApiVersionsRequest, MetadataRequest
from aioproducer._core.protocol.produce import BY_NAME, InitProducerIdRequest, ProduceRequest
from aioproducer._core.protocol.schema import Request, encode_request
from aioproducer.errors import UnsupportedCompressionType
from tests.kafka.apache.broker import ApacheKafka
from tests.kafka.conftest import NewTopic
from tests.kafka.readback import read_with_librdkafka
from tests.kafka.samples import SAMPLES, with_send, with_send_many

RequestType: TypeAlias = type[Request[Any]]
Cap: TypeAlias = Callable[[RequestType, int], None]
Used: TypeAlias = set[tuple[RequestType, int]]

IDS_SINCE = 10
"""The first version of Metadata that has topic ids."""
REQUESTS: list[RequestType] = [ApiVersionsRequest, MetadataRequest, InitProducerIdRequest, ProduceRequest]
NEWEST = {each: each.VERSIONS[1] for each in REQUESTS} | {InitProducerIdRequest: 5, ApiVersionsRequest: 4}
"""The broker's newest versions: InitProducerId 6 needs `unstable.api.versions.enable`, ApiVersions 5 needs Kafka 4.4."""
EVERY_VERSION = [
    pytest.param(request_type, version, id=f"{request_type.__name__}-{version}")
    for request_type in REQUESTS
    for version in range(request_type.VERSIONS[0], NEWEST[request_type] + 1)
]


@pytest.fixture
def cap(monkeypatch: pytest.MonkeyPatch) -> Cap:
    """Lets producers use no higher version of a request than the one given."""
    uncapped = ProducerConfig.connection_settings

    def cap(request_type: RequestType, version: int) -> None:
        def connection_settings(config: ProducerConfig) -> ConnectionSettings:
            return uncapped(config)._replace(version_caps={request_type.API_KEY: version})

        monkeypatch.setattr(ProducerConfig, "connection_settings", connection_settings)

    return cap


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> Used:
    """The requests that were written, and their versions."""
    used: Used = set()

    def spy(request: Request[Any], version: int, *args: Any, **options: Any) -> bytearray:
        used.add((type(request), version))
        return encode_request(request, version, *args, **options)

    monkeypatch.setattr(connection_protocol, "encode_request", spy)
    return used


@pytest.mark.parametrize(("request_type", "version"), EVERY_VERSION)
async def test_every_version_of_every_request_works(
    kafka: ApacheKafka,
    topic: str,
    cap: Cap,
    used: Used,
    request_type: RequestType,
    version: int,
) -> None:
    cap(request_type, version)
    async with Producer(kafka.bootstrap_servers, compression_type="gzip") as producer:
        sent = [*await with_send(producer, topic, SAMPLES), *await with_send_many(producer, topic, SAMPLES)]
    written = [sample.as_read(where) for sample, where in zip(SAMPLES * 2, sent, strict=True)]
    assert read_with_librdkafka(kafka.bootstrap_servers, topic) == sorted(written)
    newest = {each: NEWEST[each] for each in REQUESTS}
    if request_type is MetadataRequest and version < IDS_SINCE:
        newest[ProduceRequest] = BY_NAME
    assert used == {*(newest | {request_type: version}).items()}


@pytest.mark.parametrize("version", range(3, 7))
async def test_old_broker_refuses_zstd(
    kafka: ApacheKafka, new_topic: NewTopic, cap: Cap, version: int
) -> None:
    """KIP-110: brokers accept zstd from version 7 of Produce on."""
    topic = new_topic()
    cap(ProduceRequest, version)
    async with Producer(kafka.bootstrap_servers, compression_type="zstd") as producer:
        with pytest.raises(UnsupportedCompressionType) as caught:
            await producer.send(topic, b"value")
    assert not caught.value.possibly_persisted
    assert read_with_librdkafka(kafka.bootstrap_servers, topic) == []
