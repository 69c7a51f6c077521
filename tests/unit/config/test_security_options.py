from __future__ import annotations

from dataclasses import fields

from aioproducer.config.security_kinds import SecretKind
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
