"""A session: the broker, every run on it, and the results."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.clients import JVM
from benchmarks.figures import Played, Results, Run
from benchmarks.machine import machine, versions
from benchmarks.parent import cold, memory, steady
from benchmarks.parent.process import answer_of
from benchmarks.parent.rounds import Step, no_options, plan, run_steps
from benchmarks.parent.topics import Topics
from benchmarks.row import Row
from benchmarks.scale import curve
from benchmarks.settings import PARTITIONS, Settings, Tuning, Work
from benchmarks.sweep.grid import TUNED_AS, Options
from benchmarks.sweep.winners import Winners
from benchmarks.table import ROWS
from tests.kafka.apache.broker import HOST, THROUGHPUT, ApacheKafka, free_ports
from tests.kafka.apache.jars import VERSION
from tests.kafka.apache.secured import with_tls
from tests.unit._core.security.certificates import Authority

CHILD: Final = "benchmarks.child"
WARM_UPS: Final = (("bulk", "confluent-batch", 5.0), ("lone", "aiokafka", 15.0), ("closed", "aiokafka", 20.0))
"""Runs that warm up the broker: row, client, seconds. The runs send many bytes, then tens of thousands of requests with
one record and with several batches, because the broker's just-in-time compiler counts calls. Without the run of `lone`,
the broker was three times slower in the first round of a closed loop than in the last round. Without the run of
`closed`, the broker had half the speed that it has after a million records."""
TRANSACTIONS_WARM_UPS: Final = (("transactions", "aiokafka", 5.0), ("transactions", "jvm", 5.0))
"""Warm-up runs of a session with transactions, with about a thousand transactions each. One client names the partitions
of a transaction in advance; for the other client the broker adds the partitions (KIP-890)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Options of the command line."""

    rows: tuple[str, ...]
    clients: tuple[str, ...]
    rounds: int
    seconds: float
    tables: tuple[Tuning, ...] = tuple(Tuning)
    bootstrap_servers: str | None = None
    value_bytes: int | None = None
    compression: str | None = None
    uvloop: bool = False
    scale_sizes: Mapping[str, Sequence[int]]

    def settings_of(self, step: Step) -> Settings:
        """Return the settings of *step*."""
        row = step.row
        settings = replace(
            row.settings,
            seconds=self.seconds * row.lasts,
            tuning=step.tuning,
            options=dict(step.options),
        )
        if self.value_bytes is not None:
            settings = replace(settings, value_bytes=self.value_bytes)
        if self.compression is not None:
            settings = replace(settings, compression=self.compression, json_like=True)
        return replace(settings, uvloop=settings.uvloop or self.uvloop)


def steps_of(asked: Asked, winners: Winners) -> dict[Tuning, list[Step]]:
    """Return the runs of each table. Raises: LookupError if a row of the table *best* was never swept."""
    rows = [ROWS[name] for name in asked.rows]
    if asked.bootstrap_servers is not None:  # the TLS address and CA of that cluster are unknown
        rows = [row for row in rows if not row.settings.tls]

    def best(row: Row, client: str) -> Options:
        return winners.options(row.tuned_as or row.name, TUNED_AS.get(client, client))

    steps = {
        tuning: plan(
            [row for row in rows if tuning in row.tunings],
            asked.clients,
            asked.rounds,
            asked.seconds,
            tuning,
            best if tuning is Tuning.BEST else no_options,
        )
        for tuning in Tuning
        if tuning in asked.tables
    }
    return {tuning: planned for tuning, planned in steps.items() if planned}


def best_of(steps: Iterable[Step]) -> dict[str, dict[str, Options]]:
    """Return each client's options of the table *best*, by row."""
    options: dict[str, dict[str, Options]] = {}
    for step in steps:
        options.setdefault(step.row.name, {})[step.client] = dict(step.options)
    return options


