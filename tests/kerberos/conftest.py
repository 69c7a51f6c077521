"""An Apache Kafka with a KDC, for the tests of this directory, which `make test-kerberos` runs."""

from __future__ import annotations

import importlib.util
import itertools
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.kafka.apache.fetching import fetch_for
from tests.kafka.apache.jars import class_path
from tests.kafka.apache.java import JavaNotFound, find_java
from tests.kafka.apache.secured import REAUTH_MS, SecuredKafka
from tests.kerberos.kdc import REALM, Kdc, missing_programs

HERE: Final = Path(__file__).parent
SERVICE: Final = "kafka/localhost"
JGSS: Final = "jdk.security.jgss"

topic_numbers = itertools.count()


def missing() -> list[str]:
    """Return the missing programs of this machine, each with its installation command."""
    lacks = []
    if programs := missing_programs():
        lacks.append(
            f"{', '.join(programs)}: MIT Kerberos (Debian: krb5-kdc, krb5-admin-server and krb5-user; Fedora:"
            " krb5-server and krb5-workstation)"
        )
    if importlib.util.find_spec("gssapi") is None:
        lacks.append(
            "the package gssapi, which is built against libkrb5 (Debian: gcc and libkrb5-dev; then pip install"
            " 'aioproducer[kerberos]')"
        )
    try:
        java = find_java()
    except JavaNotFound as error:
        lacks.append(str(error))
    else:
        modules = subprocess.run([java, "--list-modules"], check=False, capture_output=True, text=True).stdout
        if f"{JGSS}@" not in modules:
            lacks.append(f"a Java with the module {JGSS}, which {java} lacks: set JAVA_HOME to a whole JDK")
    return lacks


@pytest.fixture(scope="session")
def kdc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    """A realm with the broker, and with alice and bob."""
    with Kdc(tmp_path_factory.mktemp("kdc")) as kdc:
        for principal in (SERVICE, "alice", "bob"):
            kdc.keytab(principal)
        yield kdc


@pytest.fixture(scope="session")
def keytab(kdc: Kdc) -> Path:
    """Alice's: she may write to every topic."""
    return kdc.keytab("alice")


@pytest.fixture(scope="session")
def kerberized(kdc: Kdc) -> Iterator[SecuredKafka]:
    """One broker with the listeners KERBEROS, KERBEROS_TLS and, for sessions of three seconds, KERBEROS_REAUTH."""
    jaas = (
        "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true"
        f' keyTab="{kdc.keytab(SERVICE)}" principal="{SERVICE}@{REALM}";'
    )
    properties = {"sasl.kerberos.service.name": "kafka"}
    for listener in ("kerberos", "kerberos_tls", "kerberos_reauth"):
        prefix = f"listener.name.{listener}."
        properties |= {
            f"{prefix}sasl.enabled.mechanisms": "GSSAPI",
            f"{prefix}gssapi.sasl.jaas.config": jaas,
        }
    properties["listener.name.kerberos_reauth.gssapi.connections.max.reauth.ms"] = str(REAUTH_MS)
    secured = SecuredKafka(
        listeners={
            "KERBEROS": "SASL_PLAINTEXT",
            "KERBEROS_TLS": "SASL_SSL",
            "KERBEROS_REAUTH": "SASL_PLAINTEXT",
        },
        properties=properties,
        jvm_options=(f"-Djava.security.krb5.conf={kdc.config}",),
    )
    with secured.kafka:
        yield secured


@pytest.fixture
def topic(kerberized: SecuredKafka, request: pytest.FixtureRequest) -> str:
    """A fresh topic of three partitions."""
    name = f"{request.node.originalname}-{next(topic_numbers)}"
    kerberized.kafka.create_topic(name, 3)
    return name


@pytest.fixture(autouse=True)
def no_tickets(kdc: Kdc, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Configure libkrb5 for this realm only, without a ticket until a test gets one."""
    monkeypatch.setenv("KRB5_CONFIG", str(kdc.config))
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path / 'none.cache'}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what lies in this directory, so that `-m "not kerberos"` leaves it out."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.kerberos)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Report missing programs, and fetch the jars of the broker."""
    wanted = any(item.get_closest_marker("kerberos") for item in session.items)
    if wanted and not session.config.option.collectonly and (lacks := missing()):
        raise pytest.UsageError("\n- ".join(("the tests of Kerberos need what is not here:", *lacks)))
    fetch_for(session, "kerberos", class_path)
