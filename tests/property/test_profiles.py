"""Which examples are played, and where."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import settings

from tests.cases import for_each
from tests.property.profiles import chosen, profiles, share


def played(**environ: str) -> settings:
    return profiles(environ)[chosen(environ)]


def test_examples_vary_locally_and_are_fixed_in_ci() -> None:
    assert (played().derandomize, played(CI="true").derandomize) == (False, True)
    assert played().max_examples == played(CI="true").max_examples == 100
    assert played(CI="true").print_blob


def test_environment_selects_a_profile_or_a_number() -> None:
    assert played(CI="true", HYPOTHESIS_PROFILE="dev").max_examples == 10
    assert played(CI="true", EXAMPLES="2000").max_examples == 2000
    assert not played(CI="true", EXAMPLES="2000").derandomize
    assert played(EXAMPLES="").max_examples == 100


@pytest.mark.parametrize("name", profiles({}))
def test_profiles_have_no_deadline(name: str) -> None:
    assert profiles({})[name].deadline is None


def test_share_is_at_least_one_example() -> None:
    assert (share(1), share(1e-9)) == (settings().max_examples, 1)


@for_each("path", sorted(Path(__file__).parent.glob("*.py")))
def test_property_tests_use_the_number_of_their_profile(path: Path) -> None:
    if path.stem not in {"profiles", "test_profiles"}:
        assert re.findall(r"(?:deadline|max_examples)=(?!share\()", path.read_text()) == []
