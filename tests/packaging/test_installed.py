"""The wheel and the sdist, installed where nothing else is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.packaging.conftest import Distributions
from tests.packaging.environments import ROOT, make_environment, run, succeed
from tests.packaging.licences import PROJECT

pytestmark = pytest.mark.timeout(300)  # the first one builds and installs

OURS = {"aioproducer", "anyio", "crc32c", "lz4", "mmh3", "zstandard"}
THEIRS = {"idna", "typing-extensions"}
"""What anyio needs, on some Pythons."""
PYTESTS = {"iniconfig", "packaging", "pluggy", "pygments", "pytest"}
CERTIFICATES = {"cffi", "cryptography", "pycparser"}
"""What the testing cluster makes its certificates with."""

INSTALLED = """
from importlib.metadata import distributions
print(*(each.name.lower().replace("_", "-") for each in distributions()))
"""
ROUND_TRIP = ROOT / "tests/packaging/round_trip.py"
SENT = ["none", "many", "gzip", "many", "lz4", "many", "zstd", "many"]
A_TEST_OF_A_USER = """
from __future__ import annotations


def test_plugin_provides_kafka_cluster(kafka_cluster):
    assert kafka_cluster.bootstrap_servers
"""
WITHOUT_AN_EXTRA = "aioproducer.contrib.faststream needs FastStream: pip install 'faststream[kafka]'"
"""A program that uses the middleware has FastStream."""
NEEDING = """
import tempfile
from importlib import import_module
from pkgutil import walk_packages
import aioproducer.contrib

contrib = [module.name for module in walk_packages(aioproducer.contrib.__path__, "aioproducer.contrib.")]
assert contrib
for name in (*contrib, "aioproducer.arrow", "aioproducer.spark", "aioproducer.testing.certificates"):
    try:
        import_module(name)
    except ImportError as error:
        print(error)
with tempfile.NamedTemporaryFile(suffix=".p12") as store:
    store.write(bytes.fromhex("30820100020103"))
    store.flush()
    login = {"security_protocol": "SASL_PLAINTEXT"}
    for options in (
        {"compression_type": "snappy"},
        {**login, "sasl_mechanism": "GSSAPI", "sasl_kerberos_service_name": "kafka"},
        {**login, "sasl_mechanism": "AWS_MSK_IAM"},
        {
            **login,
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauthbearer_token_endpoint_url": "https://localhost/token",
            "sasl_oauthbearer_assertion_private_key_file": "key.pem",
        },
        {
            "security_protocol": "SSL",
            "ssl_truststore_location": store.name,
            "ssl_truststore_type": "PKCS12",
            "ssl_truststore_password": "secret",
        },
    ):
        try:
            aioproducer.Producer("localhost:9092", **options)
        except aioproducer.ConfigError as error:
            print(error)
"""
"""Asks for everything that may lack a package, and prints what it is told."""
SILENT = {
    "isal": "zlib compresses the same levels, slower",
    "json": "Python's own json does it, slower",
    "murmurhash2": "the same partitions without it, slower",
    "uvloop": "the user's own program runs on it",
}
"""Why nothing tells the other extras."""
NOT_FOR_USERS = {"bench", "dev", "docs"}


def installed(python: Path) -> set[str]:
    return set(succeed(python, "-I", "-c", INSTALLED).split())


def test_wheel_installs_only_its_dependencies(clean_python: Path) -> None:
    assert OURS <= installed(clean_python) <= OURS | THEIRS


def test_record_is_sent_without_any_extra(distributions: Distributions, clean_python: Path) -> None:
    accelerated = "abi3" in distributions.wheel.name
    assert succeed(clean_python, "-I", ROUND_TRIP).split() == [str(accelerated), *SENT]


def test_records_are_sent_where_no_compiler_worked(
    distributions: Distributions, clean_python: Path, tmp_path: Path
) -> None:
    python = make_environment(tmp_path / "env", str(distributions.pure_wheel))
    assert installed(python) == installed(clean_python)
    assert succeed(python, "-I", ROUND_TRIP).split() == ["False", *SENT]


def test_missing_package_error_names_its_extra(clean_python: Path) -> None:
    told = succeed(clean_python, "-I", "-c", NEEDING).splitlines()
    told += run(clean_python, "-I", "-m", "aioproducer", "demo").stderr.splitlines()
    extras = set()
    for line in told:
        extras.update(re.findall(r"the extra '([\w-]+)': pip install ", line) or [line])
    assert WITHOUT_AN_EXTRA in extras
    assert (
        extras - {WITHOUT_AN_EXTRA} == PROJECT["optional-dependencies"].keys() - SILENT.keys() - NOT_FOR_USERS
    )


def test_command_without_its_extra_prints_one_line(clean_python: Path) -> None:
    done = run(clean_python.parent / "aioproducer", "--help")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert 'pip install "click' in done.stderr


def test_sdist_installs_and_the_testing_extra_has_the_plugin(
    distributions: Distributions, clean_python: Path, tmp_path: Path
) -> None:
    """One test for both, because each environment takes seconds."""
    python = make_environment(tmp_path / "env", f"aioproducer[testing] @ {distributions.sdist.as_uri()}")
    assert installed(python) - PYTESTS - CERTIFICATES == installed(clean_python)
    (tmp_path / "test_mine.py").write_text(A_TEST_OF_A_USER)
    assert "1 passed" in succeed(python, "-I", "-m", "pytest", "-q", "test_mine.py", cwd=tmp_path)
