from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
from pathlib import Path

import pytest

from aioproducer.cli.send.written_files import (
    MOST_BYTES,
    Checkpoint,
    CheckpointError,
    DeadLetter,
    DeadLetters,
    ForeignLink,
    Prefix,
    StoredPrefix,
    is_record_error,
    own_path,
)
from aioproducer.errors import (
    DeliveryTimeout,
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    ProducerError,
    RecordTooLarge,
    TopicAuthorizationFailed,
)
from tests.cases import for_each

POSIX = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs POSIX users")
OTHER_USER = 12345
WORK: dict[str, str | None] = {"topic": "orders"}


def foreign(link: Path, target: Path) -> Path:
    """Make a symbolic link that belongs to another user."""
    link.symlink_to(target)
    try:
        os.lchown(link, OTHER_USER, -1)
    except PermissionError:
        pytest.skip("only root gives files away")
    return link


@POSIX
def test_links_of_this_user_are_followed(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (tmp_path / "near").symlink_to("folder/../folder")
    (folder / "link").symlink_to(tmp_path / "near" / "file")
    assert own_path(tmp_path / "near" / "link") == own_path(tmp_path) / "folder" / "file"


@POSIX
def test_missing_file_is_a_path_of_its_own(tmp_path: Path) -> None:
    assert own_path(tmp_path / "a" / ".." / "b") == own_path(tmp_path) / "b"


@POSIX
def test_circle_of_links_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="symbolic links"):
        own_path(tmp_path / "a")


@POSIX
@pytest.mark.parametrize("place", ["file", "folder"])
def test_links_of_another_user_are_refused(tmp_path: Path, place: str) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "file").write_text("precious")
    path = (
        foreign(tmp_path / "file", victim / "file")
        if place == "file"
        else foreign(tmp_path / "folder", victim) / "file"
    )
    with pytest.raises(ForeignLink, match="belongs to another user"):
        own_path(path)
    checkpoint = Checkpoint(path, WORK)
    with pytest.raises(CheckpointError, match="belongs to another user"), checkpoint.locked():
        pass
    with pytest.raises(CheckpointError, match="belongs to another user"):
        checkpoint.save(Prefix())
    with pytest.raises(CheckpointError, match="belongs to another user"), DeadLetters(path).opened():
        pass
    assert (victim / "file").read_text() == "precious"
    assert [each.name for each in victim.iterdir()] == ["file"]


