"""Messages: declaration of request and response classes, their encoding, frames, and the choice of a version.

    @message(api_key=22, versions=(0, 4), flexible_from=2)
    class InitProducerIdRequest(Request[InitProducerIdResponse]):
        transactional_id: str | None = field(NULLABLE_STRING)

A frame is a length, a header and a message. Request headers are version 1, or 2 with tagged fields for flexible
messages. Every request header has the client id with a classic int16 length. Response headers are version 0, or 1 with
tagged fields. The header of an ApiVersions response is always version 0, so a client can read the response of a broker
without the requested version. A payload is a frame without its length.

Sources: RequestHeader.json, ResponseHeader.json, KIP-482, KIP-511.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from struct import Struct, error as StructError  # noqa: N812 - a class with a lower-case name
from types import MappingProxyType
from typing import (
    Any,
    ClassVar,
    Final,
    Generic,
    NamedTuple,
    TypeVar,
    dataclass_transform,
    get_args,
)

from aioproducer._core.protocol.fields import field, struct, struct_reader, struct_writer
from aioproducer._core.protocol.types import NULLABLE_STRING
from aioproducer._core.wire import (
    BytesLike,
    Reader,
    Writer,
    past_the_end,
    read_int16,
    read_int32,
    read_tags,
)
from aioproducer.errors import ProtocolError, UnsupportedVersion

NEVER: Final = 0x8000
"""Number above every version: versions are int16 on the wire."""


class Message:
    """Base class of requests and responses."""

    __slots__ = ()

    API_KEY: ClassVar[int]
    VERSIONS: ClassVar[tuple[int, int]]
    """Lowest and highest version that this client writes and reads."""
    FLEXIBLE_FROM: ClassVar[int]
    """First version with compact lengths and tagged fields (KIP-482)."""
    CLIENT_PAUSES_FROM: ClassVar[int]
    """First version of a response that requires the client to pause for `throttle_time_ms`. The broker itself delays a
    response of a lower version (KIP-219)."""
    LARGE: ClassVar[bool]
    """True for responses whose size grows with the cluster, up to many megabytes."""

    def check(self) -> None:
        """Raise ProtocolError for an invalid value, such as a number out of range.

        A client checks a response before it uses any field of the response. Servers and tests may still encode invalid values.
        """

    @staticmethod
    def faster_writer(compiled: Writer, _version: int, /) -> Writer:
        """Return the writer of a version. Messages of the hot path may have faster writers than *compiled*."""
        return compiled


M = TypeVar("M", bound=Message)
R = TypeVar("R", bound=Message)


class Request(Message, Generic[R]):
    """Request with a response of type *R*."""

    __slots__ = ()

    RESPONSE: ClassVar[type[Message]]
    count_records: ClassVar[Callable[..., int] | None] = None
    """Method that returns the number of records in the request; None for a request without records."""


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
def message(
    *,
    api_key: int,
    versions: tuple[int, int],
    flexible_from: int,
    client_pauses_from: int = NEVER,
    large: bool = False,
) -> Callable[[type[M]], type[M]]:
    """Make a class a message; the fields are declared as for `struct`."""

    def decorate(cls: type[M]) -> type[M]:
        cls.API_KEY, cls.VERSIONS, cls.FLEXIBLE_FROM = api_key, versions, flexible_from
        cls.CLIENT_PAUSES_FROM, cls.LARGE = client_pauses_from, large
        if issubclass(cls, Request):
            (cls.RESPONSE,) = get_args(cls.__dict__["__orig_bases__"][0])
        return struct(cls)

    return decorate


# Encoding. An `ApiVersionTable` has picked the version, or a server has checked the version against `VERSIONS`.


def encode(message: Message, version: int) -> bytearray:
    """Return *message* encoded in *version*.

    Raises: ValueError for a field that *version* lacks or a value that does not fit; TypeError for None in a field
        that is not nullable in *version*. Both exceptions are bugs of the caller.
    """
    buf = bytearray()
    _writer(type(message), version)(buf, message)
    return buf


def decode(cls: type[M], version: int, data: BytesLike, offset: int = 0) -> M:
    """Read a *cls* of *version* from *offset* to the end of *data*. Raises: ProtocolError, also for surplus bytes."""
    value, surplus = decode_start(cls, version, data, offset)
    if surplus:
        raise ProtocolError(f"{cls.__name__} v{version}: {surplus} bytes are left over")
    return value


def decode_start(cls: type[M], version: int, data: BytesLike, offset: int = 0) -> tuple[M, int]:
    """Read a *cls* of *version* from *offset* on; return the message and the number of surplus bytes."""
    data = bytes(data)
    read = _readers.get((cls, version)) or _new_reader(cls, version)
    try:
        value, end = read(data, offset)
    except ProtocolError as error:
        raise ProtocolError(f"{cls.__name__} v{version}: {error}") from error
    return value, len(data) - end


def check_range(name: str, value: int, lowest: int, highest: int = 2**63 - 1) -> None:
    """Raise ProtocolError unless the *value* of the field *name* is within *lowest* to *highest*."""
    if not lowest <= value <= highest:
        raise ProtocolError(f"{name}={value} is out of range, {lowest} to {highest}")


def check_address(node_id: int, port: int, lowest_id: int = 0) -> None:
    """Raise ProtocolError for a node id below *lowest_id*, or for an invalid port."""
    check_range("node_id", node_id, lowest_id)
    check_range("port", port, lowest_id, 0xFFFF)


_writers: dict[tuple[type[Message], int], Writer] = {}
_readers: dict[tuple[type[Message], int], Reader] = {}
"""Writers and readers, compiled at the first use of a version. Most versions are never used."""


def _writer(cls: type[Message], version: int) -> Writer:
    writer = _writers.get((cls, version))
    if writer is None:
        compiled = struct_writer(cls, version, flexible=_is_flexible(cls, version))
        writer = _writers[cls, version] = cls.faster_writer(compiled, version)
    return writer


def _new_reader(cls: type[Message], version: int) -> Reader:
    reader = _readers[cls, version] = struct_reader(cls, version, flexible=_is_flexible(cls, version))
    return reader


def _is_flexible(cls: type[Message], version: int) -> bool:
    lowest, highest = cls.VERSIONS
    if not lowest <= version <= highest:
        raise ValueError(f"{cls.__name__} has versions {lowest} to {highest}, not {version}")
    return version >= cls.FLEXIBLE_FROM


# Frames, in both directions, for clients and for servers.

_API_VERSIONS: Final = 18
_LENGTH: Final = Struct(">i")
_LENGTH_BYTES: Final = _LENGTH.size
_REQUEST_START: Final = Struct(">ihhi")
_RESPONSE_START: Final = Struct(">ii")
_append_client_id: Final = NULLABLE_STRING.writer(0, flexible=False, nullable=True)
_read_client_id: Final = NULLABLE_STRING.reader(0, flexible=False, nullable=True)


class RequestHeader(NamedTuple):
    """Header of a request."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def encode_request(
    request: Request[Any], version: int, correlation_id: int, client_id: str | None
) -> bytearray:
    """Return the frame of *request*, including the length field."""
    api_key, header, write = _request_parts(type(request), version, client_id)  # type: ignore[arg-type]  # a class is hashable
    frame = bytearray(header)
    write(frame, request)
    _REQUEST_START.pack_into(frame, 0, len(frame) - _LENGTH_BYTES, api_key, version, correlation_id)
    return frame


