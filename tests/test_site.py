"""The site: its links, its parts, and the printed output of the programs on its first pages."""

from __future__ import annotations

import json
import logging
import os
import posixpath
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from mkdocs.config import load_config
from mkdocs.structure.files import File, Files, get_files
from mkdocs.structure.pages import Page

import aioproducer
from aioproducer import errors
from aioproducer.config.options import KINDS
from aioproducer.testing import ThreadedCluster
from docs.site import hooks
from tests.services.serving import serving
from tests.test_docs_examples import passed

ROOT = Path(__file__).parents[1]
PAGES = [
    "index.md",
    "tutorial.md",
    "how-to/never-lose-a-record.md",
    "how-to/bound-latency.md",
    "how-to/tune-throughput.md",
    "how-to/transactions.md",
]
PROGRAM = re.compile(r"```python\n(.*?)```(?:(?:(?!```).)*?```text\n(.*?)```)?", re.DOTALL)
"""A program, and what it prints: the next block, if that is of text."""
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def runs(browser: str) -> bool:
    """True if *browser* is a real browser, and no placeholder that names the package to install."""
    return subprocess.run([browser, "--version"], check=False, capture_output=True).returncode == 0


BROWSER = next(filter(runs, filter(None, map(shutil.which, BROWSERS))), "")


def programs(page: str) -> list[tuple[str, str]]:
    return PROGRAM.findall((ROOT / "docs" / page).read_text())


def samples() -> list[Any]:
    return [
        pytest.param(program, promised, id=f"{page}-{number}")
        for page in PAGES
        for number, (program, promised) in enumerate(programs(page))
        if "asyncio.run" in program
    ]


@pytest.mark.parametrize(("program", "promised"), samples())
@pytest.mark.kafka_cluster(topics={"orders": 3})
def test_programs_print_the_output_on_their_page(
    program: str, promised: str, kafka_cluster: ThreadedCluster
) -> None:
    program = program.replace("localhost:9092", kafka_cluster.bootstrap_servers)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.stdout, done.returncode) == (promised, 0), done.stderr


