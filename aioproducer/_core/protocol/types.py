"""Types of fields: Kafka's primitive types, arrays, and structs as tagged fields.

A UUID has its 16 bytes as value, because topic ids are only compared. RECORDS are read as bytes and written from any
bytes-like object. Arrays of structs or strings are lists. Arrays of fixed width are read as tuples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct, error as StructError  # noqa: N812 - a class with a lower-case name
from typing import Any, Final, TypeVar, cast, overload

from aioproducer._core.logfmt import LONGEST_TEXT, escaped
from aioproducer._core.protocol.fields import WireType, struct_reader, struct_writer
from aioproducer._core.wire import (
    BytesLike,
    Reader,
    Writer,
    append_compact_length,
    append_length,
    append_short_length,
    past_the_end,
    read_compact_length,
    read_length,
    read_short_length,
)
from aioproducer.errors import ProtocolError

T = TypeVar("T")

NO_TOPIC_ID: Final = bytes(16)
"""Topic id in place of an unknown topic id."""

_USUAL_COUNTS = 8
"""Minimum number of items of an array without a precompiled format. Most partitions have fewer replicas."""


class _Fixed(WireType[T]):
    """Numbers, booleans and UUIDs: types with one format of `struct`."""

    __slots__ = ("zero",)

    def __init__(self, name: str, code: str, zero: T) -> None:
        super().__init__(name, code=code)
        self.zero: T = zero

    def default(self) -> T:
        return self.zero

    def writer(self, version: int, *, flexible: bool, nullable: bool) -> Writer:
        pack = Struct(">" + self.code).pack

        def write(buf: bytearray, value: Any) -> None:
            buf += pack(value)

        return write

    def reader(self, version: int, *, flexible: bool, nullable: bool) -> Reader:
        fixed = Struct(">" + self.code)

        def read(data: bytes, pos: int) -> tuple[Any, int]:
            end = pos + fixed.size
            if end > len(data):
                raise past_the_end(fixed.size, data, pos)
            return fixed.unpack_from(data, pos)[0], end

        return read


class _Sized(WireType[T]):
    """Strings and bytes: a length, and that number of bytes. The length has a classic and a compact form."""

    __slots__ = ("_append_length", "_decode", "_encode", "_no_null", "_read_length", "empty")

    def __init__(
        self,
        name: str,
        empty: T,
        append_length: Callable[[bytearray, int], None],
        read_length: Callable[[bytes, int], tuple[int, int]],
        encode: Callable[[Any], BytesLike],
        decode: Callable[[bytes, int], Any],
        no_null: str,
        *,
        nullable: bool = False,
    ) -> None:
        """*append_length* and *read_length* handle the classic length; *decode* receives the bytes and their position.

        *no_null* is the error text for a null: `pos` is the position of the length, `end` the position after the length.
        """
        super().__init__(name, nullable=nullable)
        self.empty: T = empty
        self._append_length, self._read_length = append_length, read_length
        self._encode, self._decode, self._no_null = encode, decode, no_null

    def default(self) -> T:
        return self.empty

    def writer(self, version: int, *, flexible: bool, nullable: bool) -> Writer:
        append_size, encode = append_compact_length if flexible else self._append_length, self._encode

        def write(buf: bytearray, value: Any) -> None:
            if value is None and nullable:
                append_size(buf, -1)
                return
            raw = encode(value)
            append_size(buf, len(raw))
            buf += raw

        return write

    def reader(self, version: int, *, flexible: bool, nullable: bool) -> Reader:
        read_size, decode = read_compact_length if flexible else self._read_length, self._decode

        def read(data: bytes, pos: int) -> tuple[Any, int]:
            length, start = read_size(data, pos)
            end = start + length
            if length >= 0:
                return decode(data[start:end], start), end
            if not nullable:
                raise ProtocolError(self._no_null.format(pos=pos, end=start))
            return None, start

        return read


class _Array(WireType[T]):
    """Array of structs or strings; the array may be null. Kafka has no arrays of arrays."""

    __slots__ = ("item", "most")

    def __init__(self, item: WireType[Any], *, nullable: bool = False, most: int | None = None) -> None:
        """*most* is the maximum number of items when read; None for no limit below the message size."""
        super().__init__(f"[]{item.name}", nullable=nullable)
        self.item = item
        self.most = most

    def default(self) -> T:
        """Return an empty array, which is also Kafka's default for nullable arrays."""
        return cast("T", [])

    def writer(self, version: int, *, flexible: bool, nullable: bool) -> Writer:
        append_count = append_compact_length if flexible else append_length
        write_item = self.item.writer(version, flexible=flexible, nullable=False)

        def write(buf: bytearray, value: Any) -> None:
            if value is None and nullable:
                append_count(buf, -1)
                return
            append_count(buf, len(value))
            for item in value:
                write_item(buf, item)

        return write

    def reader(self, version: int, *, flexible: bool, nullable: bool) -> Reader:
        read_count = read_compact_length if flexible else read_length
        read_item = self.item.reader(version, flexible=flexible, nullable=False)
        most = self.most

        def read(data: bytes, pos: int) -> tuple[Any, int]:
            count, pos = read_count(data, pos)
            if count < 0:
                if nullable:
                    return None, pos
                raise _null(self.name, pos)
            if most is not None and count > most:
                raise ProtocolError(f"{count} items in {self.name} before byte {pos}; {most} are possible")
            items = []  # the list grows with each item: a false count allocates nothing
            for _ in range(count):
                item, pos = read_item(data, pos)
                items.append(item)
            return items, pos

        return read


