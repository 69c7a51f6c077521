"""Serializers that write JSON: compact, UTF-8.

orjson does it if it is installed (the extra `json`), several times as fast; Python's own json otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Protocol

_dumps: Callable[[Any], bytes]
try:
    import orjson
except ImportError:

    def _dumps(value: Any) -> bytes:
        # NaN is no JSON: other parsers refuse it
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()

else:
    _dumps = orjson.dumps


class DumpsJson(Protocol):
    """What a pydantic model has."""

    def model_dump_json(self) -> str:
        """Return the model as JSON."""
        ...


def json_serializer(value: Any) -> bytes | None:
    """Return *value* as JSON; None, a tombstone, stays None.

    dicts with keys of `str`, lists, tuples, `str`, `int` of at most 64 bits, finite `float`, `bool` and None come out
    the same with orjson and without. NaN and infinity are null with orjson, and refused without.

    Raises: TypeError, ValueError for what JSON cannot express.
    """
    return None if value is None else _dumps(value)


def pydantic_serializer(model: DumpsJson | None) -> bytes | None:
    """Return a pydantic *model* as JSON, as its `model_dump_json` does; None, a tombstone, stays None.

    Raises: TypeError if it is no model; what pydantic raises.
    """
    if model is None:
        return None
    if isinstance(model, type) or not hasattr(model, "model_dump_json"):
        kind = f"the class {model.__name__}" if isinstance(model, type) else type(model).__name__
        raise TypeError(f"pydantic_serializer takes a pydantic model or None, not {kind}")
    return model.model_dump_json().encode()
