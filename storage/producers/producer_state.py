"""The state of each idempotent producer in a partition: its epoch, its last batches, its open transaction.

Owns the check of a batch against this state, and the transactions that limit the last stable offset. A pure state
machine: the log calls a check before each append, and `append_*` for each batch in order. Must not know segments or
files.

Rule: a check changes nothing; `append_*` is called once the batch is in the log, or planned, and cannot fail. So a
rejected or failed append leaves the state as it was.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from protocol.errors import ErrorCode, KafkaError
from protocol.records.batch import TRANSACTIONAL_BIT, BatchHeader, records
from protocol.records.compression import Buffer
from protocol.records.control import ControlType, TransactionMarker, read_marker, read_usual_marker
from storage.segments.transaction_index import AbortedTransaction

BATCHES_KEPT: Final = 5
NONE: Final = -1
SEQUENCE_MAX: Final = 2**31 - 1

_new_tuple = tuple.__new__  # builds a named tuple in half the time that calling its class takes

_CONTROL_RECORDS_SIZE_MAX: Final = 4096  # a marker has 17 bytes; later versions may append fields


class Producer(NamedTuple):
    """One instance of a producer."""

    producer_id: int
    epoch: int


class BatchMetadata(NamedTuple):
    """The sequence and offset range of a batch. `last_sequence` is NONE before the first data batch."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @property
    def first_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) & SEQUENCE_MAX

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class ProducerEntry:
    """One producer in one partition. `current_transaction_first_offset` is NONE outside a transaction."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "current_transaction_first_offset",
        "epoch",
        "lacks_batches",
        "last_timestamp_ms",
        "producer_id",
    )

    def __init__(self, producer_id: int, epoch: int) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.batches: deque[BatchMetadata] = deque(maxlen=BATCHES_KEPT)
        self.lacks_batches = False
        """Whether the log may hold batches that belong before `batches`: a snapshot names the last batch alone."""
        self.coordinator_epoch = NONE
        self.last_timestamp_ms = NONE
        self.current_transaction_first_offset = NONE

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NONE

    @property
    def last_data_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else NONE

    def move_to_epoch(self, epoch: int) -> None:
        """Enter an epoch. A new one forgets the batches, because its sequence numbers begin at 0 again."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()
            self.lacks_batches = False

    def recall(self, earlier: Iterable[BatchMetadata]) -> None:
        """Remember batches before the present ones, in order, as many as fit. There are no others."""
        self.batches = deque((*earlier, *self.batches), maxlen=BATCHES_KEPT)
        self.lacks_batches = False


class CompletedTransaction(NamedTuple):
    """A transaction that the marker at `last_offset` ended.

    It limits the last stable offset until the marker is committed.
    """

    first_offset: int
    last_offset: int


