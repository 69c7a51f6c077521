"""Clicks, joined with who clicked and on what, into a topic; then the topic is read back, audited and drawn.

It needs Java, PySpark >= 4.0, confluent-kafka, jinja2 and matplotlib. If there is no Kafka on localhost:9092,
`aioproducer broker --topic clicks:6` does. Then:

    python examples/spark/clickstream.py localhost:9092 clicks

It writes a page, clickstream.html, and exits with 0 only if every click is in the topic once and in order.
`make spark-demo` runs this with a Java, a Spark and an Apache Kafka that it brings along.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from random import Random
from typing import Any, cast

import matplotlib as mpl
import pyarrow as pa
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession, functions as fn

from aioproducer import Producer
from aioproducer.audit import RUN_HEADER, AuditReport
from aioproducer.spark.audit import audit, of_run, stamp

USERS = 2_000
COUNTRIES = {"IN": 30, "US": 22, "BR": 14, "DE": 10, "JP": 9, "FR": 7, "NG": 5, "FI": 3}
PAGES = {"/": "home", "/search": "shop", "/cart": "shop", "/pay": "shop", "/help": "help", "/about": "help"}

ROWS = pa.schema(
    {
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", "UTC"),
        "key": pa.binary(),
        "value": pa.binary(),
        "headers": pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()})),
    }
)
"""What Spark's Kafka source has, too, as far as it is needed here."""

FLAWS = {"duplicated": "#edae49", "out of order": "#d1495b", "unexpected": "#66497a"}
GREEN = "#0b6e4f"


# --- what is written


def clicks_of(spark: SparkSession, count: int, seed: int) -> DataFrame:
    """Return *count* clicks: the same ones for the same *seed*."""

    def dice(what: str) -> Column:
        # rand() would depend on how Spark cuts the rows into tasks. A hash of the number does not.
        return fn.pmod(fn.xxhash64("number", fn.lit(seed), fn.lit(what)), fn.lit(1_000_000)) / 1_000_000

    return (
        spark.range(count)
        .withColumnRenamed("id", "number")
        .select(
            "number",
            (dice("user") * dice("more") * USERS).cast("int").alias("user_id"),  # some click more than others
            (dice("page") * len(PAGES)).cast("int").alias("page_id"),
            fn.timestamp_millis(fn.lit(1_750_000_000_000) + fn.col("number") * 20).alias("clicked_at"),
        )
    )


def users_of(spark: SparkSession, seed: int) -> DataFrame:
    """Return who the users are."""
    countries = Random(seed).choices(list(COUNTRIES), list(COUNTRIES.values()), k=USERS)
    return spark.createDataFrame(list(enumerate(countries)), "user_id int, country string")


def pages_of(spark: SparkSession) -> DataFrame:
    """Return what there is to click on."""
    pages = [(number, path, section) for number, (path, section) in enumerate(PAGES.items())]
    return spark.createDataFrame(pages, "page_id int, path string, section string")


def records_of(clicks: DataFrame, users: DataFrame, pages: DataFrame, run: str, partitions: int) -> DataFrame:
    """Return a record for each click, with what is known of its user and page, for a topic of *partitions*."""
    joined = clicks.join(fn.broadcast(users), "user_id").join(fn.broadcast(pages), "page_id")
    value = fn.to_json(fn.struct("clicked_at", "user_id", "country", "path", "section"))
    records = joined.select(
        "number",
        fn.concat(fn.lit("user-"), "user_id").alias("key"),
        value.alias("value"),
        stamp(run, "number").alias("headers"),
        fn.pmod(fn.xxhash64("user_id"), fn.lit(partitions)).cast("int").alias("partition"),
    )
    # Tasks do not wait for each other. So one task writes all of a partition of the topic: its clicks are in order, and
    # with them those of every user. That takes the column `partition`. Without it the partitioner chooses by key, and
    # `repartition("key")` keeps the order of every key, but not that of a partition, which an audit looks at.
    return records.repartition(partitions, "partition").sortWithinPartitions("number")


def write(records: DataFrame, bootstrap_servers: str, topic: str) -> None:
    """Write *records*; return when all of them are acknowledged."""
    (
        records.write.format("aioproducer")
        .mode("append")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("topic", topic)
        .option("kafka.compression.type", "zstd")
        .save()
    )


async def partitions_of(bootstrap_servers: str, topic: str) -> int:
    """Return how many partitions *topic* has; brokers may create it at that."""
    async with Producer(bootstrap_servers) as producer:
        return len(await producer.partitions_for(topic))


