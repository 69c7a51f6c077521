"""Addresses of brokers, with and without name lookup."""

from __future__ import annotations

from typing import NamedTuple, Self

from aioproducer._core.logfmt import LONGEST_HOST, escaped


class Address(NamedTuple):
    """Host and port of a broker."""

    host: str
    port: int

    @property
    def name(self) -> str:
        """Configured host, which the certificate must name."""
        return self.host

    def __str__(self) -> str:
        """Return `host:port`, escaped, with IPv6 addresses in brackets."""
        host = escaped(self.host, LONGEST_HOST)
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"


class ResolvedAddress(Address):
    """Numeric address of a host name; equal to an `Address` with this host and port."""

    _name: str

    def __new__(cls, host: str, port: int, name: str) -> Self:
        """Return the address *host*, found by looking up *name*."""
        resolved = super().__new__(cls, host, port)
        resolved._name = name
        return resolved

    @property
    def name(self) -> str:
        """Host name whose lookup returned this address."""
        return self._name

    def __str__(self) -> str:
        """Return `name/host:port`, as Java does."""
        return f"{escaped(self._name, LONGEST_HOST)}/{super().__str__()}"
