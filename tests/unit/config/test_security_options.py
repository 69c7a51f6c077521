from __future__ import annotations

from dataclasses import fields

from aioproducer._core.security.security_settings import VERSIONS
from aioproducer.config.security_kinds import TLS_VERSIONS, SecretKind
from aioproducer.config.security_options import SecurityOptions, SecurityOptionsGiven


def test_what_can_be_given_is_what_is_kept_in_the_same_order() -> None:
    assert [each.name for each in fields(SecurityOptions)] == [*SecurityOptionsGiven.__annotations__]


def test_what_is_called_a_secret_is_kept_as_one() -> None:
    named = {
        each.name
        for each in fields(SecurityOptions)
        if each.name.endswith(("password", "passphrase", "secret", "keystore_key", "jaas_config"))
    }
    secret = {each.name for each in fields(SecurityOptions) if isinstance(each.metadata["kind"], SecretKind)}
    assert secret == named | {"ssl_keystore_certificate_chain"}  # in which the key may stand, too


def test_the_versions_that_may_be_spoken_are_those_that_are_known() -> None:
    assert tuple(VERSIONS) == TLS_VERSIONS
