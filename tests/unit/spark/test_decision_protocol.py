"""The exactly-once protocol on a model of Spark and Kafka, with faults at any steps.

The tests play every run with one fault, one in 5 of the runs in which a driver freezes and thaws, one in 97 of those
with two faults, and some with three and four. EXACTLY_ONCE=all (`make test-spark-exactly-once`) plays every run with
two faults, and 200,000 with three and with four.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Mapping
from contextlib import suppress

import pytest

from aioproducer.spark.decision_protocol import begin, plan
from tests.cases import for_each
from tests.unit.spark.delivery_model import BATCHES, DELIVERY, ROWS, Fault, Spark

ALL = os.environ.get("EXACTLY_ONCE") == "all"
EVERY = sorted((number, row) for number in range(BATCHES) for row in ROWS)
VERSIONS = (1, 2)


def play(faults: Mapping[int, Fault], version: int) -> Spark:
    spark = Spark(faults, version=version)
    told = f"transaction.version {version}: {faults}"
    try:
        spark.play()
    except BaseException as error:
        error.add_note(told)
        raise
    seen = sorted(spark.cluster.seen)
    assert len(set(seen)) == len(seen), f"doubled: {told}"
    if spark.lost is None:
        assert seen == EVERY, f"lost without a report: {told}"
    else:
        assert spark.may_lose, f"lost: {told}"
        return spark
    spark.plan_once_more()
    assert not any(each.is_open for each in spark.cluster.ids.values()), f"readers wait: {told}"
    assert sorted(spark.cluster.seen) == EVERY, f"changed by planning: {told}"
    return spark


@pytest.mark.parametrize("version", VERSIONS)
def test_protocol_without_faults_loses_nothing(version: int) -> None:
    assert play({}, version).lost is None


@for_each("version", VERSIONS)
@for_each("fault", Fault)
def test_protocol_is_exact_with_one_fault_at_any_step(fault: Fault, version: int) -> None:
    for step in range(steps(version)):
        play({step: fault}, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_protocol_is_exact_with_two_faults_at_any_steps(version: int) -> None:
    end = steps(version)
    pairs = itertools.product(range(end), range(1, end), Fault, Fault)
    for first, later, one, other in itertools.islice(pairs, 0, None, 1 if ALL else 97):
        play({first: one, first + later: other}, version)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("freezes", [Fault.FREEZE, Fault.HANG])
def test_protocol_is_exact_when_a_driver_freezes_and_goes_on(freezes: Fault, version: int) -> None:
    end = steps(version)
    pairs = itertools.combinations(range(end + 20), 2)
    for frozen, thawed in itertools.islice(pairs, 0, None, 1 if ALL else 5):
        play({frozen: freezes, thawed: Fault.THAW}, version)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("count", [3, 4])
def test_protocol_is_exact_with_three_and_four_faults(count: int, version: int) -> None:
    chance = random.Random(count)
    end = steps(version)
    for _ in range(200_000 if ALL else 800):
        at = chance.sample(range(end + 40), count)
        play({step: chance.choice(list(Fault)) for step in at}, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_expired_transaction_is_reported_as_lost_repeatedly(version: int) -> None:
    """A transaction may expire between the decision and its commit; the protocol reports the loss and cannot prevent it."""
    lost = [
        spark
        for step in range(steps(version))
        if (spark := play({step: Fault.TIMEOUT}, version)).lost is not None
    ]
    assert lost
    for spark in lost:
        seen = list(spark.cluster.seen)
        assert "is lost" in str(spark.lost)
        spark.lost = None
        spark.play()
        assert spark.lost is not None
        assert spark.cluster.seen == seen


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("takes_office", [True, False])
def test_first_use_left_open_is_aborted(takes_office: bool, version: int) -> None:
    """A driver hangs before it takes the id of the first use, writes after another driver, and dies."""
    spark = Spark({}, version=version)
    kafka, cluster = spark.kafka, spark.cluster

    def complete() -> None:
        process = plan(kafka, DELIVERY, "other") if takes_office else begin(kafka, DELIVERY)
        with suppress(StopIteration):
            while True:
                process.send(None)

    hung = begin(kafka, DELIVERY)
    for _ in ("describe", "decisions", "take_over"):
        hung.send(None)
    complete()
    while not cluster.ids[DELIVERY.beginning_id].is_open:
        hung.send(None)
    hung.close()
    complete()
    assert not any(each.is_open for each in cluster.ids.values())
    spark.play()
    assert sorted(cluster.seen) == EVERY


def steps(version: int) -> int:
    return play({}, version).steps