class Session:
    """Runs the steps of a session on one cluster."""

    def __init__(self, asked: Asked, topics: Topics, tls: TlsListener) -> None:
        self._asked = asked
        self._topics = topics
        self._tls = tls
        self._runs = 0

    def warm_up(self, steps: Iterable[Step]) -> None:
        """Warm up the broker for the workloads of *steps*, so that no measured run includes the warm-up."""
        workloads = {step.row.work for step in steps if not step.row.in_process}
        if not workloads:
            return
        warm_ups = WARM_UPS + (TRANSACTIONS_WARM_UPS if Work.TRANSACTIONS in workloads else ())
        for row, client, seconds in warm_ups:
            self._in_child(client, replace(ROWS[row].settings, seconds=seconds), f"warm-up-{row}")

    def run_steps(self, steps: Sequence[Step], follow: Callable[[Step, str], None]) -> dict[str, Played]:
        """Run *steps* and return their results by row."""
        return run_steps(steps, self._run, follow)

    def _run(self, step: Step) -> Run:
        self._runs += 1
        topic = f"{self._runs}-{step.row.name}"
        if step.row.work is Work.SCALE:
            _, what, _ = step.row.name.split("-")
            return curve.measure(step.row.name, self._asked.scale_sizes[what])
        if step.row.work in {Work.STEADY, Work.SLOW_BROKER, Work.ZONES}:
            return steady.measure(step.client, self._asked.settings_of(step))
        if step.row.work is Work.MEMORY and step.row.settings.slow_ms:
            return memory.measure(step.client, self._asked.settings_of(step))
        if step.row.work is Work.COLD:
            return cold.measure(step.client, self._topics, topic)
        return self._in_child(step.client, self._asked.settings_of(step), topic)

    def _in_child(self, client: str, settings: Settings, name: str) -> Run:
        with self._topics.fresh(name, PARTITIONS) as topic:
            servers = self._tls.servers if settings.tls else self._topics.servers
            settings = replace(settings, ca_file=self._tls.ca_file)
            told = Run.loads(answer_of(CHILD, [client, servers, topic, settings.dumps()]))
            self._topics.check(topic, PARTITIONS, told.sent, committed=settings.work is Work.TRANSACTIONS)
        return told


class TlsListener(NamedTuple):
    """TLS address of a session's broker, and the file with its CA certificate."""

    servers: str
    ca_file: str


NO_TLS: Final = TlsListener("", "")
GONE_AFTER_MS: Final = 100
"""Delay until the broker deletes the files of a deleted topic, in milliseconds (Kafka's default: one minute). With the
default, the operating system writes the records of earlier runs to the disk, and later runs wait for the disk."""


@contextmanager
def broker(bootstrap_servers: str | None) -> Iterator[tuple[str, TlsListener]]:
    """Yield the address of *bootstrap_servers*, or of an Apache Kafka that runs during the `with` block."""
    if bootstrap_servers is not None:
        yield bootstrap_servers, NO_TLS
        return
    plain, tls, controller = free_ports(3)
    authority = Authority()
    with (
        tempfile.TemporaryDirectory() as folder,
        ApacheKafka(
            jvm_options=THROUGHPUT,
            ports={1: plain},
            properties={
                **with_tls(authority, plain, tls, controller),
                "log.segment.delete.delay.ms": GONE_AFTER_MS,
            },
        ) as kafka,
    ):
        ca_file = Path(folder, "ca.pem")
        ca_file.write_text(authority.pem)
        yield kafka.bootstrap_servers, TlsListener(f"{HOST}:{tls}", str(ca_file))


def empty_results(asked: Asked) -> Results:
    """Return results without runs: only date, machine, versions and options."""
    options = asdict(asked)
    own_broker = options.pop("bootstrap_servers") is None
    used = dict.fromkeys(
        client for name in asked.rows for client in ROWS[name].clients if client in asked.clients
    )
    brokers = {"Apache Kafka": VERSION} if own_broker else {}
    return Results(
        made=datetime.now(UTC).date().isoformat(),
        machine=machine(),
        versions=versions(used) | brokers | ({"JVM client": VERSION} if JVM in used else {}),
        options=options,
    )
