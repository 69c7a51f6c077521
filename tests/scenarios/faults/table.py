"""The table: every kind of fault, the errors that records may have, and the time to recover."""

from __future__ import annotations

from collections.abc import Iterator

from aioproducer.config.options import DEFAULTS
from aioproducer.errors import (
    BrokerError,
    ClusterAuthorizationFailed,
    DeliveryTimeout,
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    NotEnoughReplicasAfterAppend,
    OutOfOrderSequenceNumber,
    RequestTimedOut,
    TopicAuthorizationFailed,
    UnknownProducerId,
    broker_error,
)
from aioproducer.testing import Cluster
from aioproducer.testing.faults import Rewrite
from tests.scenarios.faults import faults as f, hostile
from tests.scenarios.faults.checker import REFUSED_BEFORE_APPEND
from tests.scenarios.faults.faults import answer, close, delay, drop, for_a_while, rewrite, strike, throttle
from tests.scenarios.faults.load import TOPIC
from tests.scenarios.faults.world import (
    ACKNOWLEDGED,
    DELIVERY_TIMEOUT_S,
    IDEMPOTENT,
    MODES,
    PLAIN,
    RECOVERY_S,
    REQUEST_TIMEOUT_S,
    UNACKNOWLEDGED,
    Fault,
    Mode,
    Scenario,
)

AFTER_TIMEOUT_S = REQUEST_TIMEOUT_S + RECOVERY_S
"""How soon all is well again where nothing but the request timeout shows that an answer will not come."""
TOO_LONG_S = DELIVERY_TIMEOUT_S + 2
LIGHT_S = 0.05
"""The pause between two bursts where a fault is long: the load is to be steady, not large."""
KAFKA_S_DEFAULTS = {
    name: DEFAULTS[name]
    for name in (
        "request_timeout_ms",
        "delivery_timeout_ms",
        "max_block_ms",
        "socket_connection_setup_timeout_ms",
        "retry_backoff_ms",
        "retry_backoff_max_ms",
        "reconnect_backoff_ms",
        "reconnect_backoff_max_ms",
        "linger_ms",
    )
}
BURST = 8
STALE_ANSWERS = (0, 1, 2, 5)
ALL = 1_000_000


def _too_long(name: str, fault: Fault, *, modes: tuple[Mode, ...] = MODES) -> Scenario:
    """Return a scenario of a fault that outlasts the delivery timeout."""
    return Scenario(
        name=f"{name}-too-long", fault=fault, may_fail=(DeliveryTimeout,), pause_s=LIGHT_S, modes=modes
    )


# --- error codes ------------------------------------------------------------------------------------------------------

RETRIABLE = (2, 3, 5, 6, 7, 9, 13, 16, 19, 20, 56, 72, 74, 75, 78, 89, 100, 103)
ABOUT_THE_SEQUENCE = (45, 47, 59)
TERMINAL = (-1, 17, 18, 21, 29, 31, 32, 35, 42, 43, 44, 53, 58, 76, 87, 90, 120, 999)


def _codes() -> Iterator[Scenario]:
    """Yield each code once and in a burst, before and after the append."""
    for code in (*RETRIABLE, *TERMINAL):
        may_fail = () if code in RETRIABLE else (broker_error(code),)
        for before in (True,) if code in REFUSED_BEFORE_APPEND else (True, False):
            for times, modes in ((1, (IDEMPOTENT,)), (BURST, (IDEMPOTENT, PLAIN[0]))):
                yield Scenario(
                    name=f"code-{code}-{'before' if before else 'after'}-append-x{times}",
                    fault=strike(answer(code, before_append=before), times=times),
                    may_fail=may_fail,
                    modes=modes,
                )
    for code in ABOUT_THE_SEQUENCE:
        for times in (1, BURST):
            fault = strike(answer(code), times=times)
            name = f"code-{code}-x{times}"
            yield Scenario(name=name, fault=fault, modes=(IDEMPOTENT,))
            yield Scenario(name=name, fault=fault, modes=(PLAIN[0],), may_fail=(broker_error(code),))
    yield Scenario(
        name="code-46-after-append",
        fault=strike(answer(46, before_append=False), times=BURST),
        modes=ACKNOWLEDGED,
    )
    for code in (6, 10, 29):
        fault = strike(answer(code), times=BURST)
        yield Scenario(name=f"code-{code}-closes", fault=fault, modes=(UNACKNOWLEDGED,))


