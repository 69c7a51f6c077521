"""Configuration files as vendors of Kafka hand them out, and the options that they stand for.

Names, values and comments are those of the vendors; hosts and secrets are made up.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from aioproducer.serializers import string_serializer
from tests.unit._core.security.certificates import Authority, truststore

DIRECTORY: Final = Path(__file__).with_name("vendors")
PASSWORD: Final = "hunter2/+=="
CONFLUENT: Final = "pkc-00000.eu-central-1.aws.confluent.cloud:9092"
PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM: Final = "org.apache.kafka.common.security.scram.ScramLoginModule required"
_MSK: Final = "b-1.demo.kafka.eu-central-1.amazonaws.com"
OCI_USER: Final = "tenancy/oracleidentitycloudservice/ada@example.com/ocid1.streampool.oc1.phx.00000"
_EVENT_STREAMS: Final = "00000.kafka.svc08.us-south.eventstreams.cloud.ibm.com:9093"
_REGISTRY: Final = (
    "schema.registry.url",
    "basic.auth.credentials.source",
    "basic.auth.user.info",
)


class VendorFile(NamedTuple):
    """A configuration file and its expected result."""

    name: str
    expected: Mapping[str, Any]
    """Keyword arguments of the same configuration."""
    arguments: Mapping[str, Any] = {}
    """Arguments of `from_properties`."""
    others: tuple[str, ...] = ()
    """Names of other clients, in one warning."""
    without_effect: tuple[str, ...] = ()
    stores: tuple[str, ...] = ()
    """Trust stores and key stores in the working directory."""


def connection_string() -> str:
    """Return the password of Event Hubs."""
    namespace = "Endpoint=sb://mynamespace.servicebus.windows.net/"
    return f"{namespace};SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey={PASSWORD}"


def secured(servers: str, protocol: str = "SASL_SSL", **options: Any) -> dict[str, Any]:
    return {"bootstrap_servers": servers, "security_protocol": protocol, **options}


FILES: Final = (
    VendorFile(
        "confluent-cloud-java.properties",
        secured(
            CONFLUENT,
            sasl_mechanism="PLAIN",
            sasl_jaas_config=f"{PLAIN} username='APIKEY' password='{PASSWORD}';",
            acks="all",
            client_id="ccloud-java-client-0",
        ),
        others=("session.timeout.ms", *_REGISTRY),
        without_effect=("client.dns.lookup",),
    ),
    VendorFile(
        "confluent-cloud-python.properties",
        secured(
            CONFLUENT,
            sasl_mechanism="PLAIN",
            sasl_username="APIKEY",
            sasl_password=PASSWORD,
            client_id="ccloud-python-client-0",
        ),
        others=("session.timeout.ms", *_REGISTRY),
    ),
    VendorFile(
        "confluent-getting-started-python.ini",
        secured(CONFLUENT, sasl_mechanism="PLAIN", sasl_username="APIKEY", sasl_password=PASSWORD),
        {"prefix": "[default]"},
    ),
    VendorFile(
        "spring-confluent-cloud.properties",
        secured(
            CONFLUENT,
            sasl_mechanism="PLAIN",
            sasl_jaas_config=f"{PLAIN} username='APIKEY' password='{PASSWORD}';",
            key_serializer=string_serializer,
            value_serializer=string_serializer,
            batch_size=32_768,
            linger_ms=20,
        ),
        {"prefix": "spring.kafka."},
        others=("spring.kafka.properties.session.timeout.ms", "spring.kafka.consumer.group-id"),
    ),
    VendorFile(
        "msk-iam.properties",
        secured(
            f"{_MSK}:9098",
            sasl_mechanism="AWS_MSK_IAM",
            sasl_jaas_config="software.amazon.msk.auth.iam.IAMLoginModule required;",
        ),
        {"bootstrap_servers": f"{_MSK}:9098"},
        without_effect=("sasl.client.callback.handler.class",),
    ),
    VendorFile(
        "msk-scram.properties",
        secured(
            f"{_MSK}:9096",
            sasl_mechanism="SCRAM-SHA-512",
            sasl_jaas_config=f'{SCRAM} username="alice" password="{PASSWORD}";',
            ssl_truststore_location="kafka.client.truststore.jks",
        ),
        {"bootstrap_servers": [f"{_MSK}:9096"]},
        stores=("kafka.client.truststore.jks",),
    ),
    VendorFile(
        "aiven.properties",
        secured(
            "demo-kafka.aivencloud.com:12691",
            "SSL",
            ssl_truststore_location="client.truststore.jks",
            ssl_truststore_password=PASSWORD,
            ssl_keystore_type="PKCS12",
            ssl_keystore_location="client.keystore.p12",
            ssl_keystore_password=PASSWORD,
            ssl_key_password=PASSWORD,
            key_serializer=string_serializer,
            value_serializer=string_serializer,
        ),
        stores=("client.truststore.jks", "client.keystore.p12"),
    ),
    VendorFile(
        "strimzi-mtls.properties",
        secured(
            "my-cluster-kafka-bootstrap:9093",
            "SSL",
            ssl_truststore_location="ca.p12",
            ssl_truststore_password=PASSWORD,
            ssl_truststore_type="PKCS12",
            ssl_keystore_location="user.p12",
            ssl_keystore_password=PASSWORD,
            ssl_keystore_type="PKCS12",
        ),
        stores=("ca.p12", "user.p12"),
    ),
    VendorFile(
        "redpanda-cloud.properties",
        secured(
            "seed-00000000.abcdefghijklmnopqrst.fmc.prd.cloud.redpanda.com:9092",
            sasl_mechanism="SCRAM-SHA-256",
            sasl_jaas_config=f'{SCRAM} username="alice" password="{PASSWORD}";',
        ),
    ),
    VendorFile(
        "event-hubs.properties",
        secured(
            "mynamespace.servicebus.windows.net:9093",
            sasl_mechanism="PLAIN",
            sasl_jaas_config=f'{PLAIN} username="$ConnectionString" password="{connection_string()}";',
        ),
    ),
    VendorFile(
        "instaclustr.properties",
        secured(
            "192.0.2.1:9092,192.0.2.2:9092,192.0.2.3:9092",
            sasl_mechanism="SCRAM-SHA-256",
            sasl_jaas_config=f'{SCRAM} username="ickafka" password="{PASSWORD}";',
            ssl_enabled_protocols=["TLSv1.2"],
            ssl_truststore_location="truststore.jks",
            ssl_truststore_password=PASSWORD,
        ),
        without_effect=("ssl.protocol", "ssl.enabled.protocols:TLSv1.1", "ssl.enabled.protocols:TLSv1"),
        stores=("truststore.jks",),
    ),
    VendorFile(
        "confluent-cloud-go.properties",
        secured(
            CONFLUENT,
            sasl_mechanism="PLAIN",
            sasl_username="APIKEY",
            sasl_password=PASSWORD,
            client_id="ccloud-go-client-0",
        ),
        others=("session.timeout.ms",),
    ),
    VendorFile(
        "digitalocean.properties",
        secured(
            "db-kafka-fra1-00000-do-user-0-0.c.db.ondigitalocean.com:25073",
            sasl_mechanism="SCRAM-SHA-256",
            sasl_username="alice",
            sasl_password=PASSWORD,
            ssl_truststore_location="ca-certificate.crt",
        ),
        stores=("ca-certificate.crt",),
    ),
    VendorFile(
        "upstash.properties",
        secured(
            "demo-00000-eu1-kafka.upstash.io:9092",
            sasl_mechanism="SCRAM-SHA-256",
            sasl_jaas_config=f'{SCRAM} username="alice" password="{PASSWORD}";',
        ),
    ),
    VendorFile(
        "oci-streaming.properties",
        secured(
            "cell-1.streaming.us-phoenix-1.oci.oraclecloud.com:9092",
            sasl_mechanism="PLAIN",
            sasl_jaas_config=f'{PLAIN} username="{OCI_USER}" password="{PASSWORD}";',
            retries=5,
            max_request_size=1_048_576,
        ),
        others=("max.partition.fetch.bytes",),
    ),
    VendorFile(
        "event-streams.properties",
        secured(
            f"broker-0-{_EVENT_STREAMS},broker-1-{_EVENT_STREAMS}",
            sasl_mechanism="PLAIN",
            sasl_jaas_config=f'{PLAIN} username="token" password="{PASSWORD}";',
            ssl_enabled_protocols=["TLSv1.2"],
        ),
        without_effect=("ssl.protocol",),
    ),
    VendorFile(
        "event-streams-librdkafka.properties",
        secured(
            f"broker-0-{_EVENT_STREAMS}",
            sasl_mechanism="PLAIN",
            sasl_username="token",
            sasl_password=PASSWORD,
            ssl_truststore_location="certs",
        ),
        others=("api.version.request", "broker.version.fallback", "log.connection.close"),
        stores=("certs",),
    ),
    VendorFile(
        "warpstream-librdkafka.properties",
        secured(
            "api-00000.discovery2.prod-z.us-east-1.warpstream.com:9092",
            sasl_mechanism="PLAIN",
            sasl_username="APIKEY",
            sasl_password=PASSWORD,
            client_id="warpstream_az=us-east-1a",
            metadata_max_age_ms=60_000,
            buffer_memory=1024**3,
            max_request_size=64_000_000,
            batch_size=16_000_000,
            linger_ms=100,
            enable_idempotence=False,
            max_in_flight_requests_per_connection=1_000_000,
        ),
        others=("queue.buffering.max.messages", "sticky.partitioning.linger.ms"),
    ),
    VendorFile(
        "cloudera.properties",
        secured(
            "kafka.example:9093",
            sasl_mechanism="PLAIN",
            sasl_jaas_config=f'{PLAIN} username="alice" password="{PASSWORD}";',
            ssl_truststore_location="cm-auto-global_truststore.jks",
            ssl_truststore_password=PASSWORD,
        ),
        {"bootstrap_servers": "kafka.example:9093"},
        stores=("cm-auto-global_truststore.jks",),
    ),
)
"""Files that work, with the arguments that they need."""


def path(name: str) -> Path:
    return DIRECTORY / name


def write_hashed(directory: Path, pem: str) -> None:
    """Write an authority as `openssl rehash` names it."""
    directory.mkdir(exist_ok=True)
    hashed = subprocess.run(
        ["openssl", "x509", "-hash", "-noout"], input=pem, capture_output=True, text=True, check=True
    ).stdout.strip()
    (directory / f"{hashed}.0").write_text(pem)


def write_stores(names: tuple[str, ...], directory: Path) -> None:
    """Write PKCS12 stores, as keytool does since Java 9 whatever the file is called; PEM as `.crt` and in `certs`."""
    authority = Authority()
    for name in names:
        if name == "certs":
            write_hashed(directory / name, authority.pem)
            continue
        if name.endswith(".crt"):
            content = authority.pem.encode()
        elif name.startswith(
            "kafka.client"
        ):  # a copy of the JVM's cacerts, which has no password since Java 18
            trusted = [pkcs12.PKCS12Certificate(authority.certificate, b"ca")]
            content = pkcs12.serialize_java_truststore(trusted, serialization.NoEncryption())
        elif "trust" in name or name.startswith("ca."):
            content = truststore(authority, password=PASSWORD)
        else:
            content = authority.issue("user").pkcs12(PASSWORD, authority.certificate)
        (directory / name).write_bytes(content)
