"""The exchanges that a connection has with the broker for itself: so far one, about versions (KIP-35, KIP-511); no I/O.

An exchange is a generator: it yields what to ask, is sent the answer, and returns what came of it. One that has to
follow another is a `yield from` behind it.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from aioproducer.errors import UnsupportedVersion, broker_error
from aioproducer.net.in_flight import Decode
from aioproducer.protocol.api_versions import ApiVersionsRequest, ApiVersionsResponse
from aioproducer.protocol.schema import ApiVersionTable, Request, decode_response
from aioproducer.version import __version__
from aioproducer.wire.primitives import read_int16

SOFTWARE_NAME: Final = "aioproducer"

T = TypeVar("T")


class Ask(NamedTuple):
    """A request of an exchange, and how to read its answer."""

    request: Request[Any]
    version: int
    decode: Decode = decode_response


Exchange: TypeAlias = Generator[Ask, Any, T]
"""Raises a ProducerError if the connection is of no use."""


def handshake(version_caps: Mapping[int, int]) -> Exchange[ApiVersionTable]:
    """Ask the broker for its versions. *version_caps* are the highest to use, by API key.

    A broker that is older than our version of the question says so with error 35, in whatever shape it likes;
    it is then asked again in version 0, which every broker since 0.10 knows.

    Raises: BrokerError if the broker refuses to tell.
    """
    newest = ApiVersionsRequest.VERSIONS[1]
    answer: ApiVersionsResponse = yield _api_versions(
        min(newest, version_caps.get(ApiVersionsRequest.API_KEY, newest))
    )
    if answer.error_code == UnsupportedVersion.code:
        answer = yield _api_versions(0)
    if answer.error_code:
        refused = broker_error(answer.error_code)
        raise refused(f"ApiVersions was refused: {refused.__name__} ({refused.code})")
    offered = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
    return ApiVersionTable(
        offered,
        version_caps,
        finalized_features={each.name: each.max_version_level for each in answer.finalized_features},
        finalized_features_epoch=answer.finalized_features_epoch,
    )


def _api_versions(version: int) -> Ask:
    request = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=__version__)
    return Ask(request, version, _decode)


def _decode(response: type[Any], version: int, payload: bytes) -> tuple[Any, int]:
    """Decode an answer to ApiVersions; if it is error 35, look no further than that.

    Brokers answer an unknown version in version 0, and some in shapes of their own.
    """
    error_code, _ = read_int16(payload, 4)  # after the correlation id, all there is to this response's header
    if error_code == UnsupportedVersion.code:
        return ApiVersionsResponse(error_code=error_code, api_keys=[]), 0
    return decode_response(response, version, payload)
