"""Kafka's message definitions (`common/message/*.json`) from the jar of the Java client, in terms of this package."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any
from zipfile import ZipFile

from aioproducer._core.protocol.fields import FieldSpec, field_specs
from tests.kafka.apache.jars import class_path, pinned

FOREVER = 0x7FFF
_STRUCT = "a struct of defaults"
_ZERO: dict[str, object] = {"string": "", "bytes": b"", "uuid": bytes(16), "records": None}


@dataclass(frozen=True)
class Described:
    """The field at one place of a message in one version."""

    name: str
    type: str
    nullable: bool
    ignorable: bool
    tag: int | None
    default: object
    fields: tuple[Described, ...]


@cache
def definition(name: str) -> Any:
    """Return Kafka's definition of a message."""
    class_path()  # fetches what is missing
    (clients,) = (jar.path for jar in pinned() if ":kafka-clients:" in jar.coordinate)
    with ZipFile(clients) as jar:
        text = jar.read(f"common/message/{name}.json").decode()
    return json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))


def versions(text: str) -> tuple[int, int]:
    """Return the first and last of `3-12`, `3+` or `3`; nothing, as (1, 0), of `none`."""
    if text == "none":
        return 1, 0
    if text.endswith("+"):
        return int(text[:-1]), FOREVER
    first, _, last = text.partition("-")
    return int(first), int(last or first)


def as_kafka_says(name: str, version: int) -> tuple[Described, ...]:
    """Describe the fields of Kafka's message *name* in *version*."""
    kafka = definition(name)
    common = {f"[]{each['name']}": each["fields"] for each in kafka.get("commonStructs", ())}
    return _kafka_fields(kafka["fields"], version, common)


def as_declared(cls: type[Any], version: int) -> tuple[Described, ...]:
    """Describe the fields of a message or struct of this package in *version*."""
    return tuple(
        _our_field(name, spec, version) for name, spec in field_specs(cls).items() if spec.exists_in(version)
    )


def _within(version: int, text: str) -> bool:
    first, last = versions(text)
    return first <= version <= last


def _kafka_fields(fields: Any, version: int, common: Mapping[str, Any]) -> tuple[Described, ...]:
    return tuple(_kafka_field(each, version, common) for each in fields if _within(version, each["versions"]))


def _kafka_field(field: Any, version: int, common: Mapping[str, Any]) -> Described:
    tagged = _within(version, field.get("taggedVersions", "none"))
    return Described(
        name=_snake_case(field["name"]),
        type=field["type"],
        nullable=_within(version, field.get("nullableVersions", "none")),
        ignorable=field.get("ignorable", False),
        tag=field["tag"] if tagged else None,
        default=_kafka_default(field["type"], field.get("default")),
        fields=_kafka_fields(field.get("fields", common.get(field["type"], ())), version, common),
    )


def _kafka_default(type_: str, default: object) -> object:
    if default == "null":
        return None
    if type_.startswith("[]"):
        return ()
    if type_.startswith("int"):
        return int(str(default or 0), 0)
    if type_ == "bool":
        return str(default).lower() == "true"
    return default if default is not None else _ZERO.get(type_, _STRUCT)


def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _our_field(name: str, spec: FieldSpec, version: int) -> Described:
    inner = getattr(spec.type, "item", spec.type)
    struct: type[Any] | None = getattr(inner, "cls", None)
    default = spec.default()
    if struct is not None and default == struct():
        default = _STRUCT
    return Described(
        name=name,
        type=spec.type.name,
        nullable=spec.nullable_in(version),
        ignorable=spec.ignorable,
        tag=spec.tag,
        default=tuple(default) if spec.type.name.startswith("[]") else default,
        fields=as_declared(struct, version) if struct is not None else (),
    )
