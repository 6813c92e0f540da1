"""The offsets of one group: committed ones, commits that are being appended, and which have expired. Pure.

Owns: which commit wins, offsets of open transactions, and which offsets have expired. Must not know: the log, the
membership machine or requests. An offset is shown once its record is in the log. `order` is its place there, a number
that rises with every append: when results arrive out of order, an older commit does not overwrite a newer one.

Of an open transaction only the latest commit of each partition is kept, so that the cost of reading it does not grow
with the number of its commits.

Invariants:
* What `committed` shows was successfully appended, and has not overwritten anything that was appended later.
* A removed offset does not return through a commit that was being appended when it was removed.
* `_producers` has exactly the partitions of open transactions: what is asked of a partition looks at its own alone.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from typing import NamedTuple

from base.topic_partition import TopicPartition
from broker.groups.machine.records import NO_TIMESTAMP, OffsetAndMetadata
from broker.groups.machine.states import GroupState
from broker.groups.machine.subscription import CONSUMER_PROTOCOL_TYPE

Offsets = dict[TopicPartition, OffsetAndMetadata]
ExpiryRule = Callable[[str, OffsetAndMetadata], bool]
"""Whether an offset of a topic has expired."""


class Committed(NamedTuple):
    """A committed offset and the place of its record in the log."""

    order: int
    value: OffsetAndMetadata


_new_tuple = tuple.__new__  # of a named tuple, at half the price of calling its class


class _OpenTransaction:
    """The commits of one producer, which take effect with its commit marker."""

    __slots__ = ("in_flight", "latest")

    def __init__(self) -> None:
        self.latest: dict[TopicPartition, Committed] = {}
        """The latest commit of each partition that all in-sync replicas have."""
        self.in_flight: dict[int, Offsets] = {}
        """Commits that are being appended, by order."""

    @property
    def is_empty(self) -> bool:
        return not self.latest and not any(self.in_flight.values())

    def __contains__(self, partition: TopicPartition) -> bool:
        return partition in self.latest or any(partition in offsets for offsets in self.in_flight.values())

    def partitions(self) -> Iterator[TopicPartition]:
        yield from self.latest
        for offsets in self.in_flight.values():
            yield from offsets

    def remove(self, partition: TopicPartition) -> bool:
        """Forget the partition, and return whether it had a commit."""
        is_removed = self.latest.pop(partition, None) is not None
        for offsets in self.in_flight.values():
            is_removed |= offsets.pop(partition, None) is not None
        return is_removed

    def is_touched_since(self, order: int, partition: TopicPartition) -> bool:
        """Return whether a commit of the partition has begun at `order` or later."""
        latest = self.latest.get(partition)
        return (latest is not None and latest.order >= order) or any(
            at >= order and partition in offsets for at, offsets in self.in_flight.items()
        )


def _put_latest(known: dict[TopicPartition, Committed], order: int, offsets: Offsets) -> None:
    """Apply a commit. Of two commits of a partition, the one whose record is later in the log wins."""
    for partition, value in offsets.items():
        current = known.get(partition)
        if current is None or current.order <= order:
            known[partition] = _new_tuple(Committed, (order, value))


class GroupOffsets:
    """Offsets of one group by (topic, partition)."""

    __slots__ = ("_in_flight", "_producers", "_transactions", "committed")

    def __init__(self) -> None:
        self.committed: dict[TopicPartition, Committed] = {}
        self._in_flight: dict[int, Offsets] = {}
        """Plain commits that are being appended, by order."""
        self._transactions: dict[int, _OpenTransaction] = {}
        """By producer id."""
        self._producers: dict[TopicPartition, set[int]] = {}
        """The ids of the producers with a commit of a partition in an open transaction."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing is committed or being committed."""
        return not (self.committed or self._in_flight or self._transactions)

    def get(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        """Return the committed offset of a partition; None if there is none."""
        found = self.committed.get(partition)
        return None if found is None else found.value

    def is_unstable(self, partition: TopicPartition) -> bool:
        """Return whether an open transaction may still change the offset (KIP-447)."""
        return partition in self._producers

    # Commits

    def put(self, order: int, offsets: Offsets) -> None:
        """Show a commit that all in-sync replicas have."""
        _put_latest(self.committed, order, offsets)

    def begin(self, order: int, offsets: Offsets) -> None:
        """Keep a commit that is in the leader's log, but not on all in-sync replicas yet.

        `offsets` belongs to this object afterwards.
        """
        self._in_flight[order] = offsets

    def succeed(self, order: int) -> None:
        """Show a commit that was begun: all in-sync replicas have it."""
        self.put(order, self._in_flight.pop(order, {}))

    def fail(self, order: int) -> None:
        """Drop a commit that was begun: it failed, or its outcome is unknown. Its client gets the error."""
        self._in_flight.pop(order, None)

    def put_in_transaction(self, producer_id: int, order: int, offsets: Offsets) -> None:
        """As `put`, but the commit takes effect only when the transaction commits."""
        _put_latest(self._transaction(producer_id, offsets).latest, order, offsets)

    def begin_in_transaction(self, producer_id: int, order: int, offsets: Offsets) -> None:
        """As `begin`, but the commit takes effect only when the transaction commits."""
        self._transaction(producer_id, offsets).in_flight[order] = offsets

    def succeed_in_transaction(self, producer_id: int, order: int) -> None:
        """As `succeed`, within a transaction, which may have ended before the result of the append was known."""
        transaction = self._transactions.get(producer_id)
        if transaction is not None:
            _put_latest(transaction.latest, order, transaction.in_flight.pop(order, {}))

    def fail_in_transaction(self, producer_id: int, order: int) -> None:
        """As `fail`, within a transaction."""
        transaction = self._transactions.get(producer_id)
        if transaction is not None:
            failed = transaction.in_flight.pop(order, {})
            self._forget(producer_id, (partition for partition in failed if partition not in transaction))
            if transaction.is_empty:
                del self._transactions[producer_id]

    def end_transaction(self, producer_id: int, *, is_committed: bool) -> None:
        """Commit or drop the offsets of a transaction: its marker is in the log, after everything it has committed."""
        transaction = self._transactions.pop(producer_id, None)
        if transaction is None:
            return
        self._forget(producer_id, transaction.partitions())
        if not is_committed:
            return
        for order, offsets in transaction.in_flight.items():
            _put_latest(transaction.latest, order, offsets)
        committed = self.committed
        for partition, latest in transaction.latest.items():
            current = committed.get(partition)
            if current is None or current.order <= latest.order:
                committed[partition] = latest

    def open_transactions(self) -> Iterable[int]:
        """Return the ids of the producers with open transactions that include offsets of the group."""
        return self._transactions.keys()

    # Reading the log back

    def load(self, order: int, partition: TopicPartition, value: OffsetAndMetadata) -> None:
        """Apply a record of a commit outside a transaction."""
        self.committed[partition] = Committed(order, value)

    def load_in_transaction(
        self, producer_id: int, order: int, partition: TopicPartition, value: OffsetAndMetadata
    ) -> None:
        """Apply a record of a commit within a transaction, whose marker has not been read yet."""
        self.put_in_transaction(producer_id, order, {partition: value})

    # Removal

    def remove(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Forget offsets, also those being committed, and return the partitions that need a tombstone."""
        removed = []
        in_flight = self._in_flight.values()
        for partition in partitions:
            is_removed = self.committed.pop(partition, None) is not None
            for offsets in in_flight:
                is_removed |= offsets.pop(partition, None) is not None
            for producer_id in self._producers.pop(partition, ()):
                transaction = self._transactions[producer_id]
                is_removed |= transaction.remove(partition)
                if transaction.is_empty:
                    del self._transactions[producer_id]
            if is_removed:
                removed.append(partition)
        return removed

    def snapshot(self) -> GroupOffsets:
        """Return the offsets as they are now, for readers that work in steps: later commits do not change it."""
        taken = GroupOffsets()
        taken.committed = self.committed.copy()
        for producer_id, transaction in self._transactions.items():
            copied = taken._transaction(producer_id, transaction.partitions())
            copied.latest = transaction.latest.copy()
            copied.in_flight = {order: offsets.copy() for order, offsets in transaction.in_flight.items()}
        return taken

    def partitions(self) -> list[TopicPartition]:
        """Return every partition with an offset that is committed or being committed."""
        found = dict.fromkeys(self.committed)
        for each in (*self._in_flight.values(), *(it.partitions() for it in self._transactions.values())):
            found.update(dict.fromkeys(each))
        return list(found)

    def expired(self, is_expired: ExpiryRule, among: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return those of some partitions whose offsets have expired, except partitions with a commit under way."""
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
        """Return those of some partitions for which no commit has begun at `order` or later."""
        later = [offsets for at, offsets in self._in_flight.items() if at >= order]
        transactions, producers = self._transactions, self._producers
        committed = self.committed
        return [
            partition
            for partition in among
            if ((current := committed.get(partition)) is None or current.order < order)
            and not any(partition in offsets for offsets in later)
            and not any(transactions[it].is_touched_since(order, partition) for it in producers.get(partition, ()))
        ]

    def _is_being_committed(self, partition: TopicPartition) -> bool:
        return self.is_unstable(partition) or any(partition in offsets for offsets in self._in_flight.values())

    def _transaction(self, producer_id: int, partitions: Iterable[TopicPartition]) -> _OpenTransaction:
        """Return the open transaction of a producer, which gets a commit of some partitions."""
        for partition in partitions:
            self._producers.setdefault(partition, set()).add(producer_id)
        found = self._transactions.get(producer_id)
        if found is None:
            found = self._transactions[producer_id] = _OpenTransaction()
        return found

    def _forget(self, producer_id: int, partitions: Iterable[TopicPartition]) -> None:
        """Note that a producer has no commit of some partitions any more. They may be named twice."""
        for partition in partitions:
            producers = self._producers.get(partition)
            if producers is not None:
                producers.discard(producer_id)
                if not producers:
                    del self._producers[partition]

    def check(self) -> None:
        """Raise AssertionError with the invariant that does not hold."""
        producers: dict[TopicPartition, set[int]] = {}
        for producer_id, transaction in self._transactions.items():
            for partition in transaction.partitions():
                producers.setdefault(partition, set()).add(producer_id)
        assert producers == self._producers, "`_producers` has exactly the partitions of open transactions"


def expiry_rule(
    state: GroupState,
    protocol_type: str | None,
    subscribed_topics: Container[str] | None,
    state_timestamp_ms: int,
    now_ms: int,
    retention_ms: int,
) -> ExpiryRule | None:
    """Return the rule by which offsets of a group expire (KIP-211); None if none can have expired.

    The offsets of an Empty group expire `retention_ms` after its last member left. Those of a group that never had
    members expire `retention_ms` after their commit, and so do those of a Stable consumer group for topics to which it
    no longer subscribes. A commit with its own retention time, as clients before 2.1 could send, expires by that.
    """
    kept: Container[str] = ()
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
