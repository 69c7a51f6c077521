"""Cipher suites: Kafka calls them as Java and the RFCs do, OpenSSL up to TLS 1.2 has names of its own."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Sequence
from typing import Final

log: Final = logging.getLogger(__name__)

TLS13: Final = (
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_128_CCM_SHA256",
    "TLS_AES_128_CCM_8_SHA256",
)


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

    Raises: ValueError with the names that OpenSSL does not know.
    """
    if not suites:
        return
    newer = [suite for suite in suites if suite in TLS13]
    older = [openssl_name(suite) for suite in suites if suite not in TLS13]
    unknown = [suite for suite in older if not _known(suite)]
    if unknown:
        raise ValueError(f"OpenSSL here knows no cipher suite {', '.join(unknown)}")
    if older:
        context.set_ciphers(":".join(older))
    else:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
    if not newer:
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    elif hasattr(context, "set_ciphersuites"):  # Python 3.15
        context.set_ciphersuites(":".join(newer))
    else:
        log.warning("security.cipher_suites.of_tls_1_3 limited=False")


def _known(suite: str) -> bool:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).set_ciphers(suite)
    except ssl.SSLError:
        return False
    return True
