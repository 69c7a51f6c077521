"""All errors of the package."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioproducer.errors.base import *  # noqa: F403 - every class is an error, or an enum of an error
from aioproducer.errors.base import ProducerError
from aioproducer.errors.broker_errors import *  # noqa: F403 - a class per error code
from aioproducer.errors.broker_errors import broker_error as broker_error

if TYPE_CHECKING:
    from aioproducer.errors.send_many import SendManyError as SendManyError
else:  # type checkers follow the imports above
    __all__ = ["SendManyError", "broker_error"]
    __all__ += [
        name for name, kind in globals().items() if isinstance(kind, type) and issubclass(kind, ProducerError)
    ]


def __getattr__(name: str) -> Any:
    """Import `SendManyError`, with its result, at the first access."""
    if name != "SendManyError":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from aioproducer.errors.send_many import SendManyError  # noqa: PLC0415 - most programs do not use it

    globals()[name] = SendManyError
    return SendManyError
