"""Key stores and trust stores (PEM as file or text, PKCS12 by `cryptography`; JKS is refused), and regular files."""

from __future__ import annotations

import base64
import errno
import importlib
import os
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

from aioproducer._core.extras import needs
from aioproducer._core.security.secret import Secret, revealed

_BLOCK = re.compile(
    r"-----BEGIN (?P<label>[A-Z0-9 ]{1,64})-----(?P<body>(?:[^-]++|-(?!----))*+)(?P<end>-----END (?P=label)-----)?"
)
"""Pattern of a PEM block. A search takes linear time, because no body contains the dashes of another block."""
_CERTIFICATES: Final = ("CERTIFICATE", "TRUSTED CERTIFICATE", "X509 CERTIFICATE")
_JKS: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_DER_SEQUENCE: Final = 0x30
LARGEST_BYTES: Final = 16 * 1024 * 1024
_FLAGS: Final = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)
"""Flags that keep `open` from blocking. A FIFO or device could block a worker thread, and so all logins, forever."""


def open_regular(path: str) -> BinaryIO:
    """Open *path* for reading.

    Raises: OSError if *path* is no regular file or cannot be opened; ValueError if no file can have the name *path*.
    """
    return open(descriptor_of(path, os.O_RDONLY), "rb")


def descriptor_of(path: str | Path, flags: int, mode: int = 0o600) -> int:
    """Open the regular file *path* and return its descriptor. Raises: the errors of `open_regular`."""
    descriptor = os.open(path, flags | _FLAGS, mode)
    kind = os.fstat(descriptor).st_mode
    if stat.S_ISREG(kind):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(kind):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    raise OSError(errno.EINVAL, "not a regular file")


def file_status(path: str | None) -> object:
    """Return a value that changes with the content of the file *path*; None if *path* is None."""
    if path is None:
        return None
    try:
        found = os.stat(path)  # noqa: PTH116 - other modules use open(), not pathlib
    except (OSError, ValueError) as error:
        return type(error)
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


class StoreError(ValueError):
    """Raised for an unusable store. The text has the store and the reason, and no part of the content."""


class Pem(NamedTuple):
    """Content of a store."""

    certificates: str
    """Certificates in PEM, in the order of the store; "" without certificates."""
    key: Secret | None
    encrypted: bool
    """True if the key is encrypted."""


@dataclass(frozen=True, slots=True)
class Source:
    """Source of a store: the path of a file, or PEM text, and the name of the option with this value."""

    option: str
    value: str | Secret

    @property
    def path(self) -> str | None:
        """Path of the file; None for PEM text."""
        value = revealed(self.value)
        return None if "-----BEGIN" in value else value

    def content(self) -> bytes:
        """Return the current content of the store. Raises: StoreError."""
        path = self.path
        if path is None:
            return revealed(self.value).encode()
        try:
            with open_regular(path) as file:
                content = file.read(LARGEST_BYTES + 1)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "not a name that a file can have"
            also = ", and it is no PEM" if isinstance(self.value, Secret) else ""
            raise StoreError(f"{self}: {reason}{also}") from None
        if len(content) > LARGEST_BYTES:
            raise StoreError(f"{self} has more than {LARGEST_BYTES:,} bytes, which no store has")
        return content

    def __str__(self) -> str:
        """Return the option, with the path unless the value is a Secret."""
        path = self.path
        return self.option if path is None or isinstance(self.value, Secret) else f"{self.option} = {path!r}"


def read_store(
    source: Source,
    *,
    store_type: str | None = None,
    password: Secret | None = None,
    load: Callable[[str], Any] = importlib.import_module,
) -> Pem:
    """Read the store *source*. Without *store_type* (PEM, PKCS12, JKS), the content determines the type.

    Raises: StoreError.
    """
    content = source.content()
    kind = store_type or kind_of(content)
    if {kind, kind_of(content)} == {"JKS", "PKCS12"}:
        kind = kind_of(content)  # Java reads JKS and PKCS12 under either name (keystore.type.compat)
    if kind == "JKS":
        raise StoreError(
            f"{source} is a Java key store (JKS), which only Java reads. Convert it: keytool -importkeystore"
            f" -srckeystore {source.path or 'store.jks'} -destkeystore store.p12 -deststoretype PKCS12, and give"
            " that file and its password"
        )
    if kind == "PKCS12":
        return _from_pkcs12(source, content, password, load)
    try:
        return parse_pem(content.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise StoreError(f"{source} is no PEM: it is not text") from None
    except StoreError as error:
        raise StoreError(f"{source}: {error}") from None


def kind_of(content: bytes) -> str:
    """Return the type of *content*: PEM, PKCS12 or JKS."""
    if content.startswith(_JKS):
        return "JKS"
    if content[:1] == bytes([_DER_SEQUENCE]) and b"-----BEGIN" not in content:
        return "PKCS12"
    return "PEM"


def parse_pem(text: str) -> Pem:
    """Return the certificates and the key in *text*, in any order; line breaks may be missing.

    Raises: StoreError.
    """
    certificates: list[str] = []
    keys: list[tuple[str, str]] = []
    incomplete = ""
    for block in _BLOCK.finditer(text):
        label = block["label"]
        if (label in _CERTIFICATES or label.endswith("PRIVATE KEY")) and block["end"] is None:
            incomplete = label
        elif label in _CERTIFICATES:
            certificates.append(_normal(label, block["body"]))
        elif label.endswith("PRIVATE KEY"):
            keys.append((label, _normal(label, block["body"])))
    if len(keys) > 1:
        raise StoreError(f"it has {len(keys)} private keys; one is expected")
    if not certificates and not keys:
        raise StoreError("it has neither a certificate nor a private key in PEM")
    if incomplete:
        raise StoreError(f"its block {incomplete} has no end; is the file complete?")
    if not keys:
        return Pem("".join(certificates), None, encrypted=False)
    ((label, key),) = keys
    encrypted = label.startswith("ENCRYPTED") or "Proc-Type:" in key
    return Pem("".join(certificates), Secret(key), encrypted)


def _normal(label: str, body: str) -> str:
    """Return a block with the line length that OpenSSL requires; a block with headers is unchanged."""
    if ":" not in body:
        packed = "".join(body.split())
        try:
            base64.b64decode(packed, validate=True)
        except ValueError:
            raise StoreError(f"its block {label} is no base64; is the file complete?") from None
        if not packed:
            raise StoreError(f"its block {label} is empty")
        body = "\n".join(packed[start : start + 64] for start in range(0, len(packed), 64))
    return f"-----BEGIN {label}-----\n{body.strip()}\n-----END {label}-----\n"


def _from_pkcs12(source: Source, content: bytes, password: Secret | None, load: Callable[[str], Any]) -> Pem:
    try:
        pkcs12 = load("cryptography.hazmat.primitives.serialization.pkcs12")
        serialization = load("cryptography.hazmat.primitives.serialization")
    except ImportError:
        raise StoreError(needs(f"{source} is PKCS12, which", "pkcs12")) from None
    try:
        store = pkcs12.load_pkcs12(content, password.reveal().encode() if password else None)
    except Exception as error:
        why = "the password is wrong" if password else "it needs a password"
        raise StoreError(f"{source} cannot be opened as PKCS12: {why}, or it is damaged") from error
    pem, each = serialization.Encoding.PEM, [store.cert, *store.additional_certs]
    certificates = "".join(one.certificate.public_bytes(pem).decode() for one in each if one is not None)
    if store.key is None:
        return Pem(certificates, None, encrypted=False)
    key = store.key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return Pem(certificates, Secret(key.decode()), encrypted=False)
