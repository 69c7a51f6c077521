"""What the documentation says is what the code does."""

from __future__ import annotations

import ast
import builtins
import inspect
import json
import logging
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from aioproducer import Producer, errors
from aioproducer.arrow import send_table
from aioproducer.batching.state import LEGAL
from aioproducer.cli import commands
from aioproducer.cli.send.command import send
from aioproducer.contrib.metric_table import METRICS
from aioproducer.contrib.prometheus import ProducerCollector
from aioproducer.errors import (
    AuthenticationFailed,
    BrokerError,
    BufferFull,
    ConfigError,
    DuplicateSequenceNumber,
    ProducerError,
    SendManyError,
    TopicAuthorizationFailed,
)
from aioproducer.sender import outcomes
from aioproducer.testing import Cluster, Rule, ThreadedCluster
from aioproducer.testing.handlers.table import APIS
from benchmarks.faults.clients import CLIENTS
from benchmarks.faults.report import HEADINGS
from benchmarks.faults.scenarios import SCENARIOS
from tests.services.serving import serving
from tests.unit.contrib.registry_fake import registry

ROOT = Path(__file__).parents[1]
DESIGN = (ROOT / "docs/design.md").read_text()
RELIABILITY = (ROOT / "docs/reliability.md").read_text()
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
LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)")


def test_the_diagram_of_batch_states_is_the_table() -> None:
    diagram = DESIGN.split("<!-- states: begin -->")[1].split("<!-- states: end -->")[0]
    drawn = set(re.findall(r"(\w+) --> (\w+)", diagram))
    assert drawn == {(state.name, to.name) for state, legal in LEGAL.items() for to in legal}


def test_the_file_map_names_what_is_there() -> None:
    file_map = DESIGN.split("## File map")[1].split("## ")[0]
    named = set(re.findall(r"`([a-z_]+)/?`|`([a-z_]+)\.py`", file_map))
    rooms = {
        path.stem
        for path in (ROOT / "aioproducer").iterdir()
        if path.name not in {"__init__.py", "py.typed", "__pycache__"}
    }
    assert rooms <= {name for pair in named for name in pair}


@pytest.mark.parametrize("page", sorted(ROOT.glob("*.md")) + sorted((ROOT / "docs").rglob("*.md")), ids=str)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_example_in_the_readme_runs(kafka_cluster: ThreadedCluster) -> None:
    (program,) = (
        block for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "import" in block
    )
    program = program.replace("localhost:9092", kafka_cluster.bootstrap_servers)
    output = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, timeout=60)
    assert output.stdout.decode().split() == ["orders", "0", "0"]


def test_the_example_of_the_testing_page_runs() -> None:
    asynchronous, *_, in_virtual_time = re.findall(r"```python\n(.*?)```", TESTING, re.DOTALL)
    for program in (
        f"import asyncio\n{asynchronous}\nasyncio.run(test_my_service())",
        f"{in_virtual_time}\ntest_it_is_given_up_in_the_end()",
    ):
        subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, timeout=60)


def passed(folder: Path) -> int:
    """Run the tests in *folder* as a reader does; all have to pass. Return how many there are."""
    settings = ["-c", os.devnull, "-p", "no:cacheprovider", "--assert=plain"]  # a reader has none of ours
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


def test_the_tests_of_the_testing_page_pass(tmp_path: Path) -> None:
    _, *programs, _ = re.findall(r"```python\n(.*?)```", TESTING, re.DOTALL)
    for number, program in enumerate(programs):
        (tmp_path / f"test_sample_{number}.py").write_text(program)
    assert passed(tmp_path) == 2


def test_the_examples_of_the_arrow_page_run(kafka_cluster: ThreadedCluster, tmp_path: Path) -> None:
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


async def test_the_error_sample_of_the_arrow_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    *_, sample = re.findall(r"```python\n(.*?)```", ARROW, re.DOTALL)
    namespace: dict[str, Any] = {"send_table": send_table}
    exec("async def sample(producer, table):\n" + textwrap.indent(sample, "    "), namespace)
    async with Cluster() as cluster, Producer(cluster.bootstrap_servers, max_request_size=100) as producer:
        await namespace["sample"](producer, pa.table({"payload": [b"fits", b"x" * 200]}))
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("row 1 of topic orders, partition None: ")
    assert second == "1 rows are in the log; in doubt: False"


@pytest.mark.kafka_cluster(topics={"orders": 3})
def test_the_examples_of_the_audit_page_run(kafka_cluster: ThreadedCluster) -> None:
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
    assert "Of 1,000 records expected: each is there once, in order" in run(
        "-m", "aioproducer", *command.split()
    )
    assert "Is all of it there?" in run("-m", "aioproducer", *perf.replace("1000000", "1000").split())
    (promised,) = re.findall(r"^It prints `(.*)` and `(.*)`\.$", AUDIT, re.MULTILINE)
    assert run("-c", alone).splitlines() == list(promised)


