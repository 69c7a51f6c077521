"""Hypothesis plays by the profile that the environment asks for."""

from __future__ import annotations

import os

from hypothesis import settings

from tests.property.profiles import chosen, profiles

for name, profile in profiles(os.environ).items():
    settings.register_profile(name, profile)
settings.load_profile(chosen(os.environ))
