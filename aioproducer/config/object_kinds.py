"""Kinds of values that are secrets, files, security settings or user code."""

# ruff: noqa: D102 - the methods are documented once, by Kind
from __future__ import annotations

import inspect
import os
import ssl
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Final, Literal, TypeAlias, get_args

from aioproducer._core.partitioning import (
    PARTITIONERS,
    CallablePartitioner,
    Partitioner,
    RoundRobinPartitioner,
)
from aioproducer._core.security.secret import HIDDEN, Secret
from aioproducer._core.steps import Log
from aioproducer.config.kinds import Choice, Kind
from aioproducer.serializers import Serializer, bytes_serializer, string_serializer

if TYPE_CHECKING:
    from aioproducer.interceptors import AnyInterceptor

log: Final = Log(__name__)

SecurityProtocolName: TypeAlias = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
MechanismName: TypeAlias = Literal[
    "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI", "AWS_MSK_IAM"
]
PROTOCOLS: tuple[str, ...] = get_args(SecurityProtocolName)
MECHANISMS: tuple[str, ...] = get_args(MechanismName)
STORES = ("PEM", "PKCS12", "JKS")
TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")
_OLD_TLS = frozenset(("SSLv2Hello", "SSLv3", "TLSv1", "TLSv1.1"))
NO_NAMES = "text cannot name code; pass the object itself, from Python"
_JAVA_SERIALIZERS: Mapping[str, Serializer] = {
    "org.apache.kafka.common.serialization.StringSerializer": string_serializer,
    "org.apache.kafka.common.serialization.ByteArraySerializer": bytes_serializer,
}
_JAVA_ROUND_ROBIN = "org.apache.kafka.clients.producer.RoundRobinPartitioner"
_INTERCEPTOR_METHODS = ("on_send", "on_acknowledgement", "close")


class Text(Kind):
    """Any text, blanks included; empty text means None."""

    expected: str = "a string, or None"

    def check(self, value: object) -> str | None:
        if value is None or value == "":
            return None
        if not isinstance(value, str):
            raise self.unfit()
        return value


class PathKind(Kind):
    """The path of a file. Messages hide a value that is PEM text, because PEM text may be a private key."""

    expected: str = "the path of a file, or None"

    def __init__(self, instead: str = "") -> None:
        """*instead* is the option for the content of the file."""
        self.instead = instead

    def check(self, value: object) -> str | None:
        if value is None or value == "":
            return None
        if not isinstance(value, str | os.PathLike):
            raise self.unfit()
        path = os.fspath(value)
        if self.hides(path):
            raise self.unfit(f"is PEM text, not a path; give it as {self.instead}" if self.instead else "")
        if not isinstance(path, str):
            raise self.unfit()
        return path

    def hides(self, value: object) -> bool:
        return isinstance(value, str) and "-----BEGIN" in value


class SecretKind(Kind):
    """Secret text; messages and `repr` hide it."""

    expected: str = "a string, or None"

    def check(self, value: object) -> Secret | None:
        if value is None or value == "":
            return None
        if isinstance(value, str):
            value = Secret(value)
        if not isinstance(value, Secret):
            raise self.unfit()
        return value or None

    def hides(self, value: object) -> bool:
        return value is not None


class Jaas(SecretKind):
    """A Java login module, as in `sasl.jaas.config`."""

    expected: str = "a login module as in .properties files, or None"

    def check(self, value: object) -> Secret | None:
        secret = super().check(value)
        if secret is not None:
            from aioproducer._core.security.security_settings import parse_jaas  # noqa: PLC0415 - rarely needed

            parse_jaas(secret.reveal())
        return secret


class Words(Kind):
    """Several words, in a list or separated by commas."""

    def __init__(self, known: tuple[str, ...] = ()) -> None:
        """Without *known*, all words are valid, and an empty list means no restriction."""
        self.known = known
        which = f"some of {', '.join(known)}" if known else "names"
        self.expected: str = f"{which}, as a list or separated by commas"

    def check(self, value: object) -> tuple[str, ...]:
        if isinstance(value, str):
            value = value.split(",")
        if value is None and not self.known:
            return ()
        if not isinstance(value, Sequence) or isinstance(value, bytes | bytearray | memoryview):
            raise self.unfit()
        words = tuple(dict.fromkeys(word.strip() for word in map(self._text, value) if word.strip()))
        if self.known and not (words and set(words) <= set(self.known)):
            raise self.unfit()
        return words

    def _text(self, word: object) -> str:
        if not isinstance(word, str):
            raise self.unfit()
        return word


