"""The protocol state of a connection, against a broker that splits, corrupts or ends its responses."""

from __future__ import annotations

from functools import partial
from itertools import accumulate
from math import inf
from typing import Any

import pytest
from hypothesis import settings as hypothesis_settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from aioproducer._core.address import Address
from aioproducer._core.net.connection_protocol import ConnectionProtocol, ConnectionState
from aioproducer._core.net.in_flight import FrameReader
from aioproducer._core.protocol.apis import REQUESTS
from aioproducer._core.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse
from aioproducer._core.protocol.schema import RequestHeader, decode_request
from aioproducer.errors import ConnectionFailed, ProducerError, ProtocolError
from tests.unit._core.net.scripted import ASK, answer_to, settings

TIMEOUT_S = 20.0
HELD = 1_000_000
"""Behind every correlation id: calls that are held back have none yet."""


class ConnectionMachine(RuleBasedStateMachine):
    """Requests are known by their correlation ids: 1, 2, 3 …, the handshake's included."""

    def __init__(self) -> None:
        super().__init__()
        self.another_connection()

    def another_connection(self, *, has_sasl: bool = False) -> None:
        self.now = 100.0
        self.core = ConnectionProtocol(
            Address("b", 1), settings(request_timeout_s=TIMEOUT_S), 3, self.now, has_sasl=has_sasl
        )
        self.is_holding = False
        self.held: list[int | None] = []
        """What is held back, in its order: a call by a number that it has meanwhile, or None for what is no call."""
        self.numbers: dict[int, int] = {}
        """The correlation ids of calls that were held back, by those numbers."""
        self.made = 0
        """How many requests there are, so the last one's correlation id."""
        self.sizes: list[int] = []
        """Of those that have been handed to the transport."""
        self.waiting: dict[int, float] = {}
        """The calls without an outcome, oldest first, and when each was made."""
        self.settled: list[tuple[int, Any]] = []
        self.expected: list[int] = []
        """The calls in the order in which they are to be settled."""
        self.handed_over = b""
        self.left_us = 0  # bytes
        self.broker = FrameReader(1 << 20)
        self.came = FrameReader(1 << 20)
        """Knows whether an answer has begun."""
        self.to_answer: list[RequestHeader] = []
        self.on_its_way = b""
        self.is_retired = False
        self.core.connection_made(self.now)
        self.made, self.asked_at = 1, self.now  # its greeting

    @precondition(lambda self: not self.is_open)
    @rule(has_sasl=st.booleans())
    def the_next_one_is_made(self, has_sasl: bool) -> None:
        self.another_connection(has_sasl=has_sasl)
        self.hands_are_shaken()

    @initialize()
    def hands_are_shaken(self) -> None:
        """Complete the handshake, which most other rules require."""
        self.what_there_is_is_handed_over()
        self.all_of_it_leaves()
        self.the_broker_answers(skipped=False, too_old=False, surplus=b"")
        self.all_of_it_comes()

    @precondition(lambda self: not self.is_open)
    @rule()
    def the_next_one_has_its_handshake_in_pieces(self) -> None:
        self.another_connection()

    @precondition(lambda self: not self.is_open)
    @rule()
    def the_next_one_is_retired_in_its_handshake(self) -> None:
        self.another_connection()
        self.it_is_retired()
        self.hands_are_shaken()

    @property
    def oldest(self) -> float:
        """Time of the oldest call, without calls that are held back."""
        return next((at for number, at in self.waiting.items() if number not in self.held), self.asked_at)

    @property
    def held_calls(self) -> int:
        return sum(each is not None for each in self.held)

    @property
    def is_open(self) -> bool:
        return self.core.state is not ConnectionState.CLOSED

    # Callers of the connection.

    @precondition(lambda self: self.core.state is ConnectionState.READY)
    @rule(answered=st.lists(st.booleans(), min_size=1, max_size=5))
    def requests_are_made(self, answered: list[bool]) -> None:
        for each in answered:
            self.a_request_is_made(answered=each)

    def a_request_is_made(self, *, answered: bool) -> None:
        if self.is_holding:
            self.a_request_is_held_back(answered=answered)
            return
        self.made += 1
        if answered:
            self.waiting[self.made] = self.now
            self.expected.append(self.made)
            self.core.send(ASK, self.now, on_answer=partial(self.settle, self.made))
        else:
            self.core.send(ASK, self.now)

    def a_request_is_held_back(self, *, answered: bool) -> None:
        number = HELD + len(self.expected)
        self.held.append(number if answered else None)
        if answered:
            self.waiting[number] = self.now
            self.expected.append(number)
            self.core.send(ASK, self.now, on_answer=partial(self.settle, number))
        else:
            self.core.send(ASK, self.now)

    # Logins.

    @precondition(lambda self: self.core.state is ConnectionState.AUTHENTICATION)
    @rule()
    def somebody_has_logged_in(self) -> None:
        self.core.authenticated()

    @precondition(lambda self: self.core.state in {ConnectionState.AUTHENTICATION, ConnectionState.READY})
    @rule()
    def a_login_asks(self) -> None:
        """A login request precedes the requests held back."""
        self.made += 1
        behind = [each for each in self.held if each is not None]
        self.expected[len(self.expected) - len(behind) :] = [self.made, *behind]
        before = {number: at for number, at in self.waiting.items() if number not in behind}
        self.waiting = before | {self.made: self.now} | {each: self.waiting[each] for each in behind}
        self.core.ask(ASK, self.now, partial(self.settle, self.made))

    @precondition(lambda self: self.core.state is ConnectionState.READY and not self.is_holding)
    @rule()
    def others_are_held_back(self) -> None:
        self.core.pause_requests()
        self.is_holding = True

    @precondition(lambda self: self.is_holding)
    @rule()
    def they_are_released(self) -> None:
        self.core.resume_requests(self.now)
        self.is_holding, held, self.held = False, self.held, []
        for number in held if self.is_open else ():
            self.made += 1
            if number is not None:
                self.numbers[number] = self.made
                self.waiting[number] = self.now

    def settle(self, number: int, outcome: Any) -> None:
        self.settled.append((number, outcome))
        del self.waiting[number]

    @precondition(lambda self: self.core.state is not ConnectionState.READY)
    @rule()
    def a_request_is_refused(self) -> None:
        with pytest.raises(ConnectionFailed) as refused:
            self.core.send(ASK, self.now, on_answer=partial(self.settle, -1))
        assert not refused.value.written

    @precondition(lambda self: self.waiting or self.core.state is ConnectionState.HANDSHAKE)
    @rule()
    def it_is_retired(self) -> None:
        self.core.retire()
        self.is_retired = True

    # The transport.

    @rule()
    def what_there_is_is_handed_over(self) -> None:
        for frame in self.core.data_to_send():
            self.sizes.append(len(frame))
            self.handed_over += frame

    @precondition(lambda self: self.is_open and self.left_us < len(self.handed_over))
    @rule(data=st.data())
    def some_of_it_leaves(self, data: st.DataObject) -> None:
        self.so_much_leaves(data.draw(st.integers(1, len(self.handed_over) - self.left_us)))

    def so_much_leaves(self, size: int) -> None:
        for payload in self.broker.feed(self.handed_over[self.left_us : self.left_us + size]):
            self.to_answer.append(decode_request(payload, REQUESTS)[0])
        self.left_us += size

    @precondition(lambda self: self.is_open)
    @rule()
    def all_of_it_leaves(self) -> None:
        for payload in self.broker.feed(self.handed_over[self.left_us :]):
            self.to_answer.append(decode_request(payload, REQUESTS)[0])
        self.left_us = len(self.handed_over)

    @precondition(lambda self: self.is_open)
    @rule(skipped=st.booleans(), count=st.integers(1, 5))
    def all_of_it_leaves_and_some_is_answered(self, skipped: bool, count: int) -> None:
        """Nothing that other rules do not do, but the usual way."""
        self.what_there_is_is_handed_over()
        self.all_of_it_leaves()
        for _ in self.to_answer[:count]:
            self.the_broker_answers(skipped=skipped, too_old=False, surplus=b"")

    @precondition(lambda self: self.to_answer)
    @rule(skipped=st.booleans(), too_old=st.booleans(), surplus=st.sampled_from([b"", b"!!"]))
    def the_broker_answers(self, skipped: bool, too_old: bool, surplus: bytes) -> None:
        header = self.to_answer.pop(0)
        is_call = (
            header.correlation_id in {self.numbers.get(each, each) for each in self.expected}
            or header.api_key == ApiVersionsRequest.API_KEY
        )
        if is_call or not skipped:
            self.on_its_way += answer_to(header, too_old=too_old, surplus=surplus)

    @precondition(lambda self: self.is_open and self.on_its_way)
    @rule(data=st.data())
    def some_of_it_comes(self, data: st.DataObject) -> None:
        size = data.draw(st.integers(1, len(self.on_its_way)))
        chunk, self.on_its_way = self.on_its_way[:size], self.on_its_way[size:]
        self.receive(chunk)

    @precondition(lambda self: self.is_open)
    @rule()
    def all_of_it_comes(self) -> None:
        chunk, self.on_its_way = self.on_its_way, b""
        self.receive(chunk)

    @precondition(lambda self: self.waiting and not self.on_its_way)
    @rule(chunk=st.binary(min_size=8, max_size=20))
    def nonsense_comes(self, chunk: bytes) -> None:
        """Whatever it does, no call is settled twice, or never."""
        try:
            self.receive(chunk)
        except ProtocolError as error:
            self.lose(error, None)
        else:
            self.lose(ConnectionFailed("enough of that"), None)

    @precondition(lambda self: self.waiting and not self.on_its_way and not self.came.begun)
    @rule()
    def nonsense_begins(self) -> None:
        """It is not waited for until it is whole."""
        start = (1000).to_bytes(4, "big") + (self.made + 1).to_bytes(4, "big")
        is_asked = self.core.in_flight > self.held_calls
        with pytest.raises(
            ProtocolError, match="correlation id" if is_asked else "no request is in flight"
        ) as raised:
            self.receive(start)
        self.lose(raised.value, None)

    @precondition(lambda self: self.is_open and self.on_its_way)
    @rule(told=st.booleans(), tail=st.sampled_from([b"", b"HTTP/1.1"]))
    def who_is_answered_closes_it(self, told: bool, tail: bytes) -> None:
        """The rest of the chunk is not read, be it nonsense."""
        chunk, self.on_its_way = self.on_its_way + tail, b""
        received = self.core.receive_data(chunk, self.now)
        try:
            for call, answer, _ in received:
                self.handshake_or(call.on_answer, answer)
                self.lose(ConnectionFailed("enough"), len(self.handed_over) - self.left_us if told else None)
        except ProtocolError as error:
            assert tail
            assert self.is_open
            self.lose(error, None)
        assert list(received) == []
        if self.is_open:
            self.lose(ConnectionFailed("nobody was answered"), None)

    def receive(self, chunk: bytes) -> None:
        for call, answer, surplus in self.core.receive_data(chunk, self.now):
            assert surplus in {0, 2}
            self.handshake_or(call.on_answer, answer)
        _ = list(self.came.feed(chunk))

    def handshake_or(self, on_answer: Any, answer: Any) -> None:
        on_answer(answer)
        if isinstance(answer, ApiVersionsResponse) and answer.error_code:
            self.made, self.asked_at = self.made + 1, self.now  # it asks again

    # Time, and the end.

    @rule(by_s=st.sampled_from([0.5, 1.0, TIMEOUT_S / 4, TIMEOUT_S]))
    def time_passes(self, by_s: float) -> None:
        self.now += by_s
        if self.core.next_timeout > self.now:
            return
        due = self.core.in_flight > self.held_calls and self.oldest + TIMEOUT_S <= self.now
        try:
            self.core.handle_timeout(self.now)
        except ConnectionFailed as error:
            assert due
            self.lose(error, None)
        else:
            assert not due
            assert self.core.next_timeout > self.now

    @precondition(
        lambda self: self.waiting or self.core.state in {ConnectionState.HANDSHAKE, ConnectionState.RETIRED}
    )
    @rule(told=st.booleans(), ours=st.booleans())
    def it_is_lost(self, told: bool, ours: bool) -> None:
        unwritten = len(self.handed_over) - self.left_us
        self.lose(None if ours else ConnectionFailed("lost"), unwritten if told else None)

    @precondition(lambda self: self.core.state is ConnectionState.READY)
    @rule(more=st.integers(-4, 4))
    def it_is_lost_about_where_a_request_begins(self, more: int) -> None:
        self.what_there_is_is_handed_over()
        begins = len(self.handed_over)
        self.requests_are_made([True])
        self.what_there_is_is_handed_over()
        if begins + more > self.left_us:
            self.so_much_leaves(begins + more - self.left_us)
        self.it_is_lost(told=True, ours=False)

    def lose(self, cause: ProducerError | None, unwritten: int | None) -> None:
        starts = [0, *accumulate(self.sizes)]
        left_us = len(self.handed_over) - (unwritten or 0)
        for call, error in self.core.connection_lost(cause, unwritten):
            call.on_answer(error)
            at = call.correlation_id - 1
            is_written = 0 <= at < len(self.sizes) and starts[at] < left_us
            assert getattr(error, "written", True) == is_written
            assert cause is None or cause in {error, error.__cause__}
        self.is_holding, self.held = False, []

    @invariant()
    def each_call_is_settled_once_in_its_order(self) -> None:
        assert [number for number, _ in self.settled] == self.expected[: len(self.settled)]
        assert list(self.waiting) == self.expected[len(self.settled) :]
        for number, outcome in self.settled:
            assert isinstance(outcome, ProducerError) or outcome.producer_id == self.numbers.get(
                number, number
            )

    @invariant()
    def a_retired_one_stays_so(self) -> None:
        if self.is_open and self.is_retired:
            assert self.core.state is ConnectionState.RETIRED

    @invariant()
    def it_asks_for_itself_in_the_handshake_only(self) -> None:
        if self.is_open and not self.is_retired:
            assert self.core.is_exchanging is (self.core.state is ConnectionState.HANDSHAKE)

    @invariant()
    def nothing_waits_at_the_end(self) -> None:
        if not self.is_open:
            assert not self.waiting
            assert self.core.in_flight == 0
            assert self.core.next_timeout == inf
            assert self.core.data_to_send() == []
            assert self.core.connection_lost(None, 0) == []

    @invariant()
    def the_oldest_call_is_the_next_to_time_out(self) -> None:
        if self.is_open and self.waiting:
            assert self.core.in_flight == len(self.waiting)
        if self.is_open and len(self.waiting) > self.held_calls:
            assert self.core.next_timeout <= self.oldest + TIMEOUT_S


TestConnection = pytest.mark.timeout(180)(
    ConnectionMachine.TestCase
)  # a busy machine needs more than a minute
TestConnection.settings = hypothesis_settings(stateful_step_count=40)
