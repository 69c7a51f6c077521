"""The programs of the pages run, and print the output on the pages."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any
from zlib import crc32

import pyarrow as pa
import pytest
from pyarrow import parquet

from aioproducer import Murmur2Partitioner, Producer
from aioproducer.arrow import send_table
from aioproducer.errors import (
    BufferFull,
    ProducerError,
    TopicAuthorizationFailed,
)
from aioproducer.testing import Cluster, ThreadedCluster
from tests.services.serving import serving
from tests.unit.contrib.registry_fake import registry

ROOT = Path(__file__).parents[1]
IN_SHOP = 3
"""Partitions of the topic of the programs before and after: enough for two hashes to differ."""
TESTING = (ROOT / "docs/reference/testing.md").read_text()
ARROW = (ROOT / "docs/reference/arrow.md").read_text()
SERIALIZERS = (ROOT / "docs/serializers.md").read_text()
INTERCEPTORS = (ROOT / "docs/interceptors.md").read_text()
METRICS_PAGE = (ROOT / "docs/metrics.md").read_text()
AUDIT = (ROOT / "docs/reference/audit.md").read_text()
CONCURRENCY = (ROOT / "docs/concurrency.md").read_text()
FROM_AIOKAFKA = (ROOT / "docs/from-aiokafka.md").read_text()
SERVICES = (ROOT / "docs/services.md").read_text()
README = (ROOT / "README.md").read_text()
COMMAND_LINE = (ROOT / "docs/command-line.md").read_text()


def test_example_of_the_readme_runs(kafka_cluster: ThreadedCluster) -> None:
    (program,) = (
        block for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "import" in block
    )
    program = program.replace("localhost:9092", kafka_cluster.bootstrap_servers)
    output = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, timeout=60)
    assert output.stdout.decode().split() == ["orders", "0", "0"]


def test_example_of_the_testing_page_runs() -> None:
    asynchronous, *_, in_virtual_time = re.findall(r"```python\n(.*?)```", TESTING, re.DOTALL)
    for program in (
        f"import asyncio\n{asynchronous}\nasyncio.run(test_my_service())",
        f"{in_virtual_time}\ntest_send_fails_after_two_minutes()",
    ):
        subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, timeout=60)


def test_transaction_test_of_the_testing_page_passes(tmp_path: Path) -> None:
    (program,) = re.findall(
        r"```python\n(.*?)```", TESTING.split("## Transactions")[1].split("\n## ")[0], re.DOTALL
    )
    (tmp_path / "test_sample.py").write_text(f"import pytest\npytestmark = pytest.mark.asyncio\n{program}")
    assert passed(tmp_path) == 1


def passed(folder: Path) -> int:
    """Run the tests in *folder* as a reader does; all have to pass. Return how many there are."""
    settings = [
        "-c",
        os.devnull,
        "-p",
        "no:cacheprovider",
        "--assert=plain",
    ]  # a reader has none of the settings of these tests
    settings += ["-o", "asyncio_default_fixture_loop_scope=function"]
    output = subprocess.run(
        [sys.executable, "-m", "pytest", *settings, "-W", "error", "-q", folder],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    ).stdout
    summary = re.match(r"(\d+) passed in", output.splitlines()[-1])
    assert summary, output
    return int(summary[1])


def test_tests_of_the_testing_page_pass(tmp_path: Path) -> None:
    page = TESTING.split("## With pytest")[1]
    *programs, _ = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    for number, program in enumerate(programs):
        (tmp_path / f"test_sample_{number}.py").write_text(program)
    assert passed(tmp_path) == 2


def test_examples_of_the_arrow_page_run(kafka_cluster: ThreadedCluster, tmp_path: Path) -> None:
    table, stream, _ = re.findall(r"```python\n(.*?)```", ARROW, re.DOTALL)
    orders = pa.table({"id": ["a", "b"], "payload": ["1", "2"]})
    parquet.write_table(orders, tmp_path / "orders.parquet")
    printed = []
    for sample in (table, stream):
        program = sample.replace("localhost:9092", kafka_cluster.bootstrap_servers)
        output = subprocess.run(
            [sys.executable, "-c", program], check=True, capture_output=True, timeout=60, cwd=tmp_path
        )
        printed.append(output.stdout.decode().split())
    assert printed == [["3", "29", "orders", "0", "0", "2", "3"], ["2"]]


async def test_error_sample_of_the_arrow_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    *_, sample = re.findall(r"```python\n(.*?)```", ARROW, re.DOTALL)
    namespace: dict[str, Any] = {"send_table": send_table}
    exec("async def sample(producer, table):\n" + textwrap.indent(sample, "    "), namespace)
    async with Cluster() as cluster, Producer(cluster.bootstrap_servers, max_request_size=100) as producer:
        await namespace["sample"](producer, pa.table({"payload": [b"fits", b"x" * 200]}))
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("row 1 of topic orders, partition None: ")
    assert second == "1 rows are in the log; in doubt: False"


@pytest.mark.kafka_cluster(topics={"orders": 3})
def test_examples_of_the_audit_page_run(kafka_cluster: ThreadedCluster) -> None:
    send, alone, *_on_spark = re.findall(r"```python\n(.*?)```", AUDIT, re.DOTALL)
    (command,) = re.findall(r"^aioproducer (audit .*)$", AUDIT, re.MULTILINE)
    (perf,) = re.findall(r"^aioproducer (perf .*)$", AUDIT, re.MULTILINE)

    def run(*arguments: str) -> str:
        arguments = tuple(
            each.replace("localhost:9092", kafka_cluster.bootstrap_servers) for each in arguments
        )
        return subprocess.run(
            [sys.executable, *arguments], check=True, capture_output=True, timeout=60
        ).stdout.decode()

    assert run("-c", send) == ""
    assert "Of 1,000 records expected: each is in the topic once, in order" in run(
        "-m", "aioproducer", *command.split()
    )
    assert "Is all of it there?" in run("-m", "aioproducer", *perf.replace("1000000", "1000").split())
    (promised,) = re.findall(r"^The program prints `(.*)` and `(.*)`\.$", AUDIT, re.MULTILINE)
    assert run("-c", alone).splitlines() == list(promised)


def printed_by(page: str, kafka_cluster: ThreadedCluster, **addresses: str) -> list[str]:
    """Run the programs of *page*, and return the output of each."""
    addresses["localhost:9092"] = kafka_cluster.bootstrap_servers
    printed = []
    for program in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        for address, instead in addresses.items():
            program = program.replace(address, instead)  # noqa: PLW2901
        output = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, timeout=60)
        printed.append(output.stdout.decode())
    return printed


def test_examples_of_the_serializers_page_run(kafka_cluster: ThreadedCluster) -> None:
    with registry() as fake:
        json_record, *others = printed_by(SERIALIZERS, kafka_cluster, **{"http://localhost:8081": fake.url})
    assert [json_record.strip(), *others] == ["0", "", "", "", "", ""]
    first, one, two, *encrypted, by_topic, order, awaited_order = kafka_cluster.records("orders", 0)
    assert (first.key, first.value) == (b"customer-7", '{"id":7,"note":"grün"}'.encode())
    assert [(each.value, each.headers) for each in (one, two)] == [
        (b"one", (("crc32", b"7a6c86f1"),)),
        (b"two", (("crc32", b"11ca8a66"),)),
    ]
    assert [each.value for each in encrypted] == [b"a", b"b", b"c", b"d", b"e"]
    assert by_topic.value == b'{"id":7}'
    assert [each.value for each in kafka_cluster.records("audit", 0)] == [b"order 7 accepted"]
    assert order.value == awaited_order.value == b"\0\0\0\0\x01\x0e"  # magic, the schema's id, 7 zigzag


def test_examples_of_the_concurrency_page_run(kafka_cluster: ThreadedCluster) -> None:
    timeouts, *others = [printed.splitlines() for printed in printed_by(CONCURRENCY, kafka_cluster)]
    (promised,) = re.findall(
        r"^The program prints `(.*?)`, `(.*?)` and `(.*?)`\. ", CONCURRENCY, re.MULTILINE
    )
    assert timeouts == list(promised)
    assert others == [["lost: 0"], ["orders", "orders"], ["100", "True", "1000"], []]


@pytest.mark.kafka_cluster(topics={"shop": IN_SHOP})
def test_examples_of_the_aiokafka_page_run(kafka_cluster: ThreadedCluster) -> None:
    dropped_in, *others = [printed.splitlines() for printed in printed_by(FROM_AIOKAFKA, kafka_cluster)]
    (promised,) = re.findall(r"^With a new topic .* prints `(.*)` and `(.*)`\.$", FROM_AIOKAFKA, re.MULTILINE)
    assert dropped_in == list(promised)
    batch, put_in_place, rewritten, confluent, ours, kafka_python, in_threads = others
    assert [batch, put_in_place, rewritten] == [["16 True"], [], ["orders 0 True", "False", "2"]]
    by_crc32 = crc32(b"customer-7") % IN_SHOP
    assert by_crc32 != Murmur2Partitioner().partition("shop", b"customer-7", IN_SHOP, ())
    assert confluent == ours == [f"stored in partition {by_crc32}"] * 3
    assert kafka_python == in_threads
    assert in_threads[0].startswith("stored in partition ")


def test_examples_of_the_interceptors_page_run(kafka_cluster: ThreadedCluster) -> None:
    audited, took, fast, traced = printed_by(INTERCEPTORS, kafka_cluster)
    assert audited == "orders-0 offset 0\n"
    assert took == "orders took less than a second\n"
    assert fast == "orders was fast\n"
    decoder, spans, start = json.JSONDecoder(), {}, 0
    while start < len(traced):
        span, start = decoder.raw_decode(traced, start)
        start += 1  # a line break between two
        spans[span["name"]] = span
    send = spans["send orders"]
    assert send["parent_id"] == spans["POST /orders"]["context"]["span_id"]
    listed = set(re.findall(r"`(messaging\.[\w.]+|error\.type)`", INTERCEPTORS))
    assert set(send["attributes"]) == listed - {
        "messaging.kafka.message.key",
        "messaging.kafka.message.tombstone",
        "error.type",
    }


@pytest.mark.parametrize("framework", ["fastapi", "aiohttp", "starlette"])
@pytest.mark.kafka_cluster(topics={"orders": 1})
async def test_examples_of_the_services_page_run(
    framework: str,
    kafka_cluster: ThreadedCluster,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    recipes = re.findall(r"```python\n(.*?)```", SERVICES, re.DOTALL)
    program = recipes[["fastapi", "aiohttp", "starlette"].index(framework)]
    monkeypatch.setenv("BOOTSTRAP_SERVERS", kafka_cluster.bootstrap_servers)
    namespace: dict[str, Any] = {"__name__": "shop"}
    exec(program, namespace)
    caplog.set_level(logging.INFO, "shop")
    for start in range(2):
        caplog.clear()
        app = namespace["create_app"]() if framework == "aiohttp" else namespace["app"]
        async with serving(app) as client:
            answer = await client.post("/orders", content=b"v")
            assert (answer.status_code, answer.json()) == (200, {"partition": 0, "offset": start})
            producer = app[namespace["PRODUCER"]] if framework == "aiohttp" else app.state.producer
            assert producer.state == "ready"
            rule = kafka_cluster.on("produce").answer(TopicAuthorizationFailed)
            answer = await client.post("/orders", content=b"v")
            assert (answer.status_code, answer.json()["error"]) == (500, "TopicAuthorizationFailed")
            assert rule.hits == 1
        assert producer.state == "closed"
        (error,) = (line.getMessage() for line in caplog.records if line.name == "shop")
        assert error.startswith("request failed: orders-0")
    assert [record.value for record in kafka_cluster.records("orders", 0)] == [b"v", b"v"]


def test_tests_of_the_services_page_pass(tmp_path: Path) -> None:
    shop, *_, tests = re.findall(r"```python\n(.*?)```", SERVICES, re.DOTALL)
    (tmp_path / "shop.py").write_text(shop)
    (tmp_path / "test_shop.py").write_text(tests)
    assert passed(tmp_path) == 2


@pytest.mark.kafka_cluster(topics={"orders": 3})
def test_examples_of_the_command_line_page_run(kafka_cluster: ThreadedCluster, tmp_path: Path) -> None:
    order = '{"customer": {"id": 7}, "order": {"item": 1}, "meta": {"trace": "1f"}}\n'
    (tmp_path / "orders.jsonl").write_text(order * 3)
    (tmp_path / "producer.properties").write_text("bootstrap.servers=a:1\nlinger.ms=20\nmetric.reporters=r\n")
    for day in ("monday", "tuesday"):
        (tmp_path / f"{day}.txt").write_text(day)
    blocks = re.findall(r"```sh\n(.*?)```", COMMAND_LINE, re.DOTALL)
    script = "".join(blocks).replace("localhost:9092", kafka_cluster.bootstrap_servers)
    script = f'set -e\naioproducer() {{ "{sys.executable}" -m aioproducer "$@"; }}\n{script}'
    done = subprocess.run(
        ["sh", "-c", script],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=tmp_path,
        env={**os.environ, "PYTHONASYNCIODEBUG": ""},  # otherwise it logs slow callbacks on standard error
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert "Of 3 records expected: each is in the topic once, in order" in done.stdout
    assert "Known to Kafka, without effect here: metric.reporters" in done.stdout
    values = [record.value for partition in range(3) for record in kafka_cluster.records("orders", partition)]
    assert {b"first", b"second", b"monday", b"tuesday", b'{"item":1}', order.strip().encode()} <= set(values)


async def test_error_sample_of_the_producer_page_runs() -> None:
    page = (ROOT / "docs/reference/producer.md").read_text()
    (sample,) = (
        block
        for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL)
        if "possibly_persisted" in block
    )
    caught: list[ProducerError] = []

    class Unstarted:
        async def send(self, topic: str, value: bytes) -> None:
            caught.append(BufferFull("no"))
            raise caught[0]

    namespace: dict[str, Any] = {"ProducerError": ProducerError}
    exec("async def sample(producer, order):\n" + textwrap.indent(sample, "    "), namespace)
    await namespace["sample"](Unstarted(), b"order")
    assert caught


def test_examples_of_the_metrics_page_run(kafka_cluster: ThreadedCluster) -> None:
    first, _, in_asgi, _ = printed_by(METRICS_PAGE, kafka_cluster, **{"9400": "0"})
    latency, sent = first.splitlines()
    assert latency.endswith(" ms")
    assert sent == "1 records"
    assert in_asgi == ""


async def test_asgi_app_of_the_metrics_page_is_scraped(kafka_cluster: ThreadedCluster) -> None:
    (program,) = (
        block for block in re.findall(r"```python\n(.*?)```", METRICS_PAGE, re.DOTALL) if "asgi" in block
    )
    namespace: dict[str, Any] = {}
    exec(program.replace("localhost:9092", kafka_cluster.bootstrap_servers), namespace)
    async with serving(namespace["app"]) as client:
        assert (await client.get("/metrics")).status_code == 307
        answer = await client.get("/metrics/")
    assert answer.status_code == 200
    assert 'kafka_producer_connection_count{client_id="shop"} 1.0' in answer.text
