"""The names exported by the top package."""

from __future__ import annotations

import subprocess
import sys

import pytest

import aioproducer
from aioproducer import errors

NOT_ERRORS = {
    "ClusterDescription",
    "GroupMetadata",
    "Interceptor",
    "Murmur2Partitioner",
    "Murmur3Partitioner",
    "Partitioner",
    "PreparedTransaction",
    "Producer",
    "ProducerConfig",
    "ProducerOptions",
    "ProducerRecord",
    "RecordMetadata",
    "RoundRobinPartitioner",
    "SendManyResult",
    "State",
    "TimeoutReason",
    "TopicPartition",
    "Transaction",
    "TransactionAdmin",
    "TransactionDescription",
    "TransactionListing",
}


def test_public_names_are_listed_with_every_error() -> None:
    assert set(aioproducer.__all__) == NOT_ERRORS | set(errors.__all__) | {"__version__", "accelerated"}
    assert len(aioproducer.__all__) == len(set(aioproducer.__all__))
    assert set(aioproducer.__all__) <= set(dir(aioproducer))


@pytest.mark.parametrize("name", aioproducer.__all__)
def test_public_names_can_be_imported(name: str) -> None:
    assert getattr(aioproducer, name) is not None


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Consumer"):
        _ = aioproducer.Consumer


def test_first_access_to_errors_finds_the_module() -> None:
    program = "import aioproducer; print(aioproducer.errors.__name__)"
    output = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, timeout=60)
    assert output.stdout.decode().strip() == "aioproducer.errors"


def test_importing_the_package_imports_no_producer() -> None:
    program = "import sys, aioproducer; print(sorted(m for m in sys.modules if m.startswith('aioproducer')))"
    output = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, timeout=60)
    assert output.stdout.decode().strip() == "['aioproducer']"


def test_import_of_producer_loads_only_modules_of_a_first_record() -> None:
    spared = {"argparse", "crc32c", "difflib", "importlib.metadata", "lz4", "anyio", "mmh3", "zstandard"}
    spared |= {
        "aioproducer._core.intake.many",
        "aioproducer._core.batching.bulk",
        "aioproducer._core.transactions.producer_transactions",
        "aioproducer._core.transactions.transaction_manager",
        "aioproducer.config.security",
        "aioproducer.errors.send_many",
        "aioproducer._core.net.authentication",
        "aioproducer._core.protocol.client",
        "aioproducer.results",
        "aioproducer._core.security.security_settings",
        "hmac",
        "isal",
        "murmurhash2",
        "uuid",
        "zlib",
    }
    program = f"import sys; from aioproducer import Producer; Producer('a:1'); print(sorted({spared} & sys.modules.keys()))"
    output = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, timeout=60)
    assert output.stdout.decode().strip() == "[]"
