"""The error table of transactions, row by row."""

from __future__ import annotations

from itertools import product

from aioproducer._core.transactions.transaction_manager import Api, Reaction, is_fatal, react
from aioproducer.errors import BrokerError, MetadataTimeout, ProducerFenced, broker_error
from tests.cases import for_each

RETRIABLE = [
    code for code, kind in sorted(BrokerError.by_code.items()) if kind.retriable and code not in {15, 16}
]
UNHEARD_OF = 4712
UNKNOWN_SERVER_ERROR = -1

#       find    init    partitions offsets txn commit  commit  abort
TABLE = """
15      find    find    find    find    find    find    find
16      find    find    find    find    find    find    find
22      fatal   fatal   abort   abort   abort   retry   retry
25      fatal   fatal   abort   abort   abort   retry   retry
82      fatal   fatal   abort   abort   abort   retry   retry
29      fatal   fatal   abort   abort   abort   retry   retry
30      fatal   fatal   abort   abort   abort   retry   retry
31      fatal   fatal   fatal   fatal   fatal   fatal   fatal
35      fatal   fatal   fatal   fatal   fatal   fatal   fatal
43      fatal   fatal   fatal   fatal   fatal   fatal   fatal
47      fatal   fatal   fatal   fatal   fatal   fatal   fatal
48      fatal   fatal   fatal   fatal   fatal   fatal   abort
49      fatal   fatal   fatal   fatal   fatal   fatal   fatal
50      fatal   fatal   fatal   fatal   fatal   fatal   fatal
53      fatal   fatal   fatal   fatal   fatal   fatal   fatal
59      fatal   fatal   abort   abort   abort   abort   abort
90      fatal   fatal   fatal   fatal   fatal   fatal   fatal
120     abort   abort   abort   abort   abort   abort   fatal
-1      fatal   fatal   abort   abort   abort   retry   retry
4712    fatal   fatal   abort   abort   abort   retry   retry
"""
WORDS = {
    "find": Reaction.FIND_AGAIN,
    "retry": Reaction.RETRY,
    "abort": Reaction.ABORTABLE,
    "fatal": Reaction.FATAL,
}
ROWS = [
    (int(code), api, WORDS[word])
    for code, *words in (line.split() for line in TABLE.split("\n") if line)
    for api, word in zip((each for each in Api if each is not Api.DESCRIBE), words, strict=True)
]
IN_TWO = {
    (47, Api.OFFSET_COMMIT): Reaction.ABORTABLE,
    (48, Api.COMMIT): Reaction.ABORTABLE,
    (48, Api.ABORT): Reaction.FATAL,
}
"""What transaction version 2 has another reaction to."""


@for_each("version", [0, 1, 2])
@for_each(("code", "api", "reaction"), ROWS)
def test_reaction_matches_every_row_of_the_table(
    code: int, api: Api, reaction: Reaction, version: int
) -> None:
    if version == 2:
        reaction = IN_TWO.get((code, api), reaction)
    assert react(api, broker_error(code)("told"), version=version) is reaction


@for_each(("code", "api"), list(product(RETRIABLE, Api)))
def test_retriable_error_is_retried_for_every_request(code: int, api: Api) -> None:
    assert react(api, broker_error(code)("told"), version=2) is Reaction.RETRY


def test_retriable_errors_include_those_of_coordinators() -> None:
    assert {7, 14, 51} <= set(RETRIABLE)


@for_each("code", [31, 35, 43, 49, 53, 90])
def test_error_of_a_record_is_fatal_for_the_producer(code: int) -> None:
    assert is_fatal(broker_error(code))


@for_each("code", [-1, 7, 10, 29, 45, 47, 48, 50, 59, 87, 120, UNHEARD_OF])
def test_error_of_a_record_fails_only_its_transaction(code: int) -> None:
    assert not is_fatal(broker_error(code))


def test_client_error_fails_only_its_transaction() -> None:
    assert not is_fatal(MetadataTimeout)
    assert is_fatal(ProducerFenced)
