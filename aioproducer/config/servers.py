"""The addresses of the first broker: `bootstrap_servers`."""

# ruff: noqa: D102 - the methods are documented once, by Kind
from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from aioproducer._core.net.address import Address
from aioproducer.config.kinds import Kind

LONGEST_LABEL: Final = 63
"""Of a name in the DNS (RFC 1035)."""


class Servers(Kind):
    """Brokers as `host:port`, several of them in a list or separated by commas."""

    expected = "host:port (an IPv6 address in brackets), several as a list or separated by commas"

    def hides(self, value: object) -> bool:
        # Options, a password among them maybe, or one before an address.
        return isinstance(value, Mapping) or "@" in str(value)

    def check(self, value: object) -> tuple[str, ...]:
        if isinstance(value, str):
            value = value.split(",")
        if isinstance(value, Mapping):
            raise ValueError(  # noqa: TRY004 - what a kind refuses is a ValueError
                "a mapping of options, as other clients take it, is ProducerConfig's:"
                " Producer.from_config(ProducerConfig.from_mapping({…})),"
                " or give each as a keyword argument, with _ for . in its name"
            )
        if hasattr(value, "bootstrap_servers"):
            raise ValueError("a ProducerConfig goes into Producer.from_config(…)")
        if not isinstance(value, Sequence) or isinstance(value, bytes | bytearray | memoryview):
            raise self.unfit()
        servers: dict[str, None] = {}  # keeps the order and drops what is named twice
        for server in value:
            if not isinstance(server, str):
                raise self.unfit()
            if server.strip():  # a trailing comma does no harm
                servers[str(parse_server(server))] = None
        if not servers:
            raise ValueError(f"names no broker; expected {self.expected}")
        return tuple(servers)


def parse_server(text: str) -> Address:
    """Take one `host:port` apart; `PLAINTEXT://` may stand before it, as in a broker's own listeners.

    No other listener may be named there: it would look as if it secured the connection, which `security_protocol` does.

    Raises:
        ValueError: it is not one; the message says what is missing.
    """
    _check_alone(text.strip())
    scheme, separator, rest = text.strip().rpartition("://")
    if separator and scheme.upper() != "PLAINTEXT":
        raise ValueError(
            f"{text.strip()!r} says how to talk to a broker, which security_protocol does; here it is {rest!r}"
        )
    if rest.startswith("["):
        host, bracket, port = rest[1:].partition("]")
        if not bracket or ":" not in host or (port and not port.startswith(":")):
            raise ValueError(f"{rest!r} is not an IPv6 address with a port, such as [::1]:9092")
        port = port[1:]
    else:
        host, _, port = rest.partition(":")
        if ":" in port:
            raise ValueError(
                f"{rest!r} has more than one colon; an IPv6 address goes in brackets: [::1]:9092"
            )
    _check_host(host, rest)
    if not port:
        raise ValueError(f"{rest!r} has no port; Kafka's usual one would be {str(Address(host, 9092))!r}")
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) <= 0xFFFF):
        raise ValueError(f"{rest!r} has no valid port: {port!r} is not a number from 1 to 65535")
    return Address(host, int(port))


def _check_alone(text: str) -> None:
    """Raise if it is several addresses, or one with something before it that may be secret."""
    _, credentials, address = text.rpartition("@")
    if credentials:
        raise ValueError(
            f"a name or password before the address {address!r} would not be used; leave it out, and give"
            " sasl_mechanism, sasl_username and sasl_password"
        )
    several = re.split(r"[\s;|]+", text)
    if len(several) > 1 and all(":" in each for each in several):
        raise ValueError(f"several brokers are separated by commas: {','.join(several)!r}")


def _check_host(host: str, text: str) -> None:
    if not host or any(character.isspace() or character in "/?#@[]\\;,|" for character in host):
        raise ValueError(f"{text!r} has no usable host name; expected host:port")
    for label in host.removesuffix(".").split("."):
        if not 0 < len(label) <= LONGEST_LABEL:
            raise ValueError(
                f"{text!r} has no usable host name: between dots there are 1 to {LONGEST_LABEL} characters, and not"
                f" {len(label)}"
            )
