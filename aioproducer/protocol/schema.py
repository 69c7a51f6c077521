"""Messages: what a request or response class declares, and how it becomes bytes and is read from them.

    @message(api_key=22, versions=(0, 4), flexible_from=2)
    class InitProducerIdRequest(Request[InitProducerIdResponse]):
        transactional_id: str | None = field(NULLABLE_STRING)

Only versions that `protocol/versions.py` picked, or a server checked against `VERSIONS`, come here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final, Generic, TypeVar, cast, dataclass_transform, get_args

from aioproducer.errors import ProtocolError
from aioproducer.protocol.codec import struct_reader, struct_writer
from aioproducer.protocol.fields import Reader, Writer, field, struct
from aioproducer.wire.primitives import BytesLike

NEVER: Final = 0x8000
"""Above any version: they are int16 on the wire."""


class Message:
    """What requests and responses have in common."""

    __slots__ = ()

    API_KEY: ClassVar[int]
    VERSIONS: ClassVar[tuple[int, int]]
    """The lowest and the highest version, both included, that we can write and read."""
    FLEXIBLE_FROM: ClassVar[int]
    """The first version with compact lengths and tagged fields (KIP-482)."""
    CLIENT_PAUSES_FROM: ClassVar[int]
    """Of responses: the first version that brokers send before they throttle, so that the client has to pause for
    `throttle_time_ms`. Older ones they hold back for so long (KIP-219)."""


M = TypeVar("M", bound=Message)
R = TypeVar("R", bound=Message)


class Request(Message, Generic[R]):
    """A request that is answered by an *R*."""

    __slots__ = ()

    RESPONSE: ClassVar[type[Message]]


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
def message(
    *, api_key: int, versions: tuple[int, int], flexible_from: int, client_pauses_from: int = NEVER
) -> Callable[[type[M]], type[M]]:
    """Make a class a message; its fields are declared as those of a struct."""

    def decorate(cls: type[M]) -> type[M]:
        cls.API_KEY, cls.VERSIONS, cls.FLEXIBLE_FROM = api_key, versions, flexible_from
        cls.CLIENT_PAUSES_FROM = client_pauses_from
        if issubclass(cls, Request):
            (cls.RESPONSE,) = get_args(cls.__dict__["__orig_bases__"][0])
        return struct(cls)

    return decorate


def encode(message: Message, version: int) -> bytearray:
    """Return *message* as *version* has it on the wire.

    Raises: ValueError if a field is set that *version* lacks, or does not fit; TypeError for None where
    *version* has no null. Either is a bug of the caller.
    """
    buf = bytearray()
    _writer(type(message), version)(buf, message)
    return buf


def append(buf: bytearray, message: Message, version: int) -> None:
    """Do as `encode`, at the end of *buf*."""
    _writer(type(message), version)(buf, message)


def decode(cls: type[M], version: int, data: BytesLike, offset: int = 0) -> M:
    """Read a *cls* of *version* that takes all of *data* from *offset* on; ProtocolError if it does not."""
    value, surplus = decode_start(cls, version, data, offset)
    if surplus:
        raise ProtocolError(f"{cls.__name__} v{version}: {surplus} bytes are left over")
    return value


def decode_start(cls: type[M], version: int, data: BytesLike, offset: int = 0) -> tuple[M, int]:
    """Read a *cls* of *version* from *offset* on; return it, and how many bytes are left over behind it."""
    data = bytes(data)
    read = _reader(cls, version)
    try:
        value, end = read(data, offset)
    except ProtocolError as error:
        raise ProtocolError(f"{cls.__name__} v{version}: {error}") from error
    return cast("M", value), len(data) - end


_hand_written: dict[type[Message], tuple[int, Callable[[Writer], Writer]]] = {}
_hand_read: dict[type[Message], tuple[int, Callable[[Reader], Reader]]] = {}


def written_by_hand(
    cls: type[Message], *, since: int
) -> Callable[[Callable[[Writer], Writer]], Callable[[Writer], Writer]]:
    """Let *cls* be written, from version *since* on, by what the function below makes of the compiled writer.

    It is for the few messages that every batch takes. What it does not want to write, it leaves to the compiled one.
    """

    def register(make: Callable[[Writer], Writer]) -> Callable[[Writer], Writer]:
        _hand_written[cls] = since, make
        return make

    return register


def read_by_hand(
    cls: type[Message], *, since: int
) -> Callable[[Callable[[Reader], Reader]], Callable[[Reader], Reader]]:
    """Let *cls* be read, from version *since* on, by what the function below makes of the compiled reader."""

    def register(make: Callable[[Reader], Reader]) -> Callable[[Reader], Reader]:
        _hand_read[cls] = since, make
        return make

    return register


_writers: dict[tuple[type[Message], int], Writer] = {}
_readers: dict[tuple[type[Message], int], Reader] = {}
"""Compiled at the first use of a version, since most are never used."""


def _writer(cls: type[Message], version: int) -> Writer:
    writer = _writers.get((cls, version))
    if writer is None:
        writer = struct_writer(cls, version, flexible=_is_flexible(cls, version))
        since, make = _hand_written.get(cls, (version, lambda compiled: compiled))
        writer = _writers[cls, version] = make(writer) if version >= since else writer
    return writer


def _reader(cls: type[Message], version: int) -> Reader:
    reader = _readers.get((cls, version))
    if reader is None:
        reader = struct_reader(cls, version, flexible=_is_flexible(cls, version))
        since, make = _hand_read.get(cls, (version, lambda compiled: compiled))
        reader = _readers[cls, version] = make(reader) if version >= since else reader
    return reader


def _is_flexible(cls: type[Message], version: int) -> bool:
    lowest, highest = cls.VERSIONS
    if not lowest <= version <= highest:
        raise ValueError(f"{cls.__name__} has versions {lowest} to {highest}, not {version}")
    return version >= cls.FLEXIBLE_FROM
