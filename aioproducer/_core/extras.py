"""Extras: optional packages, and the error text for a missing package."""

from __future__ import annotations

from typing import Final

EXTRAS: Final = {
    "cli": ("click>=8.1", "rich>=13.7"),
    "json": ("orjson>=3.10",),
    "kerberos": ("gssapi>=1.8",),
    "msk": ("botocore>=1.34",),
    "oauth": ("joserfc>=1.0",),
    "otel": ("opentelemetry-api>=1.27",),
    "pkcs12": ("cryptography>=42",),
    "prometheus": ("prometheus-client>=0.20",),
    "schema-registry": ("confluent-kafka[schemaregistry]>=2.8",),
    "snappy": ("cramjam>=2.8",),
    "spark": ("pyarrow>=18",),
    "testing": ("cryptography>=42", "pytest>=8.3"),
}
"""Packages of each extra, equal to pyproject.toml. A package index needs no aioproducer to install the packages."""


def needs(what: str, extra: str, *besides: str) -> str:
    """Return the sentence that *what* needs the packages of *extra* and *besides*, with the command to install them."""
    packages = " ".join(f'"{package}"' for package in (*EXTRAS[extra], *besides))
    return f"{what} needs the extra {extra!r}: pip install {packages}"
