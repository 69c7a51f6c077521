"""A stream is killed in the middle and started again; then its topic is read back: was anything lost, or doubled?

It needs Java, PySpark >= 4.1, confluent-kafka, jinja2, matplotlib and a Kafka with transactions. Then, with a topic of its own:

    python examples/spark/killed.py localhost:9092 killed

It runs stream.py with --exactly-once, twice, on events which that makes: the first one is killed (SIGKILL, with its JVM) as soon as some micro-batches are
committed, and rows of another one are in the topic. It writes a page, killed.html, and exits with 0 only if readers
of committed records see each row once. What readers see who do not ask for committed records is on the page, too: rows that
the killed query had written, and that nobody has committed.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

import matplotlib as mpl
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure

from aioproducer.audit import Audit, AuditReport, belongs_to, sequence_of

STREAM = Path(__file__).with_name("stream.py")
COMMITTED = 3
"""So many micro-batches are committed when the query is killed, or a few more."""
MORE = 100
"""So many more offsets are rows of the next one; a few may be what brokers write when they commit."""
PATIENCE_S = 180
READERS = {"read_committed": "committed records", "read_uncommitted": "all that was written"}
COLOURS = {"once": "#0b6e4f", "doubled": "#edae49", "lost": "#d1495b"}


# --- what is done


def start(bootstrap_servers: str, topic: str, directory: Path, log: Path) -> subprocess.Popen[bytes]:
    """Start the stream, as whoever runs it would; what it and Spark say is in *log*."""
    command = [sys.executable, str(STREAM), bootstrap_servers, topic, str(directory / "events")]
    command += [str(directory / "checkpoint"), "--run", topic, "--once", "--exactly-once"]
    with log.open("wb") as out:
        return subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)


def kill(query: subprocess.Popen[bytes]) -> None:
    """End *query* and its JVM as a power cut would, if it is still there."""
    if query.poll() is None:
        os.killpg(query.pid, signal.SIGKILL)
        query.wait()


def kill_in_the_middle(
    query: subprocess.Popen[bytes], bootstrap_servers: str, topic: str, directory: Path
) -> int:
    """Kill *query* amid a micro-batch; return how many it had committed."""
    deadline = time.monotonic() + PATIENCE_S
    try:
        with closing(consumer_of(bootstrap_servers, "read_uncommitted")) as consumer:
            while committed(directory) < COMMITTED:
                wait_a_moment(query, deadline)
            before = written(consumer, topic)
            while written(consumer, topic) < before + MORE:
                wait_a_moment(query, deadline)
    finally:
        kill(query)
    return committed(directory)


def wait_a_moment(query: subprocess.Popen[bytes], deadline: float) -> None:
    """Return after a moment, in which *query* may go on.

    Raises: RuntimeError: it has ended. TimeoutError: it takes too long.
    """
    if query.poll() is not None:
        raise RuntimeError(f"the query has ended with {query.returncode}; its log has why")
    if time.monotonic() > deadline:
        raise TimeoutError(f"the query takes more than {PATIENCE_S} s")
    time.sleep(0.005)


def committed(directory: Path) -> int:
    """Return how many micro-batches Spark has noted as committed."""
    return len(list((directory / "checkpoint" / "commits").glob("[0-9]*")))


# --- what is there


def consumer_of(bootstrap_servers: str, isolation_level: str) -> Consumer:
    """Return a consumer that has nothing of aioproducer: what that has sent is for others to say."""
    return Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "nobody",
            "isolation.level": isolation_level,
            "enable.partition.eof": True,
        }
    )


def written(consumer: Consumer, topic: str) -> int:
    """Return how far all partitions go."""
    partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
    return sum(
        consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=10)[1]
        for partition in partitions
    )


def wait_for_markers(bootstrap_servers: str, topic: str) -> None:
    """Return when no transaction is open: brokers answer a commit, and write the markers that readers wait for behind it."""
    deadline = time.monotonic() + PATIENCE_S
    with (
        closing(consumer_of(bootstrap_servers, "read_committed")) as committed_ones,
        closing(consumer_of(bootstrap_servers, "read_uncommitted")) as all_of_them,
    ):
        while written(committed_ones, topic) < written(all_of_them, topic):
            if time.monotonic() > deadline:
                raise TimeoutError(f"a transaction in topic {topic} stays open")
            time.sleep(0.05)


def read_back(bootstrap_servers: str, topic: str, isolation_level: str, expect: int) -> AuditReport:
    """Return what an audit says of the records that a reader sees now."""
    found: list[tuple[int, int, int | None]] = []
    with closing(consumer_of(bootstrap_servers, isolation_level)) as consumer:
        partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
        unread = len(partitions)
        while unread:
            message = consumer.poll(10)
            if message is None:
                raise TimeoutError(f"nothing more of topic {topic}, and {unread} of its partitions go on")
            error = message.error()
            if error is None:
                headers = cast("list[tuple[str, bytes | None]]", message.headers() or [])
                if belongs_to(topic, headers):
                    found.append((message.partition() or 0, message.offset() or 0, sequence_of(headers)))
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - the name that it has
                unread -= 1
            else:
                raise KafkaException(error)
    audit = Audit(topic, expect=expect)
    for record in sorted(found, key=lambda each: each[:2]):  # partitions come beside each other
        audit.add(*record)
    return audit.report()


# --- the page

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>A stream that was killed</title>
<style>
body { font: 15px/1.5 sans-serif; color: #222; background: #fff; max-width: 56rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .15rem 0 .15rem 1.5rem; border-bottom: 1px solid #e3e3e3; }
svg { max-width: 100%; height: auto; }
</style>
</head>
<body>
<h1>{{ "Each row is there once, whatever died" if ok else "Not all is well" }}</h1>
<p>The query was killed when it had committed {{ killed_after }} of {{ batches }} micro-batches, and started again.</p>
<table>
<tr><th>who reads</th><th>rows in</th><th>rows out</th><th>lost</th><th>doubled</th></tr>
{% for name, report in reports.items() %}
<tr><td>{{ name }}</td><td>{{ report.expected }}</td><td>{{ report.records }}</td>
<td>{{ report.lost }}</td><td>{{ report.duplicated }}</td></tr>
{%- endfor %}
</table>
{{ drawing }}
</body>
</html>
"""


