"""Secrets (passwords, tokens, keys) that every repr hides, and removal of secrets from messages and tracebacks."""

from __future__ import annotations

import base64
from typing import Final, NoReturn, Self, final

HIDDEN: Final = "***"
"""Replacement of a secret in texts."""


@final
class Secret:
    """A text that `repr`, `str` and formatting hide; `reveal()` returns the text.

    A Secret is no `str`, so it cannot be joined, formatted or logged by accident. A Secret equals only another Secret with
    the same text. A Secret cannot be pickled, because pickles end up in files, queues and logs.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the hidden text."""
        return self._text

    def __repr__(self) -> str:
        return f"Secret('{HIDDEN}')"

    def __str__(self) -> str:
        return HIDDEN

    def __format__(self, spec: str) -> str:
        return HIDDEN

    def __bool__(self) -> bool:
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        import hmac  # noqa: PLC0415 - a slow import that few producers need

        mine, others = (each._text.encode("utf-8", "surrogatepass") for each in (self, other))  # noqa: SLF001
        return hmac.compare_digest(mine, others)

    def __hash__(self) -> int:
        return hash((Secret, self._text))

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError(
            "a Secret cannot be pickled: pass what it can be had from instead, such as the path of a file, the name"
            " of an environment variable, or a callable that returns it (sasl_credentials, sasl_oauth_token_provider)"
        )


@final
class SecretBytes:
    """A message that contains a secret, for one use. `repr`, `str` and formatting hide the message."""

    __slots__ = ("_message",)

    def __init__(self, message: bytes) -> None:
        self._message = message

    def take(self) -> bytes:
        """Return the message and drop it."""
        message, self._message = self._message, b""
        return message

    def __repr__(self) -> str:
        return f"SecretBytes('{HIDDEN}')"

    def __bool__(self) -> bool:
        return bool(self._message)


def revealed(secret: Secret | str) -> str:
    """Return the text of a Secret or str."""
    return secret.reveal() if isinstance(secret, Secret) else secret


def redacted(text: str, *secrets: Secret | str) -> str:
    """Return *text* without *secrets* (plain, base64 or percent-encoded), because a peer may echo its input."""
    from urllib.parse import quote, quote_plus  # noqa: PLC0415 - a slow import that few producers need

    found: set[str] = set()
    for secret in filter(None, map(revealed, secrets)):
        data = secret.encode("utf-8", "surrogatepass")
        found |= {secret, quote(data, safe=""), quote_plus(data), base64.b64encode(data).decode()}
    for each in sorted(found, key=len, reverse=True):
        text = text.replace(each, HIDDEN)
    return text


def without_frames(error: BaseException) -> None:
    """Drop the tracebacks of *error*, its causes and contexts, because error trackers report local variables of frames.

    A note keeps the place where an exception of user code was raised. Suppressed contexts are also dropped: the texts and
    attributes of a suppressed context come from a peer, or contain the bytes that could not be decoded.
    """
    waiting: list[BaseException | None] = [error]
    seen: set[int] = set()
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        if each.__suppress_context__:
            each.__context__ = None
        waiting += [each.__cause__, each.__context__]
        if isinstance(each, BaseExceptionGroup):
            waiting += each.exceptions
        trace = each.__traceback__
        if trace is None:
            continue
        while trace.tb_next is not None:
            trace = trace.tb_next
        code = trace.tb_frame.f_code
        if not trace.tb_frame.f_globals.get("__name__", "").startswith("aioproducer."):
            each.add_note(f"raised by {code.co_qualname} ({code.co_filename}, line {trace.tb_lineno})")
        each.__traceback__ = None
