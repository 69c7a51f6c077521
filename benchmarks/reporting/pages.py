"""Pages made from results: an HTML file with every plot, and the report that is committed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from benchmarks.clients import TITLES
from benchmarks.figures import Played, Results
from benchmarks.reporting.headline import behind, headlines, reached
from benchmarks.reporting.plots import all_plots
from benchmarks.settings import Tuning
from benchmarks.show import (
    HEADINGS,
    TABLES,
    TARGET_HEADINGS,
    cells_of,
    judged_rows,
    ordered,
    value_text,
    verdict_text,
)
from benchmarks.summary import compared, wanted
from benchmarks.table import ROWS

CAPTIONS: Final = {  # of the plots of the HTML page; the headline belongs to the README
    "throughput": "Throughput, in each table",
    "latency": "Latency, in each table",
    "cpu": "CPU per record, of the whole client process, in each table",
    "scale": "CPU per record over partitions and topics",
    "memory": "Memory over time, with records appended faster than sent",
}
NOTES: Final = {
    Tuning.DEFAULTS: (
        "Only servers and compression are set, so the clients give different guarantees. aiokafka is not idempotent and"
        " waits only for the leader. librdkafka waits for all replicas and is not idempotent. kafka-python, the Java"
        " client and aioproducer are idempotent and wait for all replicas. docs/performance.md has the defaults."
    ),
    Tuning.BEST: (
        "Idempotent with acks=all. A sweep over eight sets of options per client has chosen the fastest batches, linger"
        " and buffers for the workload, or the lowest latency of a single call (benchmarks/sweep/grid.toml, best.json)."
    ),
    Tuning.EQUAL: (
        "Idempotent with acks=all, batches of 16 KiB; no linger if every call is awaited, otherwise 5 ms. These settings"
        " are close to aioproducer's defaults and far from librdkafka's, which has batches of 1 MB."
    ),
}
"""Note under the title of each table."""
CODE: Final = re.compile(r"`([^`]+)`")
STRONG: Final = re.compile(r"\*\*([^*]+)\*\*")
NEWLINES: Final = re.compile(r"\s*\n\s*")


@dataclass(frozen=True, slots=True)
class Section:
    """A table with a title; cells are Markdown with code and strong text."""

    title: str
    headings: tuple[str, ...]
    rows: list[list[str]]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Plot:
    """A drawing with its caption."""

    name: str
    caption: str
    svg: str


def write(results: Results, out: Path) -> Path:
    """Write the HTML page into folder *out* and return its path."""
    out.mkdir(parents=True, exist_ok=True)
    drawn = all_plots(results)
    plots = [Plot(name, CAPTIONS[name], svg) for name, svg in drawn.items() if name in CAPTIONS]
    page = out / "index.html"
    page.write_text(html(results, plots), encoding="utf-8")
    return page


def write_report(results: Results, out: Path) -> list[Path]:
    """Write the committed report into folder *out*: tables, the headline's plot and the raw results."""
    out.mkdir(parents=True, exist_ok=True)
    readme, headline, raw = (out / name for name in ("README.md", "headline.svg", "results.json"))
    readme.write_text(markdown(results), encoding="utf-8")
    headline.write_text(all_plots(results)["headline"], encoding="utf-8")
    results.save(raw)
    return [readme, headline, raw]


def html(results: Results, plots: list[Plot]) -> str:
    """Return a page that needs no other file."""
    drawn = [Plot(plot.name, plot.caption, Markup(_inline(plot))) for plot in plots]
    return _render("page.html", results, drawn)


def markdown(results: Results) -> str:
    """Return a page with every table and the headline's plot, which is a file in the same folder."""
    return _render("page.md", results, [])


def sections(results: Results) -> Iterator[Section]:
    """Return the tables of a report: the headlines, the verdicts, and the figures of each configuration."""
    for headline in headlines(results):
        yield Section(f"Summary. {headline.title}", headline.headings, headline.rows)
    if results.judged:
        rows = [
            [
                judged.target.tuning,
                row.name,
                compared(judged.target),
                value_text(judged),
                wanted(judged.target, judged.target.must),
                wanted(judged.target, judged.target.goal),
                verdict_text(judged),
            ]
            for row, judged in judged_rows(results)
        ]
        yield Section("Targets", TARGET_HEADINGS, rows, reached(results))
    for tuning, played in results.tables.items():
        yield _measured(tuning, played)
    if results.best:
        rows = [
            [row, TITLES[client], _written(options)]
            for row, clients in results.best.items()
            for client, options in clients.items()
        ]
        yield Section(
            "Best: options found by the sweep", ("workload", "client", "options"), rows, NOTES[Tuning.BEST]
        )


def _measured(tuning: Tuning, rows: dict[str, Played]) -> Section:
    cells = [
        [name, *cells_of(ROWS[name], played, client)]
        for name, played in rows.items()
        for client in ordered(ROWS[name], played)
    ]
    told = [row for row in cells if any(row[2:])]
    return Section(f"Figures. {TABLES[tuning]}", ("workload", *HEADINGS), told, NOTES[tuning])


def _written(options: Mapping[str, Any]) -> str:
    """Return the options as arguments of a call; no options are the client's defaults."""
    return ", ".join(f"{name}={value}" for name, value in options.items()) or "the client's defaults"


def anchor(title: str) -> str:
    """Return the anchor that Markdown gives to a heading."""
    return re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-")


def marked(text: str) -> Markup:
    """Return the HTML of a cell: its `code` and **strong** text are the only Markdown."""
    html = CODE.sub(r"<code>\1</code>", str(escape(text)))
    return Markup(STRONG.sub(r"<strong>\1</strong>", html))  # escaped first


def _render(template: str, results: Results, plots: list[Plot]) -> str:
    environment = Environment(
        loader=PackageLoader("benchmarks.reporting"),
        autoescape=template.endswith(".html"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["marked"] = marked
    return environment.get_template(template).render(
        results=results,
        plots=plots,
        sections=list(sections(results)),
        anchor=anchor,
        behind=behind(results) if results.judged else [],
        workloads=[
            row for row in ROWS.values() if any(row.name in played for played in results.tables.values())
        ],
        failures=[NEWLINES.sub(" / ", failure) for failure in results.failures],
    )


def _inline(plot: Plot) -> str:
    """Return a drawing for a page: without its prolog, and with ids that are unique on the page."""
    drawing = plot.svg[plot.svg.index("<svg") :]
    drawing = re.sub(r'\bid="', f'id="{plot.name}-', drawing)
    return re.sub(r'(url\(#|href="#)', rf"\g<1>{plot.name}-", drawing)
