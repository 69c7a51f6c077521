"""Delivery guarantees as selected by the options."""

from __future__ import annotations

import pytest

from aioproducer.errors import ConfigError
from aioproducer.spark.delivery import BatchId, ExactlyOnce, Guarantee, batch_id, exactly_once
from tests.cases import for_each

SINGLE = {"deliveryGuarantee": "exactly-once-single", "transactionalIdPrefix": "orders"}


def test_guarantee_defaults_to_at_least_once() -> None:
    assert exactly_once({}) is None
    assert exactly_once({"deliveryGuarantee": "at-least-once"}) is None


def test_exactly_once_has_a_prefix_and_perhaps_a_job() -> None:
    delivery = exactly_once(SINGLE)
    assert delivery == ExactlyOnce(Guarantee.SINGLE, "orders", None)
    assert delivery is not None
    assert delivery.single_id == "orders.s"
    nightly = {**SINGLE, "jobId": "nightly"}
    assert exactly_once(nightly) == ExactlyOnce(Guarantee.SINGLE, "orders", "nightly")
    for value, fails in (("skip", False), ("fail", True)):
        found = exactly_once({**nightly, "onCommittedJob": value})
        assert found == ExactlyOnce(Guarantee.SINGLE, "orders", "nightly", fails_if_committed=fails)


@for_each(
    ("options", "message"),
    [
        ({"deliveryGuarantee": "at-most-once"}, "deliveryGuarantee = 'at-most-once': expected one of at-least-once"),
        ({"deliveryGuarantee": "exactly-once-single"}, "needs transactionalIdPrefix"),
        ({**SINGLE, "transactionalIdPrefix": ""}, "needs transactionalIdPrefix"),
        ({**SINGLE, "jobId": ""}, "jobId is empty"),
        ({"transactionalIdPrefix": "orders"}, "transactionalIdPrefix has no effect without deliveryGuarantee"),
        ({**SINGLE, "onCommittedJob": "fail"}, "onCommittedJob has no effect without jobId"),
        ({**SINGLE, "jobId": "x", "onCommittedJob": "raise"}, "onCommittedJob = 'raise': expected skip or fail"),
        ({"onCommittedJob": "fail"}, "onCommittedJob has no effect without deliveryGuarantee"),
        ({"jobId": "nightly"}, "jobId has no effect without deliveryGuarantee"),
    ],
)  # fmt: skip
def test_invalid_delivery_options_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        exactly_once(options)


@for_each(
    ("job", "told", "expected"),
    [
        (None, ("8d9f", "7", "run-1"), BatchId("query 8d9f", 7, "run-1")),
        (None, ("8d9f", "7", None), BatchId("query 8d9f", 7, "")),
        ("nightly", (None, None, None), BatchId("job nightly", 0, "")),
        ("nightly", (None, None, "a group of jobs"), BatchId("job nightly", 0, "")),
        ("nightly", ("8d9f", "7", "run-1"), BatchId("job nightly", 7, "run-1")),
    ],
)
def test_batch_id_names_the_query_or_the_job(
    job: str | None, told: tuple[str | None, str | None, str | None], expected: BatchId
) -> None:
    assert batch_id(ExactlyOnce(Guarantee.SINGLE, "orders", job), *told) == expected


@pytest.mark.parametrize("told", [(None, None, None), (None, "7", "run-1"), ("8d9f", None, "run-1")])
def test_batch_without_a_name_is_refused(told: tuple[str | None, str | None, str | None]) -> None:
    with pytest.raises(ConfigError, match="needs the option jobId here"):
        batch_id(ExactlyOnce(Guarantee.SINGLE, "orders", None), *told)


@pytest.mark.parametrize("job", [None, "nightly"])
def test_stream_without_micro_batches_is_refused(job: str | None) -> None:
    with pytest.raises(ConfigError, match=r"trigger\(continuous=…\) has none"):
        batch_id(ExactlyOnce(Guarantee.LOG, "orders", job), "8d9f", None, "run-1", streams=True)


def test_task_ids_differ_between_runs_of_a_query() -> None:
    first, again = (BatchId("query a", 7, run).run_under("driver") for run in ("run-1", "run-2"))
    assert first.startswith("driver-")
    assert first != again
    assert BatchId("job a", 0, "").run_under("driver") == "driver"