class TlsVersions(Words):
    """Versions of TLS. Versions that current Java and OpenSSL disable are dropped with a warning."""

    def parse(self, text: str) -> object:
        words = [word.strip() for word in text.split(",") if word.strip()]
        old = [word for word in words if word in _OLD_TLS]
        if not 0 < len(old) < len(words):
            return text
        for word in old:
            log.warning("config.without_effect name=ssl.enabled.protocols:%s", word)
        return [word for word in words if word not in _OLD_TLS]


class Allowed(Words):
    """Paths or URLs in a list or separated by commas; an empty list allows no path or URL."""

    def __init__(self) -> None:
        super().__init__()
        self.expected: str = "a list of strings, a string of items separated by commas, or None"

    def check(self, value: object) -> tuple[str, ...] | None:  # type: ignore[override]
        return None if value is None else super().check(value)

    def _text(self, word: object) -> str:
        return super()._text(os.fspath(word) if isinstance(word, os.PathLike) else word)


class HostnameCheck(Choice):
    """The check of host names in certificates: `https`, or an empty string for no check."""

    def __init__(self, words: tuple[str, ...]) -> None:
        super().__init__(words)
        self.expected: str = "'https', or '' for no check of host names"

    def parse(self, text: str) -> object:
        return "" if text.lower() == "none" else text  # "none" is librdkafka's spelling


class SslContext(Kind):
    """An `ssl.SSLContext`, or a callable that returns a context."""

    expected: str = "an ssl.SSLContext, a callable that returns one, or None"

    def check(self, value: object) -> object:
        if isinstance(value, ssl.SSLContext):
            if value.protocol is ssl.PROTOCOL_TLS_SERVER:
                raise self.unfit("is made for servers; expected the result of ssl.create_default_context()")
            return value
        if isinstance(value, str):
            raise self.unfit(f"expected {self.expected}; {NO_NAMES}")
        if value is not None and not callable(value):
            raise self.unfit()
        return value


class MechanismKind(Kind):
    """The name of a SASL mechanism, or a factory of mechanisms."""

    expected: str = f"one of {', '.join(MECHANISMS)}, a factory of mechanisms, or None"

    def check(self, value: object) -> object:
        if isinstance(value, str):
            if value and value.upper() not in MECHANISMS:
                raise self.unfit(f"is not known; expected {self.expected}")
            return value.upper() or None
        if value is not None and not callable(value):
            hint = (
                "give a factory: each authentication needs a new mechanism"
                if hasattr(value, "respond")
                else ""
            )
            raise self.unfit(hint)
        return value


class CallableKind(Kind):
    """A callable of the user, sync or async."""

    def __init__(self, returns: str) -> None:
        self.expected: str = f"a callable (sync or async) that returns {returns}, or None"

    def check(self, value: object) -> object:
        if isinstance(value, str):
            raise self.unfit(f"expected {self.expected}; {NO_NAMES}")
        if value is not None and not callable(value):
            raise self.unfit()
        return value

    def hides(self, value: object) -> bool:
        return True  # the value may be a password or token in place of the callable


class EndpointUrl(str):
    """A URL whose `repr` hides query and fragment, which may contain secrets."""

    __slots__ = ()

    def __repr__(self) -> str:
        text = str(self)
        start = min((at for sign in "?#" if (at := text.find(sign)) >= 0), default=len(text))
        return str.__repr__(text[: start + 1] + (HIDDEN if start < len(text) else ""))


class Url(Kind):
    """The URL of a token endpoint."""

    expected: str = "an http, https or file URL, or None"

    schemes: ClassVar[tuple[str, ...]] = ("http", "https", "file")

    def check(self, value: object) -> str | None:
        if value is None or value == "":
            return None
        if not isinstance(value, str):
            raise self.unfit()
        from urllib.parse import urlsplit  # noqa: PLC0415 - rarely needed

        value = value.strip()
        if not value.isprintable():
            raise self.unfit()
        try:
            parts = urlsplit(value)
            _ = parts.port
        except ValueError:
            raise self.unfit() from None
        if parts.username or parts.password:
            raise self.unfit("contains a user name or password; give them as separate options")
        if parts.scheme not in self.schemes or not (parts.path if parts.scheme == "file" else parts.hostname):
            raise self.unfit()
        return EndpointUrl(value)

    def hides(self, value: object) -> bool:
        return isinstance(value, str) and "@" in value

    def shown(self, value: object) -> str:
        return super().shown(EndpointUrl(value) if isinstance(value, str) else value)


