"""Compiler of a struct in one version to a writer and a reader.

Both are closures, so a traceback shows source lines. `protocol/schema.py` caches them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from operator import attrgetter
from struct import Struct, error as StructError  # noqa: N812 - a class with a lower-case name
from typing import Any, TypeAlias

from aioproducer._core.protocol.fields import FieldSpec, field_specs
from aioproducer._core.wire import Reader, Writer, append_unsigned_varint, past_the_end, read_tags
from aioproducer.errors import UnsupportedVersion

_Named: TypeAlias = tuple[str, FieldSpec]
_Group: TypeAlias = tuple[Callable[[bytes, int], tuple[Any, ...]] | None, int, Reader | None]


def struct_writer(cls: type[Any], version: int, *, flexible: bool) -> Writer:
    """Return a function that appends an instance of *cls* in *version* to a buffer."""
    named = field_specs(cls).items()
    present = [(name, spec) for name, spec in named if spec.exists_in(version)]
    parts = [
        (attrgetter(name), _absent_writer(cls, name, spec, version))
        for name, spec in named
        if not (spec.exists_in(version) or spec.ignorable)
    ]
    untagged = [(name, spec) for name, spec in present if spec.tag is None]
    for fixed_width, run in groupby(untagged, key=lambda item: bool(item[1].type.code)):
        if fixed_width:
            names, specs = zip(*run, strict=True)
            parts.append((attrgetter(*names), _run_writer(names, specs)))
        else:
            parts += [(attrgetter(name), _writer(spec, version, flexible=flexible)) for name, spec in run]
    write_tags = _tags_writer(present, version)

    def write(buf: bytearray, value: Any) -> None:
        try:
            for get, write_part in parts:
                write_part(buf, get(value))
            if write_tags is not None:
                write_tags(buf, value)
            elif flexible:
                buf.append(0)
        except UnsupportedVersion:
            raise
        except Exception as error:
            error.add_note(f"while writing a {cls.__name__} v{version}")
            raise

    return write


def _writer(spec: FieldSpec, version: int, *, flexible: bool) -> Writer:
    return spec.type.writer(version, flexible=flexible, nullable=spec.nullable_in(version))


def _absent_writer(cls: type[Any], name: str, spec: FieldSpec, version: int) -> Writer:
    """Return the check that the field *name*, which *version* lacks, has its default value."""
    default = spec.default()
    api = cls.__name__.removesuffix("Request")

    def write(_buf: bytearray, value: Any) -> None:
        if value == default:
            return
        if version > spec.until:
            raise ValueError(f"{api}: version {version} has no {name}, which is {value!r}")
        raise UnsupportedVersion(
            f"{api}: version {version}, the newest that the broker and this client share, has no {name} (= {value!r});"
            f" leave {name} out, or use a broker with version {spec.since} or later"
        )

    return write


def _run_writer(names: Sequence[str], specs: Sequence[FieldSpec]) -> Writer:
    """Return the writer for the result of attrgetter for *names*: one value, or a tuple of values."""
    pack = Struct(">" + "".join(spec.type.code for spec in specs)).pack

    def write_one(buf: bytearray, value: Any) -> None:
        write_many(buf, (value,))

    def write_many(buf: bytearray, values: Any) -> None:
        try:
            buf += pack(*values)
        except StructError as error:
            raise ValueError(f"{', '.join(names)} = {', '.join(map(repr, values))}: {error}") from error

    return write_one if len(specs) == 1 else write_many


def _tags_writer(present: Sequence[_Named], version: int) -> Writer | None:
    """Return the writer of the tagged fields, sorted by tag, which omits fields with their default."""
    fields = sorted(
        (spec.tag, attrgetter(name), spec.default(), _writer(spec, version, flexible=True))
        for name, spec in present
        if spec.tag is not None
    )
    if not fields:
        return None

    def write(buf: bytearray, value: Any) -> None:
        to_write = [each for each in fields if each[1](value) != each[2]]
        append_unsigned_varint(buf, len(to_write))
        for tag, get, _, write_field in to_write:
            content = bytearray()
            write_field(content, get(value))
            append_unsigned_varint(buf, tag)
            append_unsigned_varint(buf, len(content))
            buf += content

    return write


def struct_reader(cls: type[Any], version: int, *, flexible: bool) -> Reader:
    """Return a function that reads an instance of *cls* in *version*."""
    groups = _read_groups(cls, version, flexible=flexible)
    tagged = {
        spec.tag: (name, spec.type.reader(version, flexible=True, nullable=spec.nullable_in(version)))
        for name, spec in field_specs(cls).items()
        if spec.tag is not None and spec.exists_in(version)
    }

    def read(data: bytes, pos: int) -> tuple[Any, int]:
        values: list[Any] = []
        for unpack_run, size, read_value in groups:
            if unpack_run is not None:
                try:
                    values += unpack_run(data, pos)
                except StructError:
                    raise past_the_end(size, data, pos) from None
                pos += size
            if read_value is not None:
                value, pos = read_value(data, pos)
                values.append(value)
        instance = cls(*values)
        if not flexible:
            return instance, pos
        return instance, read_tags(data, pos, tagged, instance)

    return read


def _read_groups(cls: type[Any], version: int, *, flexible: bool) -> list[_Group]:
    """Group the fields in wire order: each group has adjacent fields of fixed width, then at most one other field.

    The values have the order of the constructor's arguments. Tagged fields, and fields that the version lacks, have their
    default.
    """
    groups: list[_Group] = []
    run = ""

    def close_run(read_value: Reader | None) -> None:
        nonlocal run
        fixed = Struct(">" + run)
        groups.append((fixed.unpack_from if run else None, fixed.size, read_value))
        run = ""

    for spec in field_specs(cls).values():
        if spec.tag is not None or not spec.exists_in(version):
            close_run(_default_reader(spec))
        elif spec.type.code:
            run += spec.type.code
        else:
            close_run(spec.type.reader(version, flexible=flexible, nullable=spec.nullable_in(version)))
    if run:
        close_run(None)
    return groups


def _default_reader(spec: FieldSpec) -> Reader:
    make = spec.default

    def read(_data: bytes, pos: int) -> tuple[Any, int]:
        return make(), pos

    return read
