"""The options of a write: Spark's ways of naming them, Kafka's names behind `kafka.`."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from aioproducer.errors import ConfigError
from aioproducer.spark.sink_options import (
    BATCH_BYTES,
    CONSUMER_OPTIONS,
    NAMED,
    PREFIX,
    SOURCE_OPTIONS,
    SPARK_OPTIONS,
    SinkOptions,
    sink_options,
    with_named_code,
)
from tests.cases import for_each

PAGE = (Path(__file__).parents[3] / "docs/spark.md").read_text(encoding="utf-8")
SERVERS = {"kafka.bootstrap.servers": "a:9092,b:9092"}


@pytest.fixture
def new_topic(tmp_path: Path) -> dict[str, str]:
    """Options of a write with a new topic name, because warnings are logged once per write."""
    return {**SERVERS, "topic": tmp_path.name}


def test_options_with_prefix_kafka_configure_the_producer() -> None:
    options = sink_options({**SERVERS, "kafka.linger.ms": "7", "kafka.acks": "1", "topic": "orders"})
    config = options.producer.config()
    assert config.bootstrap_servers == ("a:9092", "b:9092")
    assert (config.linger_ms, config.acks) == (7, 1)
    assert options.topic == "orders"


def test_names_may_be_in_any_case_and_in_our_spelling() -> None:
    options = sink_options({"Kafka.Bootstrap_Servers": "a:9092", "KAFKA.LINGER_MS": "7", "Topic": "orders"})
    assert options.topic == "orders"
    assert options.producer.config().linger_ms == 7


def test_batch_size_default_is_larger_than_kafkas() -> None:
    assert sink_options(SERVERS).producer.config().batch_size == BATCH_BYTES
    for name in ("kafka.batch.size", "KAFKA.batch_size", "kafka.max_batch_size"):
        assert sink_options({**SERVERS, name: "1000"}).producer.config().batch_size == 1_000


@pytest.mark.parametrize("name", ["kafka.max.request.size", "kafka.max_request_size"])
def test_batches_are_no_larger_than_requests_may_be(name: str) -> None:
    for largest, expected in ((100_000, 100_000), (10_000_000, BATCH_BYTES)):
        assert sink_options({**SERVERS, name: str(largest)}).producer.config().batch_size == expected
    with pytest.raises(ConfigError, match=r"max[._]request[._]size"):
        sink_options({**SERVERS, name: "large"})


def test_topic_option_may_be_missing() -> None:
    assert sink_options(SERVERS).topic is None


@for_each("spelt", [str, str.lower, str.upper])
@for_each("name", SPARK_OPTIONS)
def test_options_of_spark_are_ignored(
    name: str, spelt: Callable[[str], str], caplog: pytest.LogCaptureFixture
) -> None:
    assert sink_options({**SERVERS, spelt(name): "x"}) == sink_options(SERVERS)
    assert not caplog.messages


@for_each("spelt", [str, str.lower, str.upper])
@for_each("name", [*SOURCE_OPTIONS, *(PREFIX + each for each in sorted(CONSUMER_OPTIONS))])
def test_option_of_sparks_kafka_source_is_logged_once(
    name: str, spelt: Callable[[str], str], new_topic: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):  # as for each micro-batch
        assert sink_options({**new_topic, spelt(name): "hunter2"}) == sink_options(new_topic)
    assert caplog.messages == [f"spark.source_option.without_effect name={name}"]
    assert caplog.records[0].levelno == logging.WARNING
    caplog.clear()


@pytest.mark.parametrize("name", ["fetchOffset.somethingNew", "kafkaConsumer.somethingNew"])
def test_unknown_option_of_the_source_is_logged(
    name: str, new_topic: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    sink_options({**new_topic, name: "x"})
    assert caplog.messages == [f"spark.source_option.without_effect name={name.lower()}"]


def test_options_of_the_source_are_logged_after_the_check(
    new_topic: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    several = {**new_topic, "subscribe": "orders", "kafka.group.id": "g"}
    with pytest.raises(ConfigError, match="unknown option 'topik'"):
        sink_options({**several, "topik": "orders"})
    assert not caplog.messages
    sink_options(several)
    assert [message.rpartition("=")[2] for message in caplog.messages] == ["subscribe", "kafka.group.id"]


def test_page_lists_the_options_without_effect() -> None:
    for name in (*SPARK_OPTIONS, *SOURCE_OPTIONS, *(PREFIX + each for each in CONSUMER_OPTIONS)):
        assert f"`{name}`" in PAGE


@for_each(
    ("options", "message"),
    [
        ({"topic": "orders"}, r"option 'kafka\.bootstrap\.servers' is missing"),
        ({**SERVERS, "kafka.lingerr.ms": "1"}, r"begin with 'kafka\.': unknown option 'lingerr\.ms'; did you mean"),
        ({**SERVERS, "kafka.acks": "some"}, r"acks = 'some': expected all"),
        ({**SERVERS, "kafka.key.serializer": "x"}, r"Kafka option 'key\.serializer' is not supported as keys"),
        ({**SERVERS, "kafka.value_serializer": "x"}, r"Kafka option 'value\.serializer' is not supported as"),
        ({**SERVERS, "kafka.interceptor.classes": "x"}, r"Kafka option 'interceptor\.classes' is not supported"),
        ({**SERVERS, "topik": "orders"}, r"unknown option 'topik'; did you mean 'topic'\?"),
        ({**SERVERS, "linger_ms": "5"}, r"unknown option 'linger_ms'; did you mean 'kafka\.linger\.ms'\?"),
        ({**SERVERS, "startingofsets": "x"}, r"unknown option 'startingofsets'; did you mean 'startingOffsets'\?"),
        ({**SERVERS, "queryname_": "orders"}, r"unknown option 'queryname_'; did you mean 'queryName'\?"),
        ({**SERVERS, "kafka.group.idd": "g"}, r"unknown option 'group\.idd'"),
        ({**SERVERS, "kafka.error_cb": "f"}, r"begin with 'kafka\.': error_cb: not supported, callbacks of other"),
        ({**SERVERS, "kafka.producer.acks": "1"}, r"begin with 'kafka\.': 'producer\.acks': options behind the"),
        ({**SERVERS, "nothing.like.it": "x"}, r"unknown option 'nothing\.like\.it'$"),
        ({**SERVERS, "topic": "my topic"}, "^topic .my topic. is not a legal name"),
        ({**SERVERS, "path": "/data"}, "rows go to a topic, not to the path '/data'"),
    ],
)  # fmt: skip
def test_invalid_options_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        sink_options(options)


def test_repr_of_the_options_hides_secrets() -> None:
    options = sink_options({**SERVERS, "kafka.ssl.key.password": "hunter2"})
    assert "hunter2" not in repr(options) + repr(options.producer)


def test_equal_options_give_equal_settings_across_processes() -> None:
    options = sink_options({**SERVERS, "kafka.acks": "all", "topic": "orders"})
    other = sink_options({"topic": "orders", "kafka.acks": "all", **SERVERS})
    there: SinkOptions = pickle.loads(pickle.dumps(other))
    assert there == options
    assert hash(there.producer) == hash(options.producer)


def test_option_warning_is_logged_once_per_query(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    options = {**SERVERS, "kafka.metric.reporters": tmp_path.name}
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            sink_options(options)
    assert [record.getMessage() for record in caplog.records] == [
        "config.without_effect name=metric.reporters"
    ]


SECRET = "hunter2"
LOGIN = {
    **SERVERS,
    "kafka.security.protocol": "SASL_PLAINTEXT",
    "kafka.sasl.mechanism": "SCRAM-SHA-512",
    "topic": "orders",
}


def login_of_the_job() -> tuple[str, str]:
    return "alice", SECRET


@pytest.mark.parametrize("spelt", [str, str.lower, str.upper])
@pytest.mark.parametrize(
    "options",
    [
        {"kafka.sasl.username": "alice", "kafka.sasl.password": SECRET},
        {
            "kafka.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required"
            f' username="alice" password="{SECRET}" tokenauth="true";'
        },
    ],
    ids=["username", "jaas"],
)
def test_login_reaches_the_tasks_and_is_hidden(
    options: dict[str, str], spelt: Callable[[str], str], caplog: pytest.LogCaptureFixture
) -> None:
    sink = sink_options({spelt(name): value for name, value in (LOGIN | options).items()})
    arrived = pickle.loads(pickle.dumps(sink))
    assert arrived == sink
    for each in (sink, arrived, sink.producer, arrived.producer.config()):
        assert SECRET not in f"{each!r} {each}"
    sasl = arrived.producer.config().security_settings().sasl
    assert sasl.credentials.password.reveal() == SECRET
    assert SECRET not in caplog.text


def test_login_may_come_from_a_named_function() -> None:
    options = LOGIN | {"kafka.sasl.credentials": f"{__name__}:login_of_the_job"}
    pickled = pickle.dumps(sink_options(options))
    assert SECRET.encode() not in pickled
    assert pickle.loads(pickled).producer.config().sasl_credentials is login_of_the_job


@for_each(
    ("options", "message"),
    [
        ({"kafka.sasl.username": "alice"}, "needs sasl_username and sasl_password"),
        ({"kafka.sasl.credentials": SECRET}, "expected the name of a function"),
        ({"kafka.sasl.pasword": SECRET}, "did you mean 'sasl.password'"),
        ({"kafka.ssl.truststore.location": "/nowhere.pem", "kafka.security.protocol": "SSL"}, "/nowhere.pem"),
        ({"kafka.security.protocol": SECRET.upper() + "!"}, "expected one of PLAINTEXT, SSL"),
        ({"kafka.sasl.jaas.config": f'password="{SECRET}"'}, "sasl.jaas.config"),
    ],
)
def test_invalid_login_is_refused_without_its_secrets(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        sink_options(LOGIN | options)
    assert SECRET not in str(caught.value)
    assert SECRET not in repr(caught.value.__cause__)


def test_bad_rows_fail_the_task_without_a_letter_topic() -> None:
    assert sink_options(SERVERS).dead_letters is None
    assert sink_options({**SERVERS, "onBadRow": "fail"}).dead_letters is None
    assert sink_options({**SERVERS, "onbadrow": "topic:Dead"}).dead_letters == "Dead"
    with pytest.raises(ConfigError, match="onBadRow = 'topic:orders': this is the topic of the valid rows"):
        sink_options({**SERVERS, "topic": "orders", "onBadRow": "topic:orders"})
    with pytest.raises(ConfigError, match="did you mean 'onBadRow'"):
        sink_options({**SERVERS, "onBadRows": "fail"})


def test_option_names_no_file_unless_the_environment_allows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = tmp_path / "token"
    options = {
        "topic": "orders",
        "kafka.bootstrap.servers": "a:1",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "kafka.sasl.oauthbearer.token.endpoint.url": token.as_uri(),
    }
    with pytest.raises(ConfigError, match=r"refused.*AIOPRODUCER_SASL_OAUTHBEARER_ALLOWED_FILES"):
        sink_options(options)
    with pytest.raises(ConfigError, match="cannot allow itself"):
        sink_options(options | {"kafka.sasl.oauthbearer.allowed.files": str(token)})
    monkeypatch.setenv("AIOPRODUCER_SASL_OAUTHBEARER_ALLOWED_FILES", str(token))
    sink_options(options)


def test_column_of_times_is_named_as_it_is_spelt() -> None:
    assert sink_options({**SERVERS, "timestampcolumn": "eventTime"}).timestamp_column == "eventTime"
    assert sink_options(SERVERS).timestamp_column is None


class Vault:
    """Where a job might have its secrets."""

    @staticmethod
    def login() -> tuple[str, str]:
        return "alice", "hunter2"


@pytest.mark.parametrize("option", [*NAMED, "sasl_credentials"])
def test_callable_name_becomes_the_callable(option: str) -> None:
    options = {option: f" {__name__}:Vault.login", "client.id": "a.b:c"}
    assert with_named_code(options) == {option: Vault.login, "client.id": "a.b:c"}


@for_each(
    "text", ["hunter2", "", ":", "vault:", ":login", "vault:log in", "va-ult:login", "https://x:8080/y"]
)
def test_invalid_callable_name_is_refused_and_hidden(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        with_named_code({"sasl.credentials": text})
    assert str(caught.value) == (
        "sasl.credentials: expected the name of a function, such as package.module:function"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no.such.module:login", "cannot be imported: No module named 'no'"),
        (f"{__name__}:Vault.nothing", "cannot be imported: .* has no attribute 'nothing'"),
        (f"{__name__}:NAMED", "is of type tuple, which cannot be called"),
    ],
)
def test_missing_callable_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        with_named_code({"ssl.context": text})
