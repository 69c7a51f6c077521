from __future__ import annotations

import io

import pytest
from rich.console import Console

from benchmarks.clients import OURS
from benchmarks.micro.baseline import Compared
from benchmarks.micro.clock import Timed
from benchmarks.parent.rounds import Step
from benchmarks.show import Bar, judged_rows, number, ordered, show_check, show_results, value_text
from benchmarks.table import ROWS
from tests.unit.benchmarks.samples import closed, results


def text_console() -> tuple[Console, io.StringIO]:
    text = io.StringIO()
    return Console(file=text, width=150, highlight=False), text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.123, "0.12"), (9.994, "9.99"), (12.34, "12.3"), (123.4, "123"), (1234567.0, "1,234,567")],
)
def test_numbers_have_three_digits_or_so(value: float, text: str) -> None:
    assert number(value) == text


def test_clients_are_in_the_order_of_the_table_whoever_went_first() -> None:
    played = closed()
    played.runs = dict(reversed(played.runs.items()))
    assert ordered(ROWS["closed"], played) == ["aioproducer", "aiokafka"]


def test_ratios_are_told_with_the_rounds() -> None:
    told = [value_text(judged) for _, judged in judged_rows(results())]
    assert told[0] == "3.50× (3.00-4.00)"
    assert told[-2:] == ["90.0 MiB (90.0-90.0)", "1.10× (1.10-1.10)"]


def test_everything_is_shown() -> None:
    console, text = text_console()
    show_results(results(), console)
    shown = text.getvalue()
    for words in (
        "A Processor",
        "400,000",
        "1.67",
        "≥ 2.5×",
        "must reached",
        "at each client's own defaults",
    ):
        assert words in shown
    assert "failed: closed, aiokafka: round 2" in shown


def test_changed_rows_are_shown_without_targets() -> None:
    console, text = text_console()
    changed = results()
    changed.options["value_bytes"] = 500
    show_results(changed, console)
    assert "≥ 2.5×" not in text.getvalue()


def test_a_bar_tells_failures_at_once() -> None:
    console, text = text_console()
    step = Step(ROWS["closed"], OURS, 0, 1.0)
    with Bar(console, [step, step]) as bar:
        bar.follow(step, "")
        bar.follow(step, "round 1: it broke")
    assert "closed: aioproducer, round 1\n" in text.getvalue()
    assert "closed: aioproducer: round 1: it broke" in text.getvalue()


def test_units_are_shown_with_their_change() -> None:
    console, text = text_console()
    show_check([Compared("old", Timed(1.2, 5.0), 1.0), Compared("young", Timed(1.0, 1.0), None)], console)
    assert "+20%" in text.getvalue()
    assert "new" in text.getvalue()
