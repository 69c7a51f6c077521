"""Options of a file or mapping for any Kafka client, sorted by their effect."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from aioproducer._core.records.compression import LEVELS
from aioproducer._core.steps import Log
from aioproducer.config.kinds import INT32_MAX
from aioproducer.config.names import (
    HARMLESS,
    KAFKA_NAMES,
    REFUSED,
    REFUSED_OF_OTHERS,
    WITHOUT_EFFECT,
    dotted_name,
    given_twice,
    is_of_other_clients,
    option_name,
    switches_nothing_on,
    unknown,
)
from aioproducer.config.properties import References
from aioproducer.config.rules import raise_all

log: Final = Log(__name__)

_NESTED: Final = re.compile(r"(?P<producer>producer\.)?(?:properties\.)?")
"""Segments behind `spring.kafka.`. An option behind `producer.` wins over an option without this segment."""
_SECTION: Final = re.compile(r"\[[^\[\]]*\]")
_OTHER_SECTION: Final = re.compile(r"\[(?:admin|consumer|streams)[^\]]*\]", re.IGNORECASE)
_WORDS: Final = frozenset(("common", "default", "kafka", "producer", "properties", "spark", "spring"))
"""Segments of prefixes. A name without any of these segments counts as misspelt."""
_VERIFICATION: Final = "enable.ssl.certificate.verification"
_KEYTAB: Final = {"sasl.kerberos.keytab": "keyTab", "sasl.kerberos.principal": "principal"}
_EXTENSIONS: Final = "sasl.oauthbearer.extensions"
_LOGIN: Final = (*_KEYTAB, _EXTENSIONS)
"""Options of librdkafka that are part of `sasl.jaas.config` in Kafka."""
_LEVEL: Final = "compression.level"
_LEVELS: Final = frozenset(map(str, LEVELS))


class Entry(NamedTuple):
    """One option of a mapping."""

    written: str
    """The name in the mapping."""
    name: str
    """The name behind the prefix."""
    value: object


@dataclass(slots=True)
class Reading:
    """Result of reading a mapping."""

    applied: dict[str, Any] = field(default_factory=dict)
    """Values by this package's names."""
    written: dict[str, str] = field(default_factory=dict)
    """Names in the mapping by this package's names."""
    mistakes: list[str] = field(default_factory=list)
    wrong: set[str] = field(default_factory=set)
    """This package's names of options whose value could not be read."""
    without_effect: list[str] = field(default_factory=list)
    """Names of options of Kafka's producer that have no effect in this package."""
    of_others: list[str] = field(default_factory=list)
    """Names of options of other clients."""
    ignored: dict[str, str] = field(default_factory=dict)
    """Ignored options of other clients by name, each with the name of the option that wins."""

    def log(self) -> None:
        """Log the names without effect; values are never logged."""
        for name in self.without_effect:
            log.warning("config.without_effect name=%s", name)
        for name, by in self.ignored.items():
            log.warning("config.ignored name=%s by=%s", name, by)
        if self.of_others:
            log.warning("config.other_clients names=%s", ",".join(self.of_others))


def read_mapping(
    options: Mapping[str, object],
    known: Collection[str],
    *,
    prefix: str | Sequence[str] = (),
    config_providers: Collection[str] = (),
) -> Reading:
    """Return the effect of *options*, and all mistakes in their names.

    Names are Kafka's names, in either spelling, or names of librdkafka and other clients. Options without one of the prefixes
    in *prefix* are left out. References to *config_providers* in values are resolved.

    Raises:
        ConfigError: *config_providers* contains an unknown name.
    """
    reading = Reading()
    entries = list(_entries(options, prefix, reading.mistakes))
    references = References({dotted_name(each.name): each.value for each in entries}, config_providers)
    foreign: list[Entry] = []
    others: list[Entry] = []
    for entry in entries:
        dotted, option = dotted_name(entry.name), option_name(entry.name)
        if option in reading.written:
            reading.mistakes.append(given_twice(option, reading.written[option], entry.written))
        elif option in known:
            _apply(reading, option, entry, references)
        elif dotted in KAFKA_NAMES or dotted in _LOGIN:
            foreign.append(entry)
        elif dotted != "config.providers" or not config_providers:
            others.append(entry)
    _translate(reading, foreign, references)
    _check_unknown_names(reading, others, known)
    return reading


def without_prefix(options: Mapping[str, str], prefix: str | Sequence[str]) -> dict[str, str]:
    """Return the *options* behind *prefix*, or one of several prefixes, without the prefix in their names."""
    return {each.name: options[each.written] for each in _entries(options, prefix, [])}