def _refusing(kind: type[BrokerError], *, before_append: bool = True) -> Fault:
    return for_a_while(TOO_LONG_S, answer(kind, before_append=before_append))


CODES = [
    *_codes(),
    _too_long("timed-out-for", _refusing(RequestTimedOut), modes=ACKNOWLEDGED),
    _too_long(
        "timed-out-after-append-for",
        _refusing(RequestTimedOut, before_append=False),
        modes=ACKNOWLEDGED,
    ),
    _too_long("out-of-order-for", _refusing(OutOfOrderSequenceNumber), modes=(IDEMPOTENT,)),
    _too_long("producer-id-unknown-for", _refusing(UnknownProducerId), modes=(IDEMPOTENT,)),
    _too_long("epoch-invalid-for", _refusing(InvalidProducerEpoch), modes=(IDEMPOTENT,)),
    *(
        Scenario(
            name=f"uncertain-then-code-{code}",
            fault=f.in_turn(
                strike(close(before_append=False), times=3),
                strike(
                    answer(code), times=2
                ),  # a third denial in a row, of a batch that is there, would be believed
            ),
            recovery_s=2 * RECOVERY_S,  # twice resent
            modes=(IDEMPOTENT,),
        )
        for code in ABOUT_THE_SEQUENCE
    ),
    Scenario(
        name="uncertain-then-refused",
        fault=f.in_turn(
            strike(answer(NotEnoughReplicasAfterAppend, before_append=False), times=3),
            strike(answer(TopicAuthorizationFailed), times=3),
        ),
        may_fail=(TopicAuthorizationFailed,),
        modes=ACKNOWLEDGED,
    ),
]

# --- answers ----------------------------------------------------------------------------------------------------------

_LATE_S = REQUEST_TIMEOUT_S * 1.5

_FRAMES: dict[str, Rewrite] = {
    "cut": hostile.cut,
    "twice": hostile.twice,
    "byte-by-byte": hostile.byte_by_byte,
    "other-correlation-id": hostile.other_correlation_id,
    "absurd-length": hostile.of_length(0x7FFFFFFF),
    "zero-length": hostile.of_length(0),
    "negative-length": hostile.of_length(-1),
    "followed-by-junk": hostile.followed,
    "trailing-bytes": hostile.too_long,
    "garbage": hostile.garbage,
    "web-page": hostile.web_page,
    "lacking-a-partition": hostile.lacking_a_partition,
    "unasked-partition": hostile.with_an_unasked_partition,
}
_HARMLESS_FRAMES = ("byte-by-byte", "trailing-bytes")

ANSWERS = [
    *(
        Scenario(
            name=f"answer-{name}-x{times}",
            fault=strike(rewrite(change), times=times),
            modes=(IDEMPOTENT, PLAIN[0]),
            harmless=name in _HARMLESS_FRAMES,
        )
        for name, change in _FRAMES.items()
        for times in (1, BURST)
    ),
    *(
        Scenario(
            name=f"answer-to-{request}-{name}",
            fault=f.both(for_a_while(0.3, rewrite(change), request=request), f.reset_and_move),
            modes=(IDEMPOTENT, UNACKNOWLEDGED),
        )
        for request in ("metadata", "api_versions")
        for name, change in _FRAMES.items()
        if "partition" not in name
    ),
    *(
        Scenario(
            name=f"{name}-{'before' if before else 'after'}-append",
            fault=strike(arm, times=3),
            recovery_s=recovery_s,
            modes=ACKNOWLEDGED,
        )
        for before in (True, False)
        for name, arm, recovery_s in (
            ("late", delay(_LATE_S, before_append=before), AFTER_TIMEOUT_S),
            ("a-bit-late", delay(0.5, before_append=before), 0.5 + RECOVERY_S),
            ("never-answered", drop(before_append=before), AFTER_TIMEOUT_S),
            ("closed", close(before_append=before), RECOVERY_S),
        )
    ),
    Scenario(
        name="answer-stuck",
        fault=strike(rewrite(hostile.stuck)),
        recovery_s=AFTER_TIMEOUT_S,
        modes=ACKNOWLEDGED,
    ),
    Scenario(name="throttled-often", fault=strike(throttle(50), times=20)),
    Scenario(
        name="throttled-for-long",
        fault=strike(throttle(3000), times=2),
        recovery_s=3 + RECOVERY_S,
    ),
    Scenario(
        name="half-open",
        fault=f.both(*(strike(drop(), request=None, node=node) for node in (1, 2, 3))),
        recovery_s=AFTER_TIMEOUT_S,
        modes=ACKNOWLEDGED,
    ),
]

