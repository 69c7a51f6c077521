"""Assertions: a JWT of our own that a token endpoint gives a token for (KIP-1139, KIP-1258), by `joserfc`."""

from __future__ import annotations

import importlib
import json
import uuid
from collections.abc import Callable
from typing import Any, Final

from aioproducer._core.security.mechanism import Refused
from aioproducer._core.security.regular_files import open_regular
from aioproducer._core.security.secret import Secret
from aioproducer._core.security.security_settings import AssertionSettings

LARGEST_BYTES: Final = 1024 * 1024


def assertion(
    settings: AssertionSettings, now_s: float, load: Callable[[str], Any] = importlib.import_module
) -> Secret:
    """Return an assertion that is valid from *now_s* on; it reads files, anew each time.

    Raises: Refused.
    """
    if settings.file is not None:
        return Secret(_read(settings.file, "sasl_oauthbearer_assertion_file").strip())
    if settings.private_key_file is None:
        raise Refused("an assertion needs a file, or a private key that signs it")
    header, payload = _template(settings.template_file)
    issued = int(now_s)
    claims = {
        "iss": settings.issuer,
        "sub": settings.subject,
        "aud": settings.audience,
        "iat": issued,
        "nbf": issued - settings.valid_before_s,
        "exp": issued + settings.lives_s,
        "jti": str(uuid.uuid4()) if settings.with_jti else None,
    }
    payload |= {name: value for name, value in claims.items() if value is not None}
    header |= {"alg": settings.algorithm, "typ": "JWT"}
    key_text = _read(settings.private_key_file, "sasl_oauthbearer_assertion_private_key_file")
    passphrase = settings.private_key_passphrase
    jwt, jwk = load("joserfc.jwt"), load("joserfc.jwk")
    try:
        kind = jwk.ECKey if settings.algorithm.startswith("ES") else jwk.RSAKey
        key = kind.import_key(key_text, password=passphrase.reveal() if passphrase else None)
        signed: str = jwt.encode(header, payload, key, algorithms=[settings.algorithm])
    except Exception as error:
        why = "the passphrase is wrong or missing, or it is no such key"
        raise Refused(
            f"{settings.private_key_file!r} cannot sign with {settings.algorithm}: {why}"
        ) from error
    return Secret(signed)


def _template(path: str | None) -> tuple[dict[str, Any], dict[str, Any]]:
    if path is None:
        return {}, {}
    try:
        template = json.loads(_read(path, "sasl_oauthbearer_assertion_template_file"))
        return dict(template.get("header") or {}), dict(template.get("payload") or {})
    except (ValueError, AttributeError, TypeError, RecursionError):
        raise Refused(f"{path!r} is no template: JSON with header and payload") from None


def _read(path: str, option: str) -> str:
    try:
        with open_regular(path) as file:
            return file.read(LARGEST_BYTES).decode()
    except UnicodeDecodeError:
        raise Refused(f"{option} = {path!r}: not text") from None
    except (OSError, ValueError) as error:
        raise Refused(f"{option} = {path!r}: {getattr(error, 'strerror', None) or error}") from None
