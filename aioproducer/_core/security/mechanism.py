"""SASL mechanisms: their interface and base class, and calls of user callables."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

from aioproducer._core.address import Address
from aioproducer._core.security.secret import Secret, revealed
from aioproducer._core.steps import pass_on
from aioproducer._core.worker_threads import CALL_THREADS


@runtime_checkable
class Mechanism(Protocol):
    """Client side of one authentication; each authentication has a new mechanism.

    The optional attribute `complete` is false while messages remain, even empty messages. Without `complete` the exchange ends
    with an empty challenge, or when `respond` returns an empty message.
    """

    @property
    def name(self) -> str:
        """Registered name, for example SCRAM-SHA-256."""
        ...

    def start(self, broker: Address, /) -> bytes | Awaitable[bytes]:
        """Return the first message."""
        ...

    def respond(self, challenge: bytes, /) -> bytes | Awaitable[bytes]:
        """Return the response to *challenge*; raise an exception for an invalid challenge."""
        ...


MechanismFactory: TypeAlias = Callable[[], Mechanism]


class Refused(Exception):
    """Raised by a mechanism for an invalid message of the broker, or without credentials.

    The text is for users. The exchange adds the name of the broker to the text.
    """


class SaslClient:
    """Base class of the mechanisms of this package."""

    name: str

    def __init__(self) -> None:
        self.complete: bool = False
        self.proof: object = None
        """Credentials of this login, for comparison with later credentials."""
        self.secrets: tuple[Secret, ...] = ()
        """Secrets of this login, for the redaction of broker messages."""


MOST_HUNG: Final = 2
"""Maximum number of hung calls per callable."""


async def called(function: Callable[[], Any]) -> Any:
    """Call *function*: a coroutine function on the event loop, any other function in a thread, because a function may block.

    If *function* raises an interrupt, such as KeyboardInterrupt, the event loop raises the interrupt and `called` a
    RuntimeError, because an interrupt in a task of the producer would end the producer.
    """
    try:
        if _is_async(function):
            return await function()
        result = await CALL_THREADS.run(function)
        return await result if inspect.isawaitable(result) else result
    except (KeyboardInterrupt, SystemExit) as interrupt:
        pass_on(interrupt)
        raise RuntimeError(f"interrupted by {interrupt!r}") from interrupt


class UserCall:
    """User callable with a time limit. At most `MOST_HUNG` calls of the callable may still run after the time limit.

    A thread cannot be ended. Without `MOST_HUNG` a hanging callable would use up the threads of all producers.
    """

    def __init__(self, function: Callable[[], Any], option: str) -> None:
        """*option* is the name of the callable in errors."""
        self._function = function
        self._option = option
        self._lock = threading.Lock()
        self._hung = 0

    async def __call__(self, limit_s: float) -> Any:
        """Return the result of the callable.

        Raises: Refused after *limit_s*, or if earlier calls still hang; the errors of the callable.
        """
        if self._hung >= MOST_HUNG:
            raise Refused(f"{self._option} does not return: {self._hung} earlier calls are still running")
        left = runs = False

        def run() -> Any:
            nonlocal runs
            runs = True
            try:
                return self._function()
            finally:
                with self._lock:
                    runs = False
                    self._hung -= left

        function: Callable[[], Any] = self._function if _is_async(self._function) else run
        limit = asyncio.timeout(limit_s)
        try:
            async with limit:
                return await called(function)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise Refused(f"{self._option} did not return within {limit_s:g} s") from error
        finally:
            with self._lock:
                left = runs
                self._hung += left


def _is_async(function: Callable[[], Any]) -> bool:
    call = getattr(function, "__call__", None)  # noqa: B004 - an object may have an async __call__
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def utf8(text: str | Secret, name: str) -> bytes:
    """Encode *text*; errors contain *name* in place of *text*.

    Raises: Refused, without any part of *text*, if *text* has a lone surrogate.
    """
    try:
        return revealed(text).encode()
    except UnicodeEncodeError:
        raise Refused(f"{name} has a lone surrogate, which UTF-8 cannot encode") from None
