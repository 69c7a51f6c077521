"""An option as it is declared, and the kinds of values that one may have, a small class each."""

# ruff: noqa: D102 - the methods are documented once, by Kind
from __future__ import annotations

import itertools
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import FrozenInstanceError, dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar, dataclass_transform

from aioproducer._core.net.address import Address
from aioproducer._core.security.secret import HIDDEN

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
LONGEST_SHOWN = 200
SHOWN_OF_LONGER = 80

_BOUNDS = {INT32_MAX: "2^31 - 1", INT64_MAX: "2^63 - 1"}
_INTEGER = r"[+-]?[0-9]{1,19}"
_DECIMAL = r"[+-]?[0-9]{1,19}\.[0-9]{1,19}"
_client_numbers = itertools.count(1)

C = TypeVar("C")


class Kind(ABC):
    """Knows which values an option takes, from Python and from a `.properties` file."""

    unit: str = ""
    """What a number counts; empty for everything else."""

    @property
    @abstractmethod
    def expected(self) -> str:
        """What a value should be, as error messages and the documentation say it."""

    @abstractmethod
    def check(self, value: object) -> object:
        """Return *value* as the configuration keeps it.

        Raises:
            ValueError: *value* will not do; the message says why.
        """

    def parse(self, text: str) -> object:
        """Read a value of a `.properties` file; what cannot be read stays as it is, for `check` to refuse."""
        return text

    def hides(self, value: object) -> bool:
        """Whether *value* may be a secret, and is not to be shown."""
        return False

    def shown(self, value: object) -> str:
        """Return *value* as messages have it: nobody reads thousands of characters to find what is wrong."""
        if self.hides(value):
            return HIDDEN
        try:
            text = repr(value)
        except Exception:  # noqa: BLE001 - an int of more than 4,300 digits, or a class of the caller
            return f"a value of type {type(value).__name__}"
        return text if len(text) <= LONGEST_SHOWN else f"{text[:SHOWN_OF_LONGER]}… ({len(text):,} characters)"

    def unfit(self, reason: str = "") -> ValueError:
        """Say why a value will not do, in general or for a particular *reason*."""
        return ValueError(reason or f"expected {self.expected}")


