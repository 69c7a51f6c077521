"""Configuration files as vendors of Kafka hand them out, and the options that they stand for.

Names, values and comments are those of the vendors; hosts and secrets are made up.
"""

from __future__ import annotations

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
    """PKCS12 stores in the working directory, whatever their names end in."""


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
)
"""Files that work, with the arguments that they need."""


def path(name: str) -> Path:
    return DIRECTORY / name


def write_stores(names: tuple[str, ...], directory: Path) -> None:
    """Write PKCS12 stores, as keytool does since Java 9 whatever the file is called."""
    authority = Authority()
    for name in names:
        if name.startswith(
            "kafka.client"
        ):  # a copy of the JVM's cacerts, which has no password since Java 18
            trusted = [pkcs12.PKCS12Certificate(authority.certificate, b"ca")]
            content = pkcs12.serialize_java_truststore(trusted, serialization.NoEncryption())
        elif "trust" in name or name.startswith("ca."):
            content = truststore(authority, password=PASSWORD)
        else:
            content = authority.issue("user").pkcs12(PASSWORD, authority.certificate)
        (directory / name).write_bytes(content)
