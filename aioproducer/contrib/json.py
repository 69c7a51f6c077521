"""Serializers that write JSON: compact, UTF-8.

The serializers use orjson if installed (the extra `json`). orjson is several times as fast as Python's json.
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
        # other parsers refuse NaN
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()

else:
    _dumps = orjson.dumps


class DumpsJson(Protocol):
    """Interface of pydantic models."""

    def model_dump_json(self) -> str:
        """Return the model as JSON."""
        ...


def json_serializer(value: Any) -> bytes | None:
    """Return *value* as JSON; None, a tombstone, stays None.

    orjson and json give the same result for dicts with `str` keys, lists, tuples, `str`, `int` of at most 64 bits,
    finite `float`, `bool` and None. orjson writes NaN and infinity as null; json raises ValueError.

    Raises: TypeError, ValueError for values without a JSON form.
    """
    return None if value is None else _dumps(value)


def pydantic_serializer(model: DumpsJson | None) -> bytes | None:
    """Return a pydantic *model* as JSON, as its `model_dump_json` does; None, a tombstone, stays None.

    Raises: TypeError for other values; the errors of pydantic.
    """
    if model is None:
        return None
    if isinstance(model, type) or not hasattr(model, "model_dump_json"):
        kind = f"the class {model.__name__}" if isinstance(model, type) else type(model).__name__
        raise TypeError(f"pydantic_serializer takes a pydantic model or None, not {kind}")
    return model.model_dump_json().encode()