class Integer(Kind):
    """A whole number within Kafka's bounds for it."""

    def __init__(
        self, low: int, high: int = INT32_MAX, *, besides: int | None = None, unit: str = ""
    ) -> None:
        """*besides* is one more value, outside of the bounds, that Kafka gives a meaning of its own."""
        self.low = low
        self.high = high
        self.besides = besides
        self.unit = unit

    @property
    def expected(self) -> str:
        also = "" if self.besides is None else f", or {self.besides}"
        return f"an integer from {self.low} to {_BOUNDS.get(self.high, self.high)}{also}"

    def check(self, value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.unfit()
        if not self.low <= value <= self.high and value != self.besides:
            raise self.unfit()
        return value

    def parse(self, text: str) -> object:
        return int(text) if re.fullmatch(_INTEGER, text) else text


def int_ms(low: int = 0) -> Integer:
    """A duration that Kafka keeps in an int."""
    return Integer(low, INT32_MAX, unit="ms")


def long_ms(low: int = 0) -> Integer:
    """A duration that Kafka keeps in a long."""
    return Integer(low, INT64_MAX, unit="ms")


class Number(Kind):
    """A number that need not be whole."""

    def __init__(self, low: int, *, unit: str = "") -> None:
        self.low = low
        self.unit = unit

    @property
    def expected(self) -> str:
        return f"a number from {self.low} to {_BOUNDS[INT64_MAX]}"

    def check(self, value: object) -> int | float:
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self.unfit()
        if not self.low <= value <= INT64_MAX:  # refuses nan, too
            raise self.unfit()
        return value

    def parse(self, text: str) -> object:
        if re.fullmatch(_INTEGER, text):
            return int(text)
        return float(text) if re.fullmatch(_DECIMAL, text) else text


class Flag(Kind):
    """Yes or no."""

    def __init__(self, *, optional: bool = False) -> None:
        """With *optional*, None is a third value: "decide for me"."""
        self.optional = optional

    @property
    def expected(self) -> str:
        return "True, False or None" if self.optional else "True or False"

    def check(self, value: object) -> bool | None:
        if isinstance(value, bool) or (self.optional and value is None):
            return value
        raise self.unfit()

    def parse(self, text: str) -> object:
        return {"true": True, "false": False}.get(text.lower(), text)


class Choice(Kind):
    """One of a few words, in any case."""

    def __init__(self, words: tuple[str, ...], *, absent: str | None = None) -> None:
        """None stands for the word *absent*, if for any."""
        self.words = words
        self.absent = absent

    @property
    def expected(self) -> str:
        return "one of " + ", ".join(self.words)

    def check(self, value: object) -> str:
        if value is None and self.absent is not None:
            return self.absent
        if not isinstance(value, str) or value.lower() not in self.words:
            raise self.unfit()
        return value.lower()


class Acks(Kind):
    """How many replicas must have a record, which Kafka writes as a word or a number."""

    expected = "all (the same as -1), 0 or 1"

    def check(self, value: object) -> str | int:
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise self.unfit()
        match str(value).lower():
            case "all" | "-1":
                return "all"
            case "0" | "1" as count:
                return int(count)
            case _:
                raise self.unfit()


class ClientId(Kind):
    """The name that brokers log, meter and limit the client by."""

    expected = "a string of at most 32767 bytes in UTF-8, or None"

    def check(self, value: object) -> str:
        if value is None:
            return f"aioproducer-{next(_client_numbers)}"
        if not isinstance(value, str) or not _fits(value):
            raise self.unfit()
        return str.__str__(value)  # a plain str, also of a member of a `str` Enum


class Rack(Kind):
    """Name of a rack. Blank text counts as None, as in the Java client."""

    expected = "a string or None"

    def check(self, value: object) -> str | None:
        if value is not None and not isinstance(value, str):
            raise self.unfit()
        return str.__str__(value).strip() or None if value is not None else None


class TransactionalId(Kind):
    """The name that transactions are known by, and that one producer has at a time."""

    expected = "a string of 1 to 32767 bytes in UTF-8, or None"

    def check(self, value: object) -> str | None:
        if value is None:
            return None
        if not isinstance(value, str) or not value or not _fits(value):
            raise self.unfit()
        return str.__str__(value)  # a plain str, also of a member of a `str` Enum


def _fits(text: str) -> bool:
    """Whether Kafka's protocol can carry *text*: its length is an int16."""
    try:
        return len(text.encode()) <= 0x7FFF
    except UnicodeEncodeError:
        return False


class NotGiven(int):
    """Kafka's default, which reads as it: what it stands for may adapt, since nobody has asked for just this value.

    It stays what it is in copies, pickles and `dataclasses.replace`; the same number, given, is another thing.
    """

    __slots__ = ()


class Immutable:
    """Base of a class with options. Its fields cannot be assigned or deleted."""

    __slots__ = ()

    if not TYPE_CHECKING:

        def __setattr__(self, name: str, value: object) -> None:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")

        def __delattr__(self, name: str) -> None:
            raise FrozenInstanceError(f"cannot delete field {name!r}")

        def __setstate__(self, state: tuple[None, dict[str, object]]) -> None:
            for name, value in state[1].items():
                object.__setattr__(self, name, value)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
def has_options(cls: type[C]) -> type[C]:
    """Make a subclass of `Immutable` a dataclass of options.

    With `frozen=True`, `dataclass` compiles methods with the names of all fields. These take a fiftieth of the import.
    """
    return dataclass(slots=True, kw_only=True, init=False, eq=False, repr=False)(cls)


def option(default: object, kind: Kind, meaning: str) -> Any:
    """Declare an option; *meaning* is its line in docs/reference/configuration.md."""
    return field(default=default, metadata={"kind": kind, "meaning": meaning})


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
