"""Asks the coordinator whether a partition is part of a transaction, before its first batch (KIP-890).

Partitions of a transaction of version 1 were added by the client, so the coordinator only verifies that. Those of
version 2 are added by this question.

Without verification, a batch that arrives after the end of its transaction, delayed by a slow network or a paused
client, would open a hanging transaction: no coordinator would end it, and the last stable offset would never advance.

Owns: which batches need the coordinator's consent, the guards that tie a question to one append, and the producer's
error codes. Must not know: where the coordinator is (`CoordinatorLink` does), requests, or logs beyond their producer
state.

A guard is created before the verification and checked after it. A marker appended in between cancels the guard, because
the verification concerned the transaction that the marker ended. An addition waits for the markers of the producer's
last transaction, and they cancel its guard too; so it is asked for again with another guard. A guard also keeps the
lowest sequence number of the producer. So a later batch cannot overtake an earlier, rejected one while the partition
has no state of the producer. Once the transaction has data here, its guard is not used until the marker removes it. A
guard ends with the leadership: other leaders may append markers and batches of the producer.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from base.clock import Clock
from base.topic_partition import TopicPartition
from controller.machine.settings import EventTimes
from protocol.errors import ErrorCode, KafkaError, Malformed
from protocol.records.batch import HEADER_SIZE, TRANSACTIONAL_BIT, BatchHeader, read_header
from protocol.records.compression import Buffer
from storage.producers.producer_state import NONE, Producer, ProducerState

ATTRIBUTES_POSITION: Final = 22
"""The low byte of a batch's attributes."""

PRODUCE_ERRORS: Mapping[int, ErrorCode] = MappingProxyType(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS: ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_COORDINATOR: ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NETWORK_EXCEPTION: ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.OPERATION_NOT_ATTEMPTED: ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)
"""The code for the producer: one that makes every client retry, or the one that it knows for being fenced."""
COMMIT_ERRORS: Mapping[int, ErrorCode] = MappingProxyType(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)
"""The same for offsets. A moved coordinator of transactions must not make the client look up that of the group."""

ADDITIONS_MAX: Final = 5
"""How often an addition is asked for that markers interrupt: a coordinator may send a marker again."""

Verdicts = Mapping[TopicPartition, int]
"""The coordinator's code for each partition of a verification."""


class ClientTerms(NamedTuple):
    """What follows from the version of a client's request."""

    knows_abortable: bool
    """Whether the client knows TRANSACTION_ABORTABLE."""
    adds_partitions: bool = False
    """Whether the request itself adds its partitions to the transaction, which is of version 2."""


class CoordinatorLink(Protocol):
    """The port to the coordinators of transactions."""

    def verify(
        self, transactional_id: str, producer: Producer, partitions: Sequence[TopicPartition]
    ) -> Verdicts | Awaitable[Verdicts]:
        """Return whether partitions are in the producer's open transaction, or an awaitable of that.

        Never raises: if a coordinator does not respond, each partition gets the code for that. The wait is bounded.
        """

    def add(
        self, transactional_id: str, producer: Producer, partitions: Sequence[TopicPartition]
    ) -> Awaitable[Verdicts]:
        """Add partitions to the producer's transaction of version 2, which the first of them begins.

        Never raises, like `verify`. NONE means that the addition is durable.
        """


class Guard:
    """The verification of one partition for one producer."""

    __slots__ = ("epoch", "is_cancelled", "leading_since", "lowest_sequence", "used_ms")

    def __init__(self, epoch: int, leading_since: int, sequence: int, now_ms: int) -> None:
        self.epoch = epoch
        self.leading_since = leading_since
        self.lowest_sequence = sequence
        self.used_ms = now_ms
        self.is_cancelled = False


GUARDS_MAX = 100_000
"""They take about 25 MB."""

GuardKey = tuple[TopicPartition, int]
LeadingSince = Callable[[TopicPartition], int]
"""Returns the leader epoch in which this broker became the leader of a partition (`Partition.leading_since`)."""


