"""The contents of the wheel and of the sdist."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from email.message import Message
from email.parser import BytesParser
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from packaging import tags
from packaging.utils import parse_wheel_filename

from aioproducer import __version__
from tests.packaging.conftest import Distributions
from tests.packaging.environments import ROOT, make_environment, succeed

pytestmark = pytest.mark.timeout(300)  # the first one builds

hatch_build = pytest.importorskip("hatch_build", reason="hatchling is not installed")
PACKAGES = ("aioproducer", "pyspark_aioproducer")
DIST_INFO = f"aioproducer-{__version__}.dist-info"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SOURCES = {str(path.relative_to(ROOT)) for path in (ROOT / "aioproducer/_core/_c").glob("*.[ch]")}
BINARY = re.compile(r"aioproducer/_core/_accelerator\.\S+\.(so|pyd)")
PUBLIC_HOSTS = {"github.com", "kafka.apache.org", "pypi.org"}


def files_below(folder: Path) -> set[str]:
    """Return the files of *folder*, by their paths in the checkout, without caches of tools."""
    return {
        str(path)
        for path in (each.relative_to(ROOT) for each in folder.rglob("*") if each.is_file())
        if not any(part == "__pycache__" or part.startswith(".") for part in path.parts)
        and not BINARY.fullmatch(str(path))
    }


def names_in(wheel: Path) -> set[str]:
    with ZipFile(wheel) as archive:
        return {
            name for name in archive.namelist() if not name.startswith(DIST_INFO) and not name.endswith("/")
        }


def metadata(wheel: Path) -> Message:
    with ZipFile(wheel) as archive:
        return BytesParser().parsebytes(archive.read(f"{DIST_INFO}/METADATA"))


def test_wheel_has_exactly_the_packages(distributions: Distributions) -> None:
    for wheel in (distributions.wheel, distributions.pure_wheel):
        names = {name for name in names_in(wheel) if not BINARY.fullmatch(name)}
        assert names == set().union(*(files_below(ROOT / package) for package in PACKAGES)) - SOURCES
        assert {f"{package}/py.typed" for package in PACKAGES} <= names


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_wheel_has_one_abi3_binary_with_a_compiler(distributions: Distributions) -> None:
    assert [name for name in names_in(distributions.wheel) if BINARY.fullmatch(name)] == [
        "aioproducer/_core/_accelerator.abi3.so"
    ]
    assert f"aioproducer-{__version__}-cp311-abi3-" in distributions.wheel.name


@pytest.mark.skipif(platform.system() != "Linux", reason="auditwheel repairs wheels of Linux")
@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_pip_prefers_the_repaired_wheel_of_linux(distributions: Distributions, tmp_path: Path) -> None:
    index, found = tmp_path / "index", tmp_path / "found"
    tools = Path(sys.executable).parent
    environment = {
        **os.environ,
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
    }  # auditwheel calls patchelf
    repair = (sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", index, distributions.wheel)
    subprocess.run(repair, env=environment, check=True, capture_output=True, timeout=120)
    [repaired] = index.iterdir()
    assert re.search(rf"-cp311-abi3-(many|musl)linux\S*_{platform.machine()}\.whl$", repaired.name)
    assert names_in(repaired) == names_in(distributions.wheel)
    shutil.copy(distributions.pure_wheel, index)
    pip = (sys.executable, "-m", "pip", "download", "--no-deps", "--no-index", "--find-links", index)
    succeed(*map(str, pip), "--dest", str(found), "aioproducer")
    assert [each.name for each in found.iterdir()] == [repaired.name]
    python = make_environment(tmp_path / "environment", str(repaired))
    assert succeed(python, "-c", "import aioproducer; print(aioproducer.accelerated)") == "True\n"


RELEASED = (
    *("manylinux_2_17_x86_64.manylinux2014_x86_64", "manylinux_2_17_aarch64.manylinux2014_aarch64"),
    *("musllinux_1_2_x86_64", "musllinux_1_2_aarch64"),
    *("macosx_11_0_arm64", "macosx_10_9_x86_64", "win_amd64"),
)
"""Platforms of the wheels that the release workflow builds."""


@pytest.mark.parametrize(
    ("platform_tag", "abi", "expected"),
    [
        *((tag.split(".")[-1], abi, tag) for tag in RELEASED for abi in ("cp311", "cp314")),
        ("macosx_14_0_arm64", "cp313", "macosx_11_0_arm64"),
        ("manylinux_2_17_ppc64le", "cp313", "any"),
        ("win_arm64", "cp313", "any"),
    ],
)
def test_pip_selects_the_wheel_of_the_platform(
    distributions: Distributions, tmp_path: Path, platform_tag: str, abi: str, expected: str
) -> None:
    """The choice depends on the names of files alone, so that copies of one wheel stand for all."""
    index, found = tmp_path / "index", tmp_path / "found"
    index.mkdir()
    shutil.copy(distributions.pure_wheel, index)
    for tag in RELEASED:
        shutil.copy(distributions.pure_wheel, index / f"aioproducer-{__version__}-cp311-abi3-{tag}.whl")
    version = f"3.{abi.removeprefix('cp3').removesuffix('t')}"
    pip = (sys.executable, "-m", "pip", "download", "--no-deps", "--no-index", "--find-links", str(index))
    target = ("--implementation", "cp", "--python-version", version, "--abi", abi, "--platform", platform_tag)
    succeed(*pip, "--only-binary", ":all:", *target, "--dest", str(found), "aioproducer")
    [chosen] = found.iterdir()
    assert chosen.name.removesuffix(".whl").rpartition("-")[2] == expected


@pytest.mark.parametrize("abi", ["cp313t", "cp314t"])
def test_free_threaded_python_accepts_the_pure_wheel_alone(abi: str) -> None:
    """A free-threaded Python has no limited API; its pip skips abi3 wheels."""
    version = (3, int(abi[3:-1]))
    platforms = [each for tag in RELEASED for each in tag.split(".")]
    accepted = {
        *tags.cpython_tags(version, [abi], platforms),
        *tags.compatible_tags(version, f"cp3{version[1]}", platforms),
    }
    names = [f"aioproducer-1.2.3-cp311-abi3-{tag}.whl" for tag in RELEASED]
    names.append("aioproducer-1.2.3-py3-none-any.whl")
    assert [name for name in names if parse_wheel_filename(name)[3] & accepted] == names[-1:]


def test_wheel_is_pure_without_a_compiler(distributions: Distributions) -> None:
    assert [name for name in names_in(distributions.pure_wheel) if BINARY.fullmatch(name)] == []
    assert distributions.pure_wheel.name == f"aioproducer-{__version__}-py3-none-any.whl"


def test_wheel_has_the_licence(distributions: Distributions) -> None:
    with ZipFile(distributions.wheel) as archive:
        assert archive.read(f"{DIST_INFO}/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()
    assert metadata(distributions.wheel)["License-Expression"] == "Apache-2.0"


def test_wheel_has_the_metadata_of_the_project(distributions: Distributions) -> None:
    said = metadata(distributions.wheel)
    assert (said["Name"], said["Version"], said["Requires-Python"]) == ("aioproducer", __version__, ">=3.11")
    assert set(said.get_all("Provides-Extra", ())) == set(PROJECT["optional-dependencies"])
    assert said["Description-Content-Type"] == "text/markdown"
    metadata_of_project: dict[str, Any] = {"urls": PROJECT.get("urls", {})}
    hatch_build.ReadmeHook(str(ROOT), {}).update(metadata_of_project)
    assert said.get_payload(decode=True) == metadata_of_project["readme"]["text"].encode()


def test_wheel_links_only_to_public_hosts(distributions: Distributions) -> None:
    hosts = set(re.findall(r"\w+://([^/\s)>\"]+)", metadata(distributions.wheel).as_string()))
    assert hosts <= PUBLIC_HOSTS


def test_sdist_has_the_checkout(distributions: Distributions) -> None:
    """Tests, their configuration and the Makefile are included, so packagers can run the tests."""
    folders = [path for path in ROOT.iterdir() if path.is_dir() and path.name not in {"build", "dist"}]
    visible = [path for path in folders if not path.name.startswith(".")]
    expected = set().union(*(files_below(path) for path in visible))
    expected |= {path.name for path in ROOT.iterdir() if path.is_file() and not path.name.startswith(".")}
    with tarfile.open(distributions.sdist) as archive:
        packed = {each.name.partition("/")[2] for each in archive if each.isfile()}
    assert packed - {"PKG-INFO", ".gitignore"} == expected


def test_wheel_of_the_sdist_equals_that_of_the_checkout(distributions: Distributions) -> None:
    with ZipFile(distributions.wheel) as archive, ZipFile(distributions.wheel_of_sdist) as again:
        assert {each.filename: each.CRC for each in archive.infolist()} == {
            each.filename: each.CRC for each in again.infolist()
        }
