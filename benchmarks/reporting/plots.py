"""Plots of results, as SVG. Each plot depends only on the results."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from io import StringIO
from typing import Any, Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from benchmarks.clients import CLIENTS, OURS, TITLES
from benchmarks.figures import Played, Results
from benchmarks.percentiles import PERCENTILES
from benchmarks.settings import Tuning, Work
from benchmarks.show import number, ordered
from benchmarks.summary import Spread, spread_of
from benchmarks.table import ROWS, SHAPES

STYLE: Final[Any] = {
    "svg.hashsalt": "aioproducer",  # equal results give equal files
    "svg.fonttype": "none",  # keep text as text elements
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "figure.facecolor": "white",  # also readable on dark pages
}
OUR_COLOUR: Final = "#0b6e4f"
PALETTE: Final = (
    *("#4fa37f", "#86c5a4", "#5f8f3e", "#a8b545"),
    *("#d1495b", "#edae49", "#c77b30", "#66497a", "#7d8597", "#2e6f9e", "#b08968"),
)
COLOURS: Final = {
    client: OUR_COLOUR if client == OURS else PALETTE[index - 1] for index, client in enumerate(CLIENTS)
}
SHAPE_COLOURS: Final = dict(zip(SHAPES, (OUR_COLOUR, PALETTE[4], PALETTE[7]), strict=True))
HEADLINE: Final = ("closed", "fire", "bulk")
"""Rows of the plot in the README."""
BAR_INCHES: Final = 0.24
WIDTH_INCHES: Final = 10.5


def all_plots(results: Results) -> dict[str, str]:
    """Return every plot with results, by name, as SVG."""
    plots: dict[str, Callable[[Results], Figure | None]] = {
        "headline": lambda these: bars(these, "records_s", "records/s: longer is better", HEADLINE),
        "throughput": lambda these: bars(these, "records_s", "records/s: longer is better"),
        "latency": latency,
        "cpu": lambda these: bars(these, "cpu_us", "µs of CPU per record: shorter is better"),
        "scale": scale,
        "memory": memory,
    }
    with mpl.rc_context(STYLE):
        figures = {name: plot(results) for name, plot in plots.items()}
        return {name: svg(figure) for name, figure in figures.items() if figure is not None}


def svg(figure: Figure) -> str:
    """Return a figure as an SVG document without date and creator."""
    text = StringIO()
    figure.savefig(text, format="svg", bbox_inches="tight", metadata={"Date": None, "Creator": None})
    return text.getvalue()


def bars(results: Results, figure: str, title: str, rows: Container[str] = ROWS) -> Figure | None:
    """Return bars for each of *rows*, with a column per table: the median, and the range of the rounds."""
    panels: dict[str, dict[Tuning, Mapping[str, Spread]]] = {}
    for tuning, name, played in _played(results):
        if name in rows and len(found := _spreads(name, played, figure)) > 1:
            panels.setdefault(name, {})[tuning] = found
    if not panels:
        return None
    clients = {
        name: [client for client in ROWS[name].clients if any(client in each for each in found.values())]
        for name, found in panels.items()
    }
    heights = [len(each) * BAR_INCHES + 0.45 for each in clients.values()]
    tunings = _tunings(panels.values())
    drawing = Figure(figsize=(WIDTH_INCHES, sum(heights) + 0.7), layout="constrained")
    drawing.suptitle(title, x=0.01, ha="left")
    axes = drawing.subplots(len(panels), len(tunings), squeeze=False, height_ratios=heights)
    for line, (name, by_table) in zip(axes, panels.items(), strict=True):
        furthest = max(spread.high for each in by_table.values() for spread in each.values())
        for panel, tuning in zip(line, tunings, strict=True):
            _bar_panel(panel, clients[name], by_table.get(tuning, {}), furthest)
            if panel is line[0]:
                panel.set_title(ROWS[name].title)
            else:
                panel.tick_params(labelleft=False)
    for panel, tuning in zip(axes[0], tunings, strict=True):
        panel.annotate(tuning.upper(), (0, 1), (0, 20), "axes fraction", "offset points", weight="bold")
    return drawing


def _bar_panel(panel: Axes, clients: Sequence[str], found: Mapping[str, Spread], furthest: float) -> None:
    """Draw a bar for each client with a figure, scaled to the largest value of the row."""
    places = {client: place for place, client in enumerate(reversed(clients))}
    panel.barh(
        [places[client] for client in found],
        [spread.median for spread in found.values()],
        xerr=[
            [spread.median - spread.low for spread in found.values()],
            [spread.high - spread.median for spread in found.values()],
        ],
        color=[COLOURS[client] for client in found],
        error_kw={"elinewidth": 0.8, "ecolor": "#333333"},
    )
    for client, spread in found.items():
        panel.text(spread.high + furthest * 0.02, places[client], number(spread.median), va="center")
    panel.set_yticks([*places.values()], [TITLES[client] for client in places])
    panel.set_ylim(-0.6, len(places) - 0.4)
    panel.set_xlim(0, furthest * 1.35)
    panel.xaxis.set_visible(False)
    panel.spines["bottom"].set_visible(False)


def latency(results: Results) -> Figure | None:
    """Return latency percentiles of the rows in which every call is awaited, on a logarithmic axis, per table."""
    names = list(PERCENTILES.values())
    panels: dict[str, dict[Tuning, dict[str, list[float]]]] = {}
    for tuning, name, played in _played(results):
        if ROWS[name].work not in {Work.CLOSED, Work.LONE}:
            continue
        for client in ordered(ROWS[name], played):
            if all(spreads := [spread_of(played, client, figure) for figure in names]):
                values = [spread.median for spread in spreads if spread is not None]
                panels.setdefault(name, {}).setdefault(tuning, {})[client] = values
    if not panels:
        return None
    tunings = _tunings(panels.values())
    drawing = Figure(figsize=(WIDTH_INCHES, 2.3 * len(panels) + 0.6), layout="constrained")
    axes = drawing.subplots(len(panels), len(tunings), squeeze=False, sharey="row")
    labels = [f"p{percent:g}" for percent in PERCENTILES]
    for line, (name, found) in zip(axes, panels.items(), strict=True):
        for panel, tuning in zip(line, tunings, strict=True):
            for client, values in found.get(tuning, {}).items():
                panel.plot(labels, values, marker="o", color=COLOURS[client], label=TITLES[client])
            panel.set_title(f"{tuning}: {_wrapped(ROWS[name].title)}")
            if tuning not in found:
                panel.set_visible(False)
                continue
            _logarithmic(panel)
        line[0].set_ylabel("ms to acknowledgement")
    _legend(drawing, axes.flat)
    return drawing


def scale(results: Results) -> Figure | None:
    """Return a plot of the CPU per record over the number of partitions and topics."""
    curves: dict[str, dict[str, Sequence[tuple[float, float]]]] = {}
    for _, name, played in _played(results):
        if ROWS[name].work is not Work.SCALE:
            continue
        _, what, shape = name.split("-")
        for run in played.runs.get(OURS, ()):
            if run is not None:
                curves.setdefault(what, {})[shape] = run.series
    if not curves:
        return None
    drawing = Figure(figsize=(WIDTH_INCHES, 3.2), layout="constrained")
    axes = drawing.subplots(1, len(curves), squeeze=False)[0]
    for panel, (what, shapes) in zip(axes, curves.items(), strict=True):
        for shape, points in shapes.items():
            sizes, costs = zip(*points, strict=True)
            panel.plot(sizes, costs, marker="o", color=SHAPE_COLOURS[shape], label=SHAPES[shape])
        panel.set_xscale("log")
        panel.set_xlabel(what)
        panel.xaxis.set_major_formatter(FuncFormatter(_plain))
        _logarithmic(panel)
    axes[0].set_ylabel("µs of CPU per record")
    _legend(drawing, axes)
    return drawing


def memory(results: Results) -> Figure | None:
    """Return a plot of resident memory over time, from the first successful round of each client."""
    played = next((rows["memory"] for rows in results.tables.values() if "memory" in rows), None)
    lines = {
        client: run.series
        for client in (ordered(ROWS["memory"], played) if played else ())
        for run in (played.runs[client] if played else ())
        if run is not None
    }
    if not lines:
        return None
    drawing = Figure(figsize=(WIDTH_INCHES, 3), layout="constrained")
    panel = drawing.subplots()
    for client, points in lines.items():
        seconds, mib = zip(*points, strict=True)
        panel.plot(seconds, mib, color=COLOURS[client], label=TITLES[client])
    panel.set_title(ROWS["memory"].title)
    panel.set_xlabel("seconds")
    panel.set_ylabel("resident memory, MiB")
    panel.set_ylim(bottom=0)
    panel.legend(frameon=False)
    return drawing


def _played(results: Results) -> Iterator[tuple[Tuning, str, Played]]:
    """Yield the results of each row and table, in the order of the declared rows."""
    for name in ROWS:
        for tuning in Tuning:
            if name in (rows := results.tables.get(tuning, {})):
                yield tuning, name, rows[name]


def _tunings(panels: Iterable[Mapping[Tuning, Any]]) -> list[Tuning]:
    used = {tuning for found in panels for tuning in found}
    return [tuning for tuning in Tuning if tuning in used]


def _spreads(name: str, played: Played, figure: str) -> Mapping[str, Spread]:
    found = {client: spread_of(played, client, figure) for client in ordered(ROWS[name], played)}
    return {client: spread for client, spread in found.items() if spread is not None}


def _logarithmic(panel: Axes) -> None:
    """Give *panel* a logarithmic y axis with labels at 1, 2 and 5 times powers of ten."""
    panel.set_yscale("log")
    panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    panel.yaxis.set_major_formatter(FuncFormatter(_plain))
    panel.yaxis.set_minor_formatter(NullFormatter())
    panel.grid(axis="y", linewidth=0.3)


def _legend(drawing: Figure, axes: Iterable[Axes]) -> None:
    seen: dict[str, Any] = {}
    for panel in axes:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            seen.setdefault(str(label), handle)
    drawing.legend(seen.values(), seen.keys(), loc="outside lower center", ncols=3, frameon=False)


def _plain(value: float, position: int | None = None) -> str:
    return f"{value:,g}" if value < 1e6 else f"{value:,.0f}"


def _wrapped(title: str) -> str:
    return title.replace(", ", ",\n", 1)
