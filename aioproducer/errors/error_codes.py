"""BrokerError, the base of all error codes, and the way from a code to its class.

Three facts about a code decide what the producer does with it:

- `retriable`: sending the same batch again may succeed;
- `stale_metadata`: what we know of the cluster is out of date, ask again before resending;
- `definitely_refused`: the broker decided before the append, so the batch is surely not in the log.
  Codes without it leave that open: a leader may have appended before it lost its leadership.

Source: https://kafka.apache.org/protocol#protocol_error_codes
"""

from __future__ import annotations

from typing import Any, ClassVar

from aioproducer.errors.base import ProducerError


class BrokerError(ProducerError):
    """A non-zero error code in an answer."""

    code: ClassVar[int]
    """Kafka's number of it."""
    stale_metadata: ClassVar[bool]
    """What the producer knows of the cluster is out of date; it asks again before it sends again."""
    definitely_refused: ClassVar[bool]
    """The broker decided before the append: the batch is surely not in the log."""
    by_code: ClassVar[dict[int, type[BrokerError]]] = {}

    def __init_subclass__(
        cls, *, code: int, retriable: bool = False, stale: bool = False, refused: bool = False
    ) -> None:
        super().__init_subclass__()
        if code in BrokerError.by_code:
            raise TypeError(f"error code {code} is {BrokerError.by_code[code].__name__} already")
        cls.code = code
        cls.retriable = retriable
        cls.stale_metadata = stale
        cls.definitely_refused = refused
        BrokerError.by_code[code] = cls

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy by the code: a class for an unknown one has no module to be found in."""
        return _restore, (self.code, self.args), self.__dict__


def _restore(code: int, args: tuple[Any, ...]) -> BrokerError:
    return broker_error(code)(*args)


def broker_error(code: int) -> type[BrokerError]:
    """Return the class of *code*; a code we have no name for gets a class `ErrorCode<code>`.

    Raises: ValueError for 0, which is no error.
    """
    if code == 0:
        raise ValueError("error code 0 means success")
    known = BrokerError.by_code.get(code)
    if known is None:
        # A newer broker may know more codes than we do. Nothing is assumed of them.
        known = type(f"ErrorCode{code}", (BrokerError,), {"__doc__": f"Error code {code}."}, code=code)
    return known
