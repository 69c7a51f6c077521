"""GSSAPI against a scripted fake of the package: nothing here needs libkrb5."""

from __future__ import annotations

import gc
import threading
from contextlib import suppress
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from aioproducer._core.security.gssapi import Gssapi, KerberosSettings
from aioproducer._core.security.mechanism import Refused
from tests.cases import for_each
from tests.unit._core.security.conversation import first, reply


class GSSError(Exception):
    pass


class Fake(ModuleType):
    """Subset of the package used by the mechanism; records its arguments."""

    def __init__(self, *steps: bytes | Exception | None, offer: bytes = b"\x01\0\0\0") -> None:
        super().__init__("gssapi")
        self.steps = list(steps)
        self.offer = offer
        self.notes: list[Any] = []
        self.threads: set[threading.Thread] = set()
        self.exceptions = SimpleNamespace(GSSError=GSSError)
        self.NameType = SimpleNamespace(hostbased_service="service", kerberos_principal="principal")

    def loaded(self) -> Fake:
        return self

    def Name(self, name: str, kind: str) -> str:  # noqa: N802 - as gssapi has it
        return f"{kind}:{name}"

    def Credentials(self, **given: Any) -> str:  # noqa: N802 - likewise
        self.notes.append(given)
        return "credentials"

    def SecurityContext(self, **given: Any) -> Fake:  # noqa: N802 - likewise
        self.notes.append(given)
        return self

    @property
    def complete(self) -> bool:
        return not self.steps

    def step(self, token: bytes | None = None) -> bytes | None:
        self.threads.add(threading.current_thread())
        self.notes.append(token)
        step = self.steps.pop(0)
        if isinstance(step, Exception):
            raise step
        return step

    def unwrap(self, token: bytes) -> SimpleNamespace:
        if token != b"offer":
            raise GSSError("A token had\n an invalid MIC")
        return SimpleNamespace(message=self.offer)

    def wrap(self, message: bytes, encrypt: bool) -> SimpleNamespace:
        assert not encrypt
        return SimpleNamespace(message=b"wrapped:" + message)


def login(fake: Fake, **settings: Any) -> Gssapi:
    return Gssapi(KerberosSettings("kafka", **settings), lambda: fake)


async def test_ticket_login_sends_three_messages() -> None:
    fake = Fake(b"AP-REQ", None)
    mechanism = login(fake)
    assert await first(mechanism) == b"AP-REQ"
    assert await reply(mechanism, b"AP-REP") == b""
    assert not mechanism.complete, "the empty message has to be sent"
    assert await reply(mechanism, b"offer") == b"wrapped:\x01\0\0\0"
    assert mechanism.complete
    assert await reply(mechanism, b"") == b""
    assert fake.notes == [
        {"name": "service:kafka@broker.example", "creds": None, "usage": "initiate"},
        None,
        b"AP-REP",
    ]
    assert threading.main_thread() not in fake.threads


async def test_keytab_login_uses_a_cache_in_memory() -> None:
    fake = Fake(b"AP-REQ")
    await first(login(fake, principal="alice@LAB", keytab="/etc/alice.keytab"))
    store = fake.notes[0].pop("store")
    assert fake.notes[0] == {"usage": "initiate", "name": "principal:alice@LAB"}
    assert store["client_keytab"] == "/etc/alice.keytab"
    assert store["ccache"].startswith("MEMORY:")
    assert fake.notes[1]["creds"] == "credentials"


async def test_principal_selects_one_of_several_tickets() -> None:
    fake = Fake(b"AP-REQ")
    await first(login(fake, principal="alice@LAB"))
    assert fake.notes[0] == {"usage": "initiate", "name": "principal:alice@LAB", "store": None}


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        ("Major (458752): No credentials,\nor none, Minor (100002): No ticket\ncache", "No ticket cache"),
        ("Major (786432): The context has expired, Minor (0): Unknown error", "The context has expired"),
        ("something\nelse", "something else"),
    ],
)
async def test_error_of_kerberos_is_shown_with_a_hint(raised: str, told: str) -> None:
    with pytest.raises(Refused) as refused:
        await first(login(Fake(GSSError(raised))))
    assert str(refused.value) == (
        f"Kerberos reports: {told}; check the ticket (klist, kinit), the clocks, and sasl_kerberos_service_name"
    )


async def test_error_of_kerberos_names_the_keytab() -> None:
    fake = Fake(GSSError("no key"))
    with pytest.raises(
        Refused, match=r"Kerberos reports: no key; check the keytab /etc/alice\.keytab, the clocks"
    ):
        await first(login(fake, keytab="/etc/alice.keytab"))


@for_each(
    ("offer", "challenge", "why"),
    [
        (b"\x01\0\0", b"offer", "has 3 bytes, not 4"),
        (b"", b"offer", "has 0 bytes, not 4"),
        (b"\x06\0\0\0", b"offer", "insists on a security layer"),
        (b"\x01\0\0\0", b"forged", "Kerberos reports: A token had an invalid MIC"),
    ],
)
async def test_unsuitable_security_layer_offer_is_refused(offer: bytes, challenge: bytes, why: str) -> None:
    mechanism = login(Fake(b"AP-REQ", offer=offer))
    await first(mechanism)
    with pytest.raises(Refused, match=why):
        await reply(mechanism, challenge)
    assert not mechanism.complete


async def test_challenge_after_the_end_is_refused() -> None:
    mechanism = login(Fake(b"AP-REQ"))
    await first(mechanism)
    await reply(mechanism, b"offer")
    with pytest.raises(Refused, match="after the end"):
        await reply(mechanism, b"more")


async def test_caches_are_distinct_and_destroyed_after_the_login() -> None:
    destroyed: list[str] = []
    caches = set()
    for end in ("agreed", "refused", "dropped") * 3:
        fake = Fake(b"AP-REQ") if end != "refused" else Fake(GSSError("no"))
        mechanism = Gssapi(
            KerberosSettings("kafka", keytab="/etc/alice.keytab"),
            partial(Fake.loaded, fake),
            destroyed.append,
        )
        if end == "refused":
            with suppress(Refused):
                await first(mechanism)
        else:
            await first(mechanism)
        caches.add(fake.notes[0]["store"]["ccache"])
        if end == "agreed":
            await reply(mechanism, b"offer")
            assert len(destroyed) == len(caches), "before the object is deleted"
        del mechanism
        gc.collect()
        assert set(destroyed) == caches
    assert len(caches) == len(destroyed) == 9


async def test_ticket_cache_of_the_user_is_not_destroyed() -> None:
    destroyed: list[str] = []
    mechanism = Gssapi(KerberosSettings("kafka"), lambda: Fake(b"AP-REQ"), destroyed.append)
    await first(mechanism)
    await reply(mechanism, b"offer")
    del mechanism
    gc.collect()
    assert destroyed == []
