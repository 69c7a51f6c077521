from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aioproducer._core.protocol.metadata import MetadataRequest
from aioproducer.errors import (
    BrokerError,
    IllegalSaslState,
    InvalidRecord,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    ProducerClosed,
    RequestTimedOut,
)
from aioproducer.testing import Cluster, Refused, in_virtual_time
from aioproducer.testing.faults import NO_FAULT, RequestFaults, Rule, Script, Target
from tests.unit.testing.batches import batch
from tests.unit.testing.client import Client, fetch_request, metadata_request, produce_request

ASK = MetadataRequest(topics=[])


async def codes(client: Client, count: int) -> list[int]:
    return [(await client.produce()).error_code for _ in range(count)]


async def test_error_is_answered_once_and_nothing_is_appended(cluster: Cluster, client: Client) -> None:
    cluster.on("produce").answer(NotEnoughReplicas)
    assert await codes(client, 2) == [NotEnoughReplicas.code, 0]
    assert len(cluster.records("orders", 0)) == 1


async def test_error_after_the_append_hides_that_it_happened(cluster: Cluster, client: Client) -> None:
    cluster.on("produce").answer(NotEnoughReplicasAfterAppend, before_append=False)
    answer = await client.produce()
    assert (answer.error_code, answer.base_offset) == (NotEnoughReplicasAfterAppend.code, -1)
    assert len(cluster.records("orders", 0)) == 1


async def test_error_may_be_given_as_any_code(cluster: Cluster, client: Client) -> None:
    cluster.on("produce").answer(-1)
    cluster.on("produce").answer(999)
    assert await codes(client, 2) == [-1, 999]


@pytest.mark.parametrize(
    "error", ["NOT_LEADER", ProducerClosed, BrokerError, NotEnoughReplicas("no"), None, True]
)
async def test_illegal_error_class_is_refused(cluster: Cluster, error: Any) -> None:
    rule = cluster.on("produce")
    with pytest.raises(
        TypeError, match=r"expected a class of aioproducer\.errors that stands for an error code"
    ):
        rule.answer(error)
    assert rule.only_counts()


@pytest.mark.parametrize("code", [0, 2**15, -(2**15) - 1])
async def test_illegal_error_code_is_refused(cluster: Cluster, code: int) -> None:
    with pytest.raises(ValueError, match=f"not {code}$"):
        cluster.on("produce").answer(code)


@pytest.mark.parametrize("argument", ["partition", "node", "times", "after"])
async def test_numbers_of_rules_are_checked(cluster: Cluster, argument: str) -> None:
    wrong: Any = {argument: "0"}
    with pytest.raises(TypeError, match=f"^{argument} must be an int, not '0'$"):
        cluster.on("produce", **wrong)


@pytest.mark.parametrize(("delay", "error"), [("1", TypeError), (-1, ValueError), (float("nan"), ValueError)])
async def test_delays_are_checked(cluster: Cluster, delay: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"^a delay is"):
        cluster.on("produce").delay(delay)


async def test_rules_for_the_same_requests_come_one_after_the_other(cluster: Cluster, client: Client) -> None:
    cluster.on("produce", times=2).answer(RequestTimedOut)
    cluster.on("produce").answer(NotEnoughReplicas)
    assert await codes(client, 4) == [RequestTimedOut.code, RequestTimedOut.code, NotEnoughReplicas.code, 0]


async def test_rule_may_let_some_pass_first(cluster: Cluster, client: Client) -> None:
    rule = cluster.on("produce", after=2).answer(RequestTimedOut)
    assert await codes(client, 4) == [0, 0, RequestTimedOut.code, 0]
    assert rule.hits == 1


async def test_request_of_another_rule_counts_as_passed(cluster: Cluster, client: Client) -> None:
    cluster.on("produce", times=2).answer(RequestTimedOut)
    cluster.on("produce", after=2).answer(NotEnoughReplicas)
    assert await codes(client, 4) == [RequestTimedOut.code, RequestTimedOut.code, NotEnoughReplicas.code, 0]


async def test_rule_for_all_strikes_until_it_is_removed(cluster: Cluster, client: Client) -> None:
    rule = cluster.on("produce", times=None).answer(RequestTimedOut)
    assert await codes(client, 3) == [RequestTimedOut.code] * 3
    rule.remove()
    assert await codes(client, 1) == [0]
    assert rule.hits == 3


