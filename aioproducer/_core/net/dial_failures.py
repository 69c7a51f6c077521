"""Classification of exceptions that end a dial: dial failures, and exceptions that are re-raised."""

from __future__ import annotations

import asyncio

from aioproducer.errors import AuthenticationFailed, ProducerError


def is_failure(error: BaseException) -> bool:
    """Return True if *error* is a failure of the dial without an error class of this package.

    A dial runs name resolution, OpenSSL and callables of the user, and each may raise anything: TypeError for a NUL in a
    host name, RuntimeError without threads, CancelledError from a task of the user. A ProducerError has its class, and
    the cancellation of this task, KeyboardInterrupt and SystemExit are passed on.
    """
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is not None and not task.cancelling()
    return not isinstance(error, ProducerError | KeyboardInterrupt | SystemExit | GeneratorExit)


def described(error: BaseException) -> str:
    """Return the text of *error*; only its class if user code may have raised it with a secret in the text."""
    if isinstance(error, OSError | ValueError) and str(error):
        return str(error)
    return f"{type(error).__name__}, which is the cause"


def again(error: AuthenticationFailed) -> AuthenticationFailed:
    """Return a copy of *error* for one more caller."""
    another = type(error)(*error.args, broker=error.broker, mechanism=error.mechanism)
    another.__cause__ = error.__cause__
    return another
