from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from joserfc import jwk, jwt

from aioproducer._core.security.assertion import assertion
from aioproducer._core.security.mechanism import Refused
from aioproducer._core.security.secret import Secret
from aioproducer._core.security.security_settings import AssertionSettings

KEYS: dict[str, Any] = {
    "RS256": rsa.generate_private_key(65537, 2048),
    "ES256": ec.generate_private_key(ec.SECP256R1()),
}
NOW = 1_700_000_000.5


def key_file(tmp_path: Path, algorithm: str, password: str | None = None) -> str:
    path = tmp_path / "key.pem"
    how = (
        serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
    )
    path.write_bytes(
        KEYS[algorithm].private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, how)
    )
    return str(path)


def verified(value: Secret, algorithm: str) -> Any:
    pem = (
        KEYS[algorithm]
        .public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    kind: Any = jwk.ECKey if algorithm == "ES256" else jwk.RSAKey
    return jwt.decode(value.reveal(), kind.import_key(pem), algorithms=[algorithm])


@pytest.mark.parametrize("algorithm", KEYS)
@pytest.mark.parametrize("password", [None, "hunter2"])
def test_it_is_signed_as_the_jvm_does(tmp_path: Path, algorithm: str, password: str | None) -> None:
    settings = AssertionSettings(
        private_key_file=key_file(tmp_path, algorithm, password),
        private_key_passphrase=Secret(password) if password else None,
        algorithm=algorithm,
        audience="idp",
        issuer="me",
        subject="you",
    )
    token = verified(assertion(settings, NOW), algorithm)
    assert token.header == {"alg": algorithm, "typ": "JWT"}
    now = int(NOW)
    assert token.claims == {
        "iss": "me",
        "sub": "you",
        "aud": "idp",
        "iat": now,
        "nbf": now - 60,
        "exp": now + 300,
    }


def test_it_may_have_an_id_and_start_from_a_template(tmp_path: Path) -> None:
    template = tmp_path / "template.json"
    template.write_text(
        json.dumps({"header": {"kid": "1", "alg": "none"}, "payload": {"iss": "x", "more": True}})
    )
    settings = AssertionSettings(
        private_key_file=key_file(tmp_path, "RS256"), template_file=str(template), issuer="me", with_jti=True
    )
    first, second = (verified(assertion(settings, NOW), "RS256") for _ in range(2))
    assert (first.header["kid"], first.header["alg"]) == ("1", "RS256")
    assert (first.claims["iss"], first.claims["more"]) == ("me", True)
    assert first.claims["jti"] != second.claims["jti"]


def test_a_file_is_taken_as_it_is_each_time(tmp_path: Path) -> None:
    path = tmp_path / "jwt"
    for text in "a.b.c", "d.e.f":
        path.write_text(f"{text}\n")
        assert assertion(AssertionSettings(file=str(path)), NOW) == Secret(text)


def test_what_cannot_be_had_is_named(tmp_path: Path) -> None:
    def refused(**settings: Any) -> str:
        with pytest.raises(Refused) as raised:
            assertion(AssertionSettings(**settings), NOW)
        assert "hunter2" not in str(raised.value)
        return str(raised.value)

    assert "needs a file, or a private key" in refused()
    assert "assertion_file = '/missing': No such file" in refused(file="/missing")
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff")
    assert refused(file=str(binary)).endswith("not text")
    key = key_file(tmp_path, "RS256", "hunter2")
    assert "passphrase is wrong or missing" in refused(private_key_file=key)
    assert "passphrase is wrong" in refused(private_key_file=key, private_key_passphrase=Secret("hunter3"))
    assert "cannot sign with ES256" in refused(
        private_key_file=key, private_key_passphrase=Secret("hunter2"), algorithm="ES256"
    )
    for template in "hunter2", "[1]", '{"header": "hunter2"}':
        binary.write_text(template)
        assert "is no template" in refused(private_key_file=key, template_file=str(binary))
