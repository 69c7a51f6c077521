from __future__ import annotations

import ast
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from string import ascii_lowercase

import pytest
from hypothesis import example, given, strategies as st

from aioproducer._core.log_limits import LogLimits
from aioproducer._core.logfmt import Pairs, formatted, quoted
from aioproducer._core.steps import Log
from tests.cases import for_each

PACKAGE = Path(__file__).parents[3] / "aioproducer"
TEMPLATE = re.compile(
    r"[a-z_]+(\.[a-z_0-9]+)+( %s)?( [a-z_]+=(%(\.\d)?[sdrfg](: %s|_[a-z_]+)?|[\w.]+(:%s)?))*( %s)?"
)
log = Log("aioproducer.tests.logfmt")
texts = st.text(st.characters(exclude_categories=()))
values = texts | st.integers() | st.booleans() | st.none() | st.binary()
keys = st.text(f"{ascii_lowercase}_", min_size=1).filter("event".__ne__)


def parsed(line: str) -> dict[str, str | None]:
    """Parse *line* as the decoder of go-logfmt does, character by character. A key without a value has None."""
    found: dict[str, str | None] = {}
    at, end = 0, len(line)
    while at < end:
        if line[at] <= " ":
            at += 1
            continue
        start = at
        while at < end and line[at] > " " and line[at] not in '="':
            at += 1
        key = line[start:at]
        assert key, f"no key at {start}: {line!r}"
        assert key not in found, f"{key} twice: {line!r}"
        if at == end or line[at] != "=":
            assert at == end or line[at] <= " ", f"{line[at]} in a key: {line!r}"
            found[key] = None
            continue
        at += 1
        if at < end and line[at] == '"':
            found[key], at = unquoted(line, at + 1)
        else:
            start = at
            while at < end and line[at] > " ":
                assert line[at] not in '="', f"{line[at]} in a bare value: {line!r}"
                at += 1
            found[key] = line[start:at]
        assert at == end or line[at] <= " ", f"no space at {at}: {line!r}"
    return found


