"""One scenario from start to end: a cluster, a producer and its load, a fault, the recovery, the checker."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from aioproducer import Producer, ProducerError
from aioproducer.testing import Cluster
from tests.checker import Findings, Log, Logs, log_of
from tests.scenarios.faults.checker import Case, check_records
from tests.scenarios.faults.load import TOPIC, Load, Sent
from tests.scenarios.faults.wire import Wire

PARTITIONS: Final = 4
BROKERS: Final = 3
REQUEST_TIMEOUT_S: Final = 1.0
DELIVERY_TIMEOUT_S: Final = 8.0
RECOVERY_S: Final = 0.2
"""How soon after the end of a fault the first record is delivered, with backoffs of at most 100 ms."""
LONGEST_DELAY_S: Final = 3.0
"""How long a broker may be busy with one request."""
CALM_S: Final = 0.15
"""How long everything is well before the fault, and after it."""
LATENCY_S: Final = 0.005
"""How long bytes take, each way: several requests of a partition are in flight at a time."""

OPTIONS: Final[Mapping[str, Any]] = {
    "request_timeout_ms": int(REQUEST_TIMEOUT_S * 1000),
    "delivery_timeout_ms": int(DELIVERY_TIMEOUT_S * 1000),
    "max_block_ms": int(DELIVERY_TIMEOUT_S * 1000),
    "socket_connection_setup_timeout_ms": int(REQUEST_TIMEOUT_S * 1000),
    "retry_backoff_ms": 50,
    "retry_backoff_max_ms": 100,
    "reconnect_backoff_ms": 50,
    "reconnect_backoff_max_ms": 100,
    "linger_ms": 0,
}


class Mode(NamedTuple):
    """Promises of a producer."""

    idempotent: bool
    acks: Literal["all", 0, 1]

    def __str__(self) -> str:
        return f"{'idempotent' if self.idempotent else 'plain'}-acks-{self.acks}"


IDEMPOTENT: Final = Mode(True, "all")
PLAIN: Final = (Mode(False, "all"), Mode(False, 1))
ACKNOWLEDGED: Final = (IDEMPOTENT, *PLAIN)
UNACKNOWLEDGED: Final = Mode(False, 0)
MODES: Final = (*ACKNOWLEDGED, UNACKNOWLEDGED)


@dataclass(slots=True)
class World:
    """Objects that a fault can change."""

    cluster: Cluster
    producer: Producer
    load: Load
    wire: Wire
    began_at: float
    """When the producer was started, in loop time."""
    set_up_s: float = 0.0
    """How much longer a connection takes than in the clear."""
    former_logs: dict[int, list[Log]] = field(default_factory=dict)
    """What was in the logs of topics that were deleted, and in logs that have lost their ends since."""

    @property
    def partitions(self) -> int:
        """Number of partitions of the topic, or of the future topic."""
        topic = self.cluster._state.topics.get(TOPIC)
        return PARTITIONS if topic is None else len(topic.partitions)

    def delete_topic(self) -> None:
        """Delete the topic; the checker keeps its records."""
        for partition, log in enumerate(self._logs()):
            self.former_logs.setdefault(partition, []).append(log)
        self.cluster.delete_topic(TOPIC)

    def lose_end(self, partition: int, records: int) -> None:
        """Let a log lose its last *records*; the checker remembers them."""
        self.former_logs.setdefault(partition, []).append(self._log(partition))
        _ = self.cluster.lose_end(TOPIC, partition, records)

    def logs(self) -> Logs:
        """Return all records that were ever in the log of each partition."""
        return {
            (TOPIC, partition): [*self.former_logs.get(partition, []), log]
            for partition, log in enumerate(self._logs())
        }

    def _logs(self) -> list[Log]:
        return [self._log(partition) for partition in range(len(self.load.sent))]

    def _log(self, partition: int) -> Log:
        return log_of(record.value for record in self.cluster.records(TOPIC, partition))


Fault = Callable[[World], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A row of the table."""

    name: str
    fault: Fault
    """Lets something go wrong, and returns when it is over."""
    before: Callable[[Cluster], None] | None = None
    """Lets something be wrong before the producer starts."""
    modes: tuple[Mode, ...] = MODES
    may_fail: tuple[type[ProducerError], ...] = ()
    """With what records may fail; with nothing, where a correct client delivers all."""
    unsent_may_fail: bool = False
    """Whether records fail that were not part of a refused request: for want of a producer id, say."""
    harmless: bool = False
    """Whether the fault is to cost nothing: no connection, and nothing is sent again."""
    ordered: bool = True
    """Whether order can be kept: not where a broker may still append what nobody waits for any more."""
    first_ack_s: float = 1.0
    """How soon after the start the first record is delivered."""
    recovery_s: float | None = RECOVERY_S
    """How soon after the fault every partition works again; None: the fault has no end that could be told."""
    most_metadata_requests: int = 60
    """What the load and its fault may cost."""
    burst: int = 2
    """How many records each partition gets at a time; as a rule they become a batch."""
    pause_s: float = 0.01
    """How long it is until the next burst."""
    value_bytes: int = 20
    latency_s: float = LATENCY_S
    topics: Mapping[str, int] = field(default_factory=lambda: {TOPIC: PARTITIONS})
    options: Mapping[str, Any] = field(default_factory=dict)


SECURED: Final[Mapping[str, Any]] = {
    "security_protocol": "SASL_SSL",
    "users": {"alice": "hunter2"},
    "sasl_mechanisms": ["SCRAM-SHA-256"],
    "session_lifetime_s": 2.0,
}
"""What a cluster is told for TLS and logins, which are over so soon that some are under way during most faults."""

