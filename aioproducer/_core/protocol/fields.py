"""Fields of messages: typed class attributes, each with the protocol versions that have it.

    @struct
    class PartitionProduceData:
        index: int = field(INT32)
        records: BytesLike | None = field(RECORDS)

Names are those of Kafka's message definitions, in snake_case for fields. Callers may omit a field with a `default` or a
`factory`. Type checkers require the other fields. At run time those have Kafka's default, because readers build
instances positionally, from the fields of the version.

`dataclasses` would compile three functions per class instead of one, a fifth of the import time of a producer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast, dataclass_transform

from aioproducer._core.wire import Reader, Writer

T = TypeVar("T")


class WireType(ABC, Generic[T]):
    """Type of Kafka's protocol, defined in `protocol/types.py`."""

    __slots__ = ("code", "name", "nullable")

    def __init__(self, name: str, *, nullable: bool = False, code: str = "") -> None:
        self.name: str = name
        """As in Kafka's message definitions: `int16`, `[]string`, `[]PartitionProduceData`."""
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
    """Arguments of `field`. Versions are those of the message, both bounds included."""

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
    type, None is allowed from *nullable_since* on. In a version without the field, an *ignorable* field is omitted, and
    any other value than the default raises.
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
"""Instances of a struct that are made without a compiled constructor. Compiling one takes as long as 50 instances."""


def _constructor_of_few(specs: Mapping[str, FieldSpec]) -> Callable[..., None]:
    """Return an `__init__` that replaces itself by a compiled one, because a program makes few instances of most structs."""
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
    exec(f"def __init__({', '.join(parameters)}):\n" + "\n".join(lines or [" pass"]), names)  # noqa: S102 - the names are those of classes of this package
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
