"""Secret: a password, token or key that nothing shows by accident."""

from __future__ import annotations

from typing import Final, NoReturn, Self, final

HIDDEN: Final = "***"
"""What stands for a secret in everything that people read."""


@final
class Secret:
    """A text that `repr`, `str` and formatting hide; `reveal()` returns it.

    It is no `str`, so that it cannot be joined, formatted or logged as one. Equal secrets are equal, and nothing else
    is. It cannot be pickled: what is pickled lies about in files, queues and logs.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text itself."""
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
        import hmac  # noqa: PLC0415 - few need it, and all would wait for it

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


def revealed(secret: Secret | str) -> str:
    """Return the text of what may be given either way."""
    return secret.reveal() if isinstance(secret, Secret) else secret


def redacted(text: str, *secrets: Secret | str) -> str:
    """Return *text* without any of *secrets*: what others answered may quote what they were sent."""
    for secret in sorted(filter(None, map(revealed, secrets)), key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return text