ROUND_TRIPS: Final = 3
"""How many more a connection takes with that: one for TLS 1.3, two for SCRAM."""

Course = Callable[[World, Scenario, Mode], Awaitable[Findings]]
"""What is sent while the fault of a scenario goes on, and what is promised to it."""


async def play(
    scenario: Scenario,
    mode: Mode,
    *,
    seed: int = 0,
    course: Course | None = None,
    security: Mapping[str, Any] | None = None,
) -> Findings:
    """Return which promises are broken in *scenario*; *course* is a steady load if nothing is said.

    With *security*, such as `SECURED`, over TLS, logged in.
    """
    random.seed(seed)  # jitter, and which broker is asked first
    with Wire().listening() as wire:
        cluster = Cluster(
            BROKERS,
            scenario.topics,
            transport="memory",
            latency_s=scenario.latency_s,
            auto_create_topics=False,
            **(security or {}),
        )
        async with cluster:
            if scenario.before is not None:
                scenario.before(cluster)
            options = {**OPTIONS, **cluster.client_options, **scenario.options}
            producer = Producer(
                cluster.bootstrap_servers, acks=mode.acks, enable_idempotence=mode.idempotent, **options
            )
            began_at = asyncio.get_running_loop().time()
            async with producer:
                load = Load(producer, PARTITIONS, scenario.burst, scenario.pause_s, scenario.value_bytes)
                set_up_s = ROUND_TRIPS * 2 * scenario.latency_s if security else 0.0
                world = World(cluster, producer, load, wire, began_at, set_up_s)
                findings = await (course or under_load)(world, scenario, mode)
                check_leftovers(producer, findings)
                _check_costs(world, scenario, findings)
            await check_connections(cluster, findings)
    check_tasks(findings)
    return findings


async def under_load(world: World, scenario: Scenario, mode: Mode) -> Findings:
    """Send steadily, before the fault, during it and after it."""
    loop = asyncio.get_running_loop()
    enough = asyncio.Event()
    load = loop.create_task(world.load.run(enough))
    await asyncio.sleep(CALM_S)
    await scenario.fault(world)
    over_at = loop.time()
    loop.call_later(CALM_S, enough.set)
    probes = await _one_each(world)
    await load
    await world.producer.flush()
    # Until the last answer to expired records has arrived, or can no longer arrive.
    await asyncio.sleep(world.producer.config.request_timeout_ms / 1000)
    last = await _one_each(world)
    findings = checked(world, scenario, mode)
    if scenario.recovery_s is not None:
        for probe in probes:
            if probe.delivered is None or probe.resolved_at > over_at + scenario.recovery_s + world.set_up_s:
                after_s = probe.resolved_at - over_at
                findings.report("recovers in time", f"{probe} after {after_s:.3f} s ({probe.outcome!r})")
    check_works_again(last, findings)
    _check_first_ack(world, scenario, findings)
    return findings


def checked(world: World, scenario: Scenario, mode: Mode) -> Findings:
    """Return the result of the checker for all records sent."""
    return check_records(
        Case(
            load=world.load,
            wire=world.wire,
            logs=world.logs(),
            idempotent=mode.idempotent,
            acks=mode.acks,
            delivery_timeout_s=world.producer.config.delivery_timeout_ms / 1000,
            ordered=scenario.ordered,
            may_fail=scenario.may_fail,
            unsent_may_fail=scenario.unsent_may_fail,
        )
    )


def check_works_again(last: Iterable[Sent], findings: Findings) -> None:
    """Report a finding if the *last* records, sent when all is settled, are not delivered soon."""
    for each in last:
        if each.delivered is None or each.resolved_at > each.called_at + RECOVERY_S:
            findings.report("works again", f"{each} ({each.outcome!r})")


async def _one_each(world: World) -> list[Sent]:
    return await asyncio.gather(*(world.load.send(partition) for partition in range(world.partitions)))


def _check_first_ack(world: World, scenario: Scenario, findings: Findings) -> None:
    first_at = min(each.resolved_at for each in world.load if each.delivered is not None)
    if first_at > world.began_at + scenario.first_ack_s:
        findings.report("the first record is soon delivered", f"after {first_at - world.began_at:.3f} s")


def _check_costs(world: World, scenario: Scenario, findings: Findings) -> None:
    report = world.producer.metrics()["producer"]
    for counter in ("record_retry_total", "connection_close_total") if scenario.harmless else ():
        if report[counter]:
            findings.report("what is harmless costs nothing", f"{counter}={report[counter]}")
    asked = world.cluster.request_count("metadata")
    if asked > scenario.most_metadata_requests:
        findings.report("metadata requests are bounded", asked)


def check_leftovers(producer: Producer, findings: Findings) -> None:
    """Report the state that *producer* still holds when every record has its outcome."""
    report = producer.metrics()["producer"]
    report["buffer_used_bytes"] = report["buffer_total_bytes"] - report["buffer_available_bytes"]
    for gauge in ("buffer_used_bytes", "calls_waiting", "batches_unfinished"):
        if report[gauge]:
            findings.report("nothing is left in the producer", f"{gauge}={report[gauge]}")


async def check_connections(cluster: Cluster, findings: Findings) -> None:
    """Report a finding, which is closed, if brokers have connections."""
    await asyncio.sleep(LONGEST_DELAY_S)  # until the brokers have noticed
    for broker in cluster._brokers.values():
        if broker._connections:
            findings.report(
                "no connection is leaked", f"{len(broker._connections)} to {broker.listener.address}"
            )


def check_tasks(findings: Findings) -> None:
    """Hold against the producer, which is closed, the tasks that are left."""
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        findings.report("no task is leaked", task.get_name())
