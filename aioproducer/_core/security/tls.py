"""TLS contexts of new connections, and the names of cipher suites in Kafka and OpenSSL."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import ssl
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from aioproducer._core.backoff import Backoff
from aioproducer._core.log_limits import LogLimits
from aioproducer._core.security.mechanism import called
from aioproducer._core.security.secret import without_frames
from aioproducer._core.security.security_settings import VERSIONS, TlsSettings, weaknesses_of_context
from aioproducer._core.security.stores import Pem, Source, StoreError, file_status, read_store
from aioproducer._core.steps import Log
from aioproducer._core.worker_threads import WORK_THREADS, NoThread
from aioproducer.errors import AuthenticationFailed, ConnectionFailed

log: Final = Log(__name__)

_HASHED: Final = re.compile(r"[0-9a-f]{8}\.\d+")
"""Name of a certificate in a directory for OpenSSL."""

TLS13_SUITES: Final = (
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_128_CCM_SHA256",
    "TLS_AES_128_CCM_8_SHA256",
)


MAX_SHOWN_SUITES: Final = 3
"""Maximum number of refused suites in an error message."""


def openssl_name(suite: str) -> str:
    """Return OpenSSL's name of a TLS 1.2 suite, for example ECDHE-RSA-AES128-GCM-SHA256. OpenSSL's names stay."""
    if not suite.startswith("TLS_") or "_WITH_" not in suite:
        return suite
    exchange, cipher = suite.removeprefix("TLS_").split("_WITH_", 1)
    cipher = cipher.replace("AES_128", "AES128").replace("AES_256", "AES256")
    cipher = cipher.replace("CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305").replace("_CBC", "")
    parts = [] if exchange == "RSA" else [exchange]
    return "-".join([*parts, cipher]).replace("_", "-")


def restrict(context: ssl.SSLContext, suites: Sequence[str]) -> None:
    """Restrict *context* to *suites*, and to the TLS versions that have at least one of *suites*.

    Raises: ValueError with the suites unknown to OpenSSL, or with suites that authenticate no server or encrypt
        nothing. `ALL:@SECLEVEL=0` would accept a server without any certificate.
    """
    if not suites:
        return
    if any("@SECLEVEL=0" in suite.upper() for suite in suites):
        raise ValueError("@SECLEVEL=0 allows suites without authentication or encryption; leave it out")
    newer = [suite for suite in suites if suite in TLS13_SUITES]
    older = [openssl_name(suite) for suite in suites if suite not in TLS13_SUITES]
    unknown = [suite for suite in older if not _known(suite)]
    if unknown:
        raise ValueError(f"OpenSSL here knows no cipher suite {', '.join(unknown)}")
    if older:
        context.set_ciphers(":".join(older))
        # `unsafe` has anonymous suites, and suites with the NULL cipher.
        ciphers: list[Any] = context.get_ciphers()
        unsafe = [
            each["name"] for each in ciphers if each["auth"] == "auth-null" or not each["strength_bits"]
        ]
        if unsafe:
            raise ValueError(
                f"{', '.join(unsafe[:MAX_SHOWN_SUITES])} authenticate no server or encrypt nothing;"
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


def _known(suite: str) -> bool:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).set_ciphers(suite)
    except ssl.SSLError:
        return False
    return True


def server_name(host: str) -> str:
    """Return the server name for SNI and the certificate check, without a trailing dot. Python does not check an empty name.

    Raises: ValueError.
    """
    name = host.rstrip(".")
    if not name:
        raise ValueError("a broker without a host name cannot be told from any other")
    return name.partition("%")[0] if ":" in name else name  # the zone of fe80::1%eth0 is in no certificate


def build_context(settings: TlsSettings, *, system_trust: bool = True) -> ssl.SSLContext:
    """Return a new context, built from files. Loading the authorities of the system takes about 40 ms.

    Without *system_trust* the authorities of the system are not loaded, for a check of the other settings.

    Raises: StoreError, with the invalid option.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # As in Java, every certificate of the truststore is trusted, also an intermediate authority or the broker itself.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.check_hostname = settings.check_hostname
    # As in Java, the common name counts if a certificate has no subjectAltName. ConnectionSecurity logs a WARNING.
    context.hostname_checks_common_name = True
    versions = sorted(VERSIONS[name] for name in settings.versions)
    context.minimum_version, context.maximum_version = versions[0], versions[-1]
    mistakes: list[StoreError] = []
    for load in (_restrict, _trust, _identify):
        try:
            load(context, settings)
        except StoreError as error:
            mistakes.append(error)
    if len(mistakes) > 1:
        raise StoreError("\n".join(map(str, mistakes)))
    if mistakes:
        raise mistakes[0]
    if settings.truststore is None and system_trust:
        context.load_default_certs()
    return context


