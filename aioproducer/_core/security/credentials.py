"""User names and passwords of each authentication, and calls of callables of the user."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple, TypeAlias

from aioproducer._core.log_limits import LogLimits
from aioproducer._core.security.mechanism import Refused
from aioproducer._core.security.secret import Secret, revealed
from aioproducer._core.steps import Log, pass_on
from aioproducer._core.worker_threads import CALL_THREADS, NoThread

log: Final = Log(__name__)

MOST_HUNG: Final = 2
"""Maximum number of hung calls per callable."""
Pair: TypeAlias = tuple[str, str | Secret]
CredentialsCallable: TypeAlias = Callable[[], Pair | Awaitable[Pair]]


async def called(function: Callable[[], Any]) -> Any:
    """Call *function*: a coroutine function on the event loop, any other function in a thread, because it may block.

    An interrupt, such as KeyboardInterrupt, is raised by the event loop, and here as a RuntimeError: a task of the producer
    that ends with it would end the producer.
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
    """User callable with a time limit. At most `MOST_HUNG` of its calls may still run after the limit.

    A thread cannot be ended. Without the limit a hanging callable would use up the threads of all producers.
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
    """Encode *text*; errors show it as *name*.

    Raises: Refused if *text* has a lone surrogate. The error contains no part of *text*.
    """
    try:
        return revealed(text).encode()
    except UnicodeEncodeError:
        raise Refused(f"{name} has a lone surrogate, which UTF-8 cannot encode") from None


class Login(NamedTuple):
    """User name and password."""

    username: str
    password: Secret


class Credentials:
    """Source of user name and password: a constant pair, or a callable of the user.

    If the callable raises, its last answer is used again. The failure is logged under `LogLimits`. A broker refuses an
    answer that is out of date.
    """

    def __init__(
        self, source: Login | CredentialsCallable, limits: LogLimits | None = None, limit_s: float = 10.0
    ) -> None:
        """A callable has *limit_s* to return, or half of *limit_s* if its last result is still usable."""
        self._call = None if isinstance(source, Login) else UserCall(source, "sasl_credentials")
        self._limit_s = limit_s
        self._next: Login | None = None
        self._last: Login | None = source if isinstance(source, Login) else None
        self._limits = limits or LogLimits()

    async def differs(self, refused: object) -> bool:
        """Return True if the current pair differs from *refused*; the next login then uses it."""
        if self._call is None:
            return False
        login = await self.pair()
        self._next = login if login != refused else None
        return self._next is not None

    async def pair(self) -> Login:
        """Return user name and password.

        Raises: Refused if there are none.
        """
        if self._next is not None:
            login, self._next = self._next, None
            return login
        if self._call is None:
            assert self._last is not None, "the pair that does not change"
            return self._last
        try:
            login = _login(await self._call(self._limit_s if self._last is None else self._limit_s / 2))
        except Exception as error:
            if self._last is None:
                if isinstance(error, Refused | NoThread):
                    raise
                raise Refused(
                    f"sasl_credentials raised {type(error).__name__}, which is the cause"
                ) from error
            self._limits.log(
                log, logging.WARNING, "", "security.credentials.kept error=%s", type(error).__name__
            )
            return self._last
        self._limits.over("security.credentials.kept", "", "security.credentials.recovered")
        self._last = login
        return login


def _login(pair: object) -> Login:
    match pair:
        case (str() as username, str() as password):
            return Login(username, Secret(password))
        case (str() as username, Secret() as secret):
            return Login(username, secret)
        case _:
            raise Refused(
                f"sasl_credentials has to return a user name and a password, and returned {type(pair).__name__}"
            )
