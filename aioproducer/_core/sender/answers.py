"""Answers to produce requests, or the lack of one, matched to batches; and what failures say."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from aioproducer._core.backoff import MARKERS_BACKOFF
from aioproducer._core.batching.batch import Batch
from aioproducer._core.batching.batch_state import BatchState
from aioproducer._core.batching.completion import BatchCompletion
from aioproducer._core.batching.waiters import Failure
from aioproducer._core.logfmt import LONGEST_TEXT, Pairs, escaped
from aioproducer._core.metadata.snapshot import NO_LEADER, Broker, LeaderHint
from aioproducer._core.metadata.updater import MetadataUpdater
from aioproducer._core.net.connection import Connection
from aioproducer._core.protocol.produce import BaseOffsets, PartitionProduceResponse, ProduceResponse
from aioproducer._core.sender import outcomes
from aioproducer._core.sender.requests import ProduceAnswer, SenderSettings
from aioproducer._core.steps import Log
from aioproducer.errors import (
    AuthenticationFailed,
    ConcurrentTransactions,
    ConnectionFailed,
    ProducerError,
    ProtocolError,
    broker_error,
)

log: Final = Log(__name__)


class AnswerHandler:
    """Matches answers to batches, judges them, and has the completion carry the verdicts out."""

    def __init__(
        self, settings: SenderSettings, completion: BatchCompletion, updater: MetadataUpdater
    ) -> None:
        self._settings = settings
        self._completion = completion
        self._updater = updater
        self._loop = asyncio.get_running_loop()
        self._limits = completion.limits
        self._troubled = completion.troubled

    def take(
        self,
        connection: Connection,
        batches: Sequence[Batch],
        answer: ProduceAnswer | ProducerError,
        now: float | None = None,
    ) -> None:
        """Settle each of *batches*; called once per request, when the connection has read its answer.

        *now* is the time of the read (loop clock); None reads the clock.
        """
        if isinstance(answer, ProducerError):
            self.lost(connection, batches, answer)
            return
        refusals: dict[tuple[str, int], PartitionProduceResponse] = {}
        if isinstance(answer, BaseOffsets):
            offsets = answer[1]  # `offsets`, without the cost of a field of a NamedTuple
        else:
            offsets, refusals = _by_partition(answer)
            if refusals and {*offsets, *refusals} <= {batch.topic_partition for batch in batches}:
                self._follow_leaders(answer)
                self._doubt_leader(connection, answer)
        missing = []
        for batch in batches:
            partition = batch.topic_partition
            if (acknowledged := offsets.pop(partition, None)) is not None:
                batch.persistence.answered()
                base_offset, log_append_time_ms = acknowledged
                self._completion.complete(batch, base_offset, log_append_time_ms, now)
                if self._troubled:  # else a call for each batch
                    self._note_recovery(batch)
            elif (refusal := refusals.pop(partition, None)) is not None:
                batch.persistence.answered()
                self._judge(connection, batch, refusal)
            else:
                missing.append(batch)
        if missing or offsets or refusals:
            unasked = ", ".join(f"{topic}-{index}" for topic, index in (*offsets, *refusals))
            unasked = escaped(unasked, LONGEST_TEXT)  # a hostile broker may send megabytes
            error = ProtocolError(
                f"the answer to Produce lacks {', '.join(str(batch.topic_partition) for batch in missing) or 'nothing'}"
                f" and has {unasked or 'nothing'} that was not asked for"
            )
            self.lost(connection, missing, error)
            connection.close(error)

    def _follow_leaders(self, answer: ProduceResponse) -> None:
        """Use what brokers say of new leaders, from version 10 on, instead of asking again (KIP-951)."""
        hints = [
            LeaderHint(
                topic.name, each.index, each.current_leader.leader_id, each.current_leader.leader_epoch
            )
            for topic in answer.responses
            for each in topic.partition_responses
            if each.error_code and each.current_leader.leader_id >= 0
        ]
        if hints:
            endpoints = [
                Broker(each.node_id, each.host, each.port, each.rack) for each in answer.node_endpoints
            ]
            self._updater.take_leader_hints(hints, endpoints)

    def _doubt_leader(self, connection: Connection, answer: ProduceResponse) -> None:
        """Pass on which partitions the broker refused as one does that does not lead them."""
        refused: defaultdict[str, list[int]] = defaultdict(list)
        for topic in answer.responses:
            for each in topic.partition_responses:
                if each.error_code and broker_error(each.error_code).stale_metadata:
                    refused[topic.name].append(each.index)
        if refused:
            self._updater.doubt_leader(connection.node_id, refused)

    def _note_recovery(self, batch: Batch) -> None:
        self._troubled.discard(batch.topic_partition)
        if not self._troubled:
            self._limits.over(
                "batch.retry",
                "",
                "batch.recovered partition=%s attempts=%d",
                batch.topic_partition,
                batch.attempts,
            )

    def _judge(self, connection: Connection, batch: Batch, refusal: PartitionProduceResponse) -> None:
        kind = broker_error(refusal.error_code)
        error = kind(refusal.error_message or kind.__doc__ or kind.__name__)
        queue = self._completion.queue(batch)
        oldest = queue.oldest_unsettled is batch
        batch.refused(error, in_turn=oldest or queue.asks_newest, newest=oldest and queue.is_newest(batch))
        standing = outcomes.Standing(
            records=len(batch),
            idempotent=batch.sequence is not None,
            oldest=oldest,
            in_doubt=batch.persistence.in_doubt,
            proved=batch.persistence.in_doubt and queue.is_proved(batch),
            half_of_possibly_persisted=batch.persistence.half_of_possibly_persisted,
            denied_in_vain=oldest and queue.is_denied_in_vain(batch),
            last_attempt=self._may_not_retry(batch),
            transactional=self._settings.transactional_id is not None,
            passes_refusals=self._completion.passes_refusals,
        )
        record_errors = {
            each.batch_index: each.batch_index_error_message or error.args[0]
            for each in refusal.record_errors
            if 0 <= each.batch_index < len(batch)
        }
        verdict = outcomes.judge(error, standing, record_errors)
        if batch.state is BatchState.ABANDONED and not isinstance(verdict, outcomes.Complete):
            verdict = outcomes.Fail(error)
        self._apply(connection, batch, verdict)

    def _apply(self, connection: Connection, batch: Batch, verdict: outcomes.Verdict) -> None:
        completion = self._completion
        match verdict:
            case outcomes.Complete(base_offset, log_append_time_ms):
                completion.complete(batch, base_offset, log_append_time_ms)
                self._note_recovery(batch)
            case outcomes.Retry(error):
                self._retry(connection, batch, error)
            case outcomes.Renumber(error):
                self._limits.log(
                    log,
                    logging.WARNING,
                    Pairs(topic=batch.topic_partition.topic),
                    "batch.restamp partition=%s stamp=%s error=%s",
                    batch.topic_partition,
                    batch.sequence,
                    type(error).__name__,
                )
                completion.renumber(batch, self._retry_at(connection, batch))
            case outcomes.Split(error):
                self._limits.log(
                    log,
                    logging.WARNING,
                    Pairs(topic=batch.topic_partition.topic),
                    "batch.split partition=%s records=%d bytes=%d",
                    batch.topic_partition,
                    len(batch),
                    batch.size,
                )
                completion.split(batch)
            case outcomes.FailRecords(error, messages, others_fail):
                completion.reject_records(
                    batch,
                    {
                        index: failure_at(batch, connection, type(error)(message))._replace(of_record=True)
                        for index, message in messages.items()
                    },
                    failure_at(batch, connection, error) if others_fail else None,
                )
            case outcomes.Fail(error, of_record, before_gone):
                others = completion.queue(batch).before_gone if before_gone else ()
                for each in (batch, *others):
                    completion.fail(each, failure_at(each, connection, error)._replace(of_record=of_record))

    def lost(self, connection: Connection, batches: Sequence[Batch], error: ProducerError) -> None:
        """There will be no answer for *batches*: the connection is gone."""
        self._updater.request_refresh({batch.topic_partition.topic for batch in batches})
        for batch in batches:
            reached_socket = not isinstance(error, ConnectionFailed) or error.written
            batch.connection_lost(error, reached_socket=reached_socket)
            if self._may_not_retry(batch):
                self._completion.fail(batch, failure_at(batch, connection, error))
            else:
                self._retry(connection, batch, error)

    def _retry_at(self, connection: Connection, batch: Batch) -> float:
        """Return when to send *batch* again, which has failed over *connection*."""
        now, queue = self._loop.time(), self._completion.queue(batch)
        # Refused for its sequence, it has pauses of their own: what was wrong before has passed.
        denials = batch.persistence.denials
        attempt = min(batch.retries, denials - 1) if denials else batch.retries
        concurrent = isinstance(batch.last_error, ConcurrentTransactions)
        backoff = MARKERS_BACKOFF if concurrent else self._settings.retry_backoff
        retry_at = now + backoff.delay_s(attempt)
        if queue.leader not in {connection.node_id, NO_LEADER}:  # somebody else may take it
            return min(retry_at, queue.may_go_at(batch, now))
        return retry_at

    def _retry(self, connection: Connection, batch: Batch, error: ProducerError) -> None:
        now, retry_at = self._loop.time(), self._retry_at(connection, batch)
        self._troubled.add(batch.topic_partition)
        self._limits.log(
            log,
            logging.WARNING,
            "",
            "batch.retry partition=%s partitions=%d attempt=%d backoff_s=%.3f deadline_in_s=%.1f error=%s: %s",
            batch.topic_partition,
            len(self._troubled),
            batch.attempts,
            retry_at - now,
            batch.deadline - now,
            type(error).__name__,
            error,
        )
        self._completion.reenqueue(batch, retry_at)

    def _may_not_retry(self, batch: Batch) -> bool:
        return batch.state is BatchState.ABANDONED or batch.retries >= self._settings.retries


def _by_partition(
    answer: ProduceResponse,
) -> tuple[dict[tuple[str, int], tuple[int, int]], dict[tuple[str, int], PartitionProduceResponse]]:
    """Return the offsets of what *answer* acknowledges, as `BaseOffsets` has them, and what it refuses.

    Of a partition that is there twice the last one counts.
    """
    offsets: dict[tuple[str, int], tuple[int, int]] = {}
    refusals: dict[tuple[str, int], PartitionProduceResponse] = {}
    for topic in answer.responses:
        for each in topic.partition_responses:
            partition = topic.name, each.index
            if each.error_code:
                refusals[partition] = each
                offsets.pop(partition, None)
            else:
                offsets[partition] = each.base_offset, each.log_append_time_ms
                refusals.pop(partition, None)
    return offsets, refusals


def failure_at(batch: Batch, connection: Connection, error: ProducerError) -> Failure:
    """Return the failure of *batch* for *error*, which came over *connection*."""
    text = f"{batch.topic_partition} at {connection}, {_effort(batch)}: {error}"
    return Failure(type(error), text, batch.possibly_persisted, batch.last_error or error)


def failure_without_producer_id(batch: Batch, error: ProducerError) -> Failure:
    """Return the failure of *batch*, which could not be sent for want of a producer id."""
    text = f"{batch.topic_partition}: no producer id, which an idempotent producer needs: {error}"
    return Failure(type(error), text, batch.possibly_persisted, error)


def failure_of_login(batch: Batch, error: AuthenticationFailed) -> Failure:
    """Return the failure of *batch*, whose leader lets us in no more."""
    return Failure(type(error), f"{batch.topic_partition}: {error}", batch.possibly_persisted, error)


def failure_of_encoding(batch: Batch, error: Exception) -> Failure:
    """Return the failure of *batch*, which could not be encoded or compressed."""
    text = f"{batch.topic_partition}: the batch could not be encoded: {error!r}"
    return Failure(ProducerError, text, batch.possibly_persisted, error)


def _effort(batch: Batch) -> str:
    elapsed_s = asyncio.get_running_loop().time() - batch.created_at
    attempts = f"{batch.attempts} attempt{'' if batch.attempts == 1 else 's'}"
    return f"{attempts} in {elapsed_s:.3f} s"
