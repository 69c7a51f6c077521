"""How a message says what is on the wire: typed dataclass fields with the versions that have them.

    @struct
    class PartitionProduceData:
        index: int = field(INT32)
        records: BytesLike | None = field(RECORDS)

Names are those of Kafka's own message definitions, in snake_case for fields. A field given a `default` or a
`factory` here may be left out by callers. The others type checkers insist on; at run time they have Kafka's
default too, because reading builds instances positionally, from what the version at hand has.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar, dataclass_transform

T = TypeVar("T")

Writer: TypeAlias = Callable[[bytearray, Any], None]
"""Appends a value to a buffer."""

Reader: TypeAlias = Callable[[bytes, int], tuple[Any, int]]
"""Returns the value at a position and the position after it; raises ProtocolError only."""


@dataclass(frozen=True, slots=True)
class WireType(ABC, Generic[T]):
    """One type of Kafka's protocol; the types there are stand in `protocol/types.py`."""

    name: str
    """As in Kafka's message definitions: `int16`, `[]string`, `[]PartitionProduceData`."""
    nullable: bool
    """Whether None may be a value, in the versions that a field says."""
    code: str
    """The format of `struct` if the width is fixed, else empty; runs of such fields are read and written at once."""

    @abstractmethod
    def default(self) -> T:
        """Return Kafka's default: zero, empty, or a struct of defaults."""

    @abstractmethod
    def writer(self, version: int, *, flexible: bool, nullable: bool) -> Writer:
        """Compile the writer for one version; it refuses None unless *nullable*."""

    @abstractmethod
    def reader(self, version: int, *, flexible: bool, nullable: bool) -> Reader:
        """Compile the reader for one version; it refuses null unless *nullable*."""


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """What `field` was told; versions count as those of the message, and are inclusive."""

    type: WireType[Any]
    default: Callable[[], Any]
    since: int
    until: int
    tag: int | None
    nullable_since: int | None
    ignorable: bool

    def exists_in(self, version: int) -> bool:
        """Whether messages of *version* have this field."""
        return self.since <= version <= self.until

    def nullable_in(self, version: int) -> bool:
        """Whether the field may be None in *version*."""
        return self.nullable_since is not None and version >= self.nullable_since


_UNSET: Any = object()
_FOREVER = 0x7FFF
"""Versions are int16 on the wire."""


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
    """Declare a field that versions *since* … *until* have.

    A *tag* makes it a tagged field (KIP-482), written only if it differs from its default. With a nullable type,
    None is allowed from *nullable_since* on. Set in a version that lacks it, an *ignorable* field is left out;
    any other is an error.
    """
    if factory is _UNSET:
        factory = wire_type.default if default is _UNSET else lambda: default
    if nullable_since is None and wire_type.nullable:
        nullable_since = since
    spec = FieldSpec(wire_type, factory, since, until, tag, nullable_since, ignorable)
    shown = wire_type.name != "records"  # kilobytes of records help nobody who prints a message
    return dataclasses.field(default_factory=factory, repr=shown, metadata={"spec": spec})


def field_specs(cls: type) -> Mapping[str, FieldSpec]:
    """Return the fields of a struct or message, by name, in their order on the wire."""
    return {each.name: each.metadata["spec"] for each in dataclasses.fields(cls)}


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
def struct(cls: type[T]) -> type[T]:
    """Make *cls* a struct: what arrays of a message, or its tagged fields, are made of."""
    return dataclass(slots=True)(cls)
