"""Pages made from results: one HTML file with everything in it, and a Markdown file with its plots beside it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from benchmarks.figures import Played, Results
from benchmarks.reporting.plots import all_plots
from benchmarks.show import (
    HEADINGS,
    OWN_DEFAULTS,
    TARGET_HEADINGS,
    cells_of,
    judged_rows,
    ordered,
    value_text,
    verdict_text,
)
from benchmarks.summary import compared, wanted
from benchmarks.table import ROWS

CAPTIONS: Final = {  # of what is on the pages; the headline is for the README
    "throughput": "Throughput",
    "latency": "Latency",
    "cpu": "CPU per record, of the whole client process",
    "scale": "CPU per record over partitions and topics",
    "memory": "Memory over time, while more is handed over than can be sent",
}
NEWLINES: Final = re.compile(r"\s*\n\s*")


@dataclass(frozen=True, slots=True)
class Section:
    """A table with a title; cells are plain text."""

    title: str
    headings: tuple[str, ...]
    rows: list[list[str]]


@dataclass(frozen=True, slots=True)
class Plot:
    """A drawing with its caption."""

    name: str
    caption: str
    svg: str


def write(results: Results, out: Path) -> list[Path]:
    """Write the pages into folder *out*, and return what was written."""
    out.mkdir(parents=True, exist_ok=True)
    drawn = all_plots(results)
    plots = [Plot(name, CAPTIONS[name], svg) for name, svg in drawn.items() if name in CAPTIONS]
    files = {f"{name}.svg": svg for name, svg in drawn.items()}
    files |= {"index.html": html(results, plots), "README.md": markdown(results, plots)}
    for name, text in files.items():
        (out / name).write_text(text, encoding="utf-8")
    return [out / name for name in files]


def html(results: Results, plots: list[Plot]) -> str:
    """Return a page that needs no other file."""
    drawn = [Plot(plot.name, plot.caption, Markup(_inline(plot))) for plot in plots]
    return _render("page.html", results, drawn)


def markdown(results: Results, plots: list[Plot]) -> str:
    """Return a page that shows the plots that lie beside it."""
    return _render("page.md", results, plots)


def sections(results: Results) -> Iterator[Section]:
    """Return the tables of a report."""
    if results.judged:
        rows = [
            [
                row.name,
                compared(judged.target),
                value_text(judged),
                wanted(judged.target, judged.target.must),
                wanted(judged.target, judged.target.goal),
                verdict_text(judged),
            ]
            for row, judged in judged_rows(results)
        ]
        yield Section("What there was to reach", TARGET_HEADINGS, rows)
    if results.rows:
        yield _measured("Measured, with the same settings for all", results.rows)
    if results.defaults:
        yield _measured(f"Measured, {OWN_DEFAULTS}", results.defaults)


def _measured(title: str, rows: dict[str, Played]) -> Section:
    cells = [
        [name, *cells_of(ROWS[name], played, client)]
        for name, played in rows.items()
        for client in ordered(ROWS[name], played)
    ]
    return Section(title, ("work", *HEADINGS), [row for row in cells if any(row[2:])])


def _render(template: str, results: Results, plots: list[Plot]) -> str:
    environment = Environment(
        loader=PackageLoader("benchmarks.reporting"),
        autoescape=template.endswith(".html"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(template).render(
        results=results,
        plots=plots,
        sections=list(sections(results)),
        works=[ROWS[name] for name in results.rows],
        failures=[NEWLINES.sub(" / ", failure) for failure in results.failures],
    )


def _inline(plot: Plot) -> str:
    """Return a drawing as it can stand within a page: without its prolog, and with ids that no other has."""
    drawing = plot.svg[plot.svg.index("<svg") :]
    drawing = re.sub(r'\bid="', f'id="{plot.name}-', drawing)
    return re.sub(r'(url\(#|href="#)', rf"\g<1>{plot.name}-", drawing)
