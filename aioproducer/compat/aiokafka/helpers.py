"""A helper of aiokafka's: an `ssl.SSLContext` from the usual files."""

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
    """Return a context that trusts *cafile*, *capath* and *cadata*, or whom the system trusts, and checks host names.

    Args:
        cafile: authorities to trust, PEM.
        capath: a folder of those.
        cadata: the same as PEM text, or DER bytes.
        certfile: our certificate, and the authorities up to a root, PEM; its key, too, without *keyfile*.
        keyfile: our key, PEM.
        password: decrypts the key.

    Raises:
        OSError: a file cannot be read. ssl.SSLError: it is not what it should be.
        ValueError: the key is encrypted, and there is no password. Unlike aiokafka's, this asks nobody.
    """
    context = ssl.create_default_context(cafile=cafile, capath=capath, cadata=cadata)
    if certfile is not None:
        context.load_cert_chain(certfile, keyfile, _not_asked if password is None else password)
    return context


def _not_asked() -> NoReturn:
    raise ValueError("the key is encrypted: give its password")
