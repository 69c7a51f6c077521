from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.figures import Played, Results
from benchmarks.reporting.headline import (
    BEGINS,
    CALLS,
    ENDS,
    WORKLOADS,
    calls,
    headlines,
    markdown,
    reached,
    sentence,
    write_calls,
    write_into,
    write_sentence,
)
from benchmarks.settings import Tuning
from benchmarks.table import ROWS
from tests.unit.benchmarks.samples import results, run

ROOT = Path(__file__).parents[4]


def played(**rates: float) -> Played:
    return Played(
        runs={
            name.replace("_", "-"): [run(records_s=rate, cpu_us=1e6 / rate, p50_ms=1e3 / rate)]
            for name, rate in rates.items()
        }
    )


def test_tables_have_a_headline_with_their_tuning() -> None:
    told = list(headlines(results()))
    assert [each.title.split(":")[0] for each in told] == ["Defaults", "Best", "Equal settings"]
    for each in told:
        assert each.rows == [["256 tasks, each awaiting `send`", "3.50× at 0.24× the CPU", "-", "-"]]
        assert len(each.headings) == len(each.rows[0])


def test_headline_marks_slower_figures() -> None:
    these = results()
    these.tables = {
        Tuning.DEFAULTS: {
            "lone": played(aioproducer=100.0, aiokafka=200.0, confluent_aio=0.5),
            "value-1k": played(
                aioproducer=400.0, aiokafka=100.0, confluent_produce=800.0, confluent_callback=200.0
            ),
            "bulk": played(aioproducer=100.0, confluent_batch=50.0, jvm=200.0),
        }
    }
    [headline] = headlines(these)
    lone, values, bulk = (row[1:] for row in headline.rows)
    assert lone[0] == "2.00×, **slower**, at 2.00× the CPU"
    assert lone[1] == "`AIOProducer`: < 0.01× at < 0.01× the CPU"
    assert values == [
        "4.00× at 0.25× the CPU",
        "`produce`: 0.50×, **slower**, at 2.00× the CPU; `produce(on_delivery)`: 2.00× at 0.50× the CPU",
        "-",
    ]
    assert bulk == ["-", "`produce_batch`: 2.00× at 0.50× the CPU", "0.50×, **slower**, at 2.00× the CPU"]
    assert "- defaults: value-1k, throughput against confluent-kafka produce: 0.50×" in markdown(these)
    assert "required ≥ 0.73×" in markdown(these)
    assert reached(these) == ("Of 4 targets: 0 met the goal, 1 met only the minimum, 3 missed the minimum.")


def test_missed_goal_without_a_minimum_is_counted() -> None:
    these = results()
    these.tables = {Tuning.EQUAL: {"fire": played(aioproducer=100.0, confluent_aio=100.0)}}
    assert reached(these).endswith(
        "0 missed the minimum. Of the targets without a minimum, 1 missed the goal."
    )


def test_rows_that_were_changed_have_no_verdict() -> None:
    other = results()
    other.options["uvloop"] = True
    assert "targets" in markdown(results())
    assert "targets" not in markdown(other)


def test_headline_replaces_the_text_between_the_marks(tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    page.write_text(f"before\n{BEGINS}old\n{ENDS}after\n")
    write_into(page, results())
    written = page.read_text()
    assert written.startswith(f"before\n{BEGINS}\nMeasured 2026-01-31")
    assert written.endswith(f"\n{ENDS}after\n")
    assert "old" not in written
    write_into(page, results())
    assert page.read_text() == written


@pytest.mark.parametrize("text", ["", BEGINS, ENDS])
def test_page_without_the_marks_is_refused(tmp_path: Path, text: str) -> None:
    page = tmp_path / "README.md"
    page.write_text(text)
    with pytest.raises(ValueError, match=r"README\.md lacks the marks of the headline"):
        write_into(page, results())
    assert page.read_text() == text


@pytest.mark.parametrize("page", ["README.md", "docs/performance.md", "docs/how-to/tune-throughput.md"])
def test_pages_have_a_place_for_the_headline(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert text.index(BEGINS) < text.index(ENDS)


def test_sentence_names_the_weakest_ratio(tmp_path: Path) -> None:
    these = results()
    these.tables = {
        Tuning.DEFAULTS: {
            "closed": played(aioproducer=400.0, aiokafka=100.0),
            "lone": played(aioproducer=100.0, aiokafka=900.0),
            "value-1k": played(aioproducer=400.0, confluent_produce=800.0, confluent_callback=200.0),
        }
    }
    text = sentence(these)
    assert "4.00× the throughput of aiokafka with 256 concurrent senders (0.25× the CPU per record)" in text
    assert text.endswith("ratio, 0.50×, against confluent-kafka produce (`enqueue`, values of 1 KiB).\n")
    page = tmp_path / "README.md"
    page.write_text(f"before\n{BEGINS}old\n{ENDS}after\n")
    write_sentence(page, these)
    assert page.read_text() == f"before\n{BEGINS}\n{text}\n{ENDS}after\n"


def test_headline_works_are_measured_rows() -> None:
    assert set(WORKLOADS) <= set(ROWS)


def test_calls_are_measured_rows() -> None:
    assert {name for name, _, _ in CALLS} <= set(ROWS)


def test_calls_have_the_rates_of_the_table_equal(tmp_path: Path) -> None:
    these = results()
    these.tables = {
        Tuning.BEST: {"lone": played(aioproducer=999.0)},
        Tuning.EQUAL: {"closed": played(aioproducer=400_000.0), "fire": played(aioproducer_nowait=500_000.0)},
    }
    assert calls(these).splitlines()[2:] == [
        "| 256 tasks, each awaiting `send` | 400,000 | 2.50 µs |",
        "| `send_nowait`, Futures awaited later | 500,000 | 2.00 µs |",
    ]
    page = tmp_path / "page.md"
    page.write_text(f"{BEGINS}{ENDS}")
    write_calls(page, these)
    assert calls(these) in page.read_text()


def test_guide_to_throughput_has_the_rates_of_the_report() -> None:
    page = (ROOT / "docs/how-to/tune-throughput.md").read_text(encoding="utf-8")
    assert calls(Results.load(ROOT / "benchmarks/report/results.json")) in page
