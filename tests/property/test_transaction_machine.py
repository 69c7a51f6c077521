"""Transactions against a model of their coordinator, with answers lost, repeated and late, timeouts and fencing.

Nothing is falsely committed or half visible, a late request never touches the next transaction, a fenced producer never
ends its successor's, and there is always a way out. Real are the manager, the requests, the reactions, and when which of them is made; in virtual time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any

from hypothesis import note, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from aioproducer._core.batching.batch_state import BatchState
from aioproducer._core.batching.waiters import Failure
from aioproducer._core.idempotence import ProducerIdentity
from aioproducer._core.protocol.produce import InitProducerIdResponse
from aioproducer._core.protocol.transactions import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
    DescribeTransactionsResponse,
    EndTxnResponse,
    TransactionState as Described,
)
from aioproducer._core.transactions.transaction_manager import OPEN, Api, TransactionState as State
from aioproducer.errors import (
    CommitFailed,
    DeliveryTimeout,
    ProducerError,
    TransactionOutcomeUnknown,
    TransactionTimeout,
    broker_error,
)
from aioproducer.testing.virtual_time import VirtualTimeLoop
from tests.property.model_coordinator import BUSY, ModelCoordinator, Phase
from tests.property.profiles import share
from tests.property.transaction_world import LIMIT_S, PARTITIONS, ModelCoordinators, Packet, Produced, settle
from tests.unit._core.transactions.transactions_rig import ID, TransactionsRig
from tests.unit.floor_rig import TOPIC


class TransactionMachine(RuleBasedStateMachine):
    @initialize(
        version=st.sampled_from([1, 2]),
        may_time_out=st.booleans(),
        may_be_fenced=st.sampled_from([False, False, True]),
        switches=st.booleans(),
    )
    def a_producer_starts(
        self, version: int, may_time_out: bool, may_be_fenced: bool, switches: bool
    ) -> None:
        self.may_time_out, self.may_be_fenced, self.switches = may_time_out, may_be_fenced, switches
        self.runner = asyncio.Runner(loop_factory=VirtualTimeLoop)
        self.model = ModelCoordinator()
        self.packets: list[Packet] = []
        self.late: list[Packet | Produced] = []
        self.in_flight: list[Produced] = []
        self.taken: dict[int, set[bytes]] = {}
        self.outcomes: dict[int, str] = {}
        """Final outcomes of transactions as returned to the caller."""
        self.call: asyncio.Task[None] | None = None
        """What the user waits for."""
        self.kind = ""
        self.run(self._start(version))

    async def _start(self, version: int) -> None:
        self.rig = TransactionsRig(version=version, partitions=PARTITIONS, max_block_s=LIMIT_S)
        self.rig.coordinators = ModelCoordinators(self.rig, self.packets, version)
        self.rig.transactions.coordinators = self.rig.coordinators.real
        self.rig.transactions._requests._coordinators = self.rig.coordinators.real
        starting = self.rig.loop.create_task(self.rig.transactions.initialize())
        await settle()
        self.packets.pop().answered.set_result(self._init(ProducerIdentity(-1, -1)))
        await starting

    def run(self, work: Coroutine[Any, Any, None] | None = None) -> None:
        """Run *work* and its consequences."""
        self.runner.run(self._do(work))

    async def _do(self, work: Coroutine[Any, Any, None] | None) -> None:
        if work is not None:
            await work
        await settle()
        if self.call is not None and self.call.done():
            self._note(self.call)
            self.call = None

    def _note(self, call: asyncio.Task[None]) -> None:
        number = self.rig.transactions.number
        if call.cancelled():
            return
        error = call.exception()
        assert error is None or isinstance(error, ProducerError), repr(error)
        if self.kind == "commit" and error is None:
            self._told(number, "committed")
        elif (self.kind == "commit" and isinstance(error, CommitFailed | TransactionTimeout)) or (
            self.kind == "abort" and error is None
        ):
            self._told(number, "not committed")
        if error is not None and not isinstance(error, TransactionOutcomeUnknown) and error.fatal:
            assert self.model.is_fencing, f"the producer is dead for nothing: {error!r}"

    def _told(self, number: int, outcome: str) -> None:
        assert self.outcomes.setdefault(number, outcome) == outcome, f"transaction {number} is now {outcome}"

    @property
    def state(self) -> State:
        return self.rig.manager.state

    # --- the user ------------------------------------------------------------------------------------------------

    def begins(self) -> None:
        self._calls("begin", self.rig.transactions.begin())

    def commits(self) -> None:
        self._calls("commit", self.rig.transactions.commit(None))

    def aborts(self) -> None:
        self._calls("abort", self.rig.transactions.abort(None))

    def _calls(self, kind: str, work: Coroutine[Any, Any, None]) -> None:
        async def call() -> None:
            self.call, self.kind = self.rig.loop.create_task(work), kind

        self.run(call())

    def is_cancelled(self) -> None:
        assert self.call is not None
        self.call.cancel()
        self.run()

    def has_waited_for_long_enough(self) -> None:
        self.run(asyncio.sleep(LIMIT_S + 1))

    def sends(self, data: st.DataObject) -> None:
        partition = data.draw(st.integers(0, PARTITIONS - 1))
        taken = self.taken.setdefault(self.rig.transactions.number, set())
        value = b"%d.%d" % (self.rig.transactions.number, len(taken))
        taken.add(value)

        async def send() -> None:
            _ = self.rig.append(value, partition=partition)
            self._write()

        self.run(send())

    # --- the sender ----------------------------------------------------------------------------------------------

    def the_sender_writes(self) -> None:
        async def write() -> None:
            self._write()

        self.run(write())

    def _write(self) -> None:
        self.rig.turn()
        for batch in self.rig.drain():
            self.rig.records.write([batch])
            batch.persistence.written()
            assert batch.sequence is not None
            self.in_flight.append(
                Produced(
                    batch,
                    batch.sequence.identity,
                    batch.sequence.base_sequence,
                    [each for each in batch.columns.values if each is not None],
                    self.rig.transactions.number,
                    self.rig.manager.version,
                )
            )

    def a_batch(self, data: st.DataObject) -> None:
        produced = data.draw(st.sampled_from(self.in_flight))
        how = data.draw(st.sampled_from(["stored", "stored", "answer lost", "lost", "given up"]))
        self.run(self._answer_batch(produced, how))

    async def _answer_batch(self, produced: Produced, how: str) -> None:
        batch, completion = produced.batch, self.rig.completion
        code = 0 if how in {"lost", "given up"} else self._produce(produced)
        if code == BUSY:
            return
        self.in_flight.remove(produced)
        if how == "stored" and not code:
            completion.complete(batch, 0)
        elif how == "stored":
            completion.fail(batch, Failure(broker_error(code), "refused"))
        elif how == "given up":
            self.late.append(produced)
            completion.fail(batch, Failure(DeliveryTimeout, "late", possibly_persisted=True))
        else:
            if how == "lost":
                self.late.append(produced)
            completion.reenqueue(batch, self.rig.loop.time())
        self.rig.accumulator.wake()  # as the sender is with each answer

    def _produce(self, produced: Produced) -> int:
        return self.model.produce(
            produced.identity,
            produced.batch.topic_partition.partition,
            produced.sequence,
            produced.values,
            produced.number,
            produced.version,
        )

    # --- the way to the coordinator ------------------------------------------------------------------------------

    def a_request(self, data: st.DataObject) -> None:
        answers: list[str | int] = ["answered", "answered", "answer lost", "lost", -1, 7, 4711]
        how = data.draw(st.sampled_from(answers))
        done = how == "answered" or data.draw(st.booleans())
        packet = self.packets.pop(0)

        async def answer() -> None:
            self._take(packet, how, done=done)

        self.run(answer())

    def _take(self, packet: Packet, how: str | int, *, done: bool) -> None:
        if packet.answered.done():  # no task waits for it
            self.late.append(packet)
        elif how == "answered":
            packet.answered.set_result(self._ask(packet))
        elif how == "answer lost":
            self._ask(packet)
            packet.answered.set_result(None)
        elif how == "lost" or packet.api not in {Api.COMMIT, Api.ABORT}:
            self.late.append(packet)
            packet.answered.set_result(None)
        else:  # an answer that says nothing, done or not
            if done:
                self._ask(packet)
            packet.answered.set_result(EndTxnResponse(error_code=int(how)))

    def something_late_arrives(self, data: st.DataObject) -> None:
        late = data.draw(st.sampled_from(self.late))
        if data.draw(st.booleans()):  # else it arrives once more
            self.late.remove(late)
        if isinstance(late, Packet):
            self._ask(late)
        else:
            self._produce(late)

    def _ask(self, packet: Packet) -> Any:
        request, model = packet.request, self.model
        match packet.api:
            case Api.INIT_PRODUCER_ID:
                return self._init(ProducerIdentity(request.producer_id, request.producer_epoch))
            case Api.DESCRIBE:
                identity, state = model.describe()
                described = Described(
                    transactional_id=ID,
                    transaction_state=state,
                    producer_id=identity.producer_id,
                    producer_epoch=identity.epoch,
                )
                return DescribeTransactionsResponse(transaction_states=[described])
            case Api.ADD_PARTITIONS:
                own = ProducerIdentity(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
                [topic] = request.v3_and_below_topics
                code = model.add_partitions(own, list(topic.partitions), packet.number)
                results = [
                    AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
                    for index in topic.partitions
                ]
                return AddPartitionsToTxnResponse(
                    results_by_topic_v3_and_below=[
                        AddPartitionsToTxnTopicResult(name=TOPIC, results_by_partition=results)
                    ]
                )
        own = ProducerIdentity(request.producer_id, request.producer_epoch)
        code, identity = model.end(
            own, commit=request.committed, version=packet.version, number=packet.number
        )
        if code or packet.version < 2:
            return EndTxnResponse(error_code=code)
        return EndTxnResponse(producer_id=identity.producer_id, producer_epoch=identity.epoch)

    def _init(self, own: ProducerIdentity) -> InitProducerIdResponse:
        code, identity = self.model.init_producer_id(own)
        return InitProducerIdResponse(
            error_code=code, producer_id=identity.producer_id, producer_epoch=identity.epoch
        )

    # --- the cluster ---------------------------------------------------------------------------------------------

    def the_feature_is_switched(self) -> None:
        self.rig.coordinators.transaction_version = 3 - self.rig.coordinators.transaction_version

    @rule(data=st.data())
    def something_happens(self, data: st.DataObject) -> None:
        """One rule for all possible steps: with a rule per step, most picks would have no effect."""
        is_idle = self.call is None and self.state is not State.FATAL
        is_open = self.state in OPEN
        # DescribeTransactions leaves a window until InitProducerId has arrived. It is documented, and not played.
        in_window = any(
            each.api is Api.INIT_PRODUCER_ID
            for each in (*self.packets, *self.late)
            if isinstance(each, Packet)
        )
        possible: list[tuple[bool, int, Callable[..., None]]] = [
            (is_idle and self.state is State.READY, 8, self.begins),
            (is_idle and is_open, 3, self.commits),
            (is_idle and is_open, 2, self.aborts),
            (is_idle, 1, self.begins),
            (self.state is State.IN_TRANSACTION, 4, partial(self.sends, data)),
            (self.call is not None, 1, self.is_cancelled),
            (self.call is not None, 1, self.has_waited_for_long_enough),
            (bool(self.rig.accumulator.unresolved), 2, self.the_sender_writes),
            (bool(self.in_flight), 6, partial(self.a_batch, data)),
            (bool(self.packets), 8, partial(self.a_request, data)),
            (bool(self.late), 4, partial(self.something_late_arrives, data)),
            (self.model.phase is Phase.PREPARED, 6, self.model.markers_land),
            (self.model.phase is Phase.ONGOING and self.may_time_out, 1, self.model.time_runs_out),
            (self.may_be_fenced, 1, self.model.another_one_takes_over),
            (self.model.may_begin_as_successor and not in_window, 4, self.model.the_successor_begins),
            (self.model.is_successors, 1, self.model.the_successor_commits),
            (self.switches, 1, self.the_feature_is_switched),
        ]
        acts = [act for is_possible, weight, act in possible if is_possible for _ in range(weight)]
        if acts:
            act = acts[data.draw(st.integers(0, len(acts) - 1))]
            note(getattr(act, "__name__", repr(act)))
            act()

    # --- what must hold ------------------------------------------------------------------------------------------

    def teardown(self) -> None:
        if not hasattr(self, "rig"):
            return
        try:
            self.run(self._all_is_well_again())
            self.check()
        finally:
            self.runner.close()

    async def _all_is_well_again(self) -> None:
        """Answer everything; then the next transaction can begin, or the producer was fenced."""
        for _ in range(200):
            await self._serve()
            if self.call is not None and self.call.done():
                self._note(self.call)
                self.call = None
            if self.call is not None:
                continue
            if self.state is State.FATAL:
                assert self.model.is_fencing, f"dead for nothing: {self.rig.manager.cause!r}"
                break
            if self.state is State.READY and self.rig.transactions._ending is None:
                break
            work = {State.IN_TRANSACTION: "commit", State.COMMITTING: "commit", State.READY: "begin"}
            self.kind = work.get(self.state, "abort")
            if self.state is State.INITIALIZING:
                self.kind = "begin"
            self.call = self.rig.loop.create_task(
                {
                    "commit": lambda: self.rig.transactions.commit(None),
                    "abort": lambda: self.rig.transactions.abort(None),
                    "begin": self.rig.transactions.begin,
                }[self.kind]()
            )
        else:
            raise AssertionError(f"no way out of {self.state.name}")
        for late in self.late:
            _ = self._ask(late) if isinstance(late, Packet) else self._produce(late)
        self.model.markers_land()
        await self.rig.transactions.stop()
        for batch in tuple(self.rig.accumulator.unresolved):
            with suppress(AssertionError):
                self.rig.completion.fail_or_expire(batch, Failure(DeliveryTimeout, "over"))

    async def _serve(self) -> None:
        self.model.markers_land()
        self._write()
        await settle()
        for produced in tuple(self.in_flight):
            if produced.batch.state in {BatchState.IN_FLIGHT, BatchState.EXPIRED_IN_FLIGHT}:
                await self._answer_batch(produced, "stored")
        while self.packets:
            self._take(self.packets.pop(0), "answered", done=True)
            await settle()
            self.model.markers_land()  # otherwise CONCURRENT_TRANSACTIONS is retried for ever
        await settle()

    def check(self) -> None:
        visible = self.model.visible()
        values = [each.value for each in visible]
        assert len(values) == len(set(values)), f"twice: {values}"
        for number, taken in self.taken.items():
            seen = {each.value for each in visible if each.number == number}
            assert seen in (set(), taken), f"half of transaction {number} is visible: {seen} of {taken}"
            outcome = self.outcomes.get(number)
            assert outcome != "committed" or seen == taken, f"transaction {number} is not committed"
            assert outcome != "not committed" or not seen, f"transaction {number} is committed"


TestTransactionMachine = TransactionMachine.TestCase
TestTransactionMachine.settings = settings(max_examples=share(0.5), stateful_step_count=60)
