from __future__ import annotations

import json
import logging
import logging.config
import logging.handlers
import math
import queue
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import structlog

from aioproducer import ConfigError
from aioproducer._core.steps import Log
from aioproducer.contrib.logging import JsonFormatter, KafkaHandler
from aioproducer.testing import ThreadedCluster
from tests.cases import for_each
from tests.unit.contrib.logging_rig import logged, messages

pytestmark = pytest.mark.kafka_cluster(topics={"logs": 1})


class Unprintable:
    def __str__(self) -> str:
        raise RuntimeError("unprintable")

    __repr__ = __str__


def test_record_becomes_json(
    kafka_cluster: ThreadedCluster, logger: logging.Logger, handler: KafkaHandler
) -> None:
    logger.warning("order %d", 7, extra={"customer": "ada", "ids": {1}})
    handler.flush()
    (record,) = kafka_cluster.records("logs", 0)
    (fields,) = logged(kafka_cluster)
    assert abs(record.timestamp_ms / 1000 - time.time()) < 60
    assert fields.pop("time").endswith("+00:00")
    assert fields == {
        "level": "WARNING",
        "logger": "shop",
        "message": "order 7",
        "customer": "ada",
        "ids": "{1}",
    }


def test_exception_is_text(
    kafka_cluster: ThreadedCluster, logger: logging.Logger, handler: KafkaHandler
) -> None:
    try:
        int("no stock")
    except ValueError:
        logger.exception("order failed", stack_info=True)
    handler.flush()
    (fields,) = logged(kafka_cluster)
    assert fields["exception"].endswith("'no stock'")
    assert "test_exception_is_text" in fields["stack"]


