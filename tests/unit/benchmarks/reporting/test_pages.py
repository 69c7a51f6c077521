from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from benchmarks.figures import Results
from benchmarks.reporting.pages import marked, write, write_report
from benchmarks.reporting.plots import all_plots
from benchmarks.settings import Tuning
from tests.unit.benchmarks.samples import results, run

PLOTS = ["headline", "throughput", "latency", "cpu", "scale", "memory"]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages of results that were stored and read back."""
    folder = tmp_path_factory.mktemp("report")
    results().save(folder / "out.json")
    loaded = Results.load(folder / "out.json")
    write(loaded, folder / "pages")
    write_report(loaded, folder / "pages")
    return folder / "pages"


@pytest.mark.slow
def test_every_plot_is_drawn_as_xml() -> None:
    drawn = all_plots(results())
    assert list(drawn) == PLOTS
    for svg in drawn.values():
        ET.fromstring(svg)


def test_report_holds_tables_one_plot_and_raw_results(written: Path) -> None:
    assert sorted(path.name for path in written.iterdir()) == [
        "README.md",
        "headline.svg",
        "index.html",
        "results.json",
    ]
    page = (written / "README.md").read_text()
    assert re.findall(r"!\[[^\]]*\]\(([^)]+)\)", page) == ["headline.svg"]
    assert Results.load(written / "results.json") == results()


def test_markdown_tables_are_whole(written: Path) -> None:
    page = (written / "README.md").read_text()
    tables = re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE)
    assert len(tables) == 9  # summary, verdicts, figures, winners of the sweep, workloads
    for table in tables:
        rows = table.splitlines()
        assert set(rows[1]) == {"|", "-"}
        assert len(rows) > 2
        assert len({row.count("|") for row in rows}) == 1


@pytest.mark.parametrize("page", ["README.md", "index.html"])
def test_pages_name_date_machine_versions_and_options(written: Path, page: str) -> None:
    text = (written / page).read_text()
    for words in (
        "2026-01-31",
        "A Processor",
        "aiokafka 0.14.0",
        "3.50×",
        "minimum met",
        "400,000",
        "Defaults: each client with its defaults",
        "max_batch_size=65536, linger_ms=1",
    ):
        assert words in text
    assert "closed, aiokafka: round 2: ended with 1: / it" in text


def test_html_page_needs_no_other_file(written: Path) -> None:
    text = (written / "index.html").read_text()
    assert text.count("<svg") == len(PLOTS) - 1
    assert not re.search(r'(src|href)="(?!#)', text)
    assert "it &lt;b&gt;broke&lt;/b&gt;" in text


def test_ids_are_unique_across_drawings(written: Path) -> None:
    ids: list[str] = []

    class Collector(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            ids.extend(str(value) for name, value in attrs if name == "id")

    text = (written / "index.html").read_text()
    Collector().feed(text)
    assert len(ids) == len(set(ids))
    for used in re.findall(r'(?:url\(#|href="#)([^)"]+)', text):
        assert used in ids


@pytest.mark.slow
def test_plots_of_equal_results_are_equal() -> None:
    assert all_plots(results()) == all_plots(results())


def test_plots_need_measurements() -> None:
    nothing = results()
    nothing.tables = {}
    assert all_plots(nothing) == {}


def test_index_links_to_every_heading(written: Path) -> None:
    page = (written / "README.md").read_text()
    headings = re.findall(r"^## (.*)$", page, re.MULTILINE)
    index = dict(re.findall(r"^- \[([^\]]*)\]\(#([^)]*)\)$", page, re.MULTILINE))
    assert set(index) == set(headings) - {"Index", "Failures"}
    text = (written / "index.html").read_text()
    assert all(f'id="{anchor}"' in text for anchor in index.values())


@pytest.mark.slow
def test_missed_targets_come_before_the_index(tmp_path: Path) -> None:
    slow = results()
    slow.tables[Tuning.BEST]["closed"].runs["aioproducer"] = [run(records_s=200_000.0)]
    write(slow, tmp_path)
    write_report(slow, tmp_path)
    for page in ("README.md", "index.html"):
        before, _, _ = (tmp_path / page).read_text().partition("Index")
        assert "best: closed, throughput against aiokafka: 2.00× (2.00-2.00), required ≥ 4.5×" in before


def test_charts_precede_the_tables(written: Path) -> None:
    page = (written / "README.md").read_text()
    assert page.splitlines()[2].startswith("![")
    text = (written / "index.html").read_text()
    assert text.rindex("</svg>") < text.index("<table>")


def test_cells_of_the_html_page_hold_no_markdown(written: Path) -> None:
    text = re.sub(r"<svg.*?</svg>", "", (written / "index.html").read_text(), flags=re.DOTALL)
    assert ">256 tasks, each awaiting <code>send</code></td>" in text
    assert not re.search(r"`|\*\*", text)


def test_cells_name_their_columns_for_narrow_screens(written: Path) -> None:
    text = (written / "index.html").read_text()
    assert '<td data-column="aiokafka">3.50× at 0.24× the CPU</td>' in text
    assert '<td data-column="confluent-kafka" class="none">-</td>' in text


@pytest.mark.parametrize("page", ["README.md", "index.html"])
def test_pages_name_no_target_of_the_makefile(written: Path, page: str) -> None:
    assert not re.search(r"\bmake [a-z]", (written / page).read_text())


def test_marked_escapes_html_before_it_adds_tags() -> None:
    assert (
        str(marked("`a<b>`: 0.50×, **slower**")) == "<code>a&lt;b&gt;</code>: 0.50×, <strong>slower</strong>"
    )
