"""Pytest plugin: runs unit tests before property tests, because unit tests kill most mutants in a tenth of the time."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: "property" in item.path.parts)