# --- leaders and brokers ----------------------------------------------------------------------------------------------


def _first_bootstrap_frozen(cluster: Cluster) -> None:
    for partition in range(4):
        cluster.move_leader(TOPIC, partition, to_broker=2)
    cluster.freeze_broker(1)


BROKERS = [
    Scenario(name="nothing", fault=f.nothing, harmless=True, most_metadata_requests=5),
    Scenario(name="leaders-move-once", fault=f.leaders_move_once),
    Scenario(name="leaders-keep-moving", fault=f.leaders_keep_moving, most_metadata_requests=120),
    Scenario(name="leaders-come-and-go", fault=f.leaders_come_and_go),
    Scenario(name="metadata-stale", fault=f.metadata_stale),
    *(
        Scenario(
            name=f"leaders-moved-unnoticed-by-{stale_answers}-answers",
            fault=f.leaders_moved_unnoticed(stale_answers),
            modes=(IDEMPOTENT, PLAIN[0]),
        )
        for stale_answers in STALE_ANSWERS
    ),
    *(
        Scenario(
            name=f"logs-lose-{'all' if records == ALL else records}-{name}",
            fault=f.in_turn(*before, f.logs_lose_their_ends(records)),
            recovery_s=2 * RECOVERY_S,  # it may take several refusals to be believed
            modes=(IDEMPOTENT, PLAIN[0]),
        )
        for records in (1, 2, ALL)
        for name, before in (("acknowledged", ()), ("in-doubt", (strike(close(before_append=False)),)))
    ),
    Scenario(name="broker-away-3-s", fault=f.brokers_away(1, s=3)),
    _too_long("broker-away", f.brokers_away(1, s=TOO_LONG_S)),
    Scenario(name="broker-away-5-s", fault=f.brokers_away(1, s=5.4), pause_s=LIGHT_S),
    Scenario(
        name="broker-away-20-s",
        fault=f.brokers_away(1, s=20),
        pause_s=LIGHT_S,
        recovery_s=2
        * RECOVERY_S,  # a batch per second of the outage, which plain producers send one after the other
        most_metadata_requests=60,
        options={"delivery_timeout_ms": 30_000},
    ),
    *(
        Scenario(
            name=f"{name}-with-kafka-s-defaults",
            fault=fault,
            recovery_s=1.3,
            modes=(IDEMPOTENT, PLAIN[0]),
            options=KAFKA_S_DEFAULTS,
        )
        for name, fault in (
            ("broker-away-3-s", f.brokers_away(1, s=3)),
            ("broker-replaced", f.brokers_away(1, s=3, failover=True)),
            ("all-away-5-s", f.brokers_away(1, 2, 3, s=5)),
            ("reset-storm", f.reset_storm),
        )
    ),
    Scenario(name="broker-replaced", fault=f.brokers_away(1, s=3, failover=True)),
    Scenario(name="rolling-restart", fault=f.rolling_restart),
    Scenario(name="brokers-move", fault=f.brokers_move),
    Scenario(name="addresses-exchanged", fault=f.addresses_exchanged),
    Scenario(name="all-away-5-s", fault=f.brokers_away(1, 2, 3, s=5)),
    _too_long("all-away", f.brokers_away(1, 2, 3, s=TOO_LONG_S)),
    Scenario(name="broker-frozen-3-s", fault=f.brokers_frozen(1, s=3)),
    _too_long("broker-frozen", f.brokers_frozen(1, s=TOO_LONG_S)),
    Scenario(name="all-frozen-3-s", fault=f.brokers_frozen(1, 2, 3, s=3)),
    _too_long("all-frozen", f.brokers_frozen(1, 2, 3, s=TOO_LONG_S)),
    Scenario(name="frozen-leader-replaced", fault=f.frozen_leader_is_replaced),
    Scenario(name="reset-storm", fault=f.reset_storm, most_metadata_requests=150),
    Scenario(name="first-bootstrap-frozen", before=_first_bootstrap_frozen, fault=f.thawed_after(0.5, 1)),
]

