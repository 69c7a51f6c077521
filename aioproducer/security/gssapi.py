"""GSSAPI (RFC 4752): Kerberos, by the package `gssapi`. Steps may ask the KDC, so they run in a thread."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

from aioproducer.escaping import LONGEST_TEXT, escaped
from aioproducer.security.mechanism import Broker, Refused
from aioproducer.worker_threads import CALL_THREADS

NO_LAYER: Final = 1
"""The one security layer that Kafka has: none. TLS is there for that."""
_STATUSES: Final = re.compile(r"Major \(\d+\): (?P<major>.*?), Minor \((?P<code>\d+)\): (?P<minor>.*)")
"""What the package says: GSSAPI's view of it, which is of no help to anybody, and Kerberos's own."""


@dataclass(frozen=True, slots=True)
class KerberosSettings:
    """What a login by Kerberos needs to know."""

    service_name: str
    principal: str | None = None
    """None: the ticket cache's own."""
    keytab: str | None = None
    """A file to log in from, without kinit; None: a ticket that is there already."""


class Gssapi:
    """One login by GSSAPI."""

    name: Final = "GSSAPI"

    def __init__(
        self,
        settings: KerberosSettings,
        load: Callable[[], ModuleType] = lambda: importlib.import_module("gssapi"),
    ) -> None:
        self._settings = settings
        self._load = load
        self._context: Any = None
        self.complete: bool = False

    async def start(self, broker: Broker) -> bytes:
        """Return the first token: a ticket for this broker."""
        return await CALL_THREADS.run(self._begin, broker.host)

    async def respond(self, challenge: bytes) -> bytes:
        """Go on with the context; once it stands, agree that there is no security layer."""
        return await CALL_THREADS.run(self._step, challenge)

    def _begin(self, host: str) -> bytes:
        gssapi = self._load()
        settings = self._settings
        try:
            target = gssapi.Name(f"{settings.service_name}@{host}", gssapi.NameType.hostbased_service)
            credentials = None
            if settings.keytab or settings.principal:
                name = settings.principal and gssapi.Name(
                    settings.principal, gssapi.NameType.kerberos_principal
                )
                store = (
                    # a cache of its own in memory: nothing of anybody's ticket cache is touched
                    {"client_keytab": settings.keytab, "ccache": f"MEMORY:aioproducer-{id(self)}"}
                    if settings.keytab
                    else None
                )
                credentials = gssapi.Credentials(usage="initiate", name=name or None, store=store)
            self._context = gssapi.SecurityContext(name=target, creds=credentials, usage="initiate")
            return self._context.step() or b""
        except gssapi.exceptions.GSSError as error:
            raise self._refused(error) from error

    def _step(self, challenge: bytes) -> bytes:
        gssapi = self._load()
        try:
            if self.complete:
                if challenge:
                    raise Refused("the broker has something to say after the end of the Kerberos exchange")
                return b""
            if not self._context.complete:
                return self._context.step(challenge) or b""
            return self._agree(challenge)
        except gssapi.exceptions.GSSError as error:
            raise self._refused(error) from error

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
        return bytes(answer)

    def _refused(self, error: Exception) -> Refused:
        text = escaped(" ".join(str(error).split()), LONGEST_TEXT)
        statuses = _STATUSES.fullmatch(text)
        if statuses:
            text = statuses["minor"] if int(statuses["code"]) else statuses["major"]
        keytab = self._settings.keytab
        ours = f"the keytab {keytab}" if keytab else "the ticket (klist, kinit)"
        return Refused(f"Kerberos says: {text}; check {ours}, the clocks, and sasl_kerberos_service_name")
