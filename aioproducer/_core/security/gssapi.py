"""GSSAPI (RFC 4752): Kerberos, by the package `gssapi`. Steps run in a thread, because a step may call the KDC."""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib
import itertools
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any, Final, TypeVar

from aioproducer._core.address import Address
from aioproducer._core.logfmt import LONGEST_TEXT, escaped
from aioproducer._core.security.mechanism import Refused, SaslClient
from aioproducer._core.security.stores import file_status
from aioproducer._core.worker_threads import CALL_THREADS

T = TypeVar("T")

NO_LAYER: Final = 1
"""Security layer of Kafka: none, because TLS protects the connection."""
_STATUSES: Final = re.compile(r"Major \(\d+\): (?P<major>.*?), Minor \((?P<code>\d+)\): (?P<minor>.*)")
"""Error text of the package `gssapi`: the generic status of GSSAPI, and the status of Kerberos."""


_numbers: Final = itertools.count(1)


def destroy_cache(name: str) -> None:
    """Destroy the ticket cache *name* with libkrb5, because the package `gssapi` cannot destroy a cache."""
    library = _libkrb5()
    if library is None:
        return
    context, found = ctypes.c_void_p(), ctypes.c_void_p()
    if library.krb5_init_context(ctypes.byref(context)):
        return
    try:
        if not library.krb5_cc_resolve(context, name.encode(), ctypes.byref(found)):
            library.krb5_cc_destroy(context, found)
    finally:
        library.krb5_free_context(context)


@cache
def _libkrb5() -> ctypes.CDLL | None:
    for name in (ctypes.util.find_library("krb5"), "libkrb5.so.3"):
        with suppress(OSError):
            if name:
                return ctypes.CDLL(name)
    return None


@dataclass(frozen=True, slots=True)
class KerberosSettings:
    """Settings of GSSAPI."""

    service_name: str
    principal: str | None = None
    """Client principal; None for the principal of the ticket cache."""
    keytab: str | None = None
    """Keytab file, used without kinit; None for an existing ticket."""

    def keytab_state(self) -> object:
        """Return a value that changes with the keytab; None without a keytab."""
        return file_status(self.keytab)


class Gssapi(SaslClient):
    """One authentication by GSSAPI; `proof` is the state of the keytab."""

    name = "GSSAPI"

    def __init__(
        self,
        settings: KerberosSettings,
        load: Callable[[], ModuleType] = lambda: importlib.import_module("gssapi"),
        destroy: Callable[[str], None] = destroy_cache,
    ) -> None:
        super().__init__()
        self._settings = settings
        self._load = load
        self._destroy = destroy
        self._context: Any = None
        self._cache = ""

    def __del__(self) -> None:
        self._end()  # a failed login has not released its context

    def _end(self) -> None:
        """Release the context with its credentials, and then destroy their cache."""
        self._context, cache_name, self._cache = None, self._cache, ""
        if cache_name:
            self._destroy(cache_name)

    async def start(self, broker: Address) -> bytes:
        """Return the first token, with a ticket for the broker."""
        return await CALL_THREADS.run(self._run, self._begin, broker.host)

    async def respond(self, challenge: bytes) -> bytes:
        """Continue the context; once the context is established, negotiate no security layer."""
        return await CALL_THREADS.run(self._run, self._step, challenge)

    def _run(self, step: Callable[[Any, T], bytes], argument: T) -> bytes:
        """Return the message of *step*; release the context if *step* fails."""
        gssapi = self._load()
        try:
            return step(gssapi, argument)
        except gssapi.exceptions.GSSError as error:
            self._end()
            raise self._refused(error) from error
        except Refused:
            self._end()
            raise

    def _begin(self, gssapi: Any, host: str) -> bytes:
        settings = self._settings
        self.proof = settings.keytab_state()
        target = gssapi.Name(f"{settings.service_name}@{host}", gssapi.NameType.hostbased_service)
        credentials = None
        if settings.keytab or settings.principal:
            name = settings.principal and gssapi.Name(settings.principal, gssapi.NameType.kerberos_principal)
            store = None
            if settings.keytab:
                # Memory caches belong to the process: a reused name would return the tickets of another principal.
                self._cache = f"MEMORY:aioproducer-{next(_numbers)}"
                store = {"client_keytab": settings.keytab, "ccache": self._cache}
            credentials = gssapi.Credentials(usage="initiate", name=name or None, store=store)
        self._context = gssapi.SecurityContext(name=target, creds=credentials, usage="initiate")
        return self._context.step() or b""

    def _step(self, _gssapi: Any, challenge: bytes) -> bytes:
        if self.complete:
            if challenge:
                raise Refused("the broker sent a message after the end of the Kerberos exchange")
            return b""
        if not self._context.complete:
            return self._context.step(challenge) or b""
        return self._agree(challenge)

    def _agree(self, challenge: bytes) -> bytes:
        offer = bytes(self._context.unwrap(challenge).message)
        if len(offer) != 4:
            raise Refused(f"the broker's offer of security layers has {len(offer)} bytes, not 4")
        if not offer[0] & NO_LAYER:
            raise Refused(
                "the broker insists on a security layer of Kerberos, which Kafka's protocol does not have"
            )
        answer = self._context.wrap(bytes([NO_LAYER, 0, 0, 0]), False).message
        self.complete = True
        self._end()
        return bytes(answer)

    def _refused(self, error: Exception) -> Refused:
        text = escaped(" ".join(str(error).split()), LONGEST_TEXT)
        statuses = _STATUSES.fullmatch(text)
        if statuses:
            text = statuses["minor"] if int(statuses["code"]) else statuses["major"]
        keytab = self._settings.keytab
        ours = f"the keytab {keytab}" if keytab else "the ticket (klist, kinit)"
        return Refused(f"Kerberos reports: {text}; check {ours}, the clocks, and sasl_kerberos_service_name")