# --- topics, authorization, sizes -------------------------------------------------------------------------------------

TOPICS = [
    Scenario(name="topic-created-late", fault=f.topic_created_late, topics={}, first_ack_s=2.0),
    Scenario(name="topic-recreated", fault=f.topic_recreated),
    Scenario(name="topic-recreated-at-once", fault=f.topic_recreated_at_once),
    Scenario(name="partitions-added", fault=f.partitions_added),
    *(
        Scenario(
            name=f"topic-unknown-to-{stale_answers}-answers",
            fault=f.topic_unknown(stale_answers),
            modes=(IDEMPOTENT, PLAIN[0]),
        )
        for stale_answers in STALE_ANSWERS
    ),
    Scenario(
        name="topic-authorization-lost",
        fault=for_a_while(1, answer(TopicAuthorizationFailed)),
        may_fail=(TopicAuthorizationFailed,),
        modes=ACKNOWLEDGED,
    ),
    Scenario(
        name="topic-authorization-lost-metadata-too",
        fault=f.both(
            for_a_while(1, answer(TopicAuthorizationFailed)),
            for_a_while(1, answer(TopicAuthorizationFailed), request="metadata"),
            f.leaders_move_once,
        ),
        may_fail=(TopicAuthorizationFailed,),
        modes=ACKNOWLEDGED,
    ),
    Scenario(
        name="cluster-authorization-lost",
        fault=for_a_while(1, answer(ClusterAuthorizationFailed)),
        may_fail=(ClusterAuthorizationFailed,),
        modes=ACKNOWLEDGED,
    ),
    *(
        Scenario(
            name=f"no-producer-id-{kind.__name__}",
            before=f.refuse_producer_ids(kind),
            fault=f.pause(0.5),
            may_fail=(kind,),
            unsent_may_fail=True,
            recovery_s=None,
            modes=(IDEMPOTENT,),
        )
        for kind in (ClusterAuthorizationFailed, TopicAuthorizationFailed)
    ),
]

SIZES = [
    *(
        Scenario(
            name=name,
            fault=f.batches_limited(limit, 1),
            may_fail=may_fail,
            modes=ACKNOWLEDGED,
            burst=16,
            pause_s=0.4,  # what was learnt of the limit holds for minutes: a batch, and in it a record, per round trip
        )
        for name, limit, may_fail in (
            ("batches-halved", 300, ()),
            ("batches-of-one-allowed", 100, ()),
            ("nothing-allowed", 80, (MessageTooLarge,)),
        )
    ),
    Scenario(
        name="record-errors-in-halves",
        fault=f.both(
            f.batches_limited(200, 1),
            strike(answer(InvalidRecord, record_errors={0: "bad"}), times=3, after=6),
        ),
        may_fail=(InvalidRecord,),
        modes=ACKNOWLEDGED,
        burst=16,
        pause_s=0.4,
    ),
    *(
        Scenario(
            name=f"record-errors-{kind.__name__}-x{times}",
            fault=strike(answer(kind, record_errors={0: "bad", 3: "bad"}), times=times),
            may_fail=(kind,),
            modes=ACKNOWLEDGED,
            burst=8,
            pause_s=0.05,
        )
        for kind in (InvalidRecord, InvalidTimestamp)
        for times in (1, BURST)
    ),
]

SCENARIOS = [*BROKERS, *TOPICS, *SIZES, *ANSWERS, *CODES]