class _FixedArray(WireType[Sequence[T]]):
    """Array of items of fixed width, which are read and written together."""

    __slots__ = ("item",)

    def __init__(self, item: _Fixed[T]) -> None:
        super().__init__(f"[]{item.name}")
        self.item = item

    def default(self) -> Sequence[T]:
        return ()

    def writer(self, version: int, *, flexible: bool, nullable: bool) -> Writer:
        append_count = append_compact_length if flexible else append_length

        def write(buf: bytearray, value: Any) -> None:
            append_count(buf, len(value))
            buf += self._format(len(value)).pack(*value)

        return write

    def reader(self, version: int, *, flexible: bool, nullable: bool) -> Reader:
        read_count = read_compact_length if flexible else read_length
        usual = [self._format(count) for count in range(_USUAL_COUNTS)]
        by_first_byte = {count + 1: (items.unpack_from, 1 + items.size) for count, items in enumerate(usual)}

        def read(data: bytes, pos: int) -> tuple[Any, int]:
            count, pos = read_count(data, pos)
            if count < 0:
                raise _null(self.name, pos)
            items = usual[count] if count < _USUAL_COUNTS else self._format(count)
            try:
                return items.unpack_from(data, pos), pos + items.size
            except StructError:
                raise past_the_end(items.size, data, pos) from None

        def read_compact(data: bytes, pos: int) -> tuple[Any, int]:
            try:
                unpack, size = by_first_byte[data[pos]]
                return unpack(data, pos + 1), pos + size
            except (IndexError, KeyError, StructError):
                return read(data, pos)  # `read` handles many items, and raises the errors

        return read_compact if flexible else read

    def _format(self, count: int) -> Struct:
        return Struct(f">{count}{self.item.code}")


def _null(name: str, pos: int) -> ProtocolError:
    return ProtocolError(f"a null {name} before byte {pos}, where the protocol has none")


class _Struct(WireType[T]):
    """Struct as an array item or a tagged field. No API of this package has a nullable struct."""

    __slots__ = ("cls",)

    def __init__(self, cls: type[T]) -> None:
        super().__init__(cls.__name__)
        self.cls = cls

    def default(self) -> T:
        return self.cls()

    def writer(self, version: int, *, flexible: bool, nullable: bool) -> Writer:
        return struct_writer(self.cls, version, flexible=flexible)

    def reader(self, version: int, *, flexible: bool, nullable: bool) -> Reader:
        return struct_reader(self.cls, version, flexible=flexible)


BOOL: Final[_Fixed[bool]] = _Fixed("bool", "?", zero=False)
INT8: Final[_Fixed[int]] = _Fixed("int8", "b", zero=0)
INT16: Final[_Fixed[int]] = _Fixed("int16", "h", zero=0)
INT32: Final[_Fixed[int]] = _Fixed("int32", "i", zero=0)
INT64: Final[_Fixed[int]] = _Fixed("int64", "q", zero=0)
UUID: Final[_Fixed[bytes]] = _Fixed("uuid", "16s", zero=NO_TOPIC_ID)

_LONGEST_STRING: Final = 0x7FFF
"""Maximum length of a string in bytes of UTF-8. Kafka keeps this limit for compact strings."""


def _utf8(value: str) -> bytes:
    try:
        raw = value.encode()
    except AttributeError:
        raise TypeError(f"{value!r} where the protocol has a string") from None
    if len(raw) > _LONGEST_STRING:
        raise ValueError(
            f"a string of {len(raw)} bytes exceeds the protocol's limit of {_LONGEST_STRING} bytes"
        )
    return raw


def _text(raw: bytes, pos: int) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise ProtocolError(f"the string at byte {pos} is not UTF-8: {error.reason}") from error


_NO_STRING: Final = "a null before byte {end}, where the protocol has none"
_OF_STRING: Final = (append_short_length, read_short_length, _utf8, _text, _NO_STRING)
_OF_BYTES: Final[Any] = (
    append_length, read_length, lambda value: value, lambda raw, _pos: raw,
    "null at byte {pos}, where the protocol has bytes",
)  # fmt: skip
STRING: Final[_Sized[str]] = _Sized("string", "", *_OF_STRING)
NULLABLE_STRING: Final[_Sized[str | None]] = _Sized("string", "", *_OF_STRING, nullable=True)
NULLABLE_TEXT: Final[_Sized[str | None]] = _Sized(
    "string", "", append_short_length, read_short_length, _utf8,
    lambda raw, pos: escaped(_text(raw, pos), LONGEST_TEXT), _NO_STRING, nullable=True,
)  # fmt: skip
"""Text of a broker for users, for example an error message: escaped when read, and cut at `LONGEST_TEXT`."""
BYTES: Final[_Sized[bytes]] = _Sized("bytes", b"", *_OF_BYTES)
RECORDS: Final[_Sized[BytesLike | None]] = _Sized("records", None, *_OF_BYTES, nullable=True)


@overload
def array_of(item: _Fixed[T]) -> WireType[Sequence[T]]: ...
@overload
def array_of(item: _Sized[T] | type[T], *, most: int | None = None) -> WireType[list[T]]: ...
def array_of(item: WireType[Any] | type[Any], *, most: int | None = None) -> WireType[Any]:
    """Return the type of arrays of *item*, a struct or a type of this module, with at most *most* items when read."""
    if isinstance(item, _Fixed):
        return _FixedArray(item)
    return _Array(item if isinstance(item, WireType) else struct_of(item), most=most)


def nullable_array_of(item: _Sized[T] | type[T]) -> WireType[list[T] | None]:
    """Return the type of nullable arrays of *item*, a struct or a type of this module."""
    return _Array(item if isinstance(item, WireType) else struct_of(item), nullable=True)


def struct_of(cls: type[T]) -> WireType[T]:
    """Return the type of a single struct."""
    return _Struct(cls)
