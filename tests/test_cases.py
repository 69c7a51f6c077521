"""The loop over cases: every case runs, and a failure names its case."""

from __future__ import annotations

import inspect

import pytest

from tests.cases import for_each

played: list[tuple[int, str]] = []


@for_each("number", [1, 2])
@for_each(("letter",), [("a",), ("b",)])
def test_stacked_loops_run_every_pair(number: int, letter: str) -> None:
    played.append((number, letter))
    assert played == [(1, "a"), (1, "b"), (2, "a"), (2, "b")][: len(played)]


@for_each("number", [1, 2])
async def test_coroutine_functions_are_awaited(number: int) -> None:
    assert number


def test_failure_names_its_case() -> None:
    @for_each("number, letter", [(1, "a"), (2, "b"), (3, "c")])
    def fails_at_2(number: int, letter: str) -> None:
        assert number != 2, letter

    with pytest.raises(AssertionError) as caught:
        fails_at_2()
    assert caught.value.__notes__ == ["case 1: number=2, letter='b'"]


def test_missing_exception_names_its_case() -> None:
    @for_each("number", [1, 2])
    def raises_at_1(number: int) -> None:
        with pytest.raises(ZeroDivisionError):
            assert 1 / (number - 1)

    with pytest.raises(pytest.fail.Exception) as caught:
        raises_at_1()
    assert caught.value.__notes__ == ["case 1: number=2"]


def test_fixtures_stay_parameters_of_the_test() -> None:
    @for_each("number", [1])
    def takes_a_fixture(number: int, tmp_path: object) -> None: ...

    assert list(inspect.signature(takes_a_fixture).parameters) == ["tmp_path"]


def test_empty_table_is_an_error() -> None:
    with pytest.raises(AssertionError, match="no cases of number"):
        for_each("number", [])
