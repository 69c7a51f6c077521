"""`aioproducer audit`: lost, duplicated and reordered records of a run."""

from __future__ import annotations

from contextlib import nullcontext

from rich.console import Console
from rich.table import Table
from rich.text import Text

from aioproducer._topic_client import Client
from aioproducer.audit import Audit, AuditReport, PartitionAudit, belongs_to, lane_of, sequence_of
from aioproducer.cli.output import echo_json, escaping, on_terminal, plain_table, show_table
from aioproducer.config import ProducerConfig


async def audit_and_report(
    config: ProducerConfig, topic: str, run: str, *, expect: int | None, as_json: bool, order: bool = False
) -> bool:
    """Read a topic and show the records of *run*; return True if the topic has each record once, and in order with *order*.

    Raises: ProducerError if the topic cannot be read.
    """
    audit = Audit(run, expect=expect, order=order)
    read = 0
    screen = escaping(Console(stderr=True))
    with screen.status(f"reading {topic}") if on_terminal(screen) else nullcontext() as status:
        async with Client(config) as client:
            async for partition, records in client.read(topic, committed=True):
                for record in records:
                    headers = record.headers
                    if belongs_to(run, headers):
                        audit.add(partition, record.offset, sequence_of(headers), lane_of(headers))
                read += len(records)
                if status is not None:
                    status.update(f"reading {topic}: partition {partition}, {read:,} records so far")
    report = audit.report()
    if as_json:
        echo_json(report.to_dict())
    else:
        console = escaping(Console(highlight=False))
        console.print(
            f"Topic {topic} has {read:,} records, {report.records:,} of run {run}",
            style="bold",
            soft_wrap=True,
            markup=False,
        )
        if report.partitions:
            show_table(console, _table(report))
        console.print(_verdict(report), _notes(report), sep="\n", end="", soft_wrap=True)
    return report.ok


def _table(report: AuditReport) -> Table:
    table = plain_table(show_footer=True)
    table.add_column("partition", footer="all")
    table.add_column("offsets", justify="right")
    table.add_column("records", f"{report.records:,}", justify="right")
    for flaw in ("duplicated", "out_of_order", "unexpected"):
        table.add_column(flaw.replace("_", " "), f"{getattr(report, flaw):,}", justify="right")
    for part in report.partitions:
        table.add_row(
            str(part.partition),
            f"{part.first_offset:,} - {part.last_offset:,}",
            f"{part.records:,}",
            *(
                _cell(part, flaw, is_flaw=flaw != "out_of_order" or report.order_required)
                for flaw in ("duplicated", "out_of_order", "unexpected")
            ),
        )
    return table


def _cell(part: PartitionAudit, flaw: str, *, is_flaw: bool) -> Text:
    """Return the count of a flaw and its first offset."""
    count: int = getattr(part, flaw)
    if not count:
        return Text("0")
    return Text(
        f"{count:,}\nfrom offset {getattr(part, flaw + '_at'):,}", style="bold red" if is_flaw else ""
    )


def _verdict(report: AuditReport) -> Text:
    if not report.records and not report.expect_was_given:
        return Text("FAILED, no record of this run was found: check --run", "bold red")
    whose = f"Of {report.expected:,} records expected: "
    if report.ok:
        order = "" if report.out_of_order else ", in order"
        return Text.assemble(whose, (f"each is in the topic once{order}", "bold green"))
    if report.doubled_only:
        order = ", and the order is kept" if report.keeps_order else ""
        text = f"DOUBLED ONLY, {report.duplicated:,} duplicated; nothing is lost{order}"
        return Text.assemble(whose, (text, "bold yellow"))
    flaws = ", ".join(f"{count:,} {flaw}" for flaw, count in report.flaws.items())
    return Text.assemble(whose, (f"FAILED, {flaws}", "bold red"))


def _notes(report: AuditReport) -> Text:
    notes = Text()
    if report.lost:
        more = ", …" if report.lost > len(report.first_lost) else ""
        notes.append(f"Lost: {', '.join(map(str, report.first_lost))}{more}\n")
    if report.out_of_order and not report.order_required:
        notes.append(
            f"{report.out_of_order:,} out of order in their partition; with --order this is a failure.\n"
        )
    if not report.expect_was_given:
        notes.append("Without --expect, records lost at the end of the run are not detected.\n")
    return notes
