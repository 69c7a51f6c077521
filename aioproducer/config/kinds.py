"""The declaration of an option, and one class per kind of option values."""

# ruff: noqa: D102 - the methods are documented once, by Kind
from __future__ import annotations

import itertools
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import FrozenInstanceError, dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar, dataclass_transform

from aioproducer._core.address import Address
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
    """Check of an option's values, from Python and from a `.properties` file.

    Empty text means None where None is valid and text has no other use, because a `.properties` file cannot contain None.
    `Rack` strips blanks first. `ClientId` keeps empty text, which is a valid name. `TransactionalId` refuses empty text,
    because None would disable transactions, and `Choice` refuses empty text where None selects a word.
    """

    expected: str
    """Description of valid values, for error messages and the documentation."""
    unit: str = ""
    """Unit of a number; empty for other values."""

    @abstractmethod
    def check(self, value: object) -> object:
        """Return *value* as the configuration keeps it.

        Raises:
            ValueError: *value* is invalid. The message is the reason.
        """

    def parse(self, text: str) -> object:
        """Convert a value of a `.properties` file. Invalid text is returned unchanged, and `check` refuses it."""
        return text

    def hides(self, value: object) -> bool:
        """Return True if *value* may be a secret. Messages then hide the value."""
        return False

    def shown(self, value: object) -> str:
        """Return *value* for a message: hidden if it may be a secret, and shortened if it is long."""
        if self.hides(value):
            return HIDDEN
        try:
            text = repr(value)
        except Exception:  # noqa: BLE001 - an int of more than 4,300 digits, or a class of the caller
            return f"a value of type {type(value).__name__}"
        return text if len(text) <= LONGEST_SHOWN else f"{text[:SHOWN_OF_LONGER]}… ({len(text):,} characters)"

    def unfit(self, reason: str = "") -> ValueError:
        """Return the error of an invalid value, with *reason* or the description of valid values."""
        return ValueError(reason or f"expected {self.expected}")


