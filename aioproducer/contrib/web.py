"""What a web service answers when a send fails, for any framework: it takes an error apart into HTTP."""

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

    - 504: the record may be in the log, or of a `send_many` some are. Who sends it again may store it twice.
    - 413: it is too large, and always will be.
    - 503 with `Retry-After: retry_after_s`: it is not in the log, and to send it again, later, may succeed (after
      `ProducerClosed`: with the next instance of the service).
    - 500: it is not in the log, and nothing that the client does will change that.

    `possibly_persisted` in the body is true with 504 and with no other.
    """
    stored = error.possibly_persisted or (isinstance(error, SendManyError) and error.result.delivered > 0)
    headers = {}
    if stored:
        status = HTTPStatus.GATEWAY_TIMEOUT  # before all others: whoever is asked to try again has to know it
    elif isinstance(error, RecordTooLarge):
        status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    elif error.retriable or isinstance(error, ProducerClosed):
        status = HTTPStatus.SERVICE_UNAVAILABLE
        headers["Retry-After"] = str(retry_after_s)
    else:
        status = HTTPStatus.INTERNAL_SERVER_ERROR
    return Answer(status, headers, {"error": type(error).__name__, "possibly_persisted": stored})
