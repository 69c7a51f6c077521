"""Headline of a report: a sentence for the README, and tables of a few rows for docs/performance.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.clients import JVM, OURS, TITLES
from benchmarks.figures import Played, Results
from benchmarks.row import FIGURES, Target
from benchmarks.settings import Tuning, Work
from benchmarks.show import TABLES, amount, judged_rows, number, ordered, value_text
from benchmarks.summary import Spread, Verdict, compared, ratio, spread_of, wanted
from benchmarks.table import ROWS

BEGINS: Final = "<!-- made by make bench-report: begin -->\n"
ENDS: Final = "<!-- made by make bench-report: end -->\n"
WORKLOADS: Final = {
    "closed": "256 tasks, each awaiting `send`",
    "closed-headers": "256 tasks, each awaiting `send`, with key and two headers",
    "closed-uvloop": "256 tasks, each awaiting `send`, on uvloop",
    "lone": "one task, one `send` after the other: latency (p50), lower is better",
    "fire": "`enqueue` in windows of 10,000",
    "fire-headers": "`enqueue` in windows of 10,000, with key and two headers",
    "value-1k": "`enqueue`, values of 1 KiB",
    "compression-zstd": "`enqueue`, JSON of 1 KiB, zstd",
    "callbacks": "`enqueue`, a callback on each Future",
    "callbacks-headers": "`enqueue` with key and two headers, a callback on each Future",
    "gather": "100,000 records by `send_nowait`, then one `asyncio.gather`",
    "gather-headers": "100,000 records with key and two headers by `send_nowait`, then one `asyncio.gather`",
    "gather-1k": "100,000 records of 1 KiB by `send_nowait`, then one `asyncio.gather`",
    "gather-zstd": "100,000 records of JSON, 1 KiB, zstd, by `send_nowait`, then one `asyncio.gather`",
    "bulk": "`send_many`, 10,000 values per call",
    "bulk-keys": "`send_many`, 10,000 values with 16-byte keys per call",
    "bulk-headers": "`send_many`, 10,000 values with key and two headers per call",
}
"""Text of each workload of the headline tables."""
CLAIMS: Final = (
    ("closed", "aiokafka", "the throughput of aiokafka with 256 concurrent senders"),
    ("bulk", "confluent-batch", "the throughput of confluent-kafka's `produce_batch` with `send_many`"),
    ("fire", "confluent-produce", "the throughput of confluent-kafka's `produce` with `enqueue`"),
)
"""Row, other client and text of each ratio in the README's sentence."""
CALLS: Final = (
    ("lone", OURS, "one task, one `await send` after the other"),
    ("closed", OURS, "256 tasks, each awaiting `send`"),
    ("fire", OURS, "`enqueue`, Futures awaited later"),
    ("fire", "aioproducer-nowait", "`send_nowait`, Futures awaited later"),
    ("bulk", OURS, "`send_many`, 10,000 values per call, four concurrent calls"),
    ("bulk-one-by-one", OURS, "`send_many`, 10,000 values per call, one call after the other"),
    ("bulk-keys", OURS, "`send_many` with keys of 16 bytes"),
    ("bulk-headers", OURS, "`send_many` with keys of 16 bytes and two headers"),
)
"""Row, client and text of each call of the guide to throughput."""
COLUMNS: Final = {"aiokafka": "aiokafka", "confluent-": "confluent-kafka", JVM: "the Java client's perf tool"}
"""Heading of each column, by the prefix of the names of its clients."""
LEAST: Final = 0.01
"""Smallest ratio that is printed in digits."""
LEFT_OUT: Final = frozenset({"kafka-python", "aioproducer-nowait"})


@dataclass(frozen=True, slots=True)
class Headline:
    """A table of ratios: workloads by other clients."""

    title: str
    headings: tuple[str, ...]
    rows: list[list[str]]


def headlines(results: Results) -> Iterator[Headline]:
    """Return a headline for each table with results."""
    for tuning, played in results.tables.items():
        rows = [
            [told, *(_cell(name, played[name], begins) for begins in COLUMNS)]
            for name, told in WORKLOADS.items()
            if name in played
        ]
        if rows := [row for row in rows if any(row[1:])]:
            headings = ("records/s of aioproducer relative to", *COLUMNS.values())
            yield Headline(TABLES[tuning], headings, [[cell or "-" for cell in row] for row in rows])


def reached(results: Results) -> str:
    """Return a sentence with the number of targets by verdict."""
    counts = Counter(judged.verdict for _, judged in judged_rows(results))
    told = (
        f"Of {counts.total() - counts[Verdict.UNKNOWN]} targets: {counts[Verdict.GOAL]} met the goal,"
        f" {counts[Verdict.MUST]} met only the minimum, {counts[Verdict.MISSED]} missed the minimum"
    )
    if counts[Verdict.SHORT]:
        told += f". Of the targets without a minimum, {counts[Verdict.SHORT]} missed the goal"
    return f"{told}."


