"""The first words on a connection: which versions does the broker speak? (KIP-35, KIP-511)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from aioproducer.errors import UnsupportedVersion, broker_error
from aioproducer.net.in_flight import Decode
from aioproducer.net.settings import ConnectionSettings
from aioproducer.protocol.api_versions import ApiVersionsRequest, ApiVersionsResponse
from aioproducer.protocol.frames import decode_response
from aioproducer.protocol.schema import Message, Request
from aioproducer.protocol.versions import ApiVersionTable
from aioproducer.version import __version__
from aioproducer.wire.primitives import read_int16

SOFTWARE_NAME: Final = "aioproducer"

R = TypeVar("R", bound=Message)


class Requester(Protocol):
    """What the handshake needs of a connection."""

    async def request(
        self, request: Request[R], *, version: int | None = None, decode: Decode = decode_response
    ) -> R:
        """Send *request* and return its answer."""


Authenticate: TypeAlias = Callable[[Requester], Awaitable[None]]
"""Proves to the broker who we are, once versions are known; raises AuthenticationFailed."""


async def no_authentication(connection: Requester) -> None:
    """Say nothing: PLAINTEXT listeners do not ask who we are."""


async def handshake(
    connection: Requester, settings: ConnectionSettings, *, authenticate: Authenticate = no_authentication
) -> ApiVersionTable:
    """Ask the broker for its versions, then authenticate.

    A broker that is older than our version of the question says so with error 35, in whatever shape it likes;
    it is then asked again in version 0, which every broker since 0.10 knows.

    Raises: BrokerError if the broker refuses to tell; whatever *connection* and *authenticate* raise.
    """
    newest = ApiVersionsRequest.VERSIONS[1]
    answer = await _api_versions(
        connection, min(newest, settings.version_caps.get(ApiVersionsRequest.API_KEY, newest))
    )
    if answer.error_code == UnsupportedVersion.code:
        answer = await _api_versions(connection, 0)
    if answer.error_code:
        refused = broker_error(answer.error_code)
        raise refused(f"ApiVersions was refused: {refused.__name__} ({refused.code})")
    offered = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
    await authenticate(connection)
    return ApiVersionTable(offered, settings.version_caps)


async def _api_versions(connection: Requester, version: int) -> ApiVersionsResponse:
    request = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=__version__)
    return await connection.request(request, version=version, decode=_decode)


def _decode(response: type[Any], version: int, payload: bytes) -> tuple[Any, int]:
    """Decode an answer to ApiVersions; if it is error 35, look no further than that.

    Brokers answer an unknown version in version 0, and some in shapes of their own.
    """
    error_code, _ = read_int16(payload, 4)  # after the correlation id, all there is to this response's header
    if error_code == UnsupportedVersion.code:
        return ApiVersionsResponse(error_code=error_code, api_keys=[]), 0
    return decode_response(response, version, payload)
