from __future__ import annotations

import re
from dataclasses import MISSING, fields
from pathlib import Path
from typing import get_args

from aioproducer._core.records.compression import Codec
from aioproducer._core.security.security_settings import VERSIONS
from aioproducer.config import ProducerConfig, ProducerOptions
from aioproducer.config.names import KAFKA_NAMES, REFUSED, REFUSED_OF_OTHERS, WITHOUT_EFFECT
from aioproducer.config.object_kinds import TLS_VERSIONS, SecretKind
from aioproducer.config.options import DEFAULTS, KINDS, OPTIONS, CompressionType, Options
from aioproducer.config.security_options import SecurityOptions, SecurityOptionsGiven

OURS = {"key_serializer", "value_serializer", "partitioner", "interceptors"}


def test_keyword_arguments_are_the_options_in_order() -> None:
    security = [*SecurityOptionsGiven.__annotations__]
    others = [name for name in ProducerOptions.__annotations__ if name not in security]
    assert [*KINDS] == ["bootstrap_servers", *others, *security]
    assert {each.name for each in fields(ProducerConfig)} == KINDS.keys()
    assert not ProducerOptions.__required_keys__


def test_options_accept_their_default() -> None:
    for name in KINDS.keys() - {"bootstrap_servers"}:
        KINDS[name].check(DEFAULTS[name])


def test_compression_type_lists_all_codecs() -> None:
    assert get_args(CompressionType) == tuple(map(str, Codec))


def test_options_have_a_meaning_of_one_line() -> None:
    for each in fields(Options):
        assert each.metadata["meaning"].endswith((".", "…")), each.name
        assert "\n" not in each.metadata["meaning"]


def test_numbers_have_the_unit_of_their_name() -> None:
    for name, kind in KINDS.items():
        assert (kind.unit == "ms") == name.endswith("_ms"), name
        if name.endswith("_bytes"):
            assert kind.unit == "bytes", name


def test_options_are_not_listed_as_without_effect() -> None:
    dotted = {name.replace("_", ".") for name in KINDS}
    assert not dotted & (WITHOUT_EFFECT | REFUSED.keys() | KAFKA_NAMES.keys())


def test_names_of_other_clients_lead_to_options() -> None:
    for names in KAFKA_NAMES.values():
        for name in names.replace(" or ", ", ").split(", "):
            assert name.replace(".", "_") in KINDS


def test_security_arguments_are_the_options_in_order() -> None:
    assert [each.name for each in fields(SecurityOptions)] == [*SecurityOptionsGiven.__annotations__]


def test_secret_options_are_stored_as_secrets() -> None:
    named = {
        each.name
        for each in fields(SecurityOptions)
        if each.name.endswith(("password", "passphrase", "secret", "keystore_key", "jaas_config"))
    }
    secret = {each.name for each in fields(SecurityOptions) if isinstance(each.metadata["kind"], SecretKind)}
    assert secret == named | {"ssl_keystore_certificate_chain"}  # may contain the key


def test_tls_versions_are_those_of_the_security_layer() -> None:
    assert tuple(VERSIONS) == TLS_VERSIONS


PAGE = (Path(__file__).parents[3] / "docs/reference/configuration.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    _, _, rest = PAGE.partition(f"\n## {title}\n")
    return rest.partition("\n## ")[0]


def rows(title: str) -> list[str]:
    return [line for line in section(title).splitlines() if line.startswith("| `")]


def test_every_option_is_listed_as_it_is() -> None:
    expected = [
        f"| `{each.name}` | {KINDS[each.name].expected} "
        f"| {'required' if each.default is MISSING else f'`{each.default!r}`'} "
        f"| {KINDS[each.name].unit} | {each.metadata['meaning']} |"
        for each in OPTIONS
    ]
    assert rows("Options") + rows("Security") == expected, "\n".join(expected)


def test_every_name_without_effect_is_listed() -> None:
    listed = re.findall(r"`([a-z.]+\.[a-z.]+)`", section("Known to Kafka, without effect here"))
    assert sorted(listed) == sorted(WITHOUT_EFFECT)


def test_every_name_that_is_refused_is_listed_with_the_reason() -> None:
    expected = [f"| `{name}` | {reason} |" for name, reason in {**REFUSED, **REFUSED_OF_OTHERS}.items()]
    assert rows("Refused") == expected, "\n".join(expected)