def behind(results: Results) -> list[str]:
    """Return one line per missed target, with the name of its table."""
    return [
        f"{judged.target.tuning}: {row.name}, {compared(judged.target)}: {value_text(judged)},"
        f" required {wanted(judged.target, judged.target.must)}"
        for row, judged in judged_rows(results)
        if judged.verdict is Verdict.MISSED
    ]


def markdown(results: Results) -> str:
    """Return the headline as Markdown."""
    made = ", ".join([results.made, *results.machine.values()])
    versions = ", ".join(f"{name} {version}" for name, version in results.versions.items())
    parts = [f"Measured {made}; {versions}.\n"]
    for each in headlines(results):
        rows = [each.headings, ["---"] * len(each.headings), *each.rows]
        parts.append(f"**{each.title}**\n\n" + "".join(f"| {' | '.join(row)} |\n" for row in rows))
    if results.judged:
        missed = "".join(f"- {line}\n" for line in behind(results))
        parts.append(reached(results) + "\n" + (f"\n{missed}" if missed else ""))
    return "\n".join(parts)


def sentence(results: Results) -> str:
    """Return the ratios at default settings as a list, and a sentence with the weakest ratio of throughput."""
    played = results.tables.get(Tuning.DEFAULTS, {})
    ahead = []
    for name, client, text in CLAIMS:
        if name in played and (found := ratio(played[name], Target(figure="records_s", against=client))):
            cpu = ratio(played[name], Target(figure="cpu_us", against=client))
            ahead.append(
                f"{_short(found.median)}× {text}"
                + (f" ({_short(cpu.median)}× the CPU per record)" if cpu else "")
            )
    ratios = [
        (found.median, WORKLOADS[name], TITLES[client])
        for name in WORKLOADS
        if name in played and ROWS[name].work is not Work.LONE
        for client in ordered(ROWS[name], played[name])
        if client != OURS and client not in LEFT_OUT
        if (found := ratio(played[name], Target(figure="records_s", against=client)))
    ]
    weakest, work, title = min(ratios)
    return (
        "With the defaults of each client on one machine, aioproducer has:\n\n"
        + "".join(f"- {each}\n" for each in ahead)
        + f"\naioproducer has its lowest throughput ratio, {_short(weakest)}×, against {title} ({work}).\n"
    )


def calls(results: Results) -> str:
    """Return a table of the rate and the CPU of each call of aioproducer, at equal settings."""
    rows = ["| call | records/s | CPU per record |\n", "| --- | --- | --- |\n"]
    played = results.tables.get(Tuning.EQUAL, {})
    for name, client, text in CALLS:
        if name in played and (rate := spread_of(played[name], client, "records_s")):
            rows.append(
                f"| {text} | {number(rate.median)} | {amount(spread_of(played[name], client, 'cpu_us'))} µs |\n"
            )
    return "".join(rows)


def write_calls(page: Path, results: Results) -> None:
    """Replace the text between the marks in *page* by the table of calls. Raises: ValueError if a mark is missing."""
    _write(page, calls(results))


def write_sentence(page: Path, results: Results) -> None:
    """Replace the text between the marks in *page* by the list of ratios. Raises: ValueError if a mark is missing."""
    _write(page, sentence(results))


def write_into(page: Path, results: Results) -> None:
    """Replace the text between the marks in *page* by the tables. Raises: ValueError if a mark is missing."""
    _write(page, markdown(results))


def _write(page: Path, text: str) -> None:
    before, begins, rest = page.read_text(encoding="utf-8").partition(BEGINS)
    _, ends, after = rest.partition(ENDS)
    if not begins or not ends:
        raise ValueError(f"{page.name} lacks the marks of the headline: {BEGINS.strip()} … {ENDS.strip()}")
    page.write_text(f"{before}{BEGINS}\n{text}\n{ENDS}{after}", encoding="utf-8")


def _cell(name: str, played: Played, begins: str) -> str:
    """Return the ratios to the clients with the prefix *begins*, such as `3.40× at 0.31× the CPU`."""
    row = ROWS[name]
    told = []
    for client in ordered(row, played):
        if client == OURS or client in LEFT_OUT or not client.startswith(begins):
            continue
        figure = "p50_ms" if row.work is Work.LONE else "records_s"
        if (found := ratio(played, Target(figure=figure, against=client))) is None:
            continue
        cpu = ratio(played, Target(figure="cpu_us", against=client))
        call = TITLES[client].removeprefix("confluent-kafka ")
        who = f"`{call}`: " if client.startswith("confluent-") else ""
        told.append(
            f"{who}{_marked(found, figure)}" + ("" if cpu is None else f" at {_short(cpu.median)}× the CPU")
        )
    return "; ".join(told)


def _marked(found: Spread, figure: str) -> str:
    """Return a ratio, marked if aioproducer is slower."""
    ahead = found.median >= 1 if FIGURES[figure].more_is_better else found.median <= 1
    return f"{_short(found.median)}×" + ("" if ahead else ", **slower**,")


def _short(value: float) -> str:
    return number(value) if value >= LEAST else f"< {LEAST}"