def _restrict(context: ssl.SSLContext, settings: TlsSettings) -> None:
    try:
        restrict(context, settings.cipher_suites)
    except ValueError as error:
        raise StoreError(f"ssl_cipher_suites: {error}") from None


def _trust(context: ssl.SSLContext, settings: TlsSettings) -> None:
    source = settings.truststore
    if source is None:
        return
    if source.path is not None and os.path.isdir(source.path):  # noqa: PTH112 - isdir() returns False for a name with a NUL byte
        _trust_directory(context, source, source.path)
        return
    store = read_store(source, store_type=settings.truststore_type, password=settings.truststore_password)
    if not store.certificates:
        raise StoreError(f"{source} has no certificate to trust")
    try:
        context.load_verify_locations(cadata=store.certificates)
    except (ssl.SSLError, ValueError) as error:
        raise StoreError(f"{source} has a certificate that makes no sense") from error


def _trust_directory(context: ssl.SSLContext, source: Source, path: str) -> None:
    """Trust the certificates in a directory. OpenSSL finds a certificate by the hash in its name, on demand."""
    try:
        names = os.listdir(path)  # noqa: PTH208 - only names are needed
    except OSError as error:
        raise StoreError(f"{source}: {error.strerror}") from None
    if not any(map(_HASHED.fullmatch, names)):
        raise StoreError(f"{source}: the directory has no hashed certificates; run `openssl rehash` on it")
    context.load_verify_locations(capath=path)


def _identify(context: ssl.SSLContext, settings: TlsSettings) -> None:
    if not settings.has_identity:
        return
    pem = _identity(settings)
    where = settings.keystore or settings.key
    assert pem.key is not None, "checked by _identity"
    password = settings.key_password or settings.keystore_password
    if pem.encrypted and not password:
        raise StoreError(f"the key in {where} is encrypted: give ssl_key_password")
    try:
        with _as_file(pem.certificates + pem.key.reveal()) as path:
            # With a password, even an empty one, OpenSSL never prompts on the terminal.
            context.load_cert_chain(path, password=password.reveal if password else "")
    except ssl.SSLError as error:
        why = (
            "the certificate does not belong to the key"
            if error.reason == "KEY_VALUES_MISMATCH"
            else "ssl_key_password is wrong, or the key is damaged"
            if pem.encrypted
            else "certificate or key make no sense"
        )
        raise StoreError(f"{where}: {why}") from error
    except ValueError as error:
        raise StoreError(f"{where}: the password is longer than OpenSSL takes") from error


def _identity(settings: TlsSettings) -> Pem:
    """Return certificate and key, from one or two stores."""
    if settings.keystore is not None:
        pem = read_store(
            settings.keystore, store_type=settings.keystore_type, password=settings.keystore_password
        )
        where: object = settings.keystore
    else:
        assert settings.key is not None, "checked by has_identity"
        pem = read_store(settings.key)
        where = settings.key
        if settings.certificate_chain is not None:
            chain = read_store(settings.certificate_chain)
            pem = Pem(chain.certificates, pem.key, pem.encrypted)
            where = settings.certificate_chain
    if not pem.certificates:
        raise StoreError(f"{where} has no certificate")
    if pem.key is None:
        raise StoreError(f"{settings.keystore or settings.key} has no private key")
    return pem


