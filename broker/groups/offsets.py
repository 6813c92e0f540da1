"""The committed offsets of one group: what is committed, what is on its way, what is due to go. Pure.

Owns: which commit wins, offsets of open transactions, and what has expired. Must not know: the log, the membership
machine or requests. An offset counts once its record is in the log; `order` is its place there (a number that
rises with every append), so that answers which arrive out of order cannot put an older commit over a newer one.

Invariants:
* What `committed` shows was successfully appended, and nothing that was appended later was overwritten by it.
* An offset that is removed does not come back through a commit that was already on its way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from broker.groups.records import NO_TIMESTAMP, OffsetAndMetadata
from broker.groups.states import GroupState
from broker.groups.subscription import CONSUMER_PROTOCOL_TYPE

TopicPartition = tuple[str, int]
Offsets = dict[TopicPartition, OffsetAndMetadata]


class Committed(NamedTuple):
    """A committed offset and the place of its record in the log."""

    order: int
    value: OffsetAndMetadata


_new_tuple = tuple.__new__  # of a named tuple, at half the price of calling its class


class GroupOffsets:
    """Offsets of one group by (topic, partition)."""

    __slots__ = ("_in_flight", "_transactions", "committed")

    def __init__(self) -> None:
        self.committed: dict[TopicPartition, Committed] = {}
        self._in_flight: dict[int, Offsets] = {}
        """Plain commits that are being appended, by order."""
        self._transactions: dict[int, dict[int, Offsets]] = {}
        """Commits of open transactions by producer id and order, those that are being appended included."""

    @property
    def is_empty(self) -> bool:
        """Nothing is or may soon be committed."""
        return not (self.committed or self._in_flight or self._transactions)

    def get(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        found = self.committed.get(partition)
        return None if found is None else found.value

    def is_unstable(self, partition: TopicPartition) -> bool:
        """Whether an open transaction may yet change the offset (KIP-447)."""
        return any(partition in offsets for batches in self._transactions.values() for offsets in batches.values())

    # Commits

    def put(self, order: int, offsets: Offsets) -> None:
        """A commit is on all in-sync replicas."""
        committed = self.committed
        for partition, value in offsets.items():
            current = committed.get(partition)
            if current is None or current.order <= order:
                committed[partition] = _new_tuple(Committed, (order, value))

    def begin(self, order: int, offsets: Offsets) -> None:
        """A commit is in this log, but not yet on all in-sync replicas. The offsets are this object's from now on."""
        self._in_flight[order] = offsets

    def succeed(self, order: int) -> None:
        """All in-sync replicas have the commit."""
        self.put(order, self._in_flight.pop(order, {}))

    def fail(self, order: int) -> None:
        """The commit is not in the log, or nobody knows; its client was told so."""
        self._in_flight.pop(order, None)

    def begin_in_transaction(self, producer_id: int, order: int, offsets: Offsets) -> None:
        """As `begin`, but what is appended counts only when the transaction commits."""
        self._transactions.setdefault(producer_id, {})[order] = offsets

    def fail_in_transaction(self, producer_id: int, order: int) -> None:
        """The commit within a transaction is not in the log."""
        batches = self._transactions.get(producer_id, {})
        batches.pop(order, None)
        if not batches:
            self._transactions.pop(producer_id, None)

    def end_transaction(self, producer_id: int, *, is_committed: bool) -> None:
        """The producer's marker is in the log."""
        batches = self._transactions.pop(producer_id, {})
        if is_committed:
            for order, offsets in sorted(batches.items()):
                self.put(order, offsets)

    def open_transactions(self) -> Iterable[int]:
        """The ids of the producers whose transactions have touched the group."""
        return self._transactions.keys()

    # Reading the log back

    def load(self, order: int, partition: TopicPartition, value: OffsetAndMetadata) -> None:
        """A record of a plain commit was read."""
        self.committed[partition] = Committed(order, value)

    def load_in_transaction(
        self, producer_id: int, order: int, partition: TopicPartition, value: OffsetAndMetadata
    ) -> None:
        """A record of a transactional commit was read, the marker not yet."""
        self._transactions.setdefault(producer_id, {}).setdefault(order, {})[partition] = value

    # Removal

    def remove(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Forget offsets, also those on their way, and return the ones that the log knows of or may soon."""
        removed = []
        uncommitted = [*self._in_flight.values(), *(each for b in self._transactions.values() for each in b.values())]
        for partition in partitions:
            places = [self.committed.pop(partition, None), *(each.pop(partition, None) for each in uncommitted)]
            if any(place is not None for place in places):
                removed.append(partition)
        if uncommitted:
            self._drop_emptied_transactions()
        return removed

    def partitions(self) -> list[TopicPartition]:
        """Every partition that has an offset here, committed or on its way."""
        found = dict.fromkeys(self.committed)
        for offsets in (*self._in_flight.values(), *(e for b in self._transactions.values() for e in b.values())):
            found.update(dict.fromkeys(offsets))
        return list(found)

    def expired(
        self, is_expired: Callable[[str, OffsetAndMetadata], bool], among: Iterable[TopicPartition]
    ) -> list[TopicPartition]:
        """Those of some partitions whose offsets a rule gives up, without those that are being committed anew."""
        committed = self.committed
        found = [
            partition
            for partition in among
            if (current := committed.get(partition)) is not None and is_expired(partition[0], current.value)
        ]
        if self._in_flight or self._transactions:
            found = [partition for partition in found if not self._is_being_committed(partition)]
        return found

    def untouched_since(self, order: int, among: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Those of some partitions for which no commit has begun at `order` or later."""
        later = [offsets for at, offsets in self._in_flight.items() if at >= order]
        later += [offsets for b in self._transactions.values() for at, offsets in b.items() if at >= order]
        committed = self.committed
        return [
            partition
            for partition in among
            if ((current := committed.get(partition)) is None or current.order < order)
            and not any(partition in offsets for offsets in later)
        ]

    def _is_being_committed(self, partition: TopicPartition) -> bool:
        return self.is_unstable(partition) or any(partition in offsets for offsets in self._in_flight.values())

    def _drop_emptied_transactions(self) -> None:
        for producer_id, batches in list(self._transactions.items()):
            if not any(batches.values()):
                del self._transactions[producer_id]


def expiry_rule(
    state: GroupState,
    protocol_type: str | None,
    subscribed_topics: frozenset[str] | None,
    state_timestamp_ms: int,
    now_ms: int,
    retention_ms: int,
) -> Callable[[str, OffsetAndMetadata], bool] | None:
    """Which offsets of a group have outlived their use (KIP-211); None when none can have.

    An Empty group loses its offsets `retention_ms` after its last member left, a group that was never more than a store
    of offsets after each commit, and a Stable consumer group those of topics it does not read any more. A commit that
    named its own time to live, as clients before 2.1 could, is held to that.
    """
    kept: frozenset[str] = frozenset()
    since_ms = NO_TIMESTAMP
    if protocol_type is not None:
        if state is GroupState.EMPTY:
            since_ms = state_timestamp_ms
        elif state is GroupState.STABLE and protocol_type == CONSUMER_PROTOCOL_TYPE and subscribed_topics is not None:
            kept = subscribed_topics
        else:
            return None

    def is_expired(topic: str, value: OffsetAndMetadata) -> bool:
        if topic in kept:
            return False
        if value.expire_timestamp_ms != NO_TIMESTAMP:
            return now_ms >= value.expire_timestamp_ms
        return now_ms - (value.commit_timestamp_ms if since_ms == NO_TIMESTAMP else since_ms) >= retention_ms

    return is_expired