def with_references(options: Mapping[str, str], config_providers: Collection[str]) -> dict[str, str]:
    """Return *options* with the value in place of each reference.

    Raises:
        ConfigError: references have no value; the text lists all references without a value.
    """
    references = References(options, config_providers)
    mistakes: list[str] = []
    resolved = dict(options)
    for name, value in options.items():
        if not is_of_other_clients(dotted_name(name)):
            try:
                resolved[name] = references.resolved(value)
            except ValueError as reason:
                mistakes.append(f"{name}: {reason}")
    raise_all(mistakes)
    return resolved


def _check_unknown_names(reading: Reading, entries: Sequence[Entry], known: Collection[str]) -> None:
    """Find the mistakes among names that are no options of this package."""
    behind: dict[str, list[str]] = {}
    for entry in entries:
        dotted = dotted_name(entry.name)
        if dotted in REFUSED or dotted in REFUSED_OF_OTHERS:
            _refuse(reading, entry, dotted)
        elif dotted in WITHOUT_EFFECT:
            reading.without_effect.append(entry.written)
        elif is_of_other_clients(dotted) or dotted in HARMLESS or _OTHER_SECTION.match(dotted):
            reading.of_others.append(entry.written)
        elif (found := _prefix_of(entry.name, known)) is not None:
            behind.setdefault(found, []).append(entry.written)
        else:
            reading.mistakes.append(unknown(entry.written, known, of_others=True))
    for found, names in behind.items():
        reading.wrong.add("bootstrap_servers")
        reading.mistakes.append(_prefix_message(found, names))


def _apply(
    reading: Reading,
    option: str,
    entry: Entry,
    references: References,
    convert: Callable[[object], object] | None = None,
) -> None:
    reading.written[option] = entry.written
    value = entry.value
    if isinstance(value, str):
        try:
            value = references.resolved(value.strip())
        except ValueError as reason:
            reading.mistakes.append(f"{entry.written}: {reason}")
            reading.wrong.add(option)
            return
    reading.applied[option] = value if convert is None else convert(value)


def _refuse(reading: Reading, entry: Entry, dotted: str) -> None:
    value = entry.value
    if dotted in REFUSED:
        if not switches_nothing_on(value):
            reading.mistakes.append(f"{entry.written} = {value!r}: {REFUSED[dotted]}")
        return
    word = str(value).strip().lower() if isinstance(value, str | bool) else ""
    harmless = value is None or (word == "true" if dotted == _VERIFICATION else switches_nothing_on(value))
    if dotted == "sasl.oauthbearer.method":
        harmless = value is None or word in {"", "default", "oidc"}
    if not harmless:
        reading.mistakes.append(f"{entry.written}: not supported, {REFUSED_OF_OTHERS[dotted]}")


def _translate(reading: Reading, entries: Sequence[Entry], references: References) -> None:
    """Apply options under the names of other clients."""
    login: dict[str, str] = {}
    translated: dict[str, object] = {}
    levels_last = sorted(entries, key=lambda each: dotted_name(each.name) == _LEVEL)
    for entry in levels_last:  # a compression level needs its codec
        dotted = dotted_name(entry.name)
        if dotted in _LOGIN:
            _collect_login(reading, entry, references, login)
            continue
        target = KAFKA_NAMES[dotted]
        if dotted == _LEVEL:
            codec = str(reading.applied.get("compression_type") or "none").strip().lower()
            if codec not in _LEVELS or str(entry.value).strip() == "-1":
                reading.of_others.append(entry.written)
                continue
            target = f"compression.{codec}.level"
        option = option_name(target)
        first = reading.written.get(option)
        if first is None:
            translated[option] = entry.value
            _apply(reading, option, entry, references, _CONVERSIONS.get(dotted))
        elif option not in translated:
            reading.ignored[entry.written] = first
        elif translated[option] != entry.value:
            reading.mistakes.append(given_twice(option, first, entry.written))
    _set_login(reading, login)


def _numbers(convert: Callable[[int], int]) -> Callable[[object], object]:
    """Return a conversion of numbers. Values other than numbers pass unchanged; the option refuses these values later."""

    def converted(value: object) -> object:
        text = str(value).strip()
        return convert(int(text)) if re.fullmatch(r"[+-]?[0-9]{1,18}", text) else value

    return converted


def _retriever(value: object) -> object:
    """Return Kafka's class for an OAuth grant, such as `urn:ietf:params:oauth:grant-type:jwt-bearer`."""
    grant = str(value).strip().rpartition(":")[2]
    known = {"client_credentials": "ClientCredentialsJwtRetriever", "jwt-bearer": "JwtBearerJwtRetriever"}
    return known.get(grant, value)