# --- what is there


@dataclass(frozen=True)
class Findings:
    """What the topic has of a run."""

    report: AuditReport
    clicks: Mapping[str, int]
    """By country, most first; made from the values."""
    arrivals: Mapping[int, int]
    """How many records were made in which tenth of a second, by their timestamps."""


def rows_of(spark: SparkSession, bootstrap_servers: str, topic: str) -> DataFrame:
    """Return all that is in *topic*, in the columns of Spark's own Kafka source, and by it if it is there.

    Neither way has anything of aioproducer: what it has sent is for others to say.
    """
    kafka = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribe", topic)
        .option("includeHeaders", "true")
        .option("kafka.isolation.level", "read_committed")
    )
    try:
        return kafka.load()
    except AnalysisException:  # a wheel of Spark has no such source: it is a package of its own, with jars
        return spark.createDataFrame(export(bootstrap_servers, topic))


def export(bootstrap_servers: str, topic: str) -> pa.Table:
    """Return all that is in *topic* as a table. One process reads it: good for some millions of records, no more."""
    settings = {"bootstrap.servers": bootstrap_servers, "group.id": "nobody", "enable.partition.eof": True}
    rows = []
    with closing(Consumer(settings)) as consumer:
        partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
        unread = len(partitions)
        while unread:
            message = consumer.poll(10)
            if message is None:
                raise TimeoutError(f"nothing more of topic {topic}, and {unread} of its partitions go on")
            error = message.error()
            if error is None:
                rows.append(row_of(message))
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - the name that it has
                unread -= 1
            else:
                raise KafkaException(error)
    return pa.Table.from_pylist(rows, ROWS)


def row_of(message: Message) -> dict[str, Any]:
    """Return a record as a row of an export."""
    _, milliseconds = message.timestamp()
    headers = cast("list[tuple[str, bytes | None]] | None", message.headers())
    return {
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": milliseconds * 1_000,
        "key": message.key(),
        "value": message.value(),
        "headers": headers and [{"key": name, "value": value} for name, value in headers],
    }


def read_back(spark: SparkSession, bootstrap_servers: str, topic: str, run: str, expect: int) -> Findings:
    """Read *topic* and find out what it has of *run*."""
    rows = rows_of(spark, bootstrap_servers, topic)
    report = audit(of_run(rows, run), run=run, expect=expect, order=True)
    # Other runs may be in the topic, too.
    of_this_run = fn.struct(fn.lit(RUN_HEADER).alias("key"), fn.lit(run).cast("binary").alias("value"))
    ours = fn.array_contains("headers", of_this_run)
    click = fn.from_json(fn.col("value").cast("string"), "country string")
    found = rows.where(ours).select(click["country"].alias("country"), "timestamp")
    per_country = found.groupBy("country").count().orderBy(fn.desc("count"))
    per_tenth = found.groupBy(fn.floor(fn.unix_millis("timestamp") / 100).alias("tenth")).count()
    return Findings(
        report,
        {row["country"]: row["count"] for row in per_country.collect()},
        {row["tenth"]: row["count"] for row in per_tenth.collect()},
    )


