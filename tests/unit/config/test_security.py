from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest

from aioproducer._core.backoff import Backoff
from aioproducer._core.security.gssapi import KerberosSettings
from aioproducer._core.security.passwords import Credentials, Login, Plain
from aioproducer._core.security.secret import Secret
from aioproducer._core.security.security_settings import SaslSettings, SecuritySettings, TlsSettings
from aioproducer._core.security.stores import Source
from aioproducer.config import ProducerConfig, security as module
from tests.cases import for_each
from tests.unit._core.security.certificates import Authority
from tests.unit.config.securing import refusal, sasl, sasl_refusal, settings

AUTHORITY = Authority()
ALICE = AUTHORITY.issue(common_name="alice")
BACKOFF = Backoff(0.1, 10.0)
LOGIN = Login("u", Secret("hunter2"))
JAAS = "org.apache.kafka.common.security"
ENDPOINT = "https://idp.example/token"


@pytest.fixture(autouse=True)
def everything_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda _: "found")


class TestProtocol:
    def test_plaintext_has_neither(self) -> None:
        assert settings() == SecuritySettings()

    @pytest.mark.parametrize(
        ("protocol", "tls", "login"),
        [("SSL", True, False), ("SASL_PLAINTEXT", False, True), ("SASL_SSL", True, True)],
    )
    def test_security_protocol_selects_tls_and_sasl(self, protocol: str, tls: bool, login: bool) -> None:
        found = settings(
            security_protocol=protocol, sasl_mechanism="PLAIN", sasl_username="u", sasl_password="hunter2"
        )
        assert (found.tls is not None, found.sasl is not None) == (tls, login)

    def test_options_without_effect_are_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        options: dict[str, Any] = {"sasl_password": "hunter2", "ssl_truststore_location": "missing"}
        assert settings(**options) == SecuritySettings()
        assert caplog.messages == [
            "config.ignored name=ssl_truststore_location by=security_protocol",
            "config.ignored name=sasl_password by=security_protocol",
        ]

    def test_defaults_are_no_reason_to_warn(self, caplog: pytest.LogCaptureFixture) -> None:
        settings(ssl_endpoint_identification_algorithm="https", sasl_mechanism=None)
        assert not caplog.messages


class TestTls:
    def test_tls_without_options_uses_the_systems_trust_store(self) -> None:
        assert settings(security_protocol="SSL").tls == TlsSettings()

    def test_options_become_settings(self, tmp_path: Path) -> None:
        path = tmp_path / "ca.pem"
        path.write_text(AUTHORITY.pem)
        key = ALICE.encrypted_key("hunter2")
        assert settings(
            security_protocol="SSL",
            ssl_truststore_location=path,
            ssl_truststore_type="pem",
            ssl_keystore_certificate_chain=ALICE.chain,
            ssl_keystore_key=key,
            ssl_key_password="hunter2",
            ssl_endpoint_identification_algorithm="",
            ssl_enabled_protocols="TLSv1.3",
        ).tls == TlsSettings(
            truststore=Source("ssl_truststore_location", str(path)),
            truststore_type="PEM",
            certificate_chain=Source("ssl_keystore_certificate_chain", Secret(ALICE.chain)),
            key=Source("ssl_keystore_key", Secret(key)),
            key_password=Secret("hunter2"),
            check_hostname=False,
            versions=("TLSv1.3",),
        )

    def test_ssl_context_excludes_other_tls_options(self) -> None:
        context = ssl.create_default_context()
        assert settings(security_protocol="SSL", ssl_context=context).tls == TlsSettings(context=context)
        assert refusal(security_protocol="SSL", ssl_context=context, ssl_key_password="hunter2") == (
            "ssl_context and ssl_key_password are both given; configure the context instead"
        )

    @for_each(
        ("options", "why"),
        [
            (
                {"ssl_truststore_location": "a", "ssl_truststore_certificates": "b"},
                "ssl_truststore_location and ssl_truststore_certificates are both given",
            ),
            (
                {"ssl_keystore_location": "a", "ssl_keystore_key": "hunter2"},
                "ssl_keystore_location and ssl_keystore_key are both given",
            ),
            ({"ssl_keystore_certificate_chain": ALICE.chain}, "without ssl_keystore_key"),
            ({"ssl_keystore_type": "PKCS12"}, "ssl_keystore_type = 'PKCS12' needs ssl_keystore_location"),
            ({"ssl_truststore_location": "missing"}, "ssl_truststore_location = 'missing': No such file"),
            (
                {"ssl_keystore_key": "hunter2"},
                "ssl_keystore_key: No such file or directory, and it is no PEM",
            ),
            ({"ssl_cipher_suites": "NONSENSE"}, "knows no cipher suite NONSENSE"),
            (
                {
                    "ssl_keystore_certificate_chain": ALICE.chain,
                    "ssl_keystore_key": ALICE.encrypted_key("hunter2"),
                },
                "the key in ssl_keystore_key is encrypted: give ssl_key_password",
            ),
        ],
    )
    def test_contradictions_are_refused_at_construction(self, options: dict[str, Any], why: str) -> None:
        assert why in refusal(security_protocol="SSL", **options)

    def test_jks_is_answered_with_how_to_convert_it(self, tmp_path: Path) -> None:
        path = tmp_path / "trust.jks"
        path.write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
        assert "keytool -importkeystore" in refusal(
            security_protocol="SSL", ssl_truststore_location=str(path)
        )