_no_limit: Final = _numbers(lambda value: value if value > 0 else INT32_MAX)
_of_system: Final = _numbers(lambda size: size or -1)
_CONVERSIONS: Final[Mapping[str, Callable[[object], object]]] = {
    "message.timeout.ms": _no_limit,
    "queue.buffering.max.kbytes": _numbers(lambda kbytes: kbytes * 1024),
    "sasl.oauthbearer.grant.type": _retriever,
    "socket.receive.buffer.bytes": _of_system,
    "socket.send.buffer.bytes": _of_system,
    "ssl.ca.location": lambda value: None if value == "probe" else value,  # None: authorities of the system
    "ssl.check.hostname": lambda value: {"true": "https", "false": ""}.get(str(value).strip().lower(), value),
    "topic.metadata.refresh.interval.ms": _no_limit,
}
"""Conversions from values of other clients to values of Kafka's option, by the name in the other client."""


def _collect_login(reading: Reading, entry: Entry, references: References, login: dict[str, str]) -> None:
    """Keep an option of librdkafka that is part of `sasl.jaas.config` in Kafka."""
    dotted = dotted_name(entry.name)
    try:
        text = references.resolved(str(entry.value or "").strip())
    except ValueError as reason:
        reading.mistakes.append(f"{entry.written}: {reason}")
        reading.wrong.add("sasl_jaas_config")
        return
    if dotted in _KEYTAB:
        login[_KEYTAB[dotted]] = text
        return
    for pair in filter(None, text.split(",")):
        name, equals, value = pair.strip().partition("=")
        if not equals:
            reading.mistakes.append(f"{entry.written}: expected NAME=VALUE, several separated by commas")
            return
        login[f"extension_{name}"] = value


def _set_login(reading: Reading, login: Mapping[str, str]) -> None:
    mechanism = str(reading.applied.get("sasl_mechanism") or "").upper()
    modules = {"GSSAPI": "Krb5LoginModule", "OAUTHBEARER": "OAuthBearerLoginModule"}
    if not login or mechanism not in modules or "sasl_jaas_config" in reading.written:
        return
    options = dict(login)
    if mechanism == "GSSAPI" and options.get("keyTab"):
        options["useKeyTab"] = "true"
    words = "".join(f' {name}="{_quoted(value)}"' for name, value in options.items() if value)
    reading.applied["sasl_jaas_config"] = f"{modules[mechanism]} required{words};"


def _quoted(text: str) -> str:
    return re.sub(r'(["\\])', r"\\\1", text)


def _entries(
    options: Mapping[Any, object], prefix: str | Sequence[str], mistakes: list[str]
) -> Iterator[Entry]:
    """Yield the options behind the prefixes; later prefixes win over earlier prefixes."""
    prefixes = [prefix] if isinstance(prefix, str) else list(prefix)
    found: dict[str, tuple[tuple[int, bool], list[Entry]]] = {}
    for written, value in options.items():
        if not isinstance(written, str):
            mistakes.append(f"{written!r} is not the name of an option; names are strings")
            continue
        if not prefixes:
            yield Entry(written, written, value)
            continue
        matching = [each for each in prefixes if written.startswith(each)]
        if not matching:
            continue
        longest = max(matching, key=len)
        name, of_producer = _plain(written.removeprefix(longest))
        rank = (prefixes.index(longest), of_producer)
        before = found.get(option_name(name))
        if before is None or rank > before[0]:
            found[option_name(name)] = (rank, [Entry(written, name, value)])
        elif rank == before[0]:
            before[1].append(Entry(written, name, value))
    for _, entries in found.values():
        yield from entries


def _plain(name: str) -> tuple[str, bool]:
    """Return *name* in Kafka's spelling, without segments of Spring, and True if *name* was behind `producer.`."""
    nested = _NESTED.match(name)
    assert nested is not None, "every part of the pattern is optional"
    rest = name[nested.end() :]
    if "-" in rest:
        rest = rest.replace("trust-store", "truststore").replace("key-store", "keystore").replace("-", ".")
    return rest, nested["producer"] is not None


def _prefix_of(name: str, known: Collection[str]) -> str | None:
    """Return the section or prefix that *name* has in front of the name of an option; None without an option."""
    if section := _SECTION.match(name):
        return section[0]
    parts = name.split(".")
    for length in range(1, len(parts)):
        rest, _ = _plain(".".join(parts[length:]))
        if not _WORDS.isdisjoint(parts[:length]) and _is_known(rest, known):
            return ".".join(parts[:length]) + "."
    return None


def _is_known(name: str, known: Collection[str]) -> bool:
    dotted = dotted_name(name)
    others = KAFKA_NAMES, REFUSED, WITHOUT_EFFECT, HARMLESS
    return (
        option_name(name) in known or any(dotted in names for names in others) or is_of_other_clients(dotted)
    )


def _prefix_message(prefix: str, names: Sequence[str]) -> str:
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    kind = "in the section" if prefix.startswith("[") else "behind the prefix"
    return (
        f"{names[0]!r}{more}: options {kind} {prefix!r} are not read by default; leave the prefix out, or give"
        f" the keyword argument prefix={prefix!r} or the flag --config-prefix"
    )
