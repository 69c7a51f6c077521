"""The rate limit of a job, on a fake clock."""

from __future__ import annotations

import socket

import pytest

from aioproducer.errors import ConfigError
from aioproducer.spark.delivery import DeliveryError
from aioproducer.spark.rate_limit import RateLimit, RateLimiter, rate_limit
from tests.cases import for_each


class Clock:
    """A clock that sleeps by moving on, and wakes *early* by some seconds once."""

    def __init__(self, early: float = 0.0) -> None:
        self.now = 1_000.0
        self.early = early

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += max(seconds - self.early, 0.0)
        self.early = 0.0


def paced(bytes_per_s: float, clock: Clock) -> RateLimiter:
    return RateLimiter(bytes_per_s, clock=clock, sleep=clock.sleep)


def test_pace_delays_first_piece_for_its_own_bytes() -> None:
    clock = Clock()
    paced(100.0, clock).wait(250)
    assert clock.now == pytest.approx(1_002.5)


def test_pace_keeps_the_rate_over_many_pieces() -> None:
    clock = Clock(early=0.005)
    limiter = paced(1_000.0, clock)
    for size in (0, 1, 999, 500, 1_500):
        limiter.wait(size)
        clock.now += 0.01  # encoding and appending
    assert clock.now == pytest.approx(1_003.01)


def test_pace_catches_up_for_at_most_one_second() -> None:
    clock = Clock()
    limiter = paced(1_000.0, clock)
    clock.now += 60.0
    limiter.wait(1_000)
    assert clock.now == pytest.approx(1_060.0)
    limiter.wait(2_000)
    assert clock.now == pytest.approx(1_062.0)


def test_pace_refuses_bytes_beyond_the_transaction() -> None:
    clock = Clock()
    limiter = RateLimiter(100.0, within_s=450, clock=clock, sleep=clock.sleep)
    limiter.expect(45_000)
    for _ in range(3):
        limiter.wait(15_000)
    assert clock.now == pytest.approx(1_450.0), "bytes that were expected count once"
    with pytest.raises(
        DeliveryError, match=r"has 45,001 bytes or more, which take 450 s at its share of 100 "
    ):
        limiter.wait(1)
    assert clock.now == pytest.approx(1_450.0)


def test_pace_refuses_a_batch_before_it_waits() -> None:
    clock = Clock()
    limiter = RateLimiter(100.0, within_s=450, clock=clock, sleep=clock.sleep)
    with pytest.raises(
        DeliveryError, match=r"^maxBytesPerSecond: .* take 1,000 s .* may last 450 s .* raise"
    ):
        limiter.expect(100_000)
    assert clock.now == 1_000.0


def test_pace_without_transaction_refuses_nothing() -> None:
    paced(1.0, Clock()).expect(10**12)


@pytest.mark.parametrize(("rate", "size"), [(1_000_000.0, 250_000), (100.0, 25), (0.5, 1)])
def test_pace_cuts_pieces_by_the_rate(rate: float, size: int) -> None:
    assert paced(rate, Clock()).piece_bytes == size


def test_rate_limit_is_none_by_default() -> None:
    assert rate_limit({}) is None


def test_rate_limit_is_divided_by_the_tasks() -> None:
    limit = rate_limit({"maxBytesPerSecond": " 1000 ", "maxConcurrentTasks": "16"})
    assert limit == RateLimit(1_000, 16)
    assert limit.of_task() == pytest.approx(62.5)


def test_rate_limit_counts_the_drivers_cores_by_default() -> None:
    limit = rate_limit({"maxBytesPerSecond": "1000"})
    assert limit is not None
    assert limit.host == socket.gethostname()
    assert limit.of_task() == pytest.approx(1_000 / limit.tasks)


def test_rate_limit_needs_the_tasks_on_another_host() -> None:
    limit = RateLimit(1_000, 2, "another-host")
    with pytest.raises(ConfigError, match="set maxConcurrentTasks to the number of tasks"):
        limit.of_task()


@for_each("value", ["0", "-1", "1.5", "1e6", "10MB", "", "٣", "9" * 19])
@for_each("name", ["maxBytesPerSecond", "maxConcurrentTasks"])
def test_rate_limit_refuses_other_numbers(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"^{name} = '.*': expected a positive whole number"):
        rate_limit({"maxBytesPerSecond": "1000", name: value})


def test_rate_limit_refuses_tasks_without_a_limit() -> None:
    with pytest.raises(ConfigError, match="maxConcurrentTasks has no effect without maxBytesPerSecond"):
        rate_limit({"maxConcurrentTasks": "4"})