async def test_rule_strikes_its_topic_only(cluster: Cluster, client: Client) -> None:
    cluster.create_topic("other", 1)
    cluster.on("produce", topic="other").answer(RequestTimedOut)
    assert await codes(client, 1) == [0]
    response = await client.ask(produce_request({0: batch()}, topic="other"))
    assert response.responses[0].partition_responses[0].error_code == RequestTimedOut.code


async def test_rules_for_two_partitions_may_strike_one_request(cluster: Cluster, client: Client) -> None:
    first = cluster.on("produce", partition=0).answer(RequestTimedOut)
    second = cluster.on("produce", partition=2).answer(NotEnoughReplicas)
    response = await client.ask(produce_request({0: batch(), 2: batch()}))
    answers = response.responses[0].partition_responses
    assert [answer.error_code for answer in answers] == [RequestTimedOut.code, NotEnoughReplicas.code]
    assert (first.hits, second.hits) == (1, 1)


async def test_partitions_that_no_rule_names_go_on(cluster: Cluster, client: Client) -> None:
    cluster.on("produce", topic="orders", partition=2).answer(RequestTimedOut)
    response = await client.ask(produce_request({0: batch(), 2: batch()}))
    answers = response.responses[0].partition_responses
    assert [answer.error_code for answer in answers] == [0, RequestTimedOut.code]


async def test_rule_strikes_its_node_only(cluster: Cluster, client: Client) -> None:
    rule = cluster.on("metadata", node=2, topic="orders").answer(NotLeaderOrFollower)
    assert (await client.ask(metadata_request("orders"))).topics[0].error_code == 0
    async with await Client.to(cluster, 2) as other:
        assert (await other.ask(metadata_request("orders"))).topics[0].error_code == NotLeaderOrFollower.code
    assert rule.hits == 1


async def test_rule_without_a_kind_strikes_any_request(cluster: Cluster, client: Client) -> None:
    rule = cluster.on(times=None)
    await client.produce()
    await client.ask(ASK)
    await client.ask(fetch_request({0: 0}))
    assert rule.hits == 3


async def test_rule_about_a_topic_ignores_requests_about_none(cluster: Cluster, client: Client) -> None:
    rule = cluster.on(topic="orders", times=None)
    await client.ask(ASK)
    assert rule.hits == 0
    await client.ask(MetadataRequest(topics=None))
    assert rule.hits == 1


async def test_rule_without_fault_only_watches(cluster: Cluster, client: Client) -> None:
    watching = cluster.on("produce", times=None)
    cluster.on("produce").answer(RequestTimedOut)
    assert await codes(client, 2) == [RequestTimedOut.code, 0]
    assert watching.hits == 2


async def test_test_can_wait_for_a_rule_to_strike(cluster: Cluster, client: Client) -> None:
    rule = cluster.on("produce", times=2).delay(0)
    waiting = asyncio.create_task(rule.happened(times=2))
    await client.produce()
    assert not waiting.done()
    client.send(produce_request({0: batch()}))
    await waiting
    await rule.happened()


async def test_single_records_can_be_blamed(cluster: Cluster, client: Client) -> None:
    cluster.on("produce").answer(InvalidRecord, record_errors={1: "this one"})
    answer = await client.produce(batch(b"a", b"b"))
    [blamed] = answer.record_errors
    assert (blamed.batch_index, blamed.batch_index_error_message) == (1, "this one")


@in_virtual_time
async def test_delay_comes_before_the_append_or_after_it() -> None:
    loop = asyncio.get_running_loop()
    async with (
        Cluster(topics={"orders": 1}, transport="memory") as cluster,
        await Client.to(cluster) as client,
    ):
        cluster.on("produce").delay(60)
        request = produce_request({0: batch()})
        client.send(request)
        await asyncio.sleep(59)
        assert cluster.records("orders", 0) == []
        await client.answer_to(request)
        assert loop.time() == 60

        cluster.on("produce").delay(60, before_append=False)
        client.send(request)
        await asyncio.sleep(59)
        assert len(cluster.records("orders", 0)) == 2
        await client.answer_to(request)
        assert loop.time() == 120


@in_virtual_time
async def test_delay_and_an_error_go_together() -> None:
    async with (
        Cluster(topics={"orders": 1}, transport="memory") as cluster,
        await Client.to(cluster) as client,
    ):
        cluster.on("produce").delay(5).answer(RequestTimedOut, before_append=False).throttle(1)
        assert await codes(client, 1) == [RequestTimedOut.code]
        assert asyncio.get_running_loop().time() == 5
        assert len(cluster.records("orders", 0)) == 1


