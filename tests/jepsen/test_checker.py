"""The checker finds each anomaly in a constructed history, and no anomaly in a correct history."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.jepsen.checker import CHECKS, check, longest_unavailability
from tests.jepsen.history import COMMITTED, FAIL, OK, UNCOMMITTED, UNKNOWN, Append, History, Recorder, load


class Story:
    """Writes a history event by event, with one second between two events."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._recorder = Recorder(path)

    def started(self, instance: int = 1) -> None:
        self._recorder("started", producer="p", instance=instance)

    def begin(self, number: int, *partitions: int, instance: int = 1) -> str:
        """Begin a transaction with one record for each of *partitions*; return its name."""
        name = f"p/{instance}/{number}"
        appends = [Append(where, f"k{where}", f"{name}/{index}") for index, where in enumerate(partitions)]
        self._recorder("begin", transaction=name, appends=appends)
        return name

    def commit(self, name: str, outcome: str | None = OK) -> None:
        self._recorder("commit", transaction=name)
        if outcome is not None:
            self.outcome(name, outcome)

    def outcome(self, name: str, outcome: str) -> None:
        self._recorder("outcome", transaction=name, outcome=outcome)

    def read(self, *values: str, partition: int = 0, offset: int = 0, reader: str = "r") -> None:
        for index, value in enumerate(values):
            where = {"partition": partition, "offset": offset + index}
            self._recorder("read", reader=reader, isolation=COMMITTED, value=value, **where)

    def read_uncommitted(self, *values: str) -> None:
        for offset, value in enumerate(values):
            where = {"partition": 0, "offset": offset}
            self._recorder("read", reader="u", isolation=UNCOMMITTED, value=value, **where)

    def end_of_log(self, high_watermark: int, last_stable_offset: int) -> None:
        where = {"high_watermark": high_watermark, "last_stable_offset": last_stable_offset}
        self._recorder("end of log", partition=0, **where)

    def history(self) -> History:
        self._recorder.__exit__(None, None, None)
        return load(self._path)

    def found(self) -> set[str]:
        """Return the kinds of the anomalies."""
        return {kind for kind, anomalies in check(self.history()).items() if anomalies}


