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
from benchmarks.parent.rounds import Step, no_options, plan, play
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
"""What the broker is warmed up with: row, client, seconds. Bytes by the bulk, and then requests by the ten thousands,
with one record and with several batches: its just-in-time compiler counts calls. Without the second it was three times
as slow in the first round of a closed loop as in the last, without the third half as fast as after a million records."""
TRANSACTIONS_WARM_UPS: Final = (("transactions", "aiokafka", 5.0), ("transactions", "jvm", 5.0))
"""The same for a session with transactions, some thousand of them: of the protocol in which a client names the partitions
of a transaction first, and of the one in which the broker does (KIP-890). Neither is what is judged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What was asked for on the command line."""

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
        """Return what a client is asked to do for *step*."""
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
    """Return the runs of each table. Raises: LookupError if one at its best was never swept."""
    rows = [ROWS[name] for name in asked.rows]
    if asked.bootstrap_servers is not None:  # who knows where it speaks TLS, and as whom
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
    """Return the options that each client has at its best, by row."""
    options: dict[str, dict[str, Options]] = {}
    for step in steps:
        options.setdefault(step.row.name, {})[step.client] = dict(step.options)
    return options


class Session:
    """Runs what was asked for, step by step."""

    def __init__(self, asked: Asked, topics: Topics, tls: TlsListener) -> None:
        self._asked = asked
        self._topics = topics
        self._tls = tls
        self._runs = 0

    def warm_up(self, steps: Iterable[Step]) -> None:
        """Let the broker get going with what *steps* will ask of it, which no client is to pay for."""
        works = {step.row.work for step in steps if not step.row.in_process}
        if not works:
            return
        warm_ups = WARM_UPS + (TRANSACTIONS_WARM_UPS if Work.TRANSACTIONS in works else ())
        for row, client, seconds in warm_ups:
            self._in_child(client, replace(ROWS[row].settings, seconds=seconds), f"warm-up-{row}")

    def play(self, steps: Sequence[Step], follow: Callable[[Step, str], None]) -> dict[str, Played]:
        """Take steps, and return what came of them."""
        return play(steps, self._run, follow)

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
    """Where the broker of a session speaks TLS, and the file with the authority that vouches for it."""

    servers: str
    ca_file: str


NO_TLS: Final = TlsListener("", "")
GONE_AFTER_MS: Final = 100
"""How soon the broker lets go of the data of a topic that is deleted, instead of Kafka's minute: else the operating system
writes to the disk what the runs of that minute have sent, and those behind them wait for the disk."""


@contextmanager
def broker(bootstrap_servers: str | None) -> Iterator[tuple[str, TlsListener]]:
    """Start an Apache Kafka, unless there is one; it ends with the `with` block."""
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
    """Return results with nothing in them but what they are of."""
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
