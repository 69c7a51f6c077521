"""Structs of Kafka's messages: declaration of the fields with their protocol versions, and a codec per version.

    @struct
    class PartitionProduceData:
        index: int = field(INT32)
        records: BytesLike | None = field(RECORDS)

Classes and fields have the names of Kafka's message definitions, fields in snake_case. Callers may omit a field with a
`default` or a `factory`. Type checkers require the other fields. At run time, an omitted field has Kafka's default,
because readers build instances by position, from the fields of the version.

`dataclasses` would compile three functions per class instead of one function, which costs a fifth of a producer's import
time. Writers and readers are closures, so a traceback shows source lines. `protocol/schema.py` caches the closures.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from struct import Struct, error as StructError  # noqa: N812 - a class with a lower-case name
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar, cast, dataclass_transform

from aioproducer._core.wire import Reader, Writer, append_unsigned_varint, past_the_end, read_tags
from aioproducer.errors import UnsupportedVersion

T = TypeVar("T")


class WireType(ABC, Generic[T]):
    """Type of Kafka's protocol, defined in `protocol/types.py`."""

    __slots__ = ("code", "name", "nullable")

    def __init__(self, name: str, *, nullable: bool = False, code: str = "") -> None:
        self.name: str = name
        """Name of the type in Kafka's message definitions, such as `int16`, `[]string`, `[]PartitionProduceData`."""
        self.nullable: bool = nullable
        """True if None is a value in the versions of `FieldSpec.nullable_since`."""
        self.code: str = code
        """Format of `struct` for a fixed width, else empty. Adjacent fields of fixed width are read and written together."""

    @abstractmethod
    def default(self) -> T:
        """Return Kafka's default: zero, empty, or a struct of defaults."""

    @abstractmethod
    def writer(self, version: int, *, flexible: bool, nullable: bool) -> Writer:
        """Compile the writer of one version, which raises for None unless *nullable*."""

    @abstractmethod
    def reader(self, version: int, *, flexible: bool, nullable: bool) -> Reader:
        """Compile the reader of one version, which raises for null unless *nullable*."""


class FieldSpec(NamedTuple):
    """Arguments of `field`. `since` and `until` are versions of the message, both included."""

    type: WireType[Any]
    default: Callable[[], Any]
    since: int
    until: int
    tag: int | None
    nullable_since: int | None
    ignorable: bool

    def exists_in(self, version: int) -> bool:
        """Return True if *version* has this field."""
        return self.since <= version <= self.until

    def nullable_in(self, version: int) -> bool:
        """Return True if the field may be None in *version*."""
        return self.nullable_since is not None and version >= self.nullable_since


_UNSET: Any = object()
_FOREVER = 0x7FFF
"""Highest version: versions are int16 on the wire."""


def field(
    wire_type: WireType[T],
    *,
    since: int = 0,
    until: int = _FOREVER,
    tag: int | None = None,
    nullable_since: int | None = None,
    ignorable: bool = False,
    default: T = _UNSET,
    factory: Callable[[], T] = _UNSET,
) -> T:
    """Declare a field of the versions *since* to *until*.

    A *tag* makes the field a tagged field (KIP-482), written only if the value differs from the default. With a nullable
    type, None is allowed from *nullable_since* on. In a version without the field, an *ignorable* field is omitted; the
    writer raises for any other field with a value other than the default.
    """
    if factory is _UNSET:
        factory = wire_type.default if default is _UNSET else lambda: default
    if nullable_since is None and wire_type.nullable:
        nullable_since = since
    return cast("T", FieldSpec(wire_type, factory, since, until, tag, nullable_since, ignorable))


def field_specs(cls: type[Any]) -> Mapping[str, FieldSpec]:
    """Return the fields of a struct or message, by name, in wire order."""
    specs: Mapping[str, FieldSpec] = cls.FIELDS
    return specs


_IMMUTABLE: Final = (bool, int, str, bytes, tuple, type(None))


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
def struct(cls: type[T]) -> type[T]:
    """Make *cls* a struct: the item type of an array, or the type of a tagged field."""
    body = dict(vars(cls))
    specs: dict[str, FieldSpec] = {name: body.pop(name) for name in body["__annotations__"]}
    for made_for_the_class_without_slots in ("__dict__", "__weakref__"):
        body.pop(made_for_the_class_without_slots, None)
    body |= {
        "FIELDS": specs,
        "__eq__": _equals,
        "__hash__": None,
        "__init__": _constructor_of_few(specs),
        "__repr__": _shown,
        "__slots__": tuple(specs),
    }
    slotted: Any = type(cls)  # the metaclass
    return cast("type[T]", slotted(cls.__name__, cls.__bases__, body))


COMPILED_AFTER: Final = 8
"""Number of instances before a struct compiles its constructor. A compilation takes as long as the creation of 50 instances."""


def _constructor_of_few(specs: Mapping[str, FieldSpec]) -> Callable[..., None]:
    """Return an `__init__` that compiles its replacement later: a program makes few instances of most structs."""
    count = 0

    def __init__(self: Any, *values: Any, **named: Any) -> None:  # noqa: N807 - the name in tracebacks
        nonlocal count
        count += 1
        others = tuple(specs)[len(values) :]
        if count > COMPILED_AFTER or len(values) > len(specs) or not named.keys() <= set(others):
            compile_constructor(self.__class__)
            self.__init__(*values, **named)
            return
        for name, value in zip(specs, values, strict=False):
            setattr(self, name, value)
        for name in others:
            setattr(self, name, named[name] if name in named else specs[name].default())

    return __init__


def compile_constructor(cls: type[Any]) -> None:
    """Compile the constructor of the struct *cls*, of which a program makes many instances."""
    cls.__init__ = _constructor(field_specs(cls))


def _constructor(specs: Mapping[str, FieldSpec]) -> Callable[..., None]:
    """Return an `__init__` with a parameter per field; mutable defaults are created per instance."""
    parameters, lines = ["self"], []
    names: dict[str, Any] = {"UNSET": _UNSET}
    for name, spec in specs.items():
        default = spec.default()
        if isinstance(default, _IMMUTABLE):
            names[f"default_{name}"] = default
            parameters.append(f"{name}=default_{name}")
            lines.append(f" self.{name} = {name}")
        else:
            names[f"make_{name}"] = spec.default
            parameters.append(f"{name}=UNSET")
            lines.append(f" self.{name} = make_{name}() if {name} is UNSET else {name}")
    exec(f"def __init__({', '.join(parameters)}):\n" + "\n".join(lines or [" pass"]), names)  # noqa: S102 - the names are field names of this package
    return cast("Callable[..., None]", names["__init__"])


def _equals(self: Any, other: Any) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    return all(getattr(self, name) == getattr(other, name) for name in self.FIELDS)


def _shown(self: Any) -> str:
    """Show all fields except records, which are long, and `auth_bytes`, which contain passwords and tokens."""
    values = (
        f"{name}={getattr(self, name)!r}"
        for name, spec in self.FIELDS.items()
        if spec.type.name != "records" and name != "auth_bytes"
    )
    return f"{self.__class__.__qualname__}({', '.join(values)})"


# Codec of a struct in one version.

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
            raise ValueError(f"{api}: version {version} has no {name} (= {value!r})")
        raise UnsupportedVersion(
            f"{api}: version {version}, the highest in common, has no {name} (= {value!r});"
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
    """Return the writer of the tagged fields, sorted by tag. The writer omits fields with their default."""
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
