"""Decoders of input that a peer controls, each with valid samples and the errors that it may raise."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from aioproducer._core.net.in_flight import LENGTH, FrameReader
from aioproducer._core.protocol.apis import REQUESTS
from aioproducer._core.protocol.fields import WireType, field_specs
from aioproducer._core.protocol.schema import Message, decode_response, encode_response
from aioproducer._core.records.columns import RecordColumns
from aioproducer._core.records.compression import Codec, compressor
from aioproducer._core.records.decode import decode_batches
from aioproducer._core.records.record_batch import encode_batch
from aioproducer._core.security.oauthbearer import _status
from aioproducer._core.security.security_settings import parse_jaas
from aioproducer._core.security.token_endpoint import expiry
from aioproducer._core.transactions.transaction_types import PreparedTransaction
from aioproducer.audit import sequence_of
from aioproducer.config.properties import read_properties
from aioproducer.errors import ConfigError, ProtocolError

LARGEST_BATCH = 1024 * 1024


class Decoder(NamedTuple):
    """A function of bytes."""

    name: str
    decode: Callable[[bytes], object]
    samples: Callable[[random.Random], bytes]
    """Returns a valid input."""
    errors: tuple[type[Exception], ...]
    """The errors for input that makes no sense; any other error is a bug."""


def decoders() -> Iterator[Decoder]:
    """Yield every decoder."""
    for request in REQUESTS.values():
        response = request.RESPONSE
        for version in range(response.VERSIONS[0], response.VERSIONS[1] + 1):
            yield _response(response, version)
    yield Decoder("frames", _read_frames, _frames, (ProtocolError,))
    for codec in (Codec.NONE, Codec.GZIP, Codec.LZ4, Codec.ZSTD):
        yield _batches(codec)
    yield Decoder("SASL status", _status, lambda _: b'{"status":"invalid_token","scope":"x"}', ())
    yield _text(
        "login module", parse_jaas, 'a.PlainLoginModule required user="x" password="y\\n";', (ValueError,)
    )
    yield _text("token", expiry, "e30.eyJleHAiOjE3OTAwMDAwMDB9.x", ())
    yield _text(
        "properties",
        lambda text: read_properties(f"a=b\n{text}"),
        "a.b=c\\u0041\n# x\nd : e \\\n f",
        (ConfigError,),
    )
    prepared = PreparedTransaction("id", 1, 2, 2, 1_790_000_000_000, 60_000)
    yield _text("prepared transaction", PreparedTransaction.parse, str(prepared), (ValueError,))
    yield Decoder("audit header", lambda data: sequence_of((("aioproducer-seq", data),)), lambda _: b"17", ())


def _response(cls: type[Message], version: int) -> Decoder:
    def sample(rng: random.Random) -> bytes:
        return bytes(encode_response(_instance(cls, version, rng), version, 1)[LENGTH.size :])

    def decode(data: bytes) -> object:
        return decode_response(cls, version, data)

    return Decoder(f"{cls.__name__} v{version}", decode, sample, (ProtocolError,))


def _instance(cls: type[Any], version: int, rng: random.Random) -> Any:
    values = {
        name: _value(spec.type, version, rng)
        for name, spec in field_specs(cls).items()
        if spec.exists_in(version)
    }
    return cls(**values)


def _value(wire_type: WireType[Any], version: int, rng: random.Random) -> Any:
    name, item = wire_type.name, getattr(wire_type, "item", None)
    if name == "bool":
        return rng.random() < 0.5
    if name.startswith("int"):
        return rng.choice([0, 1, -1, 3, 2 ** (int(name[3:]) - 1) - 1])
    if name == "uuid":
        return rng.randbytes(16)
    if name == "string":
        return rng.choice(["", "a", "orders", "x" * 200])
    if name in {"bytes", "records"}:
        return rng.randbytes(rng.choice([0, 1, 100]))
    if item is not None:
        values = [_value(item, version, rng) for _ in range(rng.choice([0, 1, 2, 5]))]
        return tuple(values) if item.code else values
    return _instance(wire_type.cls, version, rng)  # type: ignore[attr-defined]


def _read_frames(data: bytes) -> object:
    reader = FrameReader(LARGEST_BATCH, lambda: LARGEST_BATCH // 2)
    half = len(data) // 2
    return [*reader.feed(data[:half]), *reader.feed(data[half:])]


def _frames(rng: random.Random) -> bytes:
    payloads = [rng.randbytes(rng.choice([4, 5, 300])) for _ in range(3)]
    return b"".join(LENGTH.pack(len(each)) + each for each in payloads)


def _batches(codec: Codec) -> Decoder:
    def sample(rng: random.Random) -> bytes:
        columns = RecordColumns()
        for number in range(rng.choice([1, 3, 50])):
            columns.append(b"v" * number, b"k", (("h", b"1"),), 1_790_000_000_000)
        return bytes(encode_batch(columns, codec, compressor(codec, None)))

    def decode(data: bytes) -> object:
        return [*decode_batches(data, limit=LARGEST_BATCH, partial_ok=True, compacted=True)]

    return Decoder(f"record batch, {codec.name.lower()}", decode, sample, (ProtocolError,))


def _text(
    name: str, read: Callable[[str], object], sample: str, errors: tuple[type[Exception], ...]
) -> Decoder:
    return Decoder(
        name, lambda data: read(data.decode("utf-8", "replace")), lambda _: sample.encode(), errors
    )
