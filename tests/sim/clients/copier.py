"""A transactional producer that copies: it reads committed records, and writes and commits its position in one step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from protocol.errors import ErrorCode
from protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from protocol.messages.end_txn import EndTxnRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.sim.clients.base import GROUP, TRANSACTION, Failed, Retry, Surroundings
from tests.sim.clients.consumer import Consumer
from tests.sim.clients.pipelined import FORGOTTEN
from tests.sim.clients.producer import VERSION, batch_of, produce_request
from tests.sim.history import (
    Commit,
    CommittedRead,
    Initialization,
    Partition,
    PolledRecord,
    Send,
    Transaction,
)

ABORTS = 0.2
"""How often it aborts of its own will."""
RESTARTS = 0.15
"""How often it begins anew before a transaction, as a process that was restarted."""
VERSION_2 = 0.7
"""How often it begins with transactions of version 2, where brokers support them."""
LATE = 0.3
"""How often a batch of the transaction before arrives in the next one."""
HASTE = 0.3
"""How often a transaction follows at once, while the markers of the one before are on their way."""
TIMEOUT_MS = 12_000
BATCH_MAX = 4
LATE_BATCH = "a batch of an ended transaction is refused"
OWN_TRANSACTION = "a producer of version 2 is part of its transaction"


class Versions(NamedTuple):
    """The versions of the requests of a transaction."""

    produce: int
    txn_offset_commit: int
    end_txn: int
    raises_epochs: bool


OF_VERSION_1 = Versions(VERSION, 3, 3, raises_epochs=False)
OF_VERSION_2 = Versions(12, 5, 5, raises_epochs=True)


class Fenced(Exception):  # noqa: N818 - an outcome
    """The producer id and epoch are no longer valid: another InitProducerId is needed."""


class Copier(Consumer):
    """Performs `count` transactions. Each copies some records of the source to one or two target partitions.

    Several instances may share a `transactional_id` and a group, as those of a service of which each takes the others
    for dead. Each fences the others when it begins, and begins anew once it is fenced.

    Where brokers support both versions of transactions, it chooses one each time that it begins.
    """

    def __init__(
        self,
        name: str,
        around: Surroundings,
        source: Partition,
        targets: Sequence[Partition],
        *,
        count: int,
        pause_s: float = 0.8,
        transactional_id: str | None = None,
    ) -> None:
        """Without `transactional_id`, it is the name."""
        super().__init__(name, around, [source], is_committed=True)
        self._id = transactional_id or name
        self._source = source
        self._targets = targets
        self._count = count
        self._transaction_pause_s = pause_s
        self._versions = OF_VERSION_1
        self._identity = (-1, -1)
        self._sequences: Counter[Partition] = Counter()
        self._ended = self._identity, self._sequences
        """The producer of the transaction before, with its sequence numbers."""
        self._position = 0
        self._group = f"{self._id}-group"

    async def run(self) -> None:
        await self.until_done("InitProducerId", self._initialize)
        done = 0
        attempts = 0
        while done < self._count and not (self.around.is_ending and attempts > self._count):
            if self.random.random() >= HASTE:
                await self.think(self._transaction_pause_s)
            if self.random.random() < RESTARTS:
                await self.until_done("InitProducerId", self._initialize)
            await self.until_done("OffsetFetch", self._read_position)
            records = await self.until_done(f"Fetch {self._source}", self._poll_source)
            attempts += 1
            if not records:
                done += 1
                continue
            transaction = Transaction(f"{self.name}#{attempts}", self.name, self.now_us(), group=self._group)
            transaction.instance = self._identity
            self.history.transactions[transaction.name] = transaction
            try:
                done += await self._copy(transaction, records)
            except Fenced:
                transaction.outcome = "unknown"
                transaction.ended_us = None
                self.history.counts["transactions with unknown outcome"] += 1
                await self.until_done("InitProducerId", self._initialize)
        self.doing = "finished"

    async def _initialize(self) -> None:
        request = InitProducerIdRequest(transactional_id=self._id, transaction_timeout_ms=TIMEOUT_MS)
        asked_us = self.now_us()
        response = await self.ask_coordinator(TRANSACTION, self._id, request, 2)
        self.expect(response.error_code)
        self._continue_as((response.producer_id, response.producer_epoch), asked_us)
        if self.around.has_version_2:
            self._versions = OF_VERSION_2 if self.random.random() < VERSION_2 else OF_VERSION_1

    def _continue_as(self, identity: tuple[int, int], asked_us: int) -> None:
        self._ended = self._identity, self._sequences
        self._identity, self._sequences = identity, Counter()
        self.history.initializations.append(Initialization(self._id, *identity, asked_us, self.now_us()))

    async def _read_position(self) -> None:
        wanted = OffsetFetchRequestTopic(name=self._source.topic, partition_indexes=[self._source.index])
        request = OffsetFetchRequest(group_id=self._group, topics=[wanted], require_stable=True)
        broker = await self.coordinator(GROUP, self._group)
        asked_us = self.now_us()
        response = await self.ask_coordinator(GROUP, self._group, request, 7)
        self.expect(response.error_code)
        (found,) = response.topics[0].partitions
        self.expect(found.error_code)
        self.history.committed_reads.append(
            CommittedRead(self._group, self._source, found.committed_offset, broker, asked_us, self.now_us())
        )
        self._position = max(found.committed_offset, 0)

    async def _poll_source(self) -> list[PolledRecord]:
        """Return some records from the position on; none if there are none yet."""
        self.positions[self._source] = self._position
        await self.leader_of(self._source)
        # It goes back to its committed position each time, so its polls do not continue where the last one ended.
        self.reading_as = f"{self.name}@{self.now_us()}"
        polls = await self.poll(self.source_of(self._source), [self._source], max_wait_ms=300)
        records = [record for poll in polls for record in poll.records][: self.random.randint(1, BATCH_MAX)]
        if records:
            self._position = records[-1].offset + 1
        return records

    async def _leave_range(self, broker: int, epoch: int, partition: Partition) -> None:
        await super()._leave_range(broker, epoch, partition)
        self._position = self.positions[partition]

    async def _copy(self, transaction: Transaction, records: list[PolledRecord]) -> bool:
        """Perform one transaction; return whether it is committed."""
        transaction.reads = [record.value for record in records]
        targets = self.random.sample(list(self._targets), k=min(len(self._targets), self.random.randint(1, 2)))
        commit = self.random.random() >= ABORTS
        try:
            for target in targets:
                if not self._versions.raises_epochs:
                    await self._in_transaction("AddPartitionsToTxn", lambda target=target: self._add(target))
                await self._write(transaction, target)
                if self._ended[0][0] == self._identity[0] and self.random.random() < LATE:
                    await self._send_late_batch(self.random.choice(list(self._targets)))
            if not self._versions.raises_epochs:
                await self._in_transaction("AddOffsetsToTxn", self._add_offsets)
            committed = Commit(self._group, self.name, -1, self._source, self._position, self.now_us())
            await self._in_transaction("TxnOffsetCommit", self._commit_offsets)
        except Failed as error:
            self.history.counts[f"transaction failed with {error.code.name}"] += 1
            commit = False
        transaction.end_asked_us = self.now_us() if commit else None
        if commit:
            self.history.commits.append(committed)

        async def end() -> None:
            transaction.last_asked_us = self.now_us()
            await self._end(commit)

        await self._in_transaction("EndTxn", end)
        transaction.decided_by = self.around.copies_of_decision(
            self._id, self._identity[1], await self.coordinator(TRANSACTION, self._id)
        )
        transaction.ended_us = self.now_us()
        transaction.outcome = "committed" if commit else "aborted"
        self.history.counts[f"{transaction.outcome} transactions"] += 1
        if commit:
            committed.acked_us = self.now_us()
        return commit

    async def _in_transaction(self, what: str, attempt: Any, partition: Partition | None = None) -> Any:
        try:
            return await self.until_done(what, attempt)
        except Failed as error:
            if error.code in _FENCED:
                self.history.counts[f"fenced with {error.code.name}"] += 1
                if error.code is ErrorCode.INVALID_TXN_STATE and self._versions.raises_epochs:
                    # Each end of its transaction raises the epoch, so that another instance, or the coordinator after a
                    # timeout, leaves it with an epoch of the past.
                    self.note_anomaly(OWN_TRANSACTION, f"{what} failed with {error.code.name}", partition)
                if error.code in _OUT_OF_SEQUENCE:
                    # It has one batch in flight, so the leader lacks one that was acknowledged.
                    self.note_anomaly(FORGOTTEN, f"{what} failed with {error.code.name}", partition)
                raise Fenced from None
            raise

    async def _write(self, transaction: Transaction, target: Partition) -> None:
        values = tuple(f"{transaction.name}:{value}>{target}" for value in transaction.reads)
        send = Send(self.name, target, values, len(self.history.sends), -1, True, self.now_us(), transaction.name)
        send.instance = self._identity
        self.history.sends.append(send)
        records = batch_of(
            values, self.now_us(), producer=(*self._identity, self._sequences[target]), transactional=True
        )

        async def attempt() -> None:
            leader, _ = await self.leader_of(target)
            send.last_sent_us = self.now_us()
            try:
                response = await self.ask(
                    leader, produce_request(target, records, transactional_id=self._id), self._versions.produce
                )
            except Retry:
                self.forget_cluster()
                raise
            (found,) = response.responses[0].partition_responses
            if self.expect(found.error_code, ErrorCode.DUPLICATE_SEQUENCE_NUMBER) is ErrorCode.NONE:
                send.offset = found.base_offset if found.base_offset >= 0 else None
            send.acked_us = self.now_us()
            send.broker = leader

        await self._in_transaction(f"Produce {values}", attempt, target)
        self._sequences[target] += len(values)
        self.history.counts["acknowledged records"] += len(values)

    async def _send_late_batch(self, target: Partition) -> None:
        """Send a batch of the transaction before, which has all its markers, as one that the network held back."""
        identity, sequences = self._ended
        records = batch_of(
            [f"late of {identity}"], self.now_us(), producer=(*identity, sequences[target]), transactional=True
        )
        request = produce_request(target, records, transactional_id=self._id)
        try:
            leader, _ = await self.leader_of(target)
            response = await self.ask(leader, request, self._versions.produce)
        except Retry:
            return
        code = ErrorCode(response.responses[0].partition_responses[0].error_code)
        self.history.counts[f"late batch: {code.name}"] += 1
        if code is ErrorCode.NONE:
            self.note_anomaly(LATE_BATCH, f"{identity} appended to {target} after {self._identity}", target)

    async def _add(self, target: Partition) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=self._identity[0],
            v3_and_below_producer_epoch=self._identity[1],
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=target.topic, partitions=[target.index])],
        )
        response = await self.ask_coordinator(TRANSACTION, self._id, request, 3)
        self.expect(response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)

    async def _add_offsets(self) -> None:
        request = AddOffsetsToTxnRequest(
            transactional_id=self._id,
            producer_id=self._identity[0],
            producer_epoch=self._identity[1],
            group_id=self._group,
        )
        self.expect((await self.ask_coordinator(TRANSACTION, self._id, request, 3)).error_code)

    async def _commit_offsets(self) -> None:
        position = TxnOffsetCommitRequestPartition(
            partition_index=self._source.index, committed_offset=self._position, committed_metadata=None
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self._id,
            group_id=self._group,
            producer_id=self._identity[0],
            producer_epoch=self._identity[1],
            topics=[TxnOffsetCommitRequestTopic(name=self._source.topic, partitions=[position])],
        )
        response = await self.ask_coordinator(GROUP, self._group, request, self._versions.txn_offset_commit)
        self.expect(response.topics[0].partitions[0].error_code)

    async def _end(self, commit: bool) -> None:
        request = EndTxnRequest(
            transactional_id=self._id,
            producer_id=self._identity[0],
            producer_epoch=self._identity[1],
            committed=commit,
        )
        asked_us = self.now_us()
        response = await self.ask_coordinator(TRANSACTION, self._id, request, self._versions.end_txn)
        self.expect(response.error_code)
        if self._versions.raises_epochs:
            self._continue_as((response.producer_id, response.producer_epoch), asked_us)


_OUT_OF_SEQUENCE = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})
_FENCED = _OUT_OF_SEQUENCE | frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