class TestLogins:
    @pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
    def test_pair_of_user_and_password_is_accepted(self, mechanism: str) -> None:
        expected = SaslSettings(mechanism, BACKOFF, credentials=LOGIN)
        assert sasl(mechanism, sasl_username="u", sasl_password="hunter2") == expected
        name = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
        jaas = f'{JAAS}.{name}LoginModule required username="u" password="hunter2";'
        assert sasl(mechanism, sasl_jaas_config=jaas) == expected

    def test_callable_for_credentials_is_accepted(self) -> None:
        def pair() -> tuple[str, str]:
            return "u", "hunter2"

        assert sasl("PLAIN", sasl_credentials=pair) == SaslSettings("PLAIN", BACKOFF, credentials=pair)

    def test_delegation_token_is_accepted(self) -> None:
        jaas = f'{JAAS}.scram.ScramLoginModule required username="u" password="hunter2" tokenauth="true";'
        assert sasl("SCRAM-SHA-256", sasl_jaas_config=jaas).token_auth

    def test_mechanism_factory_is_accepted(self) -> None:
        def make() -> Plain:
            return Plain(Credentials(LOGIN))

        assert sasl(make) == SaslSettings(make, BACKOFF)

    def test_properties_file_of_the_jvm_is_accepted(self) -> None:
        text = (
            "bootstrap.servers=a:1\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
            f'sasl.jaas.config={JAAS}.plain.PlainLoginModule required \\\n  username="u" \\\n  password="hunter2";\n'
        )
        found = ProducerConfig.from_properties(text).security_settings()
        assert found.sasl == SaslSettings("PLAIN", BACKOFF, credentials=LOGIN)

    @for_each(
        ("options", "why"),
        [
            ({}, "needs sasl_username and sasl_password, sasl_credentials, or sasl_jaas_config"),
            ({"sasl_username": "u"}, "needs sasl_username and sasl_password"),
            (
                {"sasl_username": "u", "sasl_credentials": print},
                "sasl_credentials and sasl_username are both given",
            ),
            (
                {"sasl_password": "hunter2", "sasl_jaas_config": "PlainLoginModule required;"},
                "sasl_jaas_config and sasl_password are both given",
            ),
            (
                {"sasl_jaas_config": 'PlainLoginModule required password="hunter2";'},
                "needs username and password",
            ),
            ({"sasl_jaas_config": "ScramLoginModule required;"}, "does not go with sasl_mechanism = 'PLAIN'"),
            (
                {"sasl_jaas_config": 'MyModule required password="hunter2";'},
                "unsupported login module; use one of PlainLogin",
            ),
        ],
    )
    def test_missing_or_superfluous_options_are_refused(self, options: dict[str, Any], why: str) -> None:
        assert why in sasl_refusal("PLAIN", **options)

    def test_mechanism_is_required_and_has_to_be_known(self) -> None:
        known = "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, GSSAPI, AWS_MSK_IAM"
        assert refusal(security_protocol="SASL_SSL").endswith(f"needs sasl_mechanism: {known}")
        assert known in sasl_refusal("NTLM")

    @pytest.mark.parametrize(
        ("mechanism", "options", "package", "extra"),
        [
            ("GSSAPI", {"sasl_kerberos_service_name": "kafka"}, "gssapi", "kerberos"),
            ("AWS_MSK_IAM", {}, "botocore", "msk"),
            (
                "OAUTHBEARER",
                {
                    "sasl_oauthbearer_token_endpoint_url": ENDPOINT,
                    "sasl_oauthbearer_assertion_private_key_file": "key.pem",
                },
                "joserfc",
                "oauth",
            ),
        ],
    )
    def test_missing_package_is_named_with_its_extra(
        self,
        mechanism: str,
        options: dict[str, Any],
        package: str,
        extra: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(module, "find_spec", lambda name: None if name == package else "found")
        message = sasl_refusal(mechanism, **options)
        assert f"needs the extra {extra!r}: pip" in message
        assert f'pip install "{package}' in message


class TestKerberos:
    @pytest.mark.parametrize(
        ("options", "kerberos"),
        [
            ({"sasl_kerberos_service_name": "kafka"}, KerberosSettings("kafka")),
            (
                {
                    "sasl_kerberos_service_name": "kafka",
                    "sasl_jaas_config": "Krb5LoginModule required useTicketCache=true;",
                },
                KerberosSettings("kafka"),
            ),
        ],
    )
    def test_login_comes_from_options_or_jaas_config(
        self, options: dict[str, Any], kerberos: KerberosSettings
    ) -> None:
        assert sasl("GSSAPI", **options).kerberos == kerberos

    @pytest.mark.parametrize("prefix", ["", "FILE:"])
    def test_keytab_has_to_exist(self, tmp_path: Path, prefix: str) -> None:
        keytab = tmp_path / "alice.keytab"
        jaas = (
            "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true"
            f' keyTab="{prefix}{keytab}" principal="alice@LAB" serviceName="kafka";'
        )
        refusal = sasl_refusal("GSSAPI", sasl_jaas_config=jaas)
        assert "keyTab cannot be read" in refusal
        assert str(keytab) in refusal
        keytab.touch()
        kerberos = sasl("GSSAPI", sasl_jaas_config=jaas).kerberos
        assert kerberos == KerberosSettings("kafka", "alice@LAB", str(keytab))

    def test_options_of_java_alone_are_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        ProducerConfig(
            bootstrap_servers="a:1",
            security_protocol="SASL_SSL",
            sasl_mechanism="GSSAPI",
            sasl_jaas_config="Krb5LoginModule required serviceName=kafka ticketCache=x;",
        )
        assert caplog.messages == ["config.without_effect name=sasl_jaas_config:ticketCache"]

    @pytest.mark.parametrize(
        ("options", "why"),
        [
            ({}, "needs sasl_kerberos_service_name"),
            (
                {"sasl_jaas_config": "Krb5LoginModule required useKeyTab=true serviceName=kafka;"},
                "useKeyTab=true needs keyTab",
            ),
        ],
    )
    def test_missing_kerberos_options_are_refused(self, options: dict[str, Any], why: str) -> None:
        assert why in sasl_refusal("GSSAPI", **options)


class TestMsk:
    def test_botocore_has_everything(self) -> None:
        expected = SaslSettings("AWS_MSK_IAM", BACKOFF)
        assert sasl("AWS_MSK_IAM") == expected
        jaas = "software.amazon.msk.auth.iam.IAMLoginModule required;"
        assert sasl("aws_msk_iam", sasl_jaas_config=jaas) == expected
        assert "awsProfileName cannot be given here" in sasl_refusal(
            "AWS_MSK_IAM", sasl_jaas_config='IAMLoginModule required awsProfileName="x";'
        )
