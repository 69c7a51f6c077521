"""A name may stand for several addresses, of which one may be dead or, worse, accept and say nothing."""

from __future__ import annotations

from functools import partial

from aioproducer.cluster.race import Attempt, first_success
from aioproducer.cluster.source import CONNECT_STAGGER_S, OpenConnection, close_all
from aioproducer.errors import ConnectionFailed
from aioproducer.net.address import Address
from aioproducer.net.connection import Connection
from aioproducer.net.dial import endpoints


async def open_to_any(address: Address, open_connection: OpenConnection, *, deadline: float) -> Connection:
    """Return the first connection past its handshake to any address that the name in *address* stands for.

    Raises: ConnectionFailed with each address and its cause; if there is but one, whatever *open_connection* raises.
    """
    try:
        found = await endpoints(address)
    except (OSError, ValueError) as error:
        raise ConnectionFailed(f"{address}: cannot connect: {error}", written=False) from error
    if len(found) == 1:
        return await open_connection(found[0])
    opened: list[Connection] = []

    async def open_one(endpoint: Address) -> Connection:
        opened.append(await open_connection(endpoint))
        return opened[-1]

    attempts = (Attempt(str(each), partial(open_one, each), CONNECT_STAGGER_S) for each in found)
    try:
        winner = await first_success(
            attempts, deadline=deadline, failure=f"{address} is {len(found)} addresses"
        )
        opened.remove(winner)
    finally:
        for each in opened:
            each.close()  # before anything is waited for: cancelled meanwhile, nobody gets the winner either
        try:
            await close_all(*opened)
        except BaseException:
            await close_all(winner)
            raise
    return winner
