"""`aiokafka.helpers`: an `ssl.SSLContext` from certificate files."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from os import PathLike
from typing import NoReturn, TypeAlias

Path: TypeAlias = str | bytes | PathLike[str] | PathLike[bytes]
Password: TypeAlias = str | bytes | bytearray


def create_ssl_context(
    *,
    cafile: Path | None = None,
    capath: Path | None = None,
    cadata: str | bytes | bytearray | memoryview | None = None,
    certfile: Path | None = None,
    keyfile: Path | None = None,
    password: Callable[[], Password] | Password | None = None,
) -> ssl.SSLContext:
    """Return a context that checks host names and trusts *cafile*, *capath* and *cadata*, or the system's trust store.

    Args:
        cafile: file with trusted CA certificates, PEM.
        capath: folder with trusted CA certificates.
        cadata: trusted CA certificates as PEM text or DER bytes.
        certfile: client certificate with its chain, PEM; also with the key if *keyfile* is None.
        keyfile: private key, PEM.
        password: password of the key.

    Raises:
        OSError: a file cannot be read. ssl.SSLError: a file is invalid.
        ValueError: the key is encrypted and *password* is None. aiokafka prompts for the password.
    """
    context = ssl.create_default_context(cafile=cafile, capath=capath, cadata=cadata)
    if certfile is not None:
        context.load_cert_chain(certfile, keyfile, _no_password if password is None else password)
    return context


def _no_password() -> NoReturn:
    raise ValueError("the key is encrypted: give its password")
