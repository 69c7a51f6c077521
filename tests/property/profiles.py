"""How many examples hypothesis plays, and whether they are the same each time: a profile for each who asks.

None has hypothesis' stopwatch: a busy machine is not a counterexample. No test has a number of its own. One that costs
more than others plays a share of what the profile says, so that `EXAMPLES` reaches it, too.
"""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import HealthCheck, Phase, settings

PATIENT = settings(deadline=None, derandomize=False, suppress_health_check=[HealthCheck.too_slow])


def profiles(environ: Mapping[str, str]) -> dict[str, settings]:
    """Return every profile by its name."""
    return {
        "dev": settings(PATIENT, max_examples=10),  # make check: what is plainly broken
        "full": settings(PATIENT, max_examples=100, print_blob=True),  # other examples each time
        # A submission is judged by its change, not by its luck; new counterexamples are for the machines of people.
        "ci": settings(PATIENT, max_examples=100, print_blob=True, derandomize=True),
        # make mutants: few, since many play them; the same, or a mutant is killed on some days only; and what kills one
        # need not be the shortest.
        "mutants": settings(
            PATIENT, max_examples=20, derandomize=True, phases=[Phase.explicit, Phase.generate]
        ),
        "long": settings(PATIENT, max_examples=int(environ.get("EXAMPLES") or 1000), print_blob=True),
    }


def chosen(environ: Mapping[str, str]) -> str:
    """Return the name of the profile: `HYPOTHESIS_PROFILE`, or one derived from the environment."""
    if name := environ.get("HYPOTHESIS_PROFILE"):
        return name
    if environ.get("EXAMPLES"):
        return "long"
    return "ci" if environ.get("CI") else "full"


def share(examples: float) -> int:
    """Return so much of the profile's number of examples, and at least one; for `max_examples` of one test."""
    return max(1, int(examples * settings().max_examples))
