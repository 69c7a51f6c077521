from __future__ import annotations

import errno
import hashlib
import json
import os
from pathlib import Path

import pytest

from aioproducer.cli.send.checkpoint import MOST_BYTES, Checkpoint, CheckpointError, Prefix, Remembered

WORK = {"topic": "orders", "format": "lines", "run": None}


def prefix_of(*pieces: bytes) -> Prefix:
    prefix = Prefix(cluster="c-1")
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
        assert checkpoint.load() == Remembered(2 * len(pieces), len(pieces), digest, "c-1")
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
    with pytest.raises(CheckpointError, match=r"cannot write the checkpoint .*: No space left"):
        checkpoint.save(prefix_of(b"a\n", b"b\n"))
    assert checkpoint.path.read_bytes() == before
    assert [path.name for path in checkpoint.path.parent.iterdir()] == ["cp"]


@pytest.mark.parametrize(("name", "mine"), [("topic", "clicks"), ("format", "json"), ("run", "nightly")])
def test_one_of_other_work_is_refused(checkpoint: Checkpoint, name: str, mine: str) -> None:
    checkpoint.save(prefix_of(b"a\n"))
    other = Checkpoint(checkpoint.path, {**WORK, name: mine})
    with pytest.raises(CheckpointError, match=f"was made with {name} {WORK[name]}, not {mine}"):
        other.load()


@pytest.mark.parametrize(
    "content",
    [
        *("", "text", "[]", "{}", "3", "[" * 100_000),
        *(
            json.dumps({"work": WORK, "bytes": count, "records": 1, "sha256": "", "cluster": ""})
            for count in ("many", -1, 1.5, True, float("inf"))
        ),
    ],
)
def test_another_file_is_refused_and_left_alone(checkpoint: Checkpoint, content: str) -> None:
    checkpoint.path.write_text(content)
    with pytest.raises(CheckpointError, match="is not a checkpoint of aioproducer send; it was not changed"):
        checkpoint.load()
    assert checkpoint.path.read_text() == content


def test_what_cannot_be_read_is_refused(checkpoint: Checkpoint) -> None:
    checkpoint.path.write_bytes(b"\xff\xfe")
    with pytest.raises(CheckpointError, match=r"cannot read the checkpoint .*: it is no text"):
        checkpoint.load()
    folder = Checkpoint(checkpoint.path.parent, WORK)
    with pytest.raises(CheckpointError, match=r"cannot read the checkpoint .*: it is not a regular file"):
        folder.load()


def test_what_may_have_no_end_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", Path("/dev/zero")):
        with pytest.raises(CheckpointError, match="it is not a regular file"):
            Checkpoint(path, WORK).load()
    large = Checkpoint(tmp_path / "large", WORK)
    large.save(prefix_of(b"a\n"))
    with large.path.open("a") as file:
        file.write(" " * MOST_BYTES + "what comes behind that is not looked at")
    assert large.load() is not None


def test_a_link_to_it_stays_a_link(checkpoint: Checkpoint, tmp_path: Path) -> None:
    link = Checkpoint(tmp_path / "link", WORK)
    link.path.symlink_to(checkpoint.path)
    link.save(prefix_of(b"a\n"))
    assert link.path.is_symlink()
    assert checkpoint.load() == link.load() is not None


def test_while_one_has_it_no_other_gets_it(checkpoint: Checkpoint, tmp_path: Path) -> None:
    link = Checkpoint(tmp_path / "link", WORK)
    link.path.symlink_to(checkpoint.path)
    with checkpoint.locked():
        for other in (Checkpoint(checkpoint.path, WORK), link):
            with (
                pytest.raises(
                    CheckpointError, match=r"another process is at work with the checkpoint .*: wait"
                ),
                other.locked(),
            ):
                raise AssertionError("it is not ours")
    with link.locked():
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["link"]


@pytest.mark.parametrize("suffix", [".lock", ".new"])
def test_a_file_of_somebody_else_beside_it_is_left_alone(checkpoint: Checkpoint, suffix: str) -> None:
    other = Path(f"{checkpoint.path}{suffix}")
    other.write_text("precious")
    with (
        pytest.raises(CheckpointError, match=rf"cannot write .*cp: .*cp\{suffix} is in the way"),
        checkpoint.locked(),
    ):
        raise AssertionError("it would be overwritten")
    assert other.read_text() == "precious"
    other.unlink()
    with checkpoint.locked():
        checkpoint.save(prefix_of(b"a\n"))
    assert [path.name for path in checkpoint.path.parent.iterdir()] == ["cp"]


@pytest.mark.parametrize("whole", [True, False])
def test_what_a_killed_one_has_left_is_taken_away(checkpoint: Checkpoint, whole: bool) -> None:
    checkpoint.save(prefix_of(b"a\n"))
    checkpoint.path.rename(f"{checkpoint.path}.new")
    Path(f"{checkpoint.path}.lock").touch()
    if not whole:
        os.truncate(f"{checkpoint.path}.new", 0)
    with checkpoint.locked():
        assert checkpoint.load() is None
        checkpoint.save(prefix_of(b"a\n", b"b\n"))
    assert [path.name for path in checkpoint.path.parent.iterdir()] == ["cp"]


def test_links_in_a_circle_are_refused(checkpoint: Checkpoint) -> None:
    checkpoint.path.symlink_to(checkpoint.path)
    with (
        pytest.raises(CheckpointError, match=r"cannot write the checkpoint .*: Too many levels"),
        checkpoint.locked(),
    ):
        checkpoint.load()


def test_a_lock_that_was_taken_away_before_it_was_locked_is_none(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(*_: object) -> None:
        Path(f"{checkpoint.path}.lock").unlink()

    monkeypatch.setattr("fcntl.flock", flock)
    with pytest.raises(CheckpointError, match="another process"), checkpoint.locked():
        raise AssertionError("the next one would have it, too")


def test_where_there_are_no_locks_it_goes_without(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", flock)
    with checkpoint.locked():
        checkpoint.save(prefix_of(b"a\n"))
    assert checkpoint.load() is not None