class Guards:
    """The guards of all partitions led here. Those of producers that send nothing more expire.

    Anybody may name any producer id: beyond `GUARDS_MAX` those that were used least recently are cancelled. So are
    expired ones, because a marker would no longer find the guard of a batch that still waits for its verdict.
    """

    def __init__(self, expiration_ms: Callable[[], int], leading_since: LeadingSince) -> None:
        """`expiration_ms()` returns how long a partition keeps an inactive producer (producer.id.expiration.ms)."""
        self._expiration_ms = expiration_ms
        self.leading_since = leading_since
        self._guards: OrderedDict[GuardKey, Guard] = OrderedDict()
        """By last use, the least recent first."""

    def __len__(self) -> int:
        return len(self._guards)

    def take(self, partition: TopicPartition, producer: Producer, sequence: int, now_ms: int) -> Guard:
        """Return the guard of a producer that is about to append a batch whose first sequence number is `sequence`."""
        self._drop_expired(now_ms)
        key = (partition, producer.producer_id)
        guard, leading_since = self._guards.get(key), self.leading_since(partition)
        if guard is None or guard.epoch < producer.epoch or guard.leading_since != leading_since:
            guard = self._guards[key] = Guard(producer.epoch, leading_since, sequence, now_ms)
        elif guard.epoch == producer.epoch:
            guard.lowest_sequence = min(guard.lowest_sequence, sequence)
        guard.used_ms = now_ms
        self._guards.move_to_end(key)
        if len(self._guards) > GUARDS_MAX:
            self._cancel_oldest()
        return guard

    def cancel(self, partition: TopicPartition, producer_id: int) -> None:
        """Cancel the guard of a producer, after its marker was appended."""
        guard = self._guards.pop((partition, producer_id), None)
        if guard is not None:
            guard.is_cancelled = True

    def _drop_expired(self, now_ms: int) -> None:
        oldest_ms = now_ms - self._expiration_ms()
        while self._guards and next(iter(self._guards.values())).used_ms < oldest_ms:
            self._cancel_oldest()

    def _cancel_oldest(self) -> None:
        self._guards.popitem(last=False)[1].is_cancelled = True


class Admission:
    """Which transactional batches of a request may be appended, by the coordinator's verdicts on its partitions."""

    __slots__ = ("_client", "_guards", "_is_required", "_leading_since", "_verdicts")

    def __init__(
        self,
        guards: Mapping[TopicPartition, Guard],
        verdicts: Verdicts,
        leading_since: LeadingSince,
        client: ClientTerms,
        *,
        is_required: bool,
    ) -> None:
        self._guards = guards
        self._verdicts = verdicts
        self._leading_since = leading_since
        self._client = client
        self._is_required = is_required

    def check(self, partition: TopicPartition, state: ProducerState, header: BatchHeader) -> None:
        """Check that a batch may be appended in this step.

        Raises:
            KafkaError: INVALID_TXN_STATE or TRANSACTION_ABORTABLE if it is not part of a transaction;
                OUT_OF_ORDER_SEQUENCE_NUMBER if an earlier batch is missing; NOT_LEADER_OR_FOLLOWER if another broker
                has led since; a code of `PRODUCE_ERRORS` if the coordinator could not verify the partition.
        """
        if not self._is_required or has_open_transaction(state, header):
            return
        guard = self._guards.get(partition)
        if guard is None or guard.is_cancelled:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, "Record was not part of an ongoing transaction")
        if guard.leading_since != self._leading_since(partition):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        code = self._verdicts[partition]
        if code:
            raise self._error(code)
        if self._client.adds_partitions and header.base_sequence and header.producer_id not in state.producers:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Invalid sequence number for new producer {header.producer_id} in partition "
                f"{partition[0]}-{partition[1]}: {header.base_sequence} (incoming seq. number), expected 0",
            )
        if header.base_sequence > guard.lowest_sequence:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Out of order sequence number for producer {header.producer_id} in partition "
                f"{partition[0]}-{partition[1]}: {header.base_sequence} (incoming seq. number), "
                f"{guard.lowest_sequence} (earliest seen sequence)",
            )

    def _error(self, code: int) -> KafkaError:
        if code == ErrorCode.TRANSACTION_ABORTABLE and not self._client.knows_abortable:
            return KafkaError(ErrorCode.INVALID_TXN_STATE, "Partition was not added to the transaction")
        if code == ErrorCode.CONCURRENT_TRANSACTIONS and self._client.adds_partitions:
            return KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        shown = PRODUCE_ERRORS.get(code, ErrorCode(code))
        return KafkaError(
            shown,
            None
            if shown == code
            else "Unable to verify the partition has been added to the transaction. Underlying error: "
            f"{ErrorCode(code).name}",
        )