@lru_cache(maxsize=256)
def _request_parts(cls: type[Request[Any]], version: int, client_id: str | None) -> tuple[int, bytes, Writer]:
    """Return API key, frame length with header, and writer of a request. Fields that vary per request are zero."""
    header = bytearray(_REQUEST_START.size)
    _append_client_id(header, client_id)
    return cls.API_KEY, bytes(header) + b"\0" * (version >= cls.FLEXIBLE_FROM), _writer(cls, version)


def encode_response(response: Message, version: int, correlation_id: int) -> bytearray:
    """Return the frame of *response*, including the length field."""
    frame = bytearray(_RESPONSE_START.pack(0, correlation_id))
    if _has_tags(type(response), version):
        frame.append(0)
    _writer(type(response), version)(frame, response)
    _LENGTH.pack_into(frame, 0, len(frame) - _LENGTH_BYTES)
    return frame


def _has_tags(response_cls: type[Message], version: int) -> bool:
    return version >= response_cls.FLEXIBLE_FROM and response_cls.API_KEY != _API_VERSIONS


def read_correlation_id(payload: BytesLike) -> int:
    """Return the correlation id of the response in *payload*. Raises: ProtocolError if *payload* is too short."""
    try:
        (correlation_id,) = _LENGTH.unpack_from(payload)
    except StructError:
        raise past_the_end(_LENGTH_BYTES, bytes(payload), 0) from None
    return int(correlation_id)


def decode_response(response_cls: type[M], version: int, payload: BytesLike) -> tuple[M, int]:
    """Return the response in *payload*, and the number of surplus bytes.

    Surplus bytes are harmless, because the length of the frame is known. Some brokers send surplus bytes, which the Java
    client also ignores.

    Raises: ProtocolError if the message is incomplete, or has an invalid value (`Message.check`).
    """
    body = response_body(response_cls, version, payload)
    answer, surplus = decode_start(response_cls, version, payload, body)
    try:
        answer.check()
    except ProtocolError as error:
        raise ProtocolError(f"{response_cls.__name__} v{version}: {error}") from error
    return answer, surplus