def test_unprintable_values_drop_nothing(
    kafka_cluster: ThreadedCluster,
    logger: logging.Logger,
    handler: KafkaHandler,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(logger, "propagate", False)  # xdist sends no lone surrogates
    cycle: list[Any] = []
    cycle.append(cycle)
    logger.info("a", extra={"value": Unprintable()})
    logger.info("b", extra={"value": cycle})
    logger.info("c \ud800", extra={"value": {(1, 2): 3}})
    handler.flush()
    assert messages(kafka_cluster) == ["a", "b", "c \ud800"]
    assert handler.dropped == 0


def test_values_outside_of_json_are_text() -> None:
    extra = {"ratio": math.nan, "nested": {"limit": math.inf}, "count": 3, "time": "12:00", "big": 10**5000}
    record = logging.makeLogRecord({"msg": "text", "name": "shop", **extra})

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    fields = json.loads(JsonFormatter().format(record), parse_constant=refuse)
    assert fields["time"].endswith("+00:00")
    assert {name: fields[name] for name in ("ratio", "nested", "count", "time_", "big")} == {
        "ratio": "nan",
        "nested": "{'limit': inf}",
        "count": 3,
        "time_": "12:00",
        "big": "<unprintable int>",
    }


@pytest.mark.parametrize(
    ("message", "argument"), [("%d", "x"), ("%s", Unprintable())], ids=["type", "unprintable"]
)
def test_broken_arguments_are_counted(
    kafka_cluster: ThreadedCluster,
    logger: logging.Logger,
    handler: KafkaHandler,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    message: str,
    argument: object,
) -> None:
    monkeypatch.setattr(logger, "propagate", False)  # pytest's handlers raise errors of arguments
    logger.info(message, argument)
    logger.info("good")
    handler.flush()
    assert messages(kafka_cluster) == ["good"]
    assert handler.dropped == 1
    assert "--- Logging error ---" in capsys.readouterr().err


@pytest.mark.parametrize("is_shown", [True, False], ids=["shown", "silent"])
def test_broken_filter_is_counted(
    kafka_cluster: ThreadedCluster,
    logger: logging.Logger,
    handler: KafkaHandler,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    is_shown: bool,
) -> None:
    def broken(record: logging.LogRecord) -> bool:
        if record.levelno == logging.ERROR:
            raise RuntimeError("broken filter")
        return record.levelno != logging.DEBUG

    monkeypatch.setattr(logging, "raiseExceptions", is_shown)
    handler.addFilter(broken)
    logger.error("a")
    logger.debug("b")
    logger.info("c")
    handler.handle(logging.makeLogRecord({"msg": "a record without a name"}))
    handler.flush()
    assert messages(kafka_cluster) == ["c"]
    assert handler.dropped == 2
    assert ("broken filter" in capsys.readouterr().err) == is_shown


def test_formatter_that_logs_ends(
    kafka_cluster: ThreadedCluster,
    logger: logging.Logger,
    handler: KafkaHandler,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Logging(JsonFormatter):
        def format(self, record: logging.LogRecord) -> str:
            logger.info("formatting")
            return super().format(record)

    monkeypatch.setattr(logger, "propagate", False)
    handler.setFormatter(Logging())
    logger.info("order placed")
    handler.flush()
    assert messages(kafka_cluster)[-1] == "order placed"
    assert handler.dropped > 0


def test_own_loggers_are_ignored_on_the_root_logger(kafka_cluster: ThreadedCluster) -> None:
    root, own = logging.getLogger(), logging.getLogger("aioproducer")
    handler = KafkaHandler("logs", kafka_cluster.bootstrap_servers)
    before = root.level, own.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    own.setLevel(logging.DEBUG)
    try:
        logging.getLogger("aioproducers").info("of another library")
        handler.flush()
    finally:
        root.removeHandler(handler)
        root.setLevel(before[0])
        own.setLevel(before[1])
        handler.close()
    found = [each["logger"] for each in logged(kafka_cluster)]
    assert [name for name in found if name != "asyncio"] == [
        "aioproducers"
    ]  # the broker has a loop of its own
    assert len(found) < 10


def test_refused_records_are_counted(kafka_cluster: ThreadedCluster, logger: logging.Logger) -> None:
    handler = KafkaHandler("logs", kafka_cluster.bootstrap_servers, max_request_size=1000)
    logger.addHandler(handler)
    logger.info("x" * 2000)
    logger.info("short")
    handler.flush()
    assert messages(kafka_cluster) == ["short"]
    assert handler.dropped == 1


def test_dict_config_beside_a_queue_handler(kafka_cluster: ThreadedCluster, logger: logging.Logger) -> None:
    config = {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"plain": {"format": "%(levelname)s %(message)s"}},
        "handlers": {
            "kafka": {
                "class": "aioproducer.contrib.logging.KafkaHandler",
                "topic": "logs",
                "bootstrap_servers": kafka_cluster.bootstrap_servers,
                "client_id": "shop-logs",
                "level": "INFO",
                "formatter": "plain",
            }
        },
        "loggers": {"shop": {"handlers": ["kafka"], "level": "DEBUG"}},
    }
    logging.config.dictConfig(config)
    waiting: queue.Queue[logging.LogRecord] = queue.Queue()
    logger.addHandler(logging.handlers.QueueHandler(waiting))
    logger.info("order %d", 7)
    logger.debug("below the level")
    (handler,) = (each for each in logger.handlers if isinstance(each, KafkaHandler))
    handler.flush()
    assert [record.value for record in kafka_cluster.records("logs", 0)] == [b"INFO order 7"]
    assert waiting.get_nowait().message == "order 7"


def test_queue_listener_feeds_the_handler(kafka_cluster: ThreadedCluster, logger: logging.Logger) -> None:
    handler = KafkaHandler("logs", kafka_cluster.bootstrap_servers)
    waiting: queue.Queue[logging.LogRecord] = queue.Queue()
    logger.addHandler(logging.handlers.QueueHandler(waiting))
    listener = logging.handlers.QueueListener(waiting, handler)
    listener.start()
    logger.info("order %d", 7)
    listener.stop()
    handler.close()
    assert messages(kafka_cluster) == ["order 7"]


def test_structlog_events_become_fields(kafka_cluster: ThreadedCluster, logger: logging.Logger) -> None:
    handler = KafkaHandler("logs", kafka_cluster.bootstrap_servers)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(processor=structlog.processors.JSONRenderer()))
    logger.addHandler(handler)
    structlog.wrap_logger(
        logger,
        processors=[structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.stdlib.BoundLogger,
    ).info("order.placed", customer="ada")
    handler.flush()
    assert logged(kafka_cluster) == [{"event": "order.placed", "customer": "ada"}]


@for_each(
    "options",
    [{"transactional_id": "t"}, {"acks": 7}, {"misspelt": 1}, {"capacity": 0}, {"close_timeout_s": -1}],
)
def test_wrong_options_are_refused_at_once(options: dict[str, Any]) -> None:
    with pytest.raises((ConfigError, TypeError)):
        KafkaHandler("logs", "localhost:9092", **options)


def test_extra_fields_keep_the_standard_ones() -> None:
    record = logging.makeLogRecord({"msg": "text", "name": "shop", "time": "never", "exc_text": "cached"})
    fields = json.loads(JsonFormatter().format(record))
    assert (fields["message"], fields["exception"]) == ("text", "cached")
    assert fields["time"] != "never"


def programs_of_the_page(cluster: ThreadedCluster) -> list[subprocess.CompletedProcess[str]]:
    """Run each program of docs/log-handler.md with the addresses of *cluster*."""
    page = (Path(__file__).parents[3] / "docs/log-handler.md").read_text()
    programs = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    return [
        subprocess.run(
            [sys.executable, "-c", each.replace("localhost:9092", cluster.bootstrap_servers)],
            capture_output=True, timeout=60, check=True, text=True,
        )
        for each in programs
    ]  # fmt: skip


def test_samples_of_the_page_run(kafka_cluster: ThreadedCluster) -> None:
    *sending, printing = programs_of_the_page(kafka_cluster)
    assert [each.stderr for each in sending] == ["", "", ""]
    records = [record.value or b"" for record in kafka_cluster.records("logs", 0)]
    assert records.pop() == b"order placed"
    assert [json.loads(each)["order_id"] for each in records] == [7, 7, 7]
    (opened,) = (
        line for line in map(json.loads, printing.stderr.splitlines()) if line.get("event") == "connection.opened"
        and line["node_id"] >= 0
    )  # fmt: skip
    assert opened["message"] == f"connection.opened node_id=1 address={kafka_cluster.bootstrap_servers}"
    assert (opened["node_id"], opened["address"]) == (1, kafka_cluster.bootstrap_servers)


def test_structlog_has_the_fields_of_own_events(caplog: pytest.LogCaptureFixture) -> None:
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[structlog.stdlib.add_log_level, structlog.stdlib.ExtraAdder()],
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.JSONRenderer(),
        ],
    )
    Log("aioproducer.tests").warning(
        "batch.retry partition=%s attempt=%d error=%s: %s", "orders-3", 2, "E", "no way"
    )
    (record,) = caplog.records
    del record.message  # of pytest's formatter
    assert json.loads(formatter.format(record)) == {
        "event": "batch.retry",
        "level": "warning",
        "partition": "orders-3",
        "attempt": 2,
        "error": "E: no way",
    }