class SerializerKind(Kind):
    """A serializer of keys or values, sync or async."""

    expected = (
        "a callable that takes the value and returns bytes or None, or an object with"
        " serialize(topic, headers, value); either may be async; or None"
    )

    def check(self, value: object) -> object:
        if isinstance(value, str):
            raise self.unfit(_no_counterpart(_JAVA_SERIALIZERS, "a Python callable"))
        sees_topic = hasattr(value, "serialize")
        if sees_topic and isinstance(value, type):
            raise self.unfit(f"is a class; give an instance of it: {value.__name__}()")
        if value is not None and not sees_topic and not callable(value):
            raise self.unfit()
        if callable(value) and not sees_topic:
            _refuse_context(value)
        return value

    def parse(self, text: str) -> object:
        return _JAVA_SERIALIZERS.get(text, text)


class PartitionerKind(Kind):
    """A partitioner: an object, a function, or a name of librdkafka or Sarama."""

    expected: str = (
        "a Partitioner, a callable (key, all_partitions, available_partitions) -> partition, None,"
        f" or one of librdkafka's and Sarama's: {', '.join(PARTITIONERS)}"
    )

    def check(self, value: object) -> Partitioner | None:
        if value is None:
            return None
        if isinstance(value, str):
            if value in PARTITIONERS:
                return PARTITIONERS[value]()
            raise self.unfit(
                _no_counterpart((_JAVA_ROUND_ROBIN,), "a Python partitioner")
                + f"; leave the option out for Kafka's default. Names of librdkafka's and Sarama's partitioners: {', '.join(PARTITIONERS)}"
            )
        if isinstance(value, type):
            raise self.unfit(f"is a class; give an instance of it: {value.__name__}()")
        if isinstance(value, Partitioner):
            _refuse_async(value.partition)
            return value
        if not callable(value):
            raise self.unfit()
        _refuse_async(value)
        return CallablePartitioner(value)

    def parse(self, text: str) -> object:
        return RoundRobinPartitioner() if text == _JAVA_ROUND_ROBIN else text or None


class DialKind(Kind):
    """Coroutine function that connects to a host and port."""

    expected = (
        "an async callable (host, port) that returns a connected socket or a (reader, writer) pair, or None"
    )

    def check(self, value: object) -> object:
        if value is not None and not callable(value):
            raise self.unfit()
        return value


class InterceptorsKind(Kind):
    """The interceptors, in the order in which they are called."""

    expected = "a sequence of objects with on_send, on_acknowledgement or close"

    def check(self, value: object) -> tuple[AnyInterceptor, ...]:
        if not isinstance(value, Sequence) or isinstance(value, str | bytes):
            raise self.unfit()
        for interceptor in value:
            if isinstance(interceptor, type):
                raise self.unfit(f"holds the class {interceptor.__name__}; give an instance of it")
            methods = [name for name in _INTERCEPTOR_METHODS if hasattr(interceptor, name)]
            if not methods:
                raise self.unfit(f"holds {interceptor!r}; expected {self.expected}")
            for name in methods:
                _refuse_async(getattr(interceptor, name))
        return tuple(value)


def _refuse_async(code: object) -> None:
    """Refuse coroutine functions: the append is synchronous, so that records keep the order of the calls."""
    if inspect.iscoroutinefunction(code) or inspect.iscoroutinefunction(getattr(code, "__call__", None)):  # noqa: B004 - an object with an async __call__, not a test for callability
        raise ValueError(
            "is a coroutine function; it is called synchronously and cannot wait;"
            " await its result before the send"
        )


def _refuse_context(serializer: Callable[..., object]) -> None:
    """Reject serializers that need a SerializationContext (confluent-kafka's) and would fail on every record."""
    try:
        signature = inspect.signature(serializer)
    except (TypeError, ValueError):  # some callables in C have no signature
        return
    # confluent-kafka's serializers declare a default for the context, but fail without a context.
    fits = not type(serializer).__module__.startswith("confluent_kafka.schema_registry")
    try:
        signature.bind(None)
    except TypeError:
        fits = False
    if not fits:
        raise ValueError(
            "cannot be called with the value alone. Wrap a serializer of confluent-kafka"
            " (aioproducer.contrib.schema_registry), or give an object with serialize(topic, headers, value)"
        )


def _no_counterpart(mapped: Sequence[str] | Mapping[str, object], instead: str) -> str:
    return f"unknown name; expected {' or '.join(mapped)}, or {instead}"
