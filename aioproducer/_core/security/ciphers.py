"""Cipher suites: Kafka calls them as Java and the RFCs do, OpenSSL up to TLS 1.2 has names of its own."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from typing import Any, Final

from aioproducer._core.steps import Log

log: Final = Log(__name__)

TLS13: Final = (
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_128_CCM_SHA256",
    "TLS_AES_128_CCM_8_SHA256",
)


MOST_SHOWN: Final = 3
"""Number of refused suites in an error."""


def openssl_name(suite: str) -> str:
    """Return OpenSSL's name of a suite of TLS 1.2: ECDHE-RSA-AES128-GCM-SHA256; its own ones stay as they are."""
    if not suite.startswith("TLS_") or "_WITH_" not in suite:
        return suite
    exchange, cipher = suite.removeprefix("TLS_").split("_WITH_", 1)
    cipher = cipher.replace("AES_128", "AES128").replace("AES_256", "AES256")
    cipher = cipher.replace("CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305").replace("_CBC", "")
    parts = [] if exchange == "RSA" else [exchange]
    return "-".join([*parts, cipher]).replace("_", "-")


def restrict(context: ssl.SSLContext, suites: Sequence[str]) -> None:
    """Let *context* negotiate *suites* and nothing else, also by leaving out a version of TLS that none is of.

    Raises: ValueError with the names that OpenSSL does not know, or with suites that authenticate no server or encrypt
        nothing. `ALL:@SECLEVEL=0` would accept a server without any certificate.
    """
    if not suites:
        return
    if any("@SECLEVEL=0" in suite.upper() for suite in suites):
        raise ValueError("@SECLEVEL=0 allows suites without authentication or encryption; leave it out")
    newer = [suite for suite in suites if suite in TLS13]
    older = [openssl_name(suite) for suite in suites if suite not in TLS13]
    unknown = [suite for suite in older if not _known(suite)]
    if unknown:
        raise ValueError(f"OpenSSL here knows no cipher suite {', '.join(unknown)}")
    if older:
        context.set_ciphers(":".join(older))
        unsafe = [each["name"] for each in context.get_ciphers() if _is_unsafe(each)]
        if unsafe:
            raise ValueError(
                f"{', '.join(unsafe[:MOST_SHOWN])} authenticate no server or encrypt nothing;"
                " exclude them with !aNULL:!eNULL"
            )
    else:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
    if not newer:
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    elif hasattr(context, "set_ciphersuites"):  # Python 3.15
        context.set_ciphersuites(":".join(newer))
    else:
        log.warning("security.cipher_suites.of_tls_1_3 limited=%s", False)


def _is_unsafe(cipher: Mapping[str, Any]) -> bool:
    """Return True for an anonymous suite and for one with the NULL cipher."""
    return cipher["auth"] == "auth-null" or not cipher["strength_bits"]


def _known(suite: str) -> bool:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).set_ciphers(suite)
    except ssl.SSLError:
        return False
    return True