# --- the page

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Clicks of run {{ report.run }}</title>
<style>
body { font: 15px/1.5 sans-serif; color: #222; background: #fff; max-width: 56rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .15rem 0 .15rem 1.5rem; border-bottom: 1px solid #e3e3e3; }
svg { max-width: 100%; height: auto; }
</style>
</head>
<body>
<h1>{{ "Every click is there once, in order" if report.ok else "Not all is well" }}</h1>
<p>{{ report }}. Topic {{ topic }}, written in {{ "%.1f" | format(seconds) }} s,
{{ "{:,.0f}".format(report.expected / seconds) }} clicks/s with all that Spark does before.</p>
<table>
<tr><th>partition</th><th>offsets</th><th>records</th><th>lost</th>
<th>duplicated</th><th>out of order</th><th>unexpected</th></tr>
{% for part in report.partitions %}
<tr><td>{{ part.partition }}</td><td>{{ part.first_offset }} to {{ part.last_offset }}</td><td>{{ part.records }}</td>
<td></td><td>{{ part.duplicated }}</td><td>{{ part.out_of_order }}</td><td>{{ part.unexpected }}</td></tr>
{%- endfor %}
<tr><th>all</th><th></th><th>{{ report.records }}</th><th>{{ report.lost }}</th>
<th>{{ report.duplicated }}</th><th>{{ report.out_of_order }}</th><th>{{ report.unexpected }}</th></tr>
</table>
<p>What is lost is in no partition, so it is counted for all of them.</p>
{{ drawing }}
</body>
</html>
"""


def page_of(found: Findings, topic: str, seconds: float) -> str:
    """Return an HTML page that needs no other file."""
    environment = Environment(autoescape=True, undefined=StrictUndefined)
    return environment.from_string(PAGE).render(
        report=found.report, topic=topic, seconds=seconds, drawing=Markup(svg_of(found))
    )


def svg_of(found: Findings) -> str:
    """Return the plots, one below the other: a single drawing, to stand within a page."""
    with mpl.rc_context({"svg.fonttype": "none", "font.size": 9, "axes.titlelocation": "left"}):
        drawing = Figure(figsize=(8.5, 8), layout="constrained")
        partitions, throughput, countries = drawing.subplots(3)

        partitions.set_title("Records per partition")
        numbers = [part.partition for part in found.report.partitions]
        below = [0] * len(numbers)
        for flaw, colour in FLAWS.items():
            counts = [getattr(part, flaw.replace(" ", "_")) for part in found.report.partitions]
            partitions.bar(numbers, counts, bottom=below, color=colour, label=flaw)
            below = [sum(pair) for pair in zip(below, counts, strict=True)]
        good = [part.records - flawed for part, flawed in zip(found.report.partitions, below, strict=True)]
        partitions.bar(numbers, good, bottom=below, color=GREEN, label="once, in order")
        partitions.xaxis.set_major_locator(MaxNLocator(integer=True))
        partitions.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)

        throughput.set_title("Records per second, by their timestamps")
        first, last = min(found.arrivals, default=0), max(found.arrivals, default=0)
        rates = [found.arrivals.get(tenth, 0) * 10 for tenth in range(first, last + 1)]
        throughput.stairs(rates, [tenth / 10 for tenth in range(len(rates) + 1)], fill=True, color=GREEN)
        throughput.set_xlabel("seconds")

        countries.set_title("Clicks per country, from the values that were read back")
        countries.bar(list(found.clicks), list(found.clicks.values()), color=GREEN)

        for panel in (partitions, throughput, countries):
            panel.yaxis.set_major_formatter("{x:,.0f}")
            panel.spines[["top", "right"]].set_visible(False)
        text = StringIO()
        drawing.savefig(text, format="svg")
    svg = text.getvalue()
    return svg[svg.index("<svg") :]  # without what only a file of its own begins with


# --- all of it


def run_through(
    spark: SparkSession,
    bootstrap_servers: str,
    topic: str,
    page: Path,
    *,
    clicks: int = 200_000,
    seed: int = 7,
) -> AuditReport:
    """Write *clicks*, read them back, write *page*, say what is going on, and return what was found."""
    run = f"clicks-{datetime.now(UTC):%Y%m%dT%H%M%S.%f}"
    partitions = asyncio.run(partitions_of(bootstrap_servers, topic))
    records = records_of(
        clicks_of(spark, clicks, seed), users_of(spark, seed), pages_of(spark), run, partitions
    )
    print(f"writing {clicks:,} clicks into the {partitions} partitions of topic {topic} ...", flush=True)
    began = time.perf_counter()
    write(records, bootstrap_servers, topic)
    seconds = time.perf_counter() - began
    print(f"all are acknowledged after {seconds:.1f} s; reading them back ...", flush=True)
    found = read_back(spark, bootstrap_servers, topic, run, clicks)
    page.write_text(page_of(found, topic, seconds), encoding="utf-8")
    print(f"{found.report}\nthe page is {page.resolve()}")
    return found.report


def main() -> int:
    """Do it all with the Spark that is there; return the exit code."""
    parser = argparse.ArgumentParser(
        description="Write clicks into a topic, and find out what became of them."
    )
    parser.add_argument("bootstrap_servers")
    parser.add_argument("topic")
    parser.add_argument("--clicks", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--page", type=Path, default=Path("clickstream.html"))
    given = parser.parse_args()

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # Spark's Python is to be this one
    spark = SparkSession.builder.appName("clicks").getOrCreate()
    report = run_through(
        spark, given.bootstrap_servers, given.topic, given.page, clicks=given.clicks, seed=given.seed
    )
    spark.stop()
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main())
