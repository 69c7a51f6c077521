"""A certificate, read just far enough to explain why it was not accepted.

Python shows a certificate only once it has been verified, and that is when nobody asks.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final, NamedTuple

from aioproducer._core.logfmt import escaped

_SEQUENCE, _SET, _OID, _INTEGER, _OCTETS = 0x30, 0x31, 0x06, 0x02, 0x04
_VERSION, _EXTENSIONS = 0xA0, 0xA3
_UTC_TIME, _GENERALIZED_TIME = 0x17, 0x18
_DNS_NAME, _IP_ADDRESS = 0x82, 0x87
_SUBJECT_ALT_NAME: Final = bytes.fromhex("551d11")
_ATTRIBUTES: Final = {
    bytes.fromhex("550403"): "CN",
    bytes.fromhex("55040a"): "O",
    bytes.fromhex("55040b"): "OU",
}
MOST_NAMES: Final = 100


class PeerCertificate(NamedTuple):
    """A certificate, unverified: nothing in it is true because it says so."""

    subject: str
    issuer: str
    not_before: datetime
    not_after: datetime
    names: tuple[str, ...]
    """The hosts and addresses that it is for."""


class _Element(NamedTuple):
    tag: int
    content: bytes


def read_certificate(der: bytes) -> PeerCertificate:
    """Read what is of interest.

    Raises: ValueError, and nothing else, for whatever is no certificate.
    """
    try:
        (outer,) = _elements(der)
        to_be_signed = next(_elements(outer.content))
        fields = list(_elements(to_be_signed.content))
        if fields[0].tag == _VERSION:
            del fields[0]
        _, _, issuer, validity, subject = fields[:5]
        not_before, not_after = map(_time, _elements(validity.content))
        return PeerCertificate(
            _name(subject.content), _name(issuer.content), not_before, not_after, tuple(_names(fields[6:]))
        )
    except (IndexError, StopIteration, OverflowError) as error:
        raise ValueError(f"no certificate: {type(error).__name__}") from None


def _elements(data: bytes) -> Iterator[_Element]:
    """Yield the elements of *data* one after the other."""
    pos = 0
    while pos < len(data):
        tag, length, start = data[pos], data[pos + 1], pos + 2
        if length & 0x80:
            count = length & 0x7F
            if not 0 < count <= 4:
                raise ValueError("a length that DER does not have")
            length, start = int.from_bytes(data[start : start + count], "big"), start + count
        end = start + length
        if end > len(data):
            raise ValueError("cut off")
        yield _Element(tag, data[start:end])
        pos = end


def _time(element: _Element) -> datetime:
    text = element.content.decode("ascii", "replace")
    if element.tag == _UTC_TIME:
        text = ("19" if text[:2] >= "50" else "20") + text
    elif element.tag != _GENERALIZED_TIME:
        raise ValueError("no time")
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _name(data: bytes) -> str:
    """Return a distinguished name as people write it: CN=broker, O=lab."""
    parts = []
    for relative in _elements(data):
        for attribute in _elements(relative.content):
            oid, value = _elements(attribute.content)
            if oid.content in _ATTRIBUTES:
                parts.append(f"{_ATTRIBUTES[oid.content]}={_printable(value.content)}")
    return ", ".join(reversed(parts)) or "(no name)"


def _names(fields: list[_Element]) -> Iterator[str]:
    """Yield the subject's alternative names, of which there may be none."""
    for field in fields:
        if field.tag != _EXTENSIONS:
            continue
        for extension in _elements(next(_elements(field.content)).content):
            oid, *_, value = _elements(extension.content)
            if oid.content == _SUBJECT_ALT_NAME:
                (names,) = _elements(value.content)
                yield from _alternatives(names.content)


def _alternatives(data: bytes) -> Iterator[str]:
    for count, name in enumerate(_elements(data)):
        if count == MOST_NAMES:
            return
        if name.tag == _DNS_NAME:
            yield _printable(name.content)
        elif name.tag == _IP_ADDRESS:
            yield str(ipaddress.ip_address(name.content))


def _printable(content: bytes) -> str:
    return escaped(content[:200].decode("utf-8", "replace"))