class ProducerState:
    """The producers of one partition. The batches below `map_end_offset` are applied."""

    __slots__ = ("_ended", "_name", "_open", "_producers", "first_unstable_offset", "map_end_offset")

    def __init__(self, name: str) -> None:
        """`name` is that of the partition, for messages."""
        self._name = name
        self._producers: dict[int, ProducerEntry] = {}
        self._open: dict[int, int] = {}  # first offset of each open transaction, increasing -> producer id
        self._ended: deque[CompletedTransaction] = deque()
        """Those whose marker is not committed and that began before all that ended later: both offsets increase."""
        self.first_unstable_offset: int | None = None
        self.map_end_offset = 0

    def __len__(self) -> int:
        return len(self._producers)

    @property
    def producers(self) -> Mapping[int, ProducerEntry]:
        return self._producers

    @property
    def oldest_open(self) -> ProducerEntry | None:
        """The producer whose open transaction begins first."""
        producer_id = next(iter(self._open.values()), None)
        return None if producer_id is None else self._producers[producer_id]

    @property
    def has_open_transaction(self) -> bool:
        return bool(self._open)

    def entry_to_recall(self, header: BatchHeader) -> ProducerEntry | None:
        """Return the producer of a batch that may repeat one which is in the log and not remembered, else None."""
        entry = self._producers.get(header.producer_id)
        if entry is None or not entry.lacks_batches or entry.epoch != header.producer_epoch:
            return None
        if len(entry.batches) == BATCHES_KEPT or header.is_control:
            return None
        # Sequence numbers wrap around, so "before" is the shorter way.
        distance = (entry.batches[0].first_sequence - header.base_sequence) & SEQUENCE_MAX
        return entry if 0 < distance <= SEQUENCE_MAX // 2 else None

    # Checks: raise KafkaError, change nothing

    def check_data(self, header: BatchHeader, offset: int) -> BatchMetadata | None:
        """Return the remembered batch that a data batch of a client repeats; None if it is to be appended.

        Raises KafkaError: INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_TXN_STATE.
        """
        entry = self._producers.get(header.producer_id)
        if entry is None:
            return None
        batches = entry.batches
        # A batch that continues the last one repeats none of the others.
        if not (
            header.producer_epoch == entry.epoch and batches and header.base_sequence == batches[-1].last_sequence + 1
        ):
            duplicate = _duplicate_in(entry, header)
            if duplicate is not None:
                return duplicate
            self._check_epoch(entry, header.producer_epoch, offset)
            self._check_sequence(entry, header, offset)
        if entry.current_transaction_first_offset != NONE:
            self._check_transaction(entry, header, offset)
        return None

    def check_coordinator_data(self, header: BatchHeader, offset: int) -> None:
        """Check a data batch that a coordinator writes for a producer, which has no sequence numbers."""
        entry = self._producers.get(header.producer_id)
        if entry is not None:
            self._check_epoch(entry, header.producer_epoch, offset)
            self._check_transaction(entry, header, offset)

    def check_marker(self, header: BatchHeader, marker: TransactionMarker, offset: int) -> None:
        """Check a marker. Raises KafkaError: INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED."""
        entry = self._producers.get(header.producer_id)
        if entry is None:
            return
        self._check_epoch(entry, header.producer_epoch, offset)
        if entry.coordinator_epoch > marker.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"Invalid coordinator epoch for producerId {entry.producer_id} at offset {offset} in partition "
                f"{self._name}: {marker.coordinator_epoch} (zombie), {entry.coordinator_epoch} (current)",
            )

    def _check_epoch(self, entry: ProducerEntry, epoch: int, offset: int) -> None:
        if epoch < entry.epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Epoch of producer {entry.producer_id} at offset {offset} in {self._name} is {epoch}, "
                f"which is smaller than the last seen epoch {entry.epoch}",
            )

    def _check_sequence(self, entry: ProducerEntry, header: BatchHeader, offset: int) -> None:
        sequence = header.base_sequence
        if header.producer_epoch != entry.epoch:
            if sequence != 0:
                raise KafkaError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"Invalid sequence number for new epoch of producer {entry.producer_id} at offset {offset} in "
                    f"partition {self._name}: {header.producer_epoch} (request epoch), {sequence} (seq. number), "
                    f"{entry.epoch} (current producer epoch)",
                )
            return
        last_sequence = entry.last_sequence
        if sequence != last_sequence + 1 and not (sequence == 0 and last_sequence == SEQUENCE_MAX):
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Out of order sequence number for producer {entry.producer_id} at offset {offset} in partition "
                f"{self._name}: {sequence} (incoming seq. number), {last_sequence} (current end sequence number)",
            )

    def _check_transaction(self, entry: ProducerEntry, header: BatchHeader, offset: int) -> None:
        if entry.current_transaction_first_offset != NONE and not header.is_transactional:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"Expected transactional write from producer {entry.producer_id} at offset {offset} in partition "
                f"{self._name}",
            )

    # Changes: the batch is in the log, or planned

    def append(
        self, header: BatchHeader, base_offset: int, marker: TransactionMarker | None
    ) -> AbortedTransaction | None:
        """Apply a batch with a producer id. A control batch without a `marker` has no effect.

        Returns the entry for the transaction index if the marker aborts a transaction with data in this partition.
        """
        if marker is not None:
            return self.append_marker(header, marker, base_offset)
        if not header.is_control:
            self.append_data(header, base_offset)
        return None

    def append_data(self, header: BatchHeader, base_offset: int) -> None:
        """Apply a data batch whose first record has `base_offset`."""
        entry = self._producers.get(header.producer_id)
        if entry is None:
            entry = self._producers[header.producer_id] = ProducerEntry(header.producer_id, header.producer_epoch)
        elif entry.epoch != header.producer_epoch:
            entry.move_to_epoch(header.producer_epoch)
        delta = header.last_offset_delta
        last_offset = base_offset + delta
        timestamp_ms = entry.last_timestamp_ms = header.max_timestamp
        entry.batches.append(_new_tuple(BatchMetadata, (header.last_sequence, last_offset, delta, timestamp_ms)))
        self.map_end_offset = last_offset + 1
        if header.attributes & TRANSACTIONAL_BIT and entry.current_transaction_first_offset == NONE:
            entry.current_transaction_first_offset = base_offset
            self._open[base_offset] = header.producer_id
            if self.first_unstable_offset is None:
                self.first_unstable_offset = base_offset

    def append_marker(self, header: BatchHeader, marker: TransactionMarker, offset: int) -> AbortedTransaction | None:
        """Apply a marker at `offset`.

        Returns the entry for the transaction index if it aborts a transaction with data in this partition.
        """
        entry = self._producers.get(header.producer_id)
        if entry is None:
            entry = self._producers[header.producer_id] = ProducerEntry(header.producer_id, header.producer_epoch)
        entry.move_to_epoch(header.producer_epoch)
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp_ms = header.max_timestamp
        self.map_end_offset = offset + 1
        first_offset = entry.current_transaction_first_offset
        if first_offset == NONE:
            return None
        entry.current_transaction_first_offset = NONE
        del self._open[first_offset]
        is_aborted = marker.control_type is ControlType.ABORT
        ended = self._ended
        while ended and ended[-1].first_offset > first_offset:
            ended.pop()  # the first unstable offset is below it as long as this one's marker is not committed
        ended.append(CompletedTransaction(first_offset, offset))
        if not is_aborted:
            return None
        last_stable_offset = next(iter(self._open), offset + 1)
        return AbortedTransaction(entry.producer_id, first_offset, offset, last_stable_offset)

    def on_high_watermark(self, high_watermark: int) -> None:
        """Forget the ended transactions whose marker is below it: they no longer limit the last stable offset."""
        ended = self._ended
        if not ended or ended[0].last_offset >= high_watermark:
            return
        while ended and ended[0].last_offset < high_watermark:
            ended.popleft()
        self._find_first_unstable()

    def on_log_start(self, log_start_offset: int) -> None:
        """Note that the records below it were removed. The state of their producers stays."""
        self.on_high_watermark(log_start_offset)
        self.map_end_offset = max(self.map_end_offset, log_start_offset)

    def close_transactions_below(self, log_start_offset: int) -> None:
        """Forget the open transactions whose data is wholly below the start of the log.

        A crash may have removed their markers with it. They would limit the last stable offset for ever.
        """
        for first_offset, producer_id in list(self._open.items()):
            entry = self._producers[producer_id]
            if entry.last_data_offset < log_start_offset:
                entry.current_transaction_first_offset = NONE
                del self._open[first_offset]
        self._find_first_unstable()

    def remove_expired(self, now_ms: int, expiration_ms: int) -> int:
        """Remove producers without an open transaction that are idle for `expiration_ms`; return their number."""
        expired = [
            entry.producer_id
            for entry in self._producers.values()
            if entry.current_transaction_first_offset == NONE and now_ms - entry.last_timestamp_ms >= expiration_ms
        ]
        for producer_id in expired:
            del self._producers[producer_id]
        return len(expired)

    def clear(self, map_end_offset: int) -> None:
        self._producers.clear()
        self._open.clear()
        self._ended.clear()
        self.first_unstable_offset = None
        self.map_end_offset = map_end_offset

    def load(self, entries: Iterable[ProducerEntry], map_end_offset: int) -> None:
        """Replace the whole state by the content of a snapshot."""
        self.clear(map_end_offset)
        self._producers.update((entry.producer_id, entry) for entry in entries)
        self._open.update(
            sorted(
                (entry.current_transaction_first_offset, entry.producer_id)
                for entry in self._producers.values()
                if entry.current_transaction_first_offset != NONE
            )
        )
        self._find_first_unstable()

    def _find_first_unstable(self) -> None:
        first = next(iter(self._open), None)
        if self._ended and (first is None or self._ended[0].first_offset < first):
            first = self._ended[0].first_offset
        self.first_unstable_offset = first


def _duplicate_in(entry: ProducerEntry, header: BatchHeader) -> BatchMetadata | None:
    """Return the remembered batch of this epoch with the same first and last sequence, or None."""
    if entry.epoch == header.producer_epoch:
        for batch in entry.batches:
            if batch.last_sequence == header.last_sequence and batch.first_sequence == header.base_sequence:
                return batch
    return None


def marker_in(batch: Buffer, header: BatchHeader) -> TransactionMarker | None:
    """Return the transaction marker in a control batch.

    None for a control batch of another type, and for one without records, which the cleaner leaves. Raises Malformed.
    """
    usual = read_usual_marker(batch, 0, header)
    if usual is not None:
        return usual
    for record in records(batch, 0, size_max=_CONTROL_RECORDS_SIZE_MAX):
        return read_marker(record)
    return None
