"""The protocol state of a connection is equal for any split of the received bytes."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import given, strategies as st

from aioproducer._core.address import Address
from aioproducer._core.net.connection_protocol import ConnectionProtocol, ConnectionState
from aioproducer._core.protocol.apis import REQUESTS
from aioproducer._core.protocol.schema import decode_request
from aioproducer.errors import ProducerError
from tests.unit._core.net.scripted import ASK, answer_to, settings


@given(
    st.lists(st.booleans(), min_size=1, max_size=6),
    st.lists(st.integers(min_value=0)),
    st.booleans(),
    st.sampled_from([b"", b"\x00\x00\x00\x09\x7f", b"\x00"]),
)
def test_responses_are_equal_for_any_split_of_the_stream(
    asked: list[bool], cuts: list[int], too_old: bool, tail: bytes
) -> None:
    """The stream has the handshake, the responses, and garbage at its end."""
    assert conversation(asked, cuts, too_old=too_old, tail=tail) == conversation(
        asked, [], too_old=too_old, tail=tail
    )


def conversation(
    asked: list[bool], cuts: list[int], *, too_old: bool, tail: bytes
) -> tuple[list[Any], type[ProducerError] | None]:
    """Return the responses to *asked*, where True is a call, and the error that ended the stream."""
    core = ConnectionProtocol(Address("b", 1), settings(), 3, 0.0)
    core.connection_made(0.0)
    received: list[Any] = []
    error: type[ProducerError] | None = None

    def feed(stream: bytes) -> None:
        nonlocal error
        bounds = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})
        for start, end in pairwise(bounds):
            try:
                received.extend(answer for _, answer, _ in core.receive_data(stream[start:end], 0.0))
            except ProducerError as raised:
                error = type(raised)
                return

    def exchange() -> bytes:
        return b"".join(
            answer_to(decode_request(bytes(frame[4:]), REQUESTS)[0], too_old=too_old)
            for frame in core.data_to_send()
        )

    while core.state is ConnectionState.HANDSHAKE:
        feed(exchange())
    for is_call in asked:
        core.send(ASK, 0.0, on_answer=(lambda _: None) if is_call else None)
    feed(exchange() + tail)
    return received, error
