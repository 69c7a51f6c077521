from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from aioproducer.cli.send.checkpoint import CheckpointError
from aioproducer.cli.send.dead_letters import DeadLetter, DeadLetters, is_dead
from aioproducer.errors import (
    DeliveryTimeout,
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    ProducerError,
    RecordTooLarge,
    TopicAuthorizationFailed,
)

LETTER = DeadLetter("in.txt", "line", 17, "no JSON", "grün".encode())


def test_a_letter_is_an_object_on_one_line() -> None:
    assert json.loads(LETTER.to_json()) == {
        "file": "in.txt",
        "line": 17,
        "reason": "no JSON",
        "input": "grün",
    }
    assert "\n" not in LETTER._replace(input=b"a\nb", reason="a\nb").to_json()


def test_what_is_no_text_is_in_base64() -> None:
    told = json.loads(LETTER._replace(unit="record", input=b"\xff\x00").to_json())
    assert (told["record"], told["input_base64"]) == (17, "/wA=")
    assert "input" not in told


@pytest.mark.parametrize("kind", [RecordTooLarge, MessageTooLarge, InvalidRecord, InvalidTimestamp])
def test_errors_of_the_record_itself_make_it_a_dead_letter(kind: type[ProducerError]) -> None:
    assert is_dead(kind("x"))
    assert not is_dead(kind("x", possibly_persisted=True))


@pytest.mark.parametrize("kind", [DeliveryTimeout, TopicAuthorizationFailed, ProducerError])
def test_others_may_hit_any_record(kind: type[ProducerError]) -> None:
    assert not is_dead(kind("x"))


def test_they_are_added_to_what_is_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "dead"
    path.write_text("before\n")
    letters = DeadLetters(path)
    with letters.opened():
        letters.write([])
        letters.write([LETTER, LETTER])
        assert path.read_text().splitlines() == ["before", LETTER.to_json(), LETTER.to_json()], "at once"
    assert len(path.read_text().splitlines()) == 3


def test_nowhere_is_a_place_too() -> None:
    letters = DeadLetters()
    with letters.opened():
        letters.write([LETTER])


def test_a_file_that_cannot_be_is_told(tmp_path: Path) -> None:
    letters = DeadLetters(tmp_path)
    with (
        pytest.raises(CheckpointError, match=r"dead letters .*: Is a directory"),
        letters.opened(),
    ):
        pass


def test_full_disk_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    letters = DeadLetters(tmp_path / "dead")
    monkeypatch.setattr(os, "fsync", full)
    with letters.opened(), pytest.raises(CheckpointError, match="No space left on device"):
        letters.write([LETTER])


def test_fifo_is_refused_without_blocking(tmp_path: Path) -> None:
    path = tmp_path / "dead"
    os.mkfifo(path)
    letters = DeadLetters(path)
    with pytest.raises(CheckpointError, match="No such device or address"), letters.opened():
        pass
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with pytest.raises(CheckpointError, match="not a regular file"), letters.opened():
            pass
        assert os.read(reader, 10) == b""
    finally:
        os.close(reader)
