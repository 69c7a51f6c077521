from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from aioproducer.cli.send.checkpoint import Checkpoint, CheckpointError, Prefix
from aioproducer.cli.send.dead_letters import DeadLetters
from aioproducer.cli.send.own_files import ForeignLink, own_path

pytestmark = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs POSIX users")
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


def test_links_of_this_user_are_followed(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (tmp_path / "near").symlink_to("folder/../folder")
    (folder / "link").symlink_to(tmp_path / "near" / "file")
    assert own_path(tmp_path / "near" / "link") == own_path(tmp_path) / "folder" / "file"


def test_missing_file_is_a_path_of_its_own(tmp_path: Path) -> None:
    assert own_path(tmp_path / "a" / ".." / "b") == own_path(tmp_path) / "b"


def test_circle_of_links_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="symbolic links"):
        own_path(tmp_path / "a")


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
