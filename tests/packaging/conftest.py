"""The wheel and the sdist of this checkout, built once."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import NamedTuple

import pytest
from build import ProjectBuilder
from build.env import DefaultIsolatedEnv
from pyproject_hooks import quiet_subprocess_runner

from tests.packaging.environments import ROOT, make_environment


class Distributions(NamedTuple):
    """The distributions of a release, and the wheel built from the sdist."""

    wheel: Path
    sdist: Path
    unpacked: Path
    """The sdist's folder."""
    wheel_of_sdist: Path
    pure_wheel: Path
    """Built where no compiler works."""


@pytest.fixture(scope="session")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Distributions:
    """Build both, and a wheel from the sdist, as `python -m build` does; in one environment for the backend."""
    folder = tmp_path_factory.mktemp("dist")
    with DefaultIsolatedEnv() as env:
        checkout = ProjectBuilder.from_isolated_env(env, ROOT, quiet_subprocess_runner)
        env.install(checkout.build_system_requires)
        wheel = checkout.build("wheel", folder)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("CC", "/bin/false")
            pure_wheel = checkout.build("wheel", folder / "pure")
        sdist = checkout.build("sdist", folder)
        with tarfile.open(sdist) as archive:
            archive.extractall(folder, filter="data")
        unpacked = folder / Path(sdist).name.removesuffix(".tar.gz")
        again = ProjectBuilder.from_isolated_env(env, unpacked, quiet_subprocess_runner)
        wheel_of_sdist = again.build("wheel", folder / "again")
    return Distributions(Path(wheel), Path(sdist), unpacked, Path(wheel_of_sdist), Path(pure_wheel))


@pytest.fixture(scope="session")
def clean_python(distributions: Distributions, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Yield the Python of an environment with the wheel and its dependencies, without extras."""
    return make_environment(tmp_path_factory.mktemp("clean"), str(distributions.wheel))