def printed_by(page: str, kafka_cluster: ThreadedCluster, **addresses: str) -> list[str]:
    """Run the programs of *page*, and return what each has printed."""
    addresses["localhost:9092"] = kafka_cluster.bootstrap_servers
    printed = []
    for program in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        for address, instead in addresses.items():
            program = program.replace(address, instead)  # noqa: PLW2901
        output = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, timeout=60)
        printed.append(output.stdout.decode())
    return printed


def test_the_examples_of_the_serializers_page_run(kafka_cluster: ThreadedCluster) -> None:
    with registry() as fake:
        json_record, *others = printed_by(SERIALIZERS, kafka_cluster, **{"http://localhost:8081": fake.url})
    assert [json_record.strip(), *others] == ["0", "", "", ""]
    first, one, two, *encrypted, order = kafka_cluster.records("orders", 0)
    assert (first.key, first.value) == (b"customer-7", '{"id":7,"note":"grün"}'.encode())
    assert [(each.value, each.headers) for each in (one, two)] == [
        (b"one", (("crc32", b"7a6c86f1"),)),
        (b"two", (("crc32", b"11ca8a66"),)),
    ]
    assert [each.value for each in encrypted] == [b"redro", b"a", b"b", b"c"]
    assert order.value == b"\0\0\0\0\x01\x0e"  # magic, the schema's id, 7 zigzag


def test_the_examples_of_the_concurrency_page_run(kafka_cluster: ThreadedCluster) -> None:
    timeouts, *others = [printed.splitlines() for printed in printed_by(CONCURRENCY, kafka_cluster)]
    (promised,) = re.findall(r"^It prints `(.*)`, `(.*)` and `(.*)`\.$", CONCURRENCY, re.MULTILINE)
    assert timeouts == list(promised)
    assert others == [["lost: 0"], ["orders", "orders"], ["100", "True", "1000"], []]


def test_the_examples_of_the_page_for_users_of_aiokafka_run(kafka_cluster: ThreadedCluster) -> None:
    dropped_in, *others = [printed.splitlines() for printed in printed_by(FROM_AIOKAFKA, kafka_cluster)]
    (promised,) = re.findall(r"^It prints `(.*)` and `(.*)`\.$", FROM_AIOKAFKA, re.MULTILINE)
    assert dropped_in == list(promised)
    assert others == [["16 True"], ["orders 0 True", "False", "2"]]


