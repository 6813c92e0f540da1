"""Pairs of offsets at source and target: when one is written, and the translation of positions by them. Pure.

A pair says that the record at `upstream_offset` of a source partition is the record at `downstream_offset` of the
target. Between two pairs the number of records at the target is not known: compaction, transactions and filters leave
gaps. So a position behind a pair becomes the offset behind that of the pair, which may repeat records and loses none.

Owns the rules of Kafka 3.9. Must not know topics, clients or groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from base.topic_partition import TopicPartition
from spark_jobs.connect.mirror.formats import OffsetSync

SYNCS_PER_PARTITION: Final = 64
"""One for each bit of an offset."""
TOO_OLD: Final = -1
"""The translation of a position before all pairs."""


class OffsetSyncStore:
    """The pairs of each source partition: all recent ones, and the fewer the older.

    Of each partition it has an array `s` of 64 pairs, with repetitions, from the newest to the oldest one:

    - A: `s[0]` is the newest pair.
    - B: for i < j, `s[i]` is `s[j]`, or `s[i].upstream <= s[j].upstream + 2**j - 2**i`: no pair is too old.
    - C: for i < j, `s[i]` is `s[j]`, or `s[i].upstream >= s[j].upstream + 2**max(i - 2, 0)`: no two are too close.
    - D: `s[63]` is the oldest pair that may translate.
    """

    def __init__(self) -> None:
        self._syncs: dict[TopicPartition, list[OffsetSync]] = {}
        self._begins_at_end = True
        self._is_loaded = False

    def begin(self, *, begins_at_end: bool) -> None:
        """Expect the pairs that were stored earlier. If `begins_at_end`, only the last one of each partition counts:
        without the earlier checkpoints, an older one might translate a position to before what was emitted."""
        self._begins_at_end = begins_at_end

    def loaded(self) -> None:
        """All pairs that were stored earlier are added: translate from now on."""
        self._is_loaded = True

    @property
    def is_loaded(self) -> bool:
        return self._is_loaded

    def add(self, sync: OffsetSync) -> None:
        """Add the next pair. If offsets at the source have gone back, those before are of other records."""
        key = (sync.topic, sync.partition)
        syncs = self._syncs.get(key)
        is_rewind = syncs is not None and sync.upstream_offset < syncs[0].upstream_offset
        if syncs is None or is_rewind or (self._begins_at_end and not self._is_loaded):
            self._syncs[key] = [sync] * SYNCS_PER_PARTITION
        else:
            self._syncs[key] = _with_newest(syncs, sync)

    def translate(self, topic: str, partition: int, upstream_offset: int) -> int | None:
        """Return a position at the target: `TOO_OLD` before all pairs, None without any or before `loaded`."""
        syncs = self._syncs.get((topic, partition))
        if syncs is None or not self._is_loaded:
            return None
        for sync in syncs:
            if sync.upstream_offset <= upstream_offset:
                return sync.downstream_offset + (sync.upstream_offset < upstream_offset)
        return TOO_OLD

    def kept(self, topic: str, partition: int) -> list[OffsetSync]:
        """Return the distinct pairs of a partition, from the newest to the oldest one."""
        return list(dict.fromkeys(self._syncs.get((topic, partition), ())))


def _with_newest(old: Sequence[OffsetSync], newest: OffsetSync) -> list[OffsetSync]:
    """Return the array with a pair in front.

    Each place keeps its pair if that is recent enough behind the one before it (B); else the pair of an earlier place
    moves there, so that a new pair drops as few others as possible. `source` is the earlier place to take from next.
    """
    syncs = list(old)
    syncs[0] = replacement = newest
    source = 0
    for place in range(1, SYNCS_PER_PARTITION):
        previous = syncs[place - 1]
        while True:
            candidate = old[source]
            is_apart = _is_apart(previous, candidate, place - 1)
            fits_next = place + 1 == SYNCS_PER_PARTITION or _is_apart(candidate, syncs[place + 1], place)
            is_promoted = is_apart and fits_next and _is_recent(previous, candidate, place - 1, place)
            is_repeated = source + 1 < SYNCS_PER_PARTITION and candidate is old[source + 1]
            is_skipped = is_repeated or not is_apart
            if is_promoted:
                replacement = candidate
            source += is_promoted or is_skipped
            if source >= place or not is_skipped:
                break
        if _is_recent(previous, syncs[place], place - 1, place):
            break  # and so are all older ones
        syncs[place] = replacement
    return syncs


def _is_recent(newer: OffsetSync, older: OffsetSync, newer_place: int, older_place: int) -> bool:
    """Invariant B."""
    return newer is older or newer.upstream_offset <= older.upstream_offset + (1 << older_place) - (1 << newer_place)


def _is_apart(newer: OffsetSync, older: OffsetSync, newer_place: int) -> bool:
    """Invariant C."""
    return newer is older or newer.upstream_offset >= older.upstream_offset + (1 << max(newer_place - 2, 0))


class PartitionState:
    """What was last copied of a source partition, and which pair of it was last written."""

    __slots__ = ("downstream_offset", "has_unwritten", "last_written", "upstream_offset")

    def __init__(self) -> None:
        self.upstream_offset = -1
        self.downstream_offset = -1
        self.last_written = -1
        """The downstream offset of the last pair."""
        self.has_unwritten = False

    def update(self, upstream_offset: int, downstream_offset: int, lag_max: int) -> bool:
        """Add the next record that was copied. Return whether its pair is to be written at once.

        It is for the first record, behind a gap at the source, if the target was truncated, and if positions would
        otherwise be translated to `lag_max` or more records before the true one.
        """
        is_due = (
            upstream_offset - self.upstream_offset != 1
            or downstream_offset - self.last_written > lag_max
            or downstream_offset < self.downstream_offset
            or self.last_written == -1
        )
        self.upstream_offset = upstream_offset
        self.downstream_offset = downstream_offset
        self.has_unwritten = not is_due
        if is_due:
            self.last_written = downstream_offset
        return is_due


class OffsetSyncQueue:
    """The pairs that are to be written: of each partition at most one, the newest."""

    def __init__(self, lag_max: int) -> None:
        self._lag_max = lag_max
        self._states: dict[TopicPartition, PartitionState] = {}
        self._pending: dict[TopicPartition, OffsetSync] = {}

    def add(self, topic: str, partition: int, upstream_offset: int, downstream_offset: int) -> None:
        """Add a record that was copied."""
        key = (topic, partition)
        state = self._states.get(key)
        if state is None:
            state = self._states[key] = PartitionState()
        if state.update(upstream_offset, downstream_offset, self._lag_max):
            self._pending[key] = OffsetSync(topic, partition, upstream_offset, downstream_offset)

    def promote(self) -> None:
        """Add the pairs that were not due: those at the ends of partitions that get few records."""
        for key, state in self._states.items():
            if state.has_unwritten:
                state.has_unwritten = False
                self._pending[key] = OffsetSync(*key, state.upstream_offset, state.downstream_offset)

    def take(self) -> Iterator[OffsetSync]:
        """Yield the pending pairs; each is pending until the next one is asked for."""
        while self._pending:
            key = next(iter(self._pending))
            sync = self._pending[key]
            yield sync
            if self._pending.get(key) is sync:
                del self._pending[key]

    @property
    def pending_count(self) -> int:
        return len(self._pending)