@contextmanager
def _as_file(text: str) -> Iterator[str]:
    """Yield the path of a file with *text* for OpenSSL: in memory if possible, else with mode 0600."""
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("aioproducer", os.MFD_CLOEXEC)
        try:
            os.write(file, text.encode())
            yield f"/proc/self/fd/{file}"
        finally:
            os.close(file)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "pem")  # noqa: PTH118 - only this line would need pathlib
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.write(file, text.encode())
        finally:
            os.close(file)
        yield path


class TlsContexts:
    """TLS context of the next connection.

    Changed files are loaded into a new context, in a thread. After a failure the last valid context stays in use, and
    loading is retried after a growing pause.
    """

    def __init__(self, settings: TlsSettings, *, backoff: Backoff, limits: LogLimits | None = None) -> None:
        self.settings: TlsSettings = settings
        self._backoff = backoff
        self._context: ssl.SSLContext | None = None
        self._tried: tuple[object, ...] | None = None
        self._failures = 0
        self._not_before = 0.0
        self._lock = asyncio.Lock()
        self._warned: set[str] = set()
        self._limits = limits or LogLimits()

    async def context(self) -> ssl.SSLContext:
        """Return the context for a new connection. Raises: AuthenticationFailed without a valid context."""
        given = self.settings.context
        if isinstance(given, ssl.SSLContext):
            return given
        async with self._lock:
            sources = self.settings.sources
            seen = tuple(file_status(each.path) for each in sources) if given is None else None
            if self._context is not None and self._is_current(seen):
                return self._context
            self._tried = seen
            try:
                if given is None:
                    context = await WORK_THREADS.run_anyway(build_context, self.settings)
                else:
                    context = _checked(await called(given))
                    self._warn(context)
            except Exception as error:  # noqa: BLE001 - the last valid context may suffice
                return self._keep_last(error)
            self._context, self._failures = context, 0
            self._limits.over("security.tls.kept", "", "security.tls.recovered")
            return context

    def _warn(self, context: ssl.SSLContext) -> None:
        """Log a WARNING for each weak setting of the user's context that was not logged before."""
        for setting, risk in weaknesses_of_context(context):
            if setting not in self._warned:
                self._warned.add(setting)
                log.warning("security.weak setting=%s risk=%r", setting, risk)

    def _is_current(self, seen: tuple[object, ...] | None) -> bool:
        """Return True if the last valid context may be used without another attempt to get a new context."""
        if self._failures:
            return seen == self._tried and self._now() < self._not_before
        return seen is not None and seen == self._tried

    def _keep_last(self, error: Exception) -> ssl.SSLContext:
        """Return the last valid context. Raises: AuthenticationFailed, ConnectionFailed without a valid context."""
        without_frames(error)  # a frame has the private key as a local variable
        ours = isinstance(error, StoreError)
        why = str(error) if ours else f"ssl_context raised {type(error).__name__}, which is the cause"
        if self._context is None:
            if isinstance(error, NoThread):  # ssl_context was not called, so a retry may succeed
                raise ConnectionFailed(f"no TLS: {error}", written=False) from error
            raise AuthenticationFailed(f"no TLS: {why}") from (error.__cause__ if ours else error)
        shown = why if ours else type(error).__name__
        self._limits.log(log, logging.WARNING, "", "security.tls.kept error=%s", shown)
        self._not_before = self._now() + self._backoff.delay_s(self._failures)
        self._failures += 1
        return self._context

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


def _checked(context: object) -> ssl.SSLContext:
    if not isinstance(context, ssl.SSLContext):
        raise StoreError(
            f"ssl_context has to return an ssl.SSLContext, and returned {type(context).__name__}"
        )
    return context
