"""Handshake of a connection, without I/O: the request for API versions (KIP-35, KIP-511).

An exchange is a generator: it yields each request, receives the response, and returns the result.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeAlias

from aioproducer._core.net.in_flight import Decode
from aioproducer._core.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse
from aioproducer._core.protocol.schema import ApiVersionTable, Request, decode_response
from aioproducer._core.wire import read_int16
from aioproducer.errors import ProtocolError, RebootstrapRequired, UnsupportedVersion, broker_error
from aioproducer.version import __version__

SOFTWARE_NAME: Final = "aioproducer"
NODE_CHECK: Final = 5
"""Version of ApiVersions with the cluster id and node id (KIP-1242)."""


class Ask(NamedTuple):
    """Request of an exchange, with the decoder of the response."""

    request: Request[Any]
    version: int
    decode: Decode


Exchange: TypeAlias = Generator[Ask, Any, ApiVersionTable]
"""Generator of requests; raises a ProducerError if the connection is unusable."""


class ExpectedNode(NamedTuple):
    """Node that is expected at an address."""

    cluster_id: str
    node_id: int


def handshake(version_caps: Mapping[int, int], expected: ExpectedNode | None = None) -> Exchange:
    """Request the API versions of the broker. *version_caps* has the highest version to use, by API key.

    A broker without the version of the request returns error 35, usually with its own versions (KIP-511). After error 35
    the request is repeated in the broker's highest version, or in version 0, which every broker since 0.10 supports. The
    first request has version 5 only with *expected*: version 5 costs one more round trip with brokers before 4.4.

    Raises: RebootstrapRequired if the broker is not the *expected* node; BrokerError for any other refusal.
    """
    newest = NODE_CHECK - 1 if expected is None else NODE_CHECK
    version = min(newest, version_caps.get(ApiVersionsRequest.API_KEY, newest))
    request = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=__version__)
    if expected is not None:
        request.cluster_id, request.node_id = expected
    answer: ApiVersionsResponse = yield Ask(request, version, _decode)
    while answer.error_code == UnsupportedVersion.code and version:
        _, highest = _offered(answer).get(ApiVersionsRequest.API_KEY, (0, 0))
        version = max(0, highest) if highest < version else 0
        answer = yield Ask(request, version, _decode)
    if answer.error_code:
        refused = broker_error(answer.error_code)
        if refused is RebootstrapRequired and expected is not None:
            raise refused(f"not node {expected.node_id} of cluster {expected.cluster_id!r}")
        raise refused(f"ApiVersions was refused: {refused.__name__} ({refused.code})")
    return ApiVersionTable(
        _offered(answer),
        version_caps,
        finalized_features={each.name: each.max_version_level for each in answer.finalized_features},
        finalized_features_epoch=answer.finalized_features_epoch,
        is_node_checked=expected is not None and version >= NODE_CHECK,
    )


def _offered(answer: ApiVersionsResponse) -> dict[int, tuple[int, int]]:
    return {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}


def _decode(response: type[Any], version: int, payload: bytes) -> tuple[Any, int]:
    """Decode a response to ApiVersions. With error 35, the versions count only if the response decodes as version 0.

    Brokers respond to an unknown version in version 0, and a few brokers respond in another format.
    """
    error_code, _ = read_int16(payload, 4)  # the error code follows the correlation id, the only header field
    if error_code == UnsupportedVersion.code:
        with suppress(ProtocolError):
            answer, surplus = decode_response(response, 0, payload)
            if not surplus:
                return answer, 0
        return ApiVersionsResponse(error_code=error_code, api_keys=[]), 0
    return decode_response(response, version, payload)
