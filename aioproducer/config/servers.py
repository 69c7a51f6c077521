"""The addresses of the first broker: `bootstrap_servers`."""

# ruff: noqa: D102 - the methods are documented once, by Kind
from __future__ import annotations

from collections.abc import Mapping, Sequence

from aioproducer.config.kinds import Kind
from aioproducer.net.address import Address


class Servers(Kind):
    """Brokers as `host:port`, several of them in a list or separated by commas."""

    expected = "host:port (an IPv6 address in brackets), several as a list or separated by commas"

    def hides(self, value: object) -> bool:
        return isinstance(value, Mapping)  # of options, a password among them maybe

    def check(self, value: object) -> tuple[str, ...]:
        if isinstance(value, str):
            value = value.split(",")
        if isinstance(value, Mapping):
            raise ValueError(  # noqa: TRY004 - what a kind refuses is a ValueError
                "a mapping of options, as other clients take it, is ProducerConfig's:"
                " Producer.from_config(ProducerConfig.from_mapping({…})),"
                " or give each as a keyword argument, with _ for . in its name"
            )
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
    if not host or any(character.isspace() or character in "/?#@[]\\" for character in host):
        raise ValueError(f"{rest!r} has no usable host name; expected host:port")
    if not port:
        raise ValueError(f"{rest!r} has no port; Kafka's usual one would be {str(Address(host, 9092))!r}")
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) <= 0xFFFF):
        raise ValueError(f"{rest!r} has no valid port: {port!r} is not a number from 1 to 65535")
    return Address(host, int(port))