def test_the_examples_of_the_interceptors_page_run(kafka_cluster: ThreadedCluster) -> None:
    audited, took, traced = printed_by(INTERCEPTORS, kafka_cluster)
    assert audited == "orders-0 offset 0\n"
    assert took == "orders took less than a second\n"
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
async def test_the_examples_of_the_services_page_serve(
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
        error, end = (line.getMessage() for line in caplog.records if line.name == "shop")
        assert error.startswith("request failed: orders-0")
        assert end == "records given up: 0"
    assert [record.value for record in kafka_cluster.records("orders", 0)] == [b"v", b"v"]


def test_the_tests_of_the_services_page_pass(tmp_path: Path) -> None:
    shop, *_, tests = re.findall(r"```python\n(.*?)```", SERVICES, re.DOTALL)
    (tmp_path / "shop.py").write_text(shop)
    (tmp_path / "test_shop.py").write_text(tests)
    assert passed(tmp_path) == 2


@pytest.mark.kafka_cluster(topics={"orders": 3})
def test_the_examples_of_the_command_line_page_run(kafka_cluster: ThreadedCluster, tmp_path: Path) -> None:
    order = '{"customer": {"id": 7}, "order": {"item": 1}, "meta": {"trace": "1f"}}\n'
    (tmp_path / "orders.jsonl").write_text(order * 3)
    (tmp_path / "producer.properties").write_text("bootstrap.servers=a:1\nlinger.ms=20\nclient.rack=r\n")
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
        env={**os.environ, "PYTHONASYNCIODEBUG": ""},  # else it tells on standard error what took long
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert "Of 3 records expected: each is there once, in order" in done.stdout
    assert "Known to Kafka, without effect here: client.rack" in done.stdout
    values = [record.value for partition in range(3) for record in kafka_cluster.records("orders", partition)]
    assert {b"first", b"second", b"monday", b"tuesday", b'{"item":1}', order.strip().encode()} <= set(values)


def test_the_command_line_page_names_every_command_and_every_option_of_send() -> None:
    assert set(re.findall(r"^\| \[`(\w+)`\]", COMMAND_LINE, re.MULTILINE)) == set(commands.program.commands)
    for option in (option for each in send.params for option in each.opts if option.startswith("--")):
        assert re.search(rf"{option}\b", COMMAND_LINE), option


def test_the_testing_page_names_every_request_and_every_argument_of_the_cluster() -> None:
    (requests,) = re.findall(r"`request` is (.*?)\. The rule", TESTING, re.DOTALL)
    assert set(re.findall(r'"(\w+)"', requests)) == {api.name for api in APIS.values()}
    table = TESTING.split("| argument of `Cluster` ")[1].split("\n\n")[0]
    _, *arguments = inspect.signature(Cluster.__init__).parameters
    assert re.findall(r"^\| `(\w+)`", table, re.MULTILINE) == arguments


def public_methods(kind: type) -> set[str]:
    return {name for name in vars(kind) if not name.startswith("_")}


def test_the_testing_page_names_every_method_of_the_cluster_and_of_a_rule() -> None:
    for_the_broker = {"is_spent", "only_watches", "covers", "is_due", "strike"}
    assert public_methods(ThreadedCluster) | {"message_max_bytes"} == public_methods(Cluster)
    for name in public_methods(Cluster) | public_methods(Rule) - for_the_broker:
        assert re.search(rf"`(await )?{name}\b", TESTING), name


async def test_the_error_sample_of_the_readme_runs() -> None:
    (sample,) = (
        block for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "except" in block
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


def test_the_metrics_page_lists_all_of_them_as_the_expositions_describe_them() -> None:
    listed: dict[str, dict[str, tuple[str, ...]]] = {}
    part: dict[str, tuple[str, ...]] = {}
    for line in METRICS_PAGE.split("## All of them")[1].splitlines():
        if heading := re.match(r"### `metrics\(\)\[\"(\w+)\"\]", line):
            part = listed.setdefault(heading[1], {})
        elif row := re.match(r"\| `(\w+)` \| (.*) \| (.*) \| (.*) \|", line):
            part[row[1]] = row.groups()[1:]
    assert listed == {
        part: {
            key: (
                "none" if metric.kafka is None else f"`{metric.kafka or key.replace('_', '-')}`",
                metric.meaning,
                metric.unit or "none",
            )
            for key, metric in metrics.items()
        }
        for part, metrics in METRICS.items()
    }


def test_the_examples_of_the_metrics_page_run(kafka_cluster: ThreadedCluster) -> None:
    first, _, in_asgi, _ = printed_by(METRICS_PAGE, kafka_cluster, **{"9400": "0"})
    latency, sent = first.splitlines()
    assert latency.endswith(" ms")
    assert sent == "1 records"
    assert in_asgi == ""


async def test_the_asgi_app_of_the_metrics_page_is_scraped(kafka_cluster: ThreadedCluster) -> None:
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


def test_the_dashboard_shows_metrics_that_there_are() -> None:
    dashboard = json.loads((ROOT / "examples/grafana/aioproducer.json").read_text())
    exposed = {
        metric.name + "_total" * (metric.type == "counter") for metric in ProducerCollector().describe()
    }
    panels = dashboard["panels"]
    assert [panel["title"] for panel in panels if panel["type"] == "row"] == [
        "Throughput",
        "Latency",
        "Errors and retries",
        "Memory",
        "Connections",
    ]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}
    assert len(places) == len(panels), "none lies on another"
    variables = {each["name"] for each in dashboard["templating"]["list"]}
    assert variables == {"datasource", "client_id", "topic"}
    queries = [each["definition"] for each in dashboard["templating"]["list"] if each["type"] == "query"]
    for panel in panels:
        if panel["type"] != "row":
            queries += [target["expr"] for target in panel["targets"]]
            assert panel["datasource"]["uid"] == "${datasource}"
    for query in queries:
        assert set(re.findall(r"kafka_\w+", query)) <= exposed
        assert re.findall(r"kafka_\w+", query)
        assert set(re.findall(r"\$(\w+)", query)) <= variables | {"__rate_interval"}
        assert query.count("(") == query.count(")")
        for name, interval in re.findall(r"(kafka_\w+)\{[^}]*\}(\[)?", query):
            assert bool(interval) == name.endswith("_total"), "the rate of counters, and of nothing else"


def logged(source: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the name of each event that is logged in *source*, and the method of the logger that logs it."""
    for node in ast.walk(source):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="log"), attr=method), args=arguments):
                if method in {"debug", "info", "warning", "error", "exception", "log"}:
                    text = next(each.value for each in arguments if isinstance(each, ast.Constant))
                    yield str(text).partition(" ")[0], method


def test_every_event_that_is_logged_is_on_its_page_with_its_level() -> None:
    page = (ROOT / "docs/reference/logging.md").read_text()
    listed = {
        event: level.strip()
        for events, level in re.findall(r"^\| (`[^|]+`) \|([^|]+)\|", page, re.MULTILINE)
        for event in re.findall(r"`([\w.]+)`", events)
    }
    in_source = {
        event: method
        for path in (ROOT / "aioproducer").rglob("*.py")
        for event, method in logged(ast.parse(path.read_text()))
    }
    assert listed.keys() == in_source.keys()
    for event, method in in_source.items():
        if method == "log":  # its level depends
            assert "WARNING" in listed[event], event
        else:
            assert listed[event] == {"exception": "ERROR"}.get(method, method.upper()), event


def cells_of_errors() -> list[list[str]]:
    """Return the cells of the table of errors, row by row."""
    table = RELIABILITY.split("<!-- errors: begin -->")[1].split("<!-- errors: end -->")[0]
    _, _, *rows = table.strip().splitlines()
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def error_class(name: str) -> type[Exception]:
    found: type[Exception] = getattr(errors, name, None) or getattr(builtins, name)
    assert issubclass(found, Exception)
    return found


ERRORS = {
    error_class(name): (retried, persisted, retriable, advice)
    for named, _, retried, persisted, retriable, advice in cells_of_errors()
    for name in re.findall(r"`(\w+)`", named)
}
BROKER_ERRORS = [kind for kind in ERRORS if issubclass(kind, BrokerError) and kind is not BrokerError]
NEVER_RAISED_BY_A_SEND = {ConfigError, AuthenticationFailed}
SAID_OF: dict[type, str] = {
    outcomes.Retry: "yes",
    outcomes.Restamp: "yes, under a new sequence",
    outcomes.Split: "yes, in halves",
    outcomes.FailRecords: "yes, without the records named",
    outcomes.Deliver: "it counts as delivered",
    outcomes.Fail: "no",
}


def test_the_table_of_errors_has_each_once() -> None:
    named = [name for named, *_ in cells_of_errors() for name in re.findall(r"`(\w+)`", named)]
    public = {found for name in errors.__all__ if isinstance(found := getattr(errors, name), type)}
    assert len(named) == len(set(named))
    assert set(ERRORS) == public - NEVER_RAISED_BY_A_SEND | {TypeError, ValueError}


@pytest.mark.parametrize("kind", BROKER_ERRORS)
def test_the_table_of_errors_tells_what_a_brokers_answer_leads_to(kind: type[BrokerError]) -> None:
    standing = outcomes.Standing(
        records=2,
        idempotent=True,
        oldest=True,
        uncertain=False,
        torn=False,
        last_attempt=False,
    )
    retried, persisted, _, _ = ERRORS[kind]
    assert retried == SAID_OF[type(outcomes.judge(kind("no"), standing, {0: "bad"}))]
    if kind is not DuplicateSequenceNumber:
        assert persisted == ("no" if kind.definitely_refused else "maybe")


@pytest.mark.parametrize("kind", ERRORS)
def test_the_table_of_errors_tells_what_is_retriable_and_advises_to_send_it_again(
    kind: type[Exception],
) -> None:
    *_, said, advice = ERRORS[kind]
    retriable = getattr(kind, "retriable", False)
    assert advice.startswith("send it again") == retriable
    if kind is SendManyError:
        assert said == "if any of them is"
    else:
        assert said == ("yes" if retriable else "no")


def test_promises_are_shown_by_tests_that_exist() -> None:
    promises = RELIABILITY.split("## Promises")[1].split("## ")[0]
    for path, name in re.findall(r"`(tests/[\w./]+)(?:::(\w+))?`", promises):
        assert name in (ROOT / path).read_text(), f"{path} has no {name}"
    words_of_the_judge = "".join(path.read_text() for path in (ROOT / "tests/scenarios/faults").glob("*.py"))
    shown_by = [row.split("|")[4] for row in promises.splitlines() if row.startswith("| R")]
    assert len(shown_by) == 13
    for words in re.findall(r"\*([^*]+)\*", "".join(shown_by)):
        assert f'"{words}' in words_of_the_judge, f"the judge does not say: {words}"


def test_the_table_of_clients_is_of_the_faults_that_are_measured() -> None:
    table = RELIABILITY.split("## Side by side")[1]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in table.splitlines()
        if line[:1] == "|"
    ]
    heads, _, *measured = rows
    assert tuple(heads) == HEADINGS
    assert [row[0] for row in measured if row[0]] == [scenario.title for scenario in SCENARIOS]
    assert [row[1] for row in measured] == list(CLIENTS) * len(SCENARIOS)