class TransactionVerifier:
    """Asks the coordinators about transactional batches, for the partitions led here."""

    def __init__(self, link: CoordinatorLink, guards: Guards, is_enabled: Callable[[], bool], clock: Clock) -> None:
        """`is_enabled()` is transaction.partition.verification.enable, which may change while the broker runs."""
        self._link = link
        self._guards = guards
        self._is_enabled = is_enabled
        self._clock = clock
        self.times = EventTimes()
        """How long other brokers take to verify."""
        self.failure_count = 0
        """Partitions that were not verified."""

    def admit(
        self,
        transactional_id: str,
        batches: Iterable[tuple[TopicPartition, ProducerState, BatchHeader]],
        client: ClientTerms,
    ) -> Admission | Awaitable[Admission]:
        """Verify or add the partitions of one request's transactional batches.

        Return an awaitable only if another broker has to verify them, or if partitions are to be added.

        Raises:
            KafkaError: INVALID_PRODUCER_ID_MAPPING if the batches are of several producers.
        """
        if not client.adds_partitions and not self._is_enabled():
            return self._admission({}, {}, client, is_required=False)
        sequences: dict[TopicPartition, int] = {}
        producers = set()
        for partition, state, header in batches:
            producers.add(Producer(header.producer_id, header.producer_epoch))
            if not has_open_transaction(state, header):
                sequences[partition] = min(header.base_sequence, sequences.get(partition, header.base_sequence))
        if len(producers) > 1:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "Transactional records contained several producers")
        if not sequences:
            return self._admission({}, {}, client)
        producer = producers.pop()
        if client.adds_partitions:
            return self._after_addition(transactional_id, producer, sequences, client)
        guards = self._take(producer, sequences)
        verdicts = self._link.verify(transactional_id, producer, list(sequences))
        if isinstance(verdicts, Mapping):
            self._count_failures(verdicts)
            return self._admission(guards, verdicts, client)
        return self._when_known(guards, verdicts, client)

    async def admit_offsets(
        self, transactional_id: str, producer: Producer, partition: TopicPartition, client: ClientTerms
    ) -> None:
        """Verify that offsets of a group may be committed in a transaction, or add their partition to it.

        They have no sequence numbers; otherwise they are treated like a transactional batch. Raises KafkaError if they
        must not be committed.
        """
        if not client.adds_partitions and not self._is_enabled():
            return
        if client.adds_partitions:
            guards, verdicts = await self._added(transactional_id, producer, {partition: NONE})
        else:
            guards = self._take(producer, {partition: NONE})
            awaited = self._link.verify(transactional_id, producer, [partition])
            verdicts = awaited if isinstance(awaited, Mapping) else await self._timed(awaited)
        self._count_failures(verdicts)
        guard, code = guards[partition], verdicts[partition]
        if guard.is_cancelled or (code == ErrorCode.TRANSACTION_ABORTABLE and not client.knows_abortable):
            raise KafkaError(ErrorCode.INVALID_TXN_STATE)
        if guard.leading_since != self._guards.leading_since(partition):
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)  # the client asks again
        if code:
            raise KafkaError(COMMIT_ERRORS.get(code, ErrorCode(code)))

    def _take(self, producer: Producer, sequences: Mapping[TopicPartition, int]) -> dict[TopicPartition, Guard]:
        now_ms = self._clock.now_ms()
        return {
            partition: self._guards.take(partition, producer, sequence, now_ms)
            for partition, sequence in sequences.items()
        }

    async def _added(
        self, transactional_id: str, producer: Producer, sequences: Mapping[TopicPartition, int]
    ) -> tuple[Mapping[TopicPartition, Guard], Verdicts]:
        """Add partitions to the producer's transaction; again those to which a marker was appended meanwhile."""
        guards = self._take(producer, sequences)
        verdicts = dict(await self._timed(self._link.add(transactional_id, producer, list(guards))))
        for _ in range(ADDITIONS_MAX - 1):
            interrupted = {each: sequences[each] for each, guard in guards.items() if guard.is_cancelled}
            if not interrupted:
                break
            guards |= self._take(producer, interrupted)
            verdicts |= await self._timed(self._link.add(transactional_id, producer, list(interrupted)))
        return guards, verdicts

    async def _after_addition(
        self,
        transactional_id: str,
        producer: Producer,
        sequences: Mapping[TopicPartition, int],
        client: ClientTerms,
    ) -> Admission:
        guards, verdicts = await self._added(transactional_id, producer, sequences)
        self._count_failures(verdicts)
        return self._admission(guards, verdicts, client)

    async def _when_known(
        self, guards: Mapping[TopicPartition, Guard], awaited: Awaitable[Verdicts], client: ClientTerms
    ) -> Admission:
        verdicts = await self._timed(awaited)
        self._count_failures(verdicts)
        return self._admission(guards, verdicts, client)

    def _admission(
        self,
        guards: Mapping[TopicPartition, Guard],
        verdicts: Verdicts,
        client: ClientTerms,
        *,
        is_required: bool = True,
    ) -> Admission:
        return Admission(guards, verdicts, self._guards.leading_since, client, is_required=is_required)

    async def _timed(self, awaited: Awaitable[Verdicts]) -> Verdicts:
        began_ms = self._clock.monotonic_ms()
        try:
            return await awaited
        finally:
            self.times.add(self._clock.monotonic_ms() - began_ms)

    def _count_failures(self, verdicts: Verdicts) -> None:
        self.failure_count += sum(1 for code in verdicts.values() if code)


def transactional_header(records: Buffer) -> BatchHeader | None:
    """Return the header of a transactional batch, else None, which costs the check of one byte.

    Bytes that are no batch return None too: validation reports what is wrong with them.
    """
    if len(records) < HEADER_SIZE or not records[ATTRIBUTES_POSITION] & TRANSACTIONAL_BIT:
        return None
    try:
        return read_header(records)
    except Malformed:
        return None


def has_open_transaction(state: ProducerState, header: BatchHeader) -> bool:
    """Return whether the producer's transaction has data in the partition: then the partition was verified before."""
    entry = state.producers.get(header.producer_id)
    return entry is not None and entry.epoch == header.producer_epoch and entry.current_transaction_first_offset != NONE