@pytest.mark.parametrize("before_append", [True, False])
async def test_connection_is_closed_instead_of_an_answer(cluster: Cluster, before_append: bool) -> None:
    cluster.on("produce").close(before_append=before_append)
    async with await Client.to(cluster) as client:
        client.send(produce_request({0: batch()}))
        assert await client.is_closed()
    assert len(cluster.records("orders", 0)) == (0 if before_append else 1)


@pytest.mark.parametrize("before_append", [True, False])
@in_virtual_time
async def test_dropped_request_silences_its_connection_only(before_append: bool) -> None:
    async with (
        Cluster(topics={"orders": 1}, transport="memory") as cluster,
        await Client.to(cluster) as client,
    ):
        dropped = cluster.on("produce").drop(before_append=before_append)
        client.send(produce_request({0: batch()}))
        await dropped.happened()
        client.send(ASK)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3600):
                await client.frame()
        assert len(cluster.records("orders", 0)) == (0 if before_append else 1)
        async with await Client.to(cluster) as other:
            await other.ask(ASK)
        assert cluster.request_count("metadata") == 1


@in_virtual_time
async def test_throttling_tells_the_client_and_reads_nothing_meanwhile() -> None:
    loop = asyncio.get_running_loop()
    async with (
        Cluster(topics={"orders": 1}, transport="memory") as cluster,
        await Client.to(cluster) as client,
    ):
        cluster.on("produce").throttle(ms=1500)
        response = await client.ask(produce_request({0: batch()}))
        assert (response.throttle_time_ms, loop.time()) == (1500, 0)
        assert (await client.ask(ASK)).throttle_time_ms == 0
        assert loop.time() == 1.5
        # A version from before KIP-219: it throttles, and then answers.
        cluster.on("produce").throttle(ms=1500)
        response = await client.ask(produce_request({0: batch()}), version=5)
        assert (response.throttle_time_ms, loop.time()) == (1500, 3)
        await client.ask(ASK)
        assert loop.time() == 3


async def test_answer_can_be_rewritten_to_anything(cluster: Cluster, client: Client) -> None:
    cluster.on("metadata").rewrite(lambda frame: frame + frame)
    client.send(ASK)
    assert await client.frame() == await client.frame()
    cluster.on("metadata").rewrite(lambda _: b"").close(before_append=False)
    client.send(ASK)
    assert await client.is_closed()


async def test_answer_can_be_sent_in_pieces(cluster: Cluster, client: Client) -> None:
    cluster.on("metadata").rewrite(lambda frame: (frame[at : at + 1] for at in range(len(frame))))
    assert len((await client.ask(ASK)).brokers) == 2


async def test_rewrites_are_made_one_after_the_other(cluster: Cluster, client: Client) -> None:
    rule = cluster.on("metadata").rewrite(lambda frame: [frame[:2], frame[2:]])
    rule.rewrite(lambda frame: b"\x00\x00\x00\x02" + frame[-2:])
    client.send(ASK)
    assert len(await client.frame()) == 2


@pytest.mark.parametrize(("times", "after"), [(0, 0), (-1, 0), (1, -1)])
def test_illegal_rule_is_refused(times: int, after: int) -> None:
    with pytest.raises(ValueError, match="times="):
        Rule("produce", Target(), node=None, times=times, after=after)


def test_script_without_rules_strikes_nothing() -> None:
    script = Script()
    faults = script.faults_of("produce", 1, [Target("orders", 0)])
    assert faults is script.faults_of("metadata", 1, []) is NO_FAULT


def test_refusal_answers_all_targets() -> None:
    refusal = RequestFaults({}, IllegalSaslState)
    for target in (Target(), Target("orders"), Target("orders", 1)):
        with pytest.raises(Refused) as refused, refusal.around(*target):
            pytest.fail("done all the same")
        assert refused.value.code == IllegalSaslState.code


def test_refusal_without_message_has_error_name() -> None:
    refused = Refused(NotLeaderOrFollower)
    assert (refused.code, refused.message, refused.record_errors) == (6, "NotLeaderOrFollower", {})


def test_refusal_has_message_and_record_errors() -> None:
    refused = Refused(InvalidRecord, "no key", record_errors={3: "it has none"})
    assert (refused.code, refused.message, str(refused)) == (87, "no key", "no key")
    assert refused.record_errors == {3: "it has none"}
