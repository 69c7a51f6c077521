"""HTTP responses of a web service to a failed send, for any framework."""

from __future__ import annotations

from http import HTTPStatus
from typing import NamedTuple

from aioproducer import ProducerClosed, ProducerError, RecordTooLarge, SendManyError


class Answer(NamedTuple):
    """Parts of an HTTP response."""

    status: int
    headers: dict[str, str]
    body: dict[str, str | bool]
    """Content for JSON: `error`, the name of the error's class, and `possibly_persisted`. The message is left out,
    because it contains addresses of brokers."""


def answer_to(error: ProducerError, *, retry_after_s: int = 1) -> Answer:
    """Return the response to a client whose request failed with *error*.

    - 504: the record, or a record of a `send_many`, may be in the log. A retry may store it twice.
    - 413: the record is too large (for a `send_many`: all failed records).
    - 503 with `Retry-After: retry_after_s`: the record is not in the log, and a later retry may succeed (after
      `ProducerClosed`: with the next instance of the service).
    - 500: the record is not in the log, and retries will fail.

    `possibly_persisted` in the body is true with 504 only.

    Raises:
        TypeError: *error* is no `ProducerError`. The framework should handle other errors.
        ValueError: *retry_after_s* is negative or not an integer.
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
        status = HTTPStatus.GATEWAY_TIMEOUT  # first, because a retry may duplicate the record
    elif all(isinstance(each, RecordTooLarge) for each in causes):
        status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    elif any(each.retriable or isinstance(each, ProducerClosed) for each in causes):
        status = HTTPStatus.SERVICE_UNAVAILABLE
        headers["Retry-After"] = str(retry_after_s)
    else:
        status = HTTPStatus.INTERNAL_SERVER_ERROR
    return Answer(status, headers, {"error": type(error).__name__, "possibly_persisted": stored})
