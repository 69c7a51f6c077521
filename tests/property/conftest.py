"""Hypothesis without its stopwatch: a busy machine is not a counterexample."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("patient", settings(), deadline=None)
settings.load_profile("patient")