@pytest.mark.kafka_cluster(topics={"orders": 3})
async def test_service_of_the_tutorial_runs(
    kafka_cluster: ThreadedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOOTSTRAP_SERVERS", kafka_cluster.bootstrap_servers)
    (program,) = (each for each, _ in programs("tutorial.md") if "FastAPI" in each)
    namespace: dict[str, Any] = {}
    exec(program, namespace)
    async with serving(namespace["app"]) as client:
        answer = await client.post("/orders/ada", params={"what": "teapot"})
    assert (answer.status_code, answer.json()) == (200, {"partition": 2, "offset": 0})
    (record,) = kafka_cluster.records("orders", 2)
    assert (record.key, record.value) == (b"ada", b"teapot")


def test_tutorial_test_passes(tmp_path: Path) -> None:
    service, test = (each for each, _ in programs("tutorial.md") if "asyncio.run" not in each)
    (tmp_path / "orders.py").write_text(service)
    (tmp_path / "test_orders.py").write_text(test)
    assert passed(tmp_path) == 1


def test_reference_has_every_public_name_and_module() -> None:
    page = (ROOT / "docs/reference/api.md").read_text()
    in_tables = {*errors.__all__, "TimeoutReason", "ProducerOptions", "__version__", "accelerated"}
    shown = set(re.findall(r"^::: aioproducer\.(\w+)$", page, re.MULTILINE))
    assert shown == {*aioproducer.__all__} - in_tables
    modules = {path.stem for path in (ROOT / "aioproducer/contrib").glob("*.py")}
    modules -= {"__init__", "exposition"}
    assert set(re.findall(r"^## contrib\.(\w+)$", page, re.MULTILINE)) == modules


def test_api_page_has_every_method_of_the_producer_sends_first() -> None:
    page = (ROOT / "docs/reference/api.md").read_text()
    (members,) = re.findall(
        r"^::: aioproducer\.Producer\n(?:    .*\n)*?      members:\n((?: +- \w+\n)+)", page, re.MULTILINE
    )
    names = re.findall(r"- (\w+)", members)
    assert names[:4] == ["send", "enqueue", "send_nowait", "send_many"]
    assert sorted(names) == sorted(name for name in dir(aioproducer.Producer) if not name.startswith("_"))


@pytest.fixture(scope="module")
def site() -> Files:
    config = load_config(str(ROOT / "mkdocs.yml"), plugins=[])
    return config.plugins.on_files(get_files(config), config=config)


def file(site: Files, source: str) -> File:
    found = site.get_file_from_path(source)
    assert found is not None
    return found


def of(file: File) -> Any:
    """Return the attributes of a page that the hooks use."""
    return SimpleNamespace(file=file, meta={})


def test_links_of_the_site_lead_to_its_files(site: Files) -> None:
    outside = 0
    for page in site.documentation_pages():
        markdown = hooks.on_page_markdown(page.content_string, page=of(page))
        for target in hooks.LINK.findall(re.sub(r"`{3,}.*?\n`{3,}|`[^`]*`", "", markdown, flags=re.DOTALL)):
            to = posixpath.normpath(posixpath.join(posixpath.dirname(page.src_uri), target))
            assert site.get_file_from_path(to), f"{page.src_uri} links to {to}"
            outside += to.startswith(hooks.COPIES)
    assert outside > 10


def test_linked_program_becomes_a_page(site: Files) -> None:
    program = file(site, "repository/examples/test_your_code.py.md")
    shown = program.content_string
    assert shown.startswith("# test_your_code.py\n")
    assert (ROOT / "examples/test_your_code.py").read_text() in shown
    code = "handlers[0](../../docs/x)"
    assert hooks.on_page_markdown(code, page=of(program)) == code


def test_links_of_a_linked_page_are_followed(site: Files) -> None:
    picture = file(site, "repository/benchmarks/report/headline.svg")
    assert picture.content_bytes == (ROOT / "benchmarks/report/headline.svg").read_bytes()


def test_links_within_the_pages_stay_as_they_are(site: Files) -> None:
    page = of(file(site, "reference/testing.md"))
    text = (
        "[a](testing.md#faults) [b](../metrics.md) [c](https://kafka.apache.org) [d](../../examples/bulk.py)"
    )
    assert hooks.on_page_markdown(text, page=page) == text.replace(
        "../../examples/bulk.py", "../repository/examples/bulk.py.md"
    )


def rendered(site: Files, source: str) -> str:
    page = file(site, source)
    return hooks.on_page_markdown(page.content_string, page=of(page))


@pytest.fixture(params=[True, False], ids=["with the script", "without the script"])
def script(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> bool:
    """Provide or withhold the script that draws diagrams."""
    path = tmp_path / "mermaid.js"
    if request.param:
        path.write_text("")
    monkeypatch.setattr(hooks, "MERMAID", path)
    return path.is_file()


def test_states_of_a_batch_have_a_table(site: Files, script: bool) -> None:
    assert "| `EXPIRED_IN_FLIGHT` | `ACKNOWLEDGE` → `DELIVERED`, `FAIL` → `FAILED` |" in rendered(
        site, "design.md"
    )


def test_send_diagram_has_a_table_of_all_its_steps(site: Files, script: bool) -> None:
    diagram = file(site, "design.md").content_string.split("sequenceDiagram")[1].split("```")[0]
    table = rendered(site, "design.md").split("| module | step |")[1].split("<!--")[0]
    assert table.count("\n| `") == len(re.findall(r">>|Note over", diagram))
    assert "| `producer.py` → `_core/intake/` | _core/intake/fast_append.py: append |" in table


def test_diagrams_are_drawn_only_if_the_site_has_the_script(
    script: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = load_config(str(ROOT / "mkdocs.yml"), plugins=[])
    loaded = config["hooks"]["docs/site/hooks.py"]  # mkdocs imports the hooks once more
    monkeypatch.setattr(loaded, "MERMAID", hooks.MERMAID)
    files = config.plugins.on_files(get_files(config), config=config)
    page = file(files, "design.md")
    diagrams = page.content_string.count("```mermaid")
    markdown = rendered(files, "design.md")
    assert diagrams > 1
    assert markdown.count('class="mermaid"') == (diagrams if script else 0)
    assert (files.get_file_from_path(hooks.SCRIPT) is not None) == script
    output = hooks.on_post_page(f"<head></head>{markdown}", page=of(page))
    assert output.count(f'<script defer src="{hooks.SCRIPT}"></script></head>') == script


def test_diagram_without_a_table_is_drawn_or_shown_as_text(site: Files, script: bool) -> None:
    markdown = hooks.on_page_markdown(
        "```mermaid\ngraph LR\n  a --> b\n```\n", page=of(file(site, "design.md"))
    )
    drawn = f'<pre class="mermaid"><code>{hooks.WRAPPED}graph LR\n  a --&gt; b\n</code></pre>\n'
    assert markdown == (drawn if script else "```text\ngraph LR\n  a --> b\n```\n")


def test_lock_file_pins_the_script_without_a_registry() -> None:
    lock = json.loads((ROOT / "docs/site/package-lock.json").read_text())
    wanted = json.loads((ROOT / "docs/site/package.json").read_text())["dependencies"]
    assert lock["packages"][""]["dependencies"] == wanted
    for name, version in wanted.items():
        locked = lock["packages"][f"node_modules/{name}"]
        assert locked["version"] == version
        assert locked["integrity"].startswith("sha512-")
    assert "resolved" not in json.dumps(lock)


def test_cells_have_the_names_of_their_columns() -> None:
    head = '<table><thead><tr><th>option</th><th>a "b" <code>c</code></th></tr></thead>'
    body = "<tbody><tr><td>x</td><td>y</td></tr><tr><td>z</td><td></td></tr></tbody></table>"
    with_names = hooks.on_page_content(f"<p>text</p>{head}{body}{head}</table>")
    second = 'data-column="a &quot;b&quot; c"'
    assert with_names.count('<td data-column="option">') == 2
    assert with_names.count(second) == 2
    assert f"<td {second}>y</td>" in with_names
    assert with_names.startswith("<p>text</p><table><thead><tr><th>option</th>")
    assert '<td data-column="option" data-none>-</td>' in hooks.on_page_content(
        f"{head}<tr><td>-</td></tr></table>"
    )


def test_raised_errors_link_to_their_rows() -> None:
    item = '<li class="doc-section-item field-body">\n<code>{}</code>\n<p>a reason</p>'
    autoref = '<a class="autorefs" href="#x">ProducerError</a>'
    page = hooks.with_errors(item.format(f"(<span>ValueError</span>, {autoref})"), "../reliability.html")
    assert page == item.format('(ValueError, <a href="../reliability.html#ProducerError">ProducerError</a>)')
    other = "<li><code>ProducerError</code>"
    assert hooks.with_errors(other, "../reliability.html") == other


@pytest.mark.parametrize(
    "loads",
    [
        '<script async src="https://example.org/a.js"></script>',
        '<link rel="stylesheet" href="//example.org/a.css">',
        '<p><img alt="" src="http://example.org/a.png"></p>',
    ],
)
def test_page_with_an_external_resource_is_reported(
    loads: str, site: Files, caplog: pytest.LogCaptureFixture
) -> None:
    own = '<script src="assets/a.js"></script><a href="https://kafka.apache.org">Kafka</a>'
    with caplog.at_level(logging.WARNING, logger="mkdocs.plugins"):
        page: Page = of(file(site, "index.md"))
        assert hooks.on_post_page(own, page=page) == own
        assert caplog.records == []
        hooks.on_post_page(own + loads, page=page)
    assert "index.md loads " in caplog.text


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("reference/configuration.md", set(KINDS)),
        ("reliability.md", {*errors.__all__} - {"broker_error"}),
    ],
)
def test_options_and_errors_have_one_anchor_in_their_row(source: str, names: set[str], site: Files) -> None:
    page = file(site, source)
    markdown = hooks.on_page_markdown(page.content_string, page=of(page))
    anchored = re.findall(r'<a id="(\w+)"></a>`(\w+)`', markdown)
    assert sorted(anchored) == sorted((name, name) for name in names)
    rows = [line for line in markdown.splitlines() if line.startswith("| ")]
    in_rows = {name for line in rows for name in re.findall(r'<a id="(\w+)"', line.split(" | ")[0])}
    assert names - in_rows <= {"ConfigError"}


class UserError(errors.DeliveryTimeout):
    """An error class of a user."""


ANCHORS: dict[type[errors.ProducerError], str] = {
    **{getattr(errors, name): name for name in errors.__all__ if name != "broker_error"},
    errors.broker_error(12_345): "BrokerError",
    UserError: "DeliveryTimeout",
}
"""The class of each error, and its anchor."""


def raised(kind: type[errors.ProducerError]) -> errors.ProducerError:
    """Return an error of *kind*, without the arguments of its constructor."""
    return kind.__new__(kind)


@pytest.mark.parametrize(
    ("kind", "anchor"), ANCHORS.items(), ids=lambda each: getattr(each, "__name__", each)
)
def test_docs_url_is_a_row_of_an_existing_page(kind: type[errors.ProducerError], anchor: str) -> None:
    path, _, fragment = raised(kind).docs_url.partition("#")
    assert fragment == anchor
    page = (ROOT / path).read_text()
    assert f'<a id="{anchor}"></a>' in hooks.with_anchors(path.removeprefix(hooks.DOCS), page)


def test_docs_url_is_a_page_of_the_site_when_it_has_an_address(
    monkeypatch: pytest.MonkeyPatch, site: Files
) -> None:
    monkeypatch.setattr("aioproducer.errors.base._DOCS_URL", "https://example.org/")
    url = errors.DeliveryTimeout("x").docs_url
    assert url == "https://example.org/reliability.html#DeliveryTimeout"
    assert file(site, "reliability.md").url == "reliability.html"


def test_site_has_an_icon_and_the_changelog(site: Files) -> None:
    config = load_config(str(ROOT / "mkdocs.yml"), plugins=[])
    icon: str = config.theme["favicon"]
    assert site.get_file_from_path(icon), icon
    assert "repository/CHANGELOG.md" in str(config.nav)
    assert site.get_file_from_path("repository/CHANGELOG.md")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the site, as `make docs` builds it."""
    folder = tmp_path_factory.mktemp("site")
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", folder],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        check=True,
    )
    return folder


@pytest.mark.timeout(200)  # for the build
def test_api_page_links_each_raised_error(built: Path) -> None:
    page = (built / "reference/api.html").read_text()
    links = re.findall(r'<a href="\.\./reliability\.html#(\w+)">(\w+)</a>', page)
    assert len(links) > 20
    anchors = set(re.findall(r'<a id="(\w+)"', (built / "reliability.html").read_text()))
    assert all(anchor == name and anchor in anchors for anchor, name in links)


@pytest.mark.timeout(200)  # for the build
def test_search_index_and_worker_load_without_a_server(built: Path) -> None:
    script = (built / "search/search_index.js").read_text()
    index = json.loads((built / "search/search_index.json").read_text())
    assert json.loads(script.removeprefix("var __index = ")) == index
    assert "reference/configuration.html#options" in {each["location"] for each in index["docs"]}
    pages = [each for each in built.rglob("*.html") if each.name != "404.html"]  # a server's own
    assert len(pages) > len(PAGES)
    for page in pages:
        worker, bundle = re.findall(r'<script src="([^"]+)"', page.read_text())
        assert (page.parent / worker).samefile(built / "site/iframe-worker.js")
        assert "assets/javascripts/bundle." in bundle


@pytest.mark.skipif(not BROWSER, reason="there is no Chromium on the PATH")
@pytest.mark.timeout(200)
@pytest.mark.parametrize("page", ["index.html", "how-to/bound-latency.html"])
def test_search_finds_pages_without_a_server(page: str, built: Path, tmp_path: Path) -> None:
    address = f"{(built / page).as_uri()}?q=linger_ms"
    options = ("--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}")
    shown = subprocess.run(
        [BROWSER, *options, "--virtual-time-budget=20000", "--dump-dom", address],
        check=True,
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert re.search(r'class="md-search-result__meta">\d+ matching documents', shown.stdout)
