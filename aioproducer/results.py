"""Public names of the results of `send_many`, which are defined in the module of `SendManyError`."""

from __future__ import annotations

from aioproducer.errors.send_many import DeliveredRun, OffsetRange, SendManyResult

__all__ = ["DeliveredRun", "OffsetRange", "SendManyResult"]