class Integer(Kind):
    """An integer within Kafka's bounds."""

    def __init__(
        self, low: int, high: int = INT32_MAX, *, besides: int | None = None, unit: str = ""
    ) -> None:
        """*besides* is a valid value outside the bounds, such as -1."""
        self.low = low
        self.high = high
        self.besides = besides
        self.unit = unit
        also = "" if besides is None else f", or {besides}"
        self.expected: str = f"an integer from {low} to {_BOUNDS.get(high, high)}{also}"

    def check(self, value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.unfit()
        if not self.low <= value <= self.high and value != self.besides:
            raise self.unfit()
        return value

    def parse(self, text: str) -> object:
        return int(text) if re.fullmatch(_INTEGER, text) else text


class Number(Kind):
    """An integer or float."""

    def __init__(self, low: int, *, unit: str = "") -> None:
        self.low = low
        self.unit = unit
        self.expected: str = f"a number from {low} to {_BOUNDS[INT64_MAX]}"

    def check(self, value: object) -> int | float:
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self.unfit()
        if not self.low <= value <= INT64_MAX:  # the comparison also refuses nan
            raise self.unfit()
        return value

    def parse(self, text: str) -> object:
        if re.fullmatch(_INTEGER, text):
            return int(text)
        return float(text) if re.fullmatch(_DECIMAL, text) else text


class Flag(Kind):
    """A boolean."""

    def __init__(self, *, optional: bool = False) -> None:
        """With *optional*, None is valid and selects the automatic choice."""
        self.optional = optional
        self.expected: str = "True, False or None" if optional else "True or False"

    def check(self, value: object) -> bool | None:
        if isinstance(value, bool) or (self.optional and value is None):
            return value
        raise self.unfit()

    def parse(self, text: str) -> object:
        return {"true": True, "false": False}.get(text.lower(), text)


class Choice(Kind):
    """One of several words, case-insensitive, in Kafka's spelling."""

    def __init__(self, words: tuple[str, ...], *, absent: str | None = None, optional: bool = False) -> None:
        """None selects the word *absent*, if given. With *optional*, None and empty text are valid, and mean None."""
        self.words = words
        self.absent = absent
        self.optional = optional
        self.expected: str = f"one of {', '.join(words)}{', or None' if optional else ''}"

    def check(self, value: object) -> str | None:
        if value is None and self.absent is not None:
            return self.absent
        if self.optional and (value is None or value == ""):
            return None
        for word in self.words:
            if isinstance(value, str) and word.upper() == value.upper():
                return word
        raise self.unfit()


class Acks(Kind):
    """Acknowledgements: `all`, -1, 0 or 1, as text or number."""

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
    """Client name in logs, metrics and quotas of the brokers. Empty text is kept as the name."""

    expected = "a string of at most 32767 bytes in UTF-8, or None"

    def check(self, value: object) -> str:
        if value is None:
            return f"aioproducer-{next(_client_numbers)}"
        if not isinstance(value, str) or not _fits(value):
            raise self.unfit()
        return str.__str__(value)  # `str.__str__` converts members of a `str` Enum


class Rack(Kind):
    """Name of a rack. Surrounding blanks are stripped; empty text means None, as in the Java client."""

    expected = "a string or None"

    def check(self, value: object) -> str | None:
        if value is not None and not isinstance(value, str):
            raise self.unfit()
        return str.__str__(value).strip() or None if value is not None else None


class TransactionalId(Kind):
    """Name of a producer's transactions, for one running producer. Empty text is refused, as in the Java client."""

    expected = "a string of 1 to 32767 bytes in UTF-8, or None"

    def check(self, value: object) -> str | None:
        if value is None:
            return None
        if not isinstance(value, str) or not value or not _fits(value):
            raise self.unfit()
        return str.__str__(value)  # `str.__str__` converts members of a `str` Enum


def _fits(text: str) -> bool:
    """Return True if the length of *text* fits into an int16, as Kafka's protocol requires."""
    try:
        return len(text.encode()) <= 0x7FFF
    except UnicodeEncodeError:
        return False


class NotGiven(int):
    """Kafka's default of an option that adapts while the user gives no value.

    Copies, pickles and `dataclasses.replace` keep the class. An equal number from the user is a plain int.
    """

    __slots__ = ()


class Immutable:
    """Base of classes with options, whose fields cannot be assigned or deleted."""

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

    The methods that `dataclass` compiles for `frozen=True` would take a fiftieth of the import time.
    """
    return dataclass(slots=True, kw_only=True, init=False, eq=False, repr=False)(cls)


def option(default: object, kind: Kind, meaning: str) -> Any:
    """Declare an option; *meaning* is its description in docs/reference/configuration.md."""
    return field(default=default, metadata={"kind": kind, "meaning": meaning})


def optional(kind: Kind, meaning: str) -> Any:
    """Declare an option with the default None."""
    return option(None, kind, meaning)


def flag(default: bool, meaning: str) -> Any:  # noqa: FBT001 - a default, as in `option`
    """Declare a boolean option."""
    return option(default, Flag(), meaning)


def int_ms(default: int, meaning: str, *, low: int = 0) -> Any:
    """Declare a duration that is an int32 in Kafka."""
    return option(default, Integer(low, unit="ms"), meaning)


def long_ms(default: int, meaning: str, *, low: int = 0) -> Any:
    """Declare a duration that is an int64 in Kafka."""
    return option(default, Integer(low, INT64_MAX, unit="ms"), meaning)


LONGEST_LABEL: Final = 63
"""Maximum length of a DNS label (RFC 1035)."""


class Servers(Kind):
    """Addresses of brokers: `host:port`, several as a list or separated by commas."""

    expected = "host:port (an IPv6 address in brackets), several as a list or separated by commas"

    def hides(self, value: object) -> bool:
        # A mapping may contain a password, and credentials may precede an address.
        return isinstance(value, Mapping) or "@" in str(value)

    def check(self, value: object) -> tuple[str, ...]:
        if isinstance(value, str):
            value = value.split(",")
        if isinstance(value, Mapping):
            raise ValueError(  # noqa: TRY004 - kinds raise ValueError
                "a mapping of options, as other clients take it, is ProducerConfig's:"
                " Producer.from_config(ProducerConfig.from_mapping({…})),"
                " or give each as a keyword argument, with _ for . in its name"
            )
        if hasattr(value, "bootstrap_servers"):
            raise ValueError("a ProducerConfig goes into Producer.from_config(…)")
        if not isinstance(value, Sequence) or isinstance(value, bytes | bytearray | memoryview):
            raise self.unfit()
        servers: dict[str, None] = {}  # a dict keeps the order, and drops duplicates
        for server in value:
            if not isinstance(server, str):
                raise self.unfit()
            if server.strip():  # a trailing comma is valid
                servers[str(parse_server(server))] = None
        if not servers:
            raise ValueError(f"names no broker; expected {self.expected}")
        return tuple(servers)


def parse_server(text: str) -> Address:
    """Return the address in *text*: `host:port`, with or without `PLAINTEXT://`, as in a broker's listeners.

    Other listener names are refused: only `security_protocol` secures connections.

    Raises:
        ValueError: *text* is no address. The message is the reason.
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
    """Raise if *text* contains several addresses, or credentials before an address."""
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
