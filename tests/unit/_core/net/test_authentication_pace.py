from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from aioproducer._core.address import Address
from aioproducer._core.net.authentication import MAX_CHANGES, AuthenticationBackoff
from aioproducer.errors import AuthenticationFailed
from aioproducer.testing.virtual_time import in_virtual_time

A, B, C, D = (Address(name, 9092) for name in "abcd")
REFUSED = AuthenticationFailed("refused", broker="a:9092", mechanism="PLAIN")


class Rig:
    def __init__(self, *, running: bool = True) -> None:
        self.current = "first"
        self.looks: list[float] = []
        self.error: Exception | None = None
        self.pace = AuthenticationBackoff(self.differ)
        if running:
            self.pace.accepted(A)

    async def differ(self, refused: object) -> bool:
        self.looks.append(now())
        if self.error is not None:
            raise self.error
        return refused != self.current

    async def admitted(self, address: Address) -> bool:
        try:
            await self.pace.admit(address)
        except AuthenticationFailed:
            return False
        return True

    async def refused_at(self, address: Address) -> bool:
        """Log in if that is admitted, and be refused."""
        admitted = await self.admitted(address)
        if admitted:
            self.pace.refused(address, REFUSED, self.current)
        return admitted


def now() -> float:
    return asyncio.get_running_loop().time()


@in_virtual_time
async def test_pauses_grow_to_fifteen_seconds_across_brokers() -> None:
    rig, tried = Rig(), []
    while now() < 120:
        tried += [now() for address in (A, B, C) if await rig.refused_at(address)]
        await asyncio.sleep(0.1)
    pauses = [later - earlier for earlier, later in pairwise(tried)]
    assert pauses[:4] == pytest.approx([1, 2, 4, 8], rel=0.15)
    assert pauses[4:] == pytest.approx([15] * len(pauses[4:]), rel=0.15)


@in_virtual_time
async def test_brokers_without_a_login_attempt_come_first() -> None:
    rig, tried = Rig(), []
    while now() < 10:
        tried += [address for address in (A, B, C) if await rig.refused_at(address)]
        await asyncio.sleep(0.1)
    assert tried[:3] == [A, B, C]


@in_virtual_time
async def test_three_brokers_may_refuse_the_first_login() -> None:
    rig = Rig(running=False)
    assert [await rig.refused_at(each) for each in (A, A, B, C, D)] == [True, False, True, True, False]


@in_virtual_time
async def test_accepted_login_ends_the_pauses_of_other_brokers() -> None:
    rig = Rig()
    assert await rig.refused_at(A)
    assert not await rig.admitted(B)
    await asyncio.sleep(1.2)
    assert await rig.admitted(B)
    assert not await rig.admitted(C), "the outcome is awaited"
    rig.pace.accepted(B)
    assert await rig.admitted(C)
    assert rig.pace.next_at <= now()


@in_virtual_time
async def test_broker_that_refuses_alone_has_pauses_of_its_own() -> None:
    rig, tried = Rig(), 0
    for _ in range(600):
        tried += await rig.refused_at(A)
        if await rig.admitted(B):
            rig.pace.accepted(B)
        await asyncio.sleep(0.1)
    assert 6 <= tried <= 9


@in_virtual_time
async def test_login_without_an_answer_leaves_its_turn() -> None:
    rig = Rig()
    await rig.refused_at(A)
    await asyncio.sleep(1.2)
    assert await rig.admitted(B)
    assert not await rig.admitted(C)
    rig.pace.failed(B)
    assert await rig.admitted(C)


@in_virtual_time
async def test_changed_credentials_are_admitted_at_once_a_few_times() -> None:
    rig, tried = Rig(), []
    assert await rig.refused_at(A)
    await asyncio.sleep(0.5)
    for number in range(100):
        rig.current = f"new-{number}"
        if await rig.refused_at(A):
            tried.append(now())
        await asyncio.sleep(0.1)
    assert len([each for each in tried if each < 4]) >= MAX_CHANGES
    assert len(tried) <= MAX_CHANGES + 3


@in_virtual_time
async def test_credentials_are_looked_at_once_a_second() -> None:
    rig = Rig()
    rig.error = OSError("the vault is away")
    assert await rig.refused_at(A)
    for _ in range(40):
        await rig.admitted(A)
        await asyncio.sleep(0.05)
    assert 1 <= len(rig.looks) <= 3


@in_virtual_time
async def test_first_login_after_a_pause_is_made_alone() -> None:
    rig = Rig()
    await asyncio.sleep(60)

    async def log_in(address: Address) -> bool:
        if not await rig.admitted(address):
            return False
        await asyncio.sleep(0.3)
        rig.pace.refused(address, REFUSED, rig.current)
        return True

    assert sum(await asyncio.gather(*map(log_in, (A, B, C, D)))) == 1


@pytest.mark.parametrize("ends", ["accepted", "failed", "silent"])
@in_virtual_time
async def test_logins_of_other_brokers_follow_the_first_one_soon(ends: str) -> None:
    rig = Rig()
    await asyncio.sleep(60)
    assert await rig.admitted(A)
    others = [asyncio.ensure_future(rig.admitted(each)) for each in (B, C, D)]
    await asyncio.sleep(0.1)
    assert not any(each.done() for each in others)
    if ends != "silent":
        getattr(rig.pace, ends)(A)
    began_at = now()
    assert all(await asyncio.gather(*others))
    assert now() - began_at <= 1.5
