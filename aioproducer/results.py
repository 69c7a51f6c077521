"""The results of `send_many`, under the name that users import; they are defined beside the error that carries them."""

from __future__ import annotations

from aioproducer.errors.send_many import DeliveredRun, OffsetRange, SendManyResult

__all__ = ["DeliveredRun", "OffsetRange", "SendManyResult"]
