"""User names and passwords, asked for at every authentication; and how users' callables are called."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple, TypeAlias

from aioproducer.log_limits import LogLimits
from aioproducer.security.mechanism import Refused
from aioproducer.security.secret import Secret, revealed
from aioproducer.steps import Log, pass_on
from aioproducer.worker_threads import CALL_THREADS, NoThread

log: Final = Log(__name__)

Pair: TypeAlias = tuple[str, str | Secret]
CredentialsCallable: TypeAlias = Callable[[], Pair | Awaitable[Pair]]


async def called(function: Callable[[], Any]) -> Any:
    """Call *function*, which may be a coroutine function; a plain one in a thread, since it may block.

    An interrupt, such as KeyboardInterrupt, is raised by the event loop, and here as a RuntimeError: a task of the producer
    that ends with it would end the producer.
    """
    call = getattr(function, "__call__", None)  # noqa: B004 - an object may have an async __call__
    try:
        if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call):
            return await function()
        result = await CALL_THREADS.run(function)
        return await result if inspect.isawaitable(result) else result
    except (KeyboardInterrupt, SystemExit) as interrupt:
        pass_on(interrupt)
        raise RuntimeError(f"interrupted by {interrupt!r}") from interrupt


def utf8(text: str | Secret, name: str) -> bytes:
    """Encode *text*, which errors call *name*.

    Raises: Refused if *text* has a lone surrogate. The error has nothing of *text*.
    """
    try:
        return revealed(text).encode()
    except UnicodeEncodeError:
        raise Refused(f"{name} has a lone surrogate, which UTF-8 cannot encode") from None


class Login(NamedTuple):
    """Who logs in."""

    username: str
    password: Secret


class Credentials:
    """A pair that does not change, or a callable that is asked for it each time.

    If the callable raises, its last answer is used again. The failure is logged under `LogLimits`. A broker refuses an
    answer that is out of date.
    """

    def __init__(self, source: Login | CredentialsCallable, limits: LogLimits | None = None) -> None:
        self._source = source
        self._last: Login | None = source if isinstance(source, Login) else None
        self._limits = limits or LogLimits()

    async def pair(self) -> Login:
        """Return user name and password.

        Raises: Refused if there are none.
        """
        source = self._source
        if isinstance(source, Login):
            return source
        try:
            login = _login(await called(source))
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
