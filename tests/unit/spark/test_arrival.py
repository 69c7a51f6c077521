"""The check on an executor, in Python processes of its kind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark import cloudpickle
from pyspark.errors import PySparkRuntimeError

from aioproducer import version
from aioproducer.arrow.arrow_schema import Columns
from aioproducer.errors import ConfigError
from aioproducer.spark import writer as module
from aioproducer.spark.arrival import check_options, dumps
from aioproducer.spark.sink_options import ProducerSettings
from aioproducer.spark.stream_writer import StreamWriter
from aioproducer.spark.task import Task
from aioproducer.spark.writer import BatchWriter, Planned

SERVERS = ("bootstrap.servers", "a:9092")
TASK = Task(ProducerSettings((SERVERS,)), Columns(value="value", topic="orders"))


@pytest.fixture(autouse=True)
def unplanned(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no broker to plan with."""
    monkeypatch.setattr(module, "planned", lambda task: task)


@pytest.mark.parametrize("kind", [BatchWriter, StreamWriter])
def test_writer_arrives_with_its_task(kind: type[Planned]) -> None:
    arrived = cloudpickle.loads(dumps(kind(TASK)))
    assert type(arrived) is kind
    assert vars(arrived) == {"_task": TASK}


def test_another_version_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    content = dumps(BatchWriter(TASK))
    monkeypatch.setattr(version, "__version__", "0.0.1")
    with pytest.raises(PySparkRuntimeError, match=r"^executor on .*: aioproducer is 0\.0\.1 here, and "):
        cloudpickle.loads(content)


@pytest.mark.parametrize("missing", ["aioproducer", "pyarrow"])
def test_a_missing_package_is_named(missing: str, tmp_path: Path) -> None:
    path = tmp_path / "writer"
    path.write_bytes(dumps(BatchWriter(TASK)))
    program = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        f"from pyspark import cloudpickle; cloudpickle.loads(open({str(path)!r}, 'rb').read())"
    )
    output = subprocess.run(
        [sys.executable, "-c", program],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    line = output.stderr.splitlines()[-1]
    assert "PySparkRuntimeError: executor on " in line
    assert missing in line
    assert line.endswith(f"(Python: {sys.executable}), or ship an environment with --archives")


@pytest.mark.parametrize(
    ("options", "package", "extra"),
    [
        ({"compression.type": "snappy"}, "cramjam", "snappy"),
        ({"compression.type": "zstd"}, "zstandard", "zstandard"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "AWS_MSK_IAM"}, "botocore", "msk"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}, "gssapi", "kerberos"),
    ],
)
def test_a_missing_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, str], package: str, extra: str
) -> None:
    monkeypatch.delitem(sys.modules, "aioproducer._core.records.snappy", raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr("aioproducer.config.security.find_spec", lambda _name: None)
    settings = ProducerSettings((SERVERS, *options.items()))
    with pytest.raises(ConfigError, match=rf"^executor on .*{extra}.*; the driver accepts the option: "):
        check_options(settings)


def test_a_missing_file_is_named() -> None:
    options = (("security.protocol", "SSL"), ("ssl.truststore.location", "/missing/ca.pem"))
    with pytest.raises(
        ConfigError, match=r"^executor on .*/missing/ca\.pem.*; the driver accepts the option: "
    ):
        check_options(ProducerSettings((SERVERS, *options)))
