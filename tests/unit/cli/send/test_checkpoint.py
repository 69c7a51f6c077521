from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from aioproducer.cli.send.checkpoint import Checkpoint, NoCheckpoint, Prefix, Remembered

WORK = {"topic": "orders", "format": "lines", "run": None}


def prefix_of(*pieces: bytes) -> Prefix:
    prefix = Prefix()
    for piece in pieces:
        prefix.extend(piece, 1)
    return prefix


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    return Checkpoint(tmp_path / "cp", WORK)


def test_what_is_saved_is_loaded(checkpoint: Checkpoint) -> None:
    assert checkpoint.load() is None
    for pieces in ([b"a\n"], [b"a\n", b"b\n"]):
        checkpoint.save(prefix_of(*pieces))
        digest = hashlib.sha256(b"".join(pieces)).hexdigest()
        assert checkpoint.load() == Remembered(2 * len(pieces), len(pieces), digest)
    assert [path.name for path in checkpoint.path.parent.iterdir()] == ["cp"]


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_the_old_one_stays_until_the_new_one_is_whole(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    checkpoint.save(prefix_of(b"a\n"))
    before = checkpoint.path.read_bytes()

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os if failing == "fsync" else Path, failing, fail)
    with pytest.raises(OSError, match="No space left"):
        checkpoint.save(prefix_of(b"a\n", b"b\n"))
    assert checkpoint.path.read_bytes() == before
    assert [path.name for path in checkpoint.path.parent.iterdir()] == ["cp"]


@pytest.mark.parametrize(("name", "mine"), [("topic", "clicks"), ("format", "json"), ("run", "nightly")])
def test_one_of_other_work_is_refused(checkpoint: Checkpoint, name: str, mine: str) -> None:
    checkpoint.save(prefix_of(b"a\n"))
    other = Checkpoint(checkpoint.path, {**WORK, name: mine})
    with pytest.raises(NoCheckpoint, match=f"was made with {name} {WORK[name]}, not {mine}"):
        other.load()


@pytest.mark.parametrize(
    "content",
    ["", "text", "[]", "{}", "3", json.dumps({"work": WORK, "bytes": "many", "records": 1, "sha256": ""})],
)
def test_another_file_is_refused_and_left_alone(checkpoint: Checkpoint, content: str) -> None:
    checkpoint.path.write_text(content)
    with pytest.raises(NoCheckpoint, match="is no checkpoint of aioproducer send; it was left alone"):
        checkpoint.load()
    assert checkpoint.path.read_text() == content


def test_what_cannot_be_read_is_refused(checkpoint: Checkpoint) -> None:
    checkpoint.path.write_bytes(b"\xff\xfe")
    with pytest.raises(NoCheckpoint, match=r"cannot read the checkpoint .*: it is no text"):
        checkpoint.load()
    folder = Checkpoint(checkpoint.path.parent, WORK)
    with pytest.raises(NoCheckpoint, match=r"cannot read the checkpoint .*: Is a directory"):
        folder.load()