@POSIX
def test_new_files_are_private_and_others_keep_their_mode(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        letters, checkpoint = tmp_path / "letters", tmp_path / "checkpoint"
        with DeadLetters(letters).opened():
            pass
        Checkpoint(checkpoint, WORK).save(Prefix())
        assert [stat.S_IMODE(each.stat().st_mode) for each in (letters, checkpoint)] == [0o600, 0o600]
        checkpoint.chmod(0o640)
        Checkpoint(checkpoint, WORK).save(Prefix())
        assert stat.S_IMODE(checkpoint.stat().st_mode) == 0o640
    finally:
        os.umask(before)


LINES_WORK = {"topic": "orders", "format": "lines", "run": None}


def prefix_of(*pieces: bytes) -> Prefix:
    prefix = Prefix(cluster="c-1")
    for piece in pieces:
        prefix.extend(piece, 1)
    return prefix


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    return Checkpoint(tmp_path / "cp", LINES_WORK)


def test_saved_checkpoint_is_loaded(checkpoint: Checkpoint) -> None:
    assert checkpoint.load() is None
    for pieces in ([b"a\n"], [b"a\n", b"b\n"]):
        checkpoint.save(prefix_of(*pieces))
        digest = hashlib.sha256(b"".join(pieces)).hexdigest()
        assert checkpoint.load() == StoredPrefix(2 * len(pieces), len(pieces), digest, "c-1")
    assert [path.name for path in checkpoint.path.parent.iterdir()] == ["cp"]


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_old_checkpoint_stays_when_save_fails(
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
def test_checkpoint_of_other_work_is_refused(checkpoint: Checkpoint, name: str, mine: str) -> None:
    checkpoint.save(prefix_of(b"a\n"))
    other = Checkpoint(checkpoint.path, {**LINES_WORK, name: mine})
    with pytest.raises(CheckpointError, match=f"was made with {name} {LINES_WORK[name]}, not {mine}"):
        other.load()


@pytest.mark.parametrize(
    "content",
    [
        *("", "text", "[]", "{}", "3", "[" * 100_000),
        *(
            json.dumps({"work": LINES_WORK, "bytes": count, "records": 1, "sha256": "", "cluster": ""})
            for count in ("many", -1, 1.5, True, float("inf"))
        ),
    ],
)
def test_other_file_is_refused_as_checkpoint(checkpoint: Checkpoint, content: str) -> None:
    checkpoint.path.write_text(content)
    with pytest.raises(CheckpointError, match="is not a checkpoint of aioproducer send; it was not changed"):
        checkpoint.load()
    assert checkpoint.path.read_text() == content


def test_unreadable_checkpoint_is_refused(checkpoint: Checkpoint) -> None:
    checkpoint.path.write_bytes(b"\xff\xfe")
    with pytest.raises(CheckpointError, match=r"cannot read the checkpoint .*: the file is not text"):
        checkpoint.load()
    folder = Checkpoint(checkpoint.path.parent, LINES_WORK)
    with pytest.raises(CheckpointError, match=r"cannot read the checkpoint .*: it is not a regular file"):
        folder.load()


def test_checkpoint_read_is_bounded(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", Path("/dev/zero")):
        with pytest.raises(CheckpointError, match="it is not a regular file"):
            Checkpoint(path, LINES_WORK).load()
    large = Checkpoint(tmp_path / "large", LINES_WORK)
    large.save(prefix_of(b"a\n"))
    with large.path.open("a") as file:
        file.write(" " * MOST_BYTES + "what comes behind that is not looked at")
    assert large.load() is not None


def test_link_to_checkpoint_stays_a_link(checkpoint: Checkpoint, tmp_path: Path) -> None:
    link = Checkpoint(tmp_path / "link", LINES_WORK)
    link.path.symlink_to(checkpoint.path)
    link.save(prefix_of(b"a\n"))
    assert link.path.is_symlink()
    assert checkpoint.load() == link.load() is not None


def test_checkpoint_lock_excludes_other_processes(checkpoint: Checkpoint, tmp_path: Path) -> None:
    link = Checkpoint(tmp_path / "link", LINES_WORK)
    link.path.symlink_to(checkpoint.path)
    with checkpoint.locked():
        for other in (Checkpoint(checkpoint.path, LINES_WORK), link):
            with (
                pytest.raises(CheckpointError, match=r"another process uses the checkpoint .*; wait"),
                other.locked(),
            ):
                raise AssertionError("it is not ours")
    with link.locked():
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["link"]


@pytest.mark.parametrize("suffix", [".lock", ".new"])
def test_foreign_file_beside_checkpoint_is_kept(checkpoint: Checkpoint, suffix: str) -> None:
    other = Path(f"{checkpoint.path}{suffix}")
    other.write_text("precious")
    with (
        pytest.raises(CheckpointError, match=rf"cannot write .*cp: .*cp\{suffix} is another file"),
        checkpoint.locked(),
    ):
        raise AssertionError("it would be overwritten")
    assert other.read_text() == "precious"
    other.unlink()
    with checkpoint.locked():
        checkpoint.save(prefix_of(b"a\n"))
    assert [path.name for path in checkpoint.path.parent.iterdir()] == ["cp"]


@pytest.mark.parametrize("whole", [True, False])
def test_leftover_of_killed_process_is_removed(checkpoint: Checkpoint, whole: bool) -> None:
    checkpoint.save(prefix_of(b"a\n"))
    checkpoint.path.rename(f"{checkpoint.path}.new")
    Path(f"{checkpoint.path}.lock").touch()
    if not whole:
        os.truncate(f"{checkpoint.path}.new", 0)
    with checkpoint.locked():
        assert checkpoint.load() is None
        checkpoint.save(prefix_of(b"a\n", b"b\n"))
    assert [path.name for path in checkpoint.path.parent.iterdir()] == ["cp"]


def test_circle_of_links_is_refused_as_checkpoint(checkpoint: Checkpoint) -> None:
    checkpoint.path.symlink_to(checkpoint.path)
    with (
        pytest.raises(CheckpointError, match=r"cannot write the checkpoint .*: Too many levels"),
        checkpoint.locked(),
    ):
        checkpoint.load()


def test_removed_lock_file_is_no_lock(checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(*_: object) -> None:
        Path(f"{checkpoint.path}.lock").unlink()

    monkeypatch.setattr("fcntl.flock", flock)
    with pytest.raises(CheckpointError, match="another process"), checkpoint.locked():
        raise AssertionError("the next save would fail as well")


def test_file_system_without_locks_is_accepted(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", flock)
    with checkpoint.locked():
        checkpoint.save(prefix_of(b"a\n"))
    assert checkpoint.load() is not None


LETTER = DeadLetter("in.txt", "line", 17, "no JSON", "grün".encode())


def test_dead_letter_is_an_object_on_one_line() -> None:
    assert json.loads(LETTER.to_json()) == {
        "file": "in.txt",
        "line": 17,
        "reason": "no JSON",
        "input": "grün",
    }
    assert "\n" not in LETTER._replace(input=b"a\nb", reason="a\nb").to_json()


def test_binary_dead_letter_is_base64() -> None:
    told = json.loads(LETTER._replace(unit="record", input=b"\xff\x00").to_json())
    assert (told["record"], told["input_base64"]) == (17, "/wA=")
    assert "input" not in told


@for_each("kind", [RecordTooLarge, MessageTooLarge, InvalidRecord, InvalidTimestamp])
def test_record_errors_make_dead_letters(kind: type[ProducerError]) -> None:
    assert is_record_error(kind("x"))
    assert not is_record_error(kind("x", possibly_persisted=True))


@pytest.mark.parametrize("kind", [DeliveryTimeout, TopicAuthorizationFailed, ProducerError])
def test_other_errors_make_no_dead_letters(kind: type[ProducerError]) -> None:
    assert not is_record_error(kind("x"))


def test_dead_letters_are_appended(tmp_path: Path) -> None:
    path = tmp_path / "dead"
    path.write_text("before\n")
    letters = DeadLetters(path)
    with letters.opened():
        letters.write([])
        letters.write([LETTER, LETTER])
        assert path.read_text().splitlines() == ["before", LETTER.to_json(), LETTER.to_json()], "at once"
    assert len(path.read_text().splitlines()) == 3


def test_dead_letters_without_file_are_dropped() -> None:
    letters = DeadLetters()
    with letters.opened():
        letters.write([LETTER])


def test_unwritable_dead_letters_are_reported(tmp_path: Path) -> None:
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