def unquoted(line: str, at: int) -> tuple[str, int]:
    """Return the value that starts at *at*, behind the quote, and the position behind the closing quote."""
    units: list[str] = []
    while (character := line[at]) != '"':
        assert character >= " "
        if character != "\\":
            units.append(character)
            at += 1
            continue
        escape = line[at + 1]
        if escape == "u":
            units.append(chr(int(line[at + 2 : at + 6], 16)))
            at += 6
        else:
            units.append({"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\", "/": "/"}[escape])
            at += 2
    return whole("".join(units)), at + 1


def whole(text: str) -> str:
    """Return *text* with a character for each pair of surrogates."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


@given(texts)
@example('a "quoted" text\\')
@example("a=b")
@example("\\u001b")
def test_value_is_printable_and_can_be_parsed(text: str) -> None:
    line = f"event key={quoted(text)} other=1"
    assert line.isprintable()
    assert parsed(line) == {"event": None, "key": whole(text), "other": "1"}


@given(st.dictionaries(keys, values))
def test_line_has_the_fields(fields: dict[str, object]) -> None:
    message, arguments, found = formatted(
        " ".join(("event", *(f"{key}=%s" for key in fields))), fields.values()
    )
    line = message % arguments
    assert line.isprintable()
    shown = {key: whole(str(value)) for key, value in fields.items()}
    assert parsed(line) == {"event": None, **shown}
    assert {key: whole(str(found[key])) for key in fields} == shown
    assert found["event"] == "event"


@given(st.dictionaries(keys, values, min_size=1))
def test_pairs_are_words_of_their_own(fields: dict[str, object]) -> None:
    pairs = Pairs(**fields)
    message, arguments, found = formatted("thing.failed %s last=%d", (pairs, 3))
    expected = {"thing.failed": None, **{key: whole(str(value)) for key, value in fields.items()}}
    if "last" not in fields:
        assert parsed(message % arguments) == {**expected, "last": "3"}
        assert found == {"event": "thing.failed", **pairs.fields, "last": 3}


@for_each(
    ("template", "arguments", "line", "fields"),
    [
        ("event", (), "event", {}),
        ("event a=%d b=%.3f c=%s", (1, 0.5004, "x"), "event a=1 b=0.500 c=x", {"a": 1, "b": 0.5, "c": "x"}),
        ("event a=%d b=%g", (1.9, 2.0), "event a=1 b=2", {"a": 1, "b": 2.0}),
        ("event error=%s: %s", ("E", "no way"), 'event error="E: no way"', {"error": "E: no way"}),
        ("event error=%r", (ValueError("x"),), "event error=ValueError('x')", {"error": "ValueError('x')"}),
        ("event reason=%r", ("it's x",), 'event reason="it\'s x"', {"reason": "it's x"}),
        ("event a=%s b=%s", (True, None), "event a=True b=None", {"a": True, "b": None}),
        ("event a=%s", ("",), 'event a=""', {"a": ""}),
        ("event a=%s_ms by=%s_max_ms", ("x", "y"), "event a=x_ms by=y_max_ms", {"a": "x_ms", "by": "y_max_ms"}),
        ("event a=fixed b=%s", ("x",), "event a=fixed b=x", {"a": "fixed", "b": "x"}),
        ("event %s b=%s", (Pairs(id=7, x="y z"), "b"), 'event id=7 x="y z" b=b', {"id": 7, "x": "y z", "b": "b"}),
        ("event a=%s %s", ("b", Pairs(times=2)), "event a=b times=2", {"a": "b", "times": 2}),
        ("event %s", ("no = pairs",), 'event detail="no = pairs"', {"detail": "no = pairs"}),
    ],
)  # fmt: skip
def test_template_makes_a_line_and_fields(
    template: str, arguments: tuple[object, ...], line: str, fields: dict[str, object]
) -> None:
    message, quoted_arguments, found = formatted(template, arguments)
    assert message % quoted_arguments == line
    assert found == {"event": "event", **fields}


def test_log_record_has_the_fields(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "aioproducer.tests"):
        log.info(
            "batch.retry partition=%s attempt=%d name=%s error=%s: %s", "orders-3", 2, "n", "E", "no way"
        )
    (record,) = caplog.records
    found = {name: vars(record)[name] for name in ("event", "partition", "attempt", "name_", "error")}
    assert found == {
        "event": "batch.retry",
        "partition": "orders-3",
        "attempt": 2,
        "name_": "n",
        "error": "E: no way",
    }
    assert record.name == "aioproducer.tests.logfmt"
    assert record.msg == "batch.retry partition=%s attempt=%s name=%s error=%s"


def test_attributes_of_a_record_factory_are_kept(caplog: pytest.LogCaptureFixture) -> None:
    factory = logging.getLogRecordFactory()

    def with_topic(*arguments: object, **named: object) -> logging.LogRecord:
        record = factory(*arguments, **named)
        record.topic = "of the application"
        return record

    logging.setLogRecordFactory(with_topic)
    try:
        log.warning("batch.lost topic=%s", "orders")
    finally:
        logging.setLogRecordFactory(factory)
    (record,) = caplog.records
    assert (vars(record)["topic"], vars(record)["topic_"]) == ("of the application", "orders")


def test_counts_of_an_episode_are_fields(caplog: pytest.LogCaptureFixture) -> None:
    limits = LogLimits()
    subject = Pairs(transactional_id='a "b" c=d')
    with caplog.at_level(logging.INFO, "aioproducer.tests"):
        limits.log(log, logging.WARNING, subject, "thing.failed %s", subject)
        assert limits.over("thing.failed", subject, "thing.recovered by=%s", "a b")
        limits.log(log, logging.WARNING, "", "other.failed")
        limits.log(log, logging.WARNING, "", "other.failed")
        limits.close()
    failed, recovered, _, ended = caplog.records
    assert failed.getMessage() == 'thing.failed transactional_id="a \\"b\\" c=d"'
    assert vars(failed)["transactional_id"] == 'a "b" c=d'
    assert recovered.getMessage() == 'thing.recovered by="a b" times=1 for_s=0.0'
    assert (vars(recovered)["by"], vars(recovered)["times"], vars(recovered)["for_s"]) == ("a b", 1, 0.0)
    assert ended.getMessage() == "other.ended times=2 for_s=0.0".replace("other", "other.failed")
    assert vars(ended)["event"] == "other.failed.ended"


def templates() -> Iterator[tuple[str, str, int | None]]:
    """Yield position, template and number of arguments (None if unknown) of each event of the package."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for call in ast.walk(ast.parse(path.read_text())):
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
                continue
            owner = ast.unparse(call.func.value)
            first = {"debug": 0, "info": 0, "warning": 0, "error": 0, "exception": 0, "log": 1}.get(
                call.func.attr
            )
            if owner.endswith(("limits", "LogLimits())")):
                first = {"log": 3, "over": 2}.get(call.func.attr)
            elif owner != "log":
                continue
            if first is None or len(call.args) <= first:
                continue
            template = call.args[first]
            where = f"{path.relative_to(PACKAGE)}:{call.lineno}"
            assert isinstance(template, ast.Constant), where
            assert isinstance(template.value, str), where
            rest = call.args[first + 1 :]
            count = None if any(isinstance(each, ast.Starred) for each in rest) else len(rest)
            yield where, template.value, count


def test_templates_of_the_package_are_logfmt() -> None:
    found = list(templates())
    assert len(found) > 70
    for where, template, count in found:
        assert TEMPLATE.fullmatch(template), (where, template)
        assert count in {None, len(re.findall("%", template))}, where


def test_package_logs_by_log_alone() -> None:
    """A logger of `logging` would log no fields."""
    users = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if re.search(r"^log\w*(: Final)? = logging\.getLogger", path.read_text(), re.MULTILINE)
    }
    assert users == {"spark/messages.py"}  # sets a level and a handler
