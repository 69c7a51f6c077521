"""Answers of a web service to a send that failed, for any framework: an error, taken apart into HTTP."""

from __future__ import annotations

from http import HTTPStatus
from typing import NamedTuple

from aioproducer import ProducerClosed, ProducerError, RecordTooLarge, SendManyError


class Answer(NamedTuple):
    """An HTTP answer, in the parts that every framework takes."""

    status: int
    headers: dict[str, str]
    body: dict[str, str | bool]
    """For JSON: `error`, the name of its class, and `possibly_persisted`. The message is for your log: it has
    addresses of brokers in it."""


def answer_to(error: ProducerError, *, retry_after_s: int = 1) -> Answer:
    """Return what to tell a client whose request failed with *error*.

    - 504: the record may be in the log, or some of a `send_many` are. Sending it again may store it twice.
    - 413: it is too large, and always will be (of a `send_many`: all are).
    - 503 with `Retry-After: retry_after_s`: it is not in the log, and to send it again, later, may succeed (after
      `ProducerClosed`: with the next instance of the service).
    - 500: it is not in the log, and nothing that the client does will change that.

    `possibly_persisted` in the body is true with 504 and with no other.

    Raises:
        TypeError: *error* is no `ProducerError`. A wrong argument is a bug of yours: leave its 500 to the framework.
        ValueError: *retry_after_s* is no whole number, or less than 0.
    """
    if not isinstance(error, ProducerError):
        raise TypeError(
            f"only a ProducerError is answered here; leave other errors to the framework: {error!r}"
        )
    if type(retry_after_s) is not int or retry_after_s < 0:
        raise ValueError(f"retry_after_s must be a whole number of seconds, 0 or more, not {retry_after_s!r}")
    causes: tuple[ProducerError, ...] = (error,)
    stored = error.possibly_persisted
    if isinstance(error, SendManyError):
        causes = tuple(error.result.failures.values())
        stored = stored or error.result.delivered > 0
    headers = {}
    if stored:
        status = HTTPStatus.GATEWAY_TIMEOUT  # before all others: whoever is asked to try again has to know it
    elif all(isinstance(each, RecordTooLarge) for each in causes):
        status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    elif any(each.retriable or isinstance(each, ProducerClosed) for each in causes):
        status = HTTPStatus.SERVICE_UNAVAILABLE
        headers["Retry-After"] = str(retry_after_s)
    else:
        status = HTTPStatus.INTERNAL_SERVER_ERROR
    return Answer(status, headers, {"error": type(error).__name__, "possibly_persisted": stored})
