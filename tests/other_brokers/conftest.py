"""Checks of every test against a broker of another project."""

from __future__ import annotations

from tests.logged_errors import no_bugs_logged  # noqa: F401 - a fixture of every test