@pytest.fixture
def story(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Story:
    clock = iter(range(1, 1_000))
    monkeypatch.setattr("tests.jepsen.history.time.monotonic", lambda: float(next(clock)))
    return Story(tmp_path / "history.jsonl")


def committed(story: Story, number: int, *partitions: int, instance: int = 1) -> str:
    name = story.begin(number, *partitions, instance=instance)
    story.commit(name)
    return name


def test_correct_history_has_no_anomaly(story: Story) -> None:
    story.started()
    first = committed(story, 1, 0, 0)
    aborted = story.begin(2, 0)
    story.outcome(aborted, FAIL)
    refused = story.begin(3, 0)
    story.commit(refused, FAIL)
    invisible = story.begin(4, 0)
    story.commit(invisible, UNKNOWN)
    visible = story.begin(5, 0)
    story.commit(visible, None)
    story.started(2)
    second = committed(story, 1, 0, instance=2)
    log = [f"{first}/0", f"{first}/1", f"{aborted}/0", f"{refused}/0"]
    story.read_uncommitted(*log)
    story.read(f"{first}/0", f"{first}/1")
    story.read(f"{visible}/0", f"{second}/0", offset=5)
    story.end_of_log(10, 10)
    assert story.found() == set()


def test_every_check_has_a_constructed_history() -> None:
    assert {*CHECKS} == {case.split(":")[0] for case in CASES}


def lost_write(story: Story) -> None:
    committed(story, 1, 0)


def lost_of_reader_uncommitted(story: Story) -> None:
    story.read_uncommitted(f"{committed(story, 1, 0)}/0")


def duplicate(story: Story) -> None:
    name = committed(story, 1, 0)
    story.read(f"{name}/0", f"{name}/0")


def duplicate_of_aborted(story: Story) -> None:
    name = story.begin(1, 0)
    story.outcome(name, FAIL)
    story.read_uncommitted(f"{name}/0", f"{name}/0")


def read_of_aborted(story: Story) -> None:
    name = story.begin(1, 0)
    story.outcome(name, FAIL)
    story.read(f"{name}/0")


def read_of_refused_commit(story: Story) -> None:
    name = story.begin(1, 0)
    story.commit(name, FAIL)
    story.read(f"{name}/0")


def read_of_open_transaction(story: Story) -> None:
    story.read(f"{story.begin(1, 0)}/0")


def read_of_unsent(story: Story) -> None:
    story.read("p/9/9/0")


def early_read(story: Story) -> None:
    name = story.begin(1, 0)
    story.read(f"{name}/0")
    story.commit(name)


def torn(story: Story) -> None:
    name = story.begin(1, 0, 1)
    story.commit(name, UNKNOWN)
    story.read(f"{name}/0")


def reader_goes_back(story: Story) -> None:
    name = committed(story, 1, 0, 0)
    story.read(f"{name}/0", f"{name}/1")
    story.read(f"{name}/0")


def reader_skips(story: Story) -> None:
    name = committed(story, 1, 0, 0, 0)
    story.read(f"{name}/0", f"{name}/1", f"{name}/2")
    story.read(f"{name}/0", reader="s")
    story.read(f"{name}/2", offset=2, reader="s")


def reader_finds_another(story: Story) -> None:
    one, two = story.begin(1, 0), story.begin(2, 0)
    story.commit(one, UNKNOWN)
    story.commit(two, UNKNOWN)
    story.read(f"{one}/0")
    story.read(f"{two}/0", reader="s")


def out_of_order_transactions(story: Story) -> None:
    one, two = committed(story, 1, 0), committed(story, 2, 0)
    story.read(f"{two}/0", f"{one}/0")


def out_of_order_records(story: Story) -> None:
    name = committed(story, 1, 0, 0)
    story.read(f"{name}/1", f"{name}/0")


def zombie_by_time(story: Story) -> None:
    name = story.begin(1, 0)
    story.started(2)
    story.commit(name)
    story.read(f"{name}/0")


def zombie_by_time_unknown(story: Story) -> None:
    name = story.begin(1, 0)
    story.started(2)
    story.commit(name, UNKNOWN)
    story.read(f"{name}/0")


def zombie_by_offset(story: Story) -> None:
    one = committed(story, 1, 0)
    two = committed(story, 1, 0, instance=2)
    story.read(f"{two}/0", f"{one}/0")


def hanging(story: Story) -> None:
    story.end_of_log(7, 5)


CASES = {
    "lost writes": lost_write,
    "lost writes: only read_uncommitted": lost_of_reader_uncommitted,
    "duplicates": duplicate,
    "duplicates: aborted": duplicate_of_aborted,
    "aborted reads": read_of_aborted,
    "aborted reads: commit refused": read_of_refused_commit,
    "aborted reads: commit not called": read_of_open_transaction,
    "aborted reads: never sent": read_of_unsent,
    "early reads": early_read,
    "torn transactions": torn,
    "non-monotonic reads: back": reader_goes_back,
    "non-monotonic reads: skipped": reader_skips,
    "non-monotonic reads: replaced": reader_finds_another,
    "order violations: transactions": out_of_order_transactions,
    "order violations: records": out_of_order_records,
    "zombies: time": zombie_by_time,
    "zombies: time, unknown outcome": zombie_by_time_unknown,
    "zombies: offset": zombie_by_offset,
    "hanging transactions": hanging,
}


@pytest.mark.parametrize("case", CASES)
def test_checker_finds_only_the_constructed_anomaly(case: str, story: Story) -> None:
    CASES[case](story)
    assert story.found() == {case.split(":", maxsplit=1)[0]}


def test_unavailability_is_the_longest_gap_between_commits(story: Story) -> None:
    committed(story, 1, 0)
    story.commit(story.begin(2, 0), FAIL)
    committed(story, 3, 0)
    committed(story, 4, 0)
    assert longest_unavailability(story.history()) == 6


def test_outcome_of_another_transaction_is_not_mixed_up(story: Story) -> None:
    one, two = story.begin(1, 0), story.begin(11, 0)
    story.commit(two)
    story.outcome(one, FAIL)
    transactions = story.history().transactions
    assert transactions[two].is_committed
    assert not transactions[one].may_be_committed