def page_of(reports: dict[str, AuditReport], killed_after: int, batches: int) -> str:
    """Return an HTML page that needs no other file; *reports* are by the reader's isolation level."""
    environment = Environment(autoescape=True, undefined=StrictUndefined)
    named = {f"{READERS[level]} ({level})": report for level, report in reports.items()}
    return environment.from_string(PAGE).render(
        ok=is_exact(reports["read_committed"]),
        reports=named,
        killed_after=killed_after,
        batches=batches,
        drawing=Markup(svg_of(named)),
    )


def svg_of(reports: dict[str, AuditReport]) -> str:
    """Return a bar for each reader: what is there once, what is there again, and what is not."""
    with mpl.rc_context({"svg.fonttype": "none", "font.size": 9, "axes.titlelocation": "left"}):
        drawing = Figure(figsize=(8.5, 2.4), layout="constrained")
        panel = drawing.subplots()
        panel.set_title("Rows")
        names = [*reports][::-1]
        counts = {
            "once": [reports[name].expected - reports[name].lost for name in names],
            "doubled": [reports[name].duplicated for name in names],
            "lost": [reports[name].lost for name in names],
        }
        left = [0] * len(names)
        for what, numbers in counts.items():
            panel.barh(names, numbers, left=left, color=COLOURS[what], label=what)
            left = [sum(pair) for pair in zip(left, numbers, strict=True)]
        panel.xaxis.set_major_formatter("{x:,.0f}")
        panel.spines[["top", "right"]].set_visible(False)
        panel.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
        text = StringIO()
        drawing.savefig(text, format="svg")
    svg = text.getvalue()
    return svg[svg.index("<svg") :]  # without what only a file of its own begins with


def is_exact(report: AuditReport) -> bool:
    """Whether each row is there once; tasks write beside each other, so the order is another matter."""
    return report.lost == report.duplicated == report.unexpected == 0


# --- all of it


def run_through(bootstrap_servers: str, topic: str, directory: Path, page: Path) -> bool:
    """Do it all in *directory*, write *page*, say what is going on, and return whether each row is there once."""
    print(f"a stream writes into topic {topic}, exactly once ...", flush=True)
    first = start(bootstrap_servers, topic, directory, directory / "killed.log")
    killed_after = kill_in_the_middle(first, bootstrap_servers, topic, directory)
    print(
        f"killed (SIGKILL) when it had committed {killed_after} micro-batches; it is started again ...",
        flush=True,
    )
    second = start(bootstrap_servers, topic, directory, directory / "restarted.log")
    try:
        if second.wait(PATIENCE_S):
            raise RuntimeError(f"the query has ended with {second.returncode}; {directory} has its log")
    finally:
        kill(second)
    rows = sum(file.read_bytes().count(b"\n") for file in (directory / "events").glob("*.json"))
    wait_for_markers(bootstrap_servers, topic)
    reports = {level: read_back(bootstrap_servers, topic, level, rows) for level in READERS}
    page.write_text(page_of(reports, killed_after, committed(directory)), encoding="utf-8")
    for level, report in reports.items():
        print(
            f"{level + ':':17} {report.expected:,} rows in, {report.records:,} rows out,"
            f" {report.lost:,} lost, {report.duplicated:,} doubled"
        )
    print(f"the page is {page.resolve()}")
    return is_exact(reports["read_committed"])


def main() -> int:
    """Do it all with the Spark that is there; return the exit code."""
    parser = argparse.ArgumentParser(description="Kill a stream, start it again, and count its rows.")
    parser.add_argument("bootstrap_servers")
    parser.add_argument("topic", help="a topic that nobody else writes to")
    parser.add_argument("--page", type=Path, default=Path("killed.html"))
    given = parser.parse_args()
    with TemporaryDirectory() as directory:
        exact = run_through(given.bootstrap_servers, given.topic, Path(directory), given.page)
    return 0 if exact else 1


if __name__ == "__main__":
    sys.exit(main())
