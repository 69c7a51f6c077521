"""Hypothesis without its stopwatch: a busy machine is not a counterexample.

With CI set it also plays the same examples each time: a submission is judged by its change, not by its luck. New
counterexamples are for the machines of people.
"""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("patient", settings(), deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("patient")