def response_body(response_cls: type[Message], version: int, payload: BytesLike) -> int:
    """Return the position of the message in *payload*, a response."""
    pos = _RESPONSE_START.size - _LENGTH_BYTES
    if not _has_tags(response_cls, version):
        return pos
    return read_tags(payload, pos, {}, None)  # type: ignore[arg-type]  # without known fields, all bytes are integers


def decode_request(
    payload: BytesLike, requests: Mapping[int, type[Request[Any]]]
) -> tuple[RequestHeader, int]:
    """Return the header and the position of the message, for `decode(requests[header.api_key], …, payload, pos)`.

    If *requests* lacks the API or the version, only the header is valid.
    """
    data = bytes(payload)
    api_key, pos = read_int16(data, 0)
    api_version, pos = read_int16(data, pos)
    correlation_id, pos = read_int32(data, pos)
    client_id, pos = _read_client_id(data, pos)
    header = RequestHeader(api_key, api_version, correlation_id, client_id)
    request_cls = requests.get(api_key)
    if request_cls is not None and request_cls.FLEXIBLE_FROM <= api_version <= request_cls.VERSIONS[1]:
        pos = read_tags(data, pos, {}, None)
    return header, pos


# Choice of the version: the highest common version of client and broker.

_OLDEST_KAFKA: Final = "0.11"
"""First Kafka release with the lowest version of every message."""


class ApiVersionTable:
    """API versions of one broker: lowest and highest version by API key.

    *caps* limit the versions to use, by API key, for example in a test of each version.

    *finalized_features* are the levels of features enabled in the whole cluster, by name (KIP-584). The features of a
    higher *finalized_features_epoch* are newer; epoch -1 means unknown.

    *is_node_checked*: the broker has compared its cluster id and node id with the ids that the client expects
    (KIP-1242).
    """

    def __init__(
        self,
        offered: Mapping[int, tuple[int, int]],
        caps: Mapping[int, int] = MappingProxyType({}),
        *,
        finalized_features: Mapping[str, int] = MappingProxyType({}),
        finalized_features_epoch: int = -1,
        is_node_checked: bool = False,
    ) -> None:
        self.offered: Final = dict(offered)
        self.finalized_features: Final = dict(finalized_features)
        self.finalized_features_epoch: Final = finalized_features_epoch
        self.is_node_checked: Final = is_node_checked
        self._caps = dict(caps)
        self._picked: dict[type[Request[Any]], int] = {}

    def pick(self, request_cls: type[Request[Any]], at_most: int | None = None) -> int:
        """Return the highest version of *request_cls* that client and broker have in common, limited to *at_most*.

        Some versions require a finalized feature of the cluster, although brokers offer these versions without the feature.

        Raises: UnsupportedVersion, whose text names the version ranges of client and broker.
        """
        try:
            version = self._picked[request_cls]
        except KeyError:
            version = self._picked[request_cls] = self._highest_common(request_cls)
        if at_most is None or version <= at_most:
            return version
        if at_most < max(request_cls.VERSIONS[0], self.offered[request_cls.API_KEY][0]):
            raise self._too_far_apart(request_cls)
        return at_most

    def _highest_common(self, request_cls: type[Request[Any]]) -> int:
        lowest, highest = request_cls.VERSIONS
        try:
            offered_lowest, offered_highest = self.offered[request_cls.API_KEY]
        except KeyError:
            raise _unsupported(request_cls, "the broker does not offer this API") from None
        version = min(highest, offered_highest, self._caps.get(request_cls.API_KEY, highest))
        if version < max(lowest, offered_lowest):
            raise self._too_far_apart(request_cls)
        return version

    def _too_far_apart(self, request_cls: type[Request[Any]]) -> UnsupportedVersion:
        lowest, highest = self.offered[request_cls.API_KEY]
        offer = f"the broker offers versions {lowest} to {highest}"
        return _unsupported(request_cls, offer, f"; it works with Kafka {_OLDEST_KAFKA} and later")


def _unsupported(request_cls: type[Request[Any]], offer: str, advice: str = "") -> UnsupportedVersion:
    api = request_cls.__name__.removesuffix("Request")
    lowest, highest = request_cls.VERSIONS
    return UnsupportedVersion(
        f"{api} (API {request_cls.API_KEY}): {offer}, this client needs one of the versions {lowest} to {highest}{advice}"
    )
