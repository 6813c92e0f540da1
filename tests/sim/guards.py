"""Guards of a broker, each with the patch that removes it, and the search for the random seeds that miss it.

Owns the guards that no script covers. `tests.sim.test_guards` has the others, each with its case; `all_guards` returns
both. Must not know what a run does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from copy import copy
from statistics import median
from typing import Any, NamedTuple

import pytest

from base.pause import Pause
from broker.cluster.metadata_cache import MetadataCache
from broker.coordination.replicated_log import ReplicatedLog
from broker.replica import fetchers
from broker.replica.manager import ReplicaManager
from broker.replica.near_reads import NearReads
from broker.replica.partition import Partition
from broker.replica.throttles import FollowerBudget, Throttle
from broker.transactions.machine import transaction
from broker.transactions.machine.transaction import Metadata, Transaction
from controller.active import reassignments
from controller.active.reassignments import Reassignments
from controller.coordination.machine.coordinator import Coordinator
from controller.coordination.machine.sessions import Sessions
from controller.zookeeper import store
from controller.zookeeper.store import ZooKeeperStore
from protocol.messages.update_metadata import UPDATE_OF_ALL, UpdateMetadataRequest
from storage.log import log_appends
from storage.log.log import Log
from storage.log.log_durability import LogDurability
from storage.log.log_truncation import LogTruncation
from storage.log.segment_rolls import SegmentRolls
from storage.producers import producer_state
from storage.producers.producer_state import ProducerState
from storage.segments.leader_epochs import LeaderEpochs
from tests.sim.run import run_alone

Patch = pytest.MonkeyPatch
NO_EPOCH = -1
WHOLE_BATCH = 2_000
"""More bytes than most batches have, and more than most throttles have left."""


class RemovableGuard(NamedTuple):
    """A guard, and how to run without it."""

    name: str
    remove: Callable[[Patch], None]


# Storage


def producers_are_forgotten_at_a_roll(patch: Patch) -> None:
    original = SegmentRolls.roll

    def roll(self: SegmentRolls, *arguments: Any) -> Any:
        segment = original(self, *arguments)
        producers = self._state.producer_state
        producers.clear(producers.map_end_offset)
        return segment

    patch.setattr(SegmentRolls, "roll", roll)


def producers_stay_over_a_truncation(patch: Patch) -> None:
    original = LogTruncation._truncate

    def truncate(self: LogTruncation, offset: int) -> None:
        before = self._state.producer_state
        original(self, offset)
        self._state.producer_state = before

    patch.setattr(LogTruncation, "_truncate", truncate)


def epochs_stay_over_a_truncation(patch: Patch) -> None:
    patch.setattr(LeaderEpochs, "truncate_from_end", lambda self, end_offset: None)


def one_batch_is_remembered(patch: Patch) -> None:
    patch.setattr(producer_state, "BATCHES_KEPT", 1)


def everything_is_committed_at_a_start(patch: Patch) -> None:
    original = Log.__init__

    def init(self: Log, *arguments: Any) -> None:
        original(self, *arguments)
        self.high_watermark = self.log_end_offset

    patch.setattr(Log, "__init__", init)


def nothing_is_synced(patch: Patch) -> None:
    patch.setattr(LogDurability, "_sync_files", lambda self, end_offset: None)


def transactions_are_stable_before_their_markers(patch: Patch) -> None:
    original = ProducerState.append_marker

    def append(self: ProducerState, *arguments: Any) -> Any:
        aborted = original(self, *arguments)
        self._ended.clear()
        self._find_first_unstable()
        return aborted

    patch.setattr(ProducerState, "append_marker", append)


def epochs_of_fetched_batches_are_not_checked(patch: Patch) -> None:
    original = log_appends.check_replicated
    patch.setattr(
        log_appends,
        "check_replicated",
        lambda records, *, next_offset, epochs: original(records, next_offset=next_offset),
    )


# Metadata


def metadata_changes_partition_by_partition(patch: Patch) -> None:
    original = MetadataCache.update

    async def update(self: MetadataCache, request: UpdateMetadataRequest, pause: Pause, *declared_counts: Any) -> Any:
        for topic in request.topic_states:
            for partition in topic.partition_states:
                part = copy(request)
                part.type = 1 - UPDATE_OF_ALL
                part.topic_states = [copy(topic)]
                part.topic_states[0].partition_states = [partition]
                await original(self, part, pause)
        return await original(self, request, pause, *declared_counts)

    patch.setattr(MetadataCache, "update", update)


# Coordinators


def _appends_do_not_wait(patch: Patch, topic: str) -> None:
    original = ReplicatedLog.append

    def append(self: ReplicatedLog, *arguments: Any, **terms: Any) -> Any:
        awaited = original(self, *arguments, **terms)
        if self._topic != topic or awaited is None:
            return awaited
        awaited.add_done_callback(lambda done: done.exception())
        return None

    patch.setattr(ReplicatedLog, "append", append)


def commits_do_not_wait(patch: Patch) -> None:
    _appends_do_not_wait(patch, "__consumer_offsets")


def states_of_transactions_do_not_wait(patch: Patch) -> None:
    _appends_do_not_wait(patch, "__transaction_state")


def no_new_epoch(patch: Patch) -> None:
    original = Transaction._next_epoch

    def next_epoch(self: Transaction, *arguments: Any) -> Any:
        epoch = self.current.producer_epoch
        decision = original(self, *arguments)
        if isinstance(decision, Metadata) and epoch >= 0:
            decision = self.pending = decision._replace(producer_epoch=epoch)
        return decision

    reactions = transaction.ON_INIT_PRODUCER.items()
    replaced = {state: next_epoch if reaction is original else reaction for state, reaction in reactions}
    patch.setattr(transaction, "ON_INIT_PRODUCER", replaced)


def ends_raise_no_epoch(patch: Patch) -> None:
    original = Transaction._raise_and_end

    def end(self: Transaction, *arguments: Any) -> Any:
        epoch = self.current.producer_epoch
        decision = original(self, *arguments)
        if isinstance(decision, Metadata):
            decision = self.pending = decision._replace(producer_epoch=epoch)
        return decision

    patch.setattr(Transaction, "_raise_and_end", end)


# Near reads


def followers_serve_to_their_end(patch: Patch) -> None:
    original = Partition.readable_end_offset

    def end(self: Partition, isolation: Any) -> int:
        return self.log.log_end_offset if self.is_follower else original(self, isolation)

    patch.setattr(Partition, "readable_end_offset", end)


def any_epoch_may_read_followers(patch: Patch) -> None:
    original = Partition.require_replica
    patch.setattr(Partition, "require_replica", lambda self, epoch: original(self, NO_EPOCH))


def any_follower_is_near(patch: Patch) -> None:
    """Choose among all live followers, also those that do not have the offset of the consumer."""

    def preferred(self: NearReads, partition: Partition, fetch_offset: int, client: Any) -> int | None:
        nodes = self._brokers()
        followers = [it for it in partition.leadership.replicas if it != self._broker_id and it in nodes]
        near = [it for it in followers if nodes[it].rack == client.rack]
        own = nodes[self._broker_id].rack if self._broker_id in nodes else client.rack
        return max(near, default=None) if partition.is_leader and own != client.rack else None

    patch.setattr(NearReads, "preferred", preferred)


def followers_wake_no_readers(patch: Patch) -> None:
    def append(self: ReplicaManager, partition: Partition, records: memoryview, **details: Any) -> None:
        partition.append_fetched(records, **details)

    patch.setattr(ReplicaManager, "append_fetched", append)


# Throttles and moves


def replicas_in_sync_are_throttled(patch: Patch) -> None:
    patch.setattr(Throttle, "holds_back", lambda self, partition, replica_id: self.concerns(partition))


def throttled_partitions_wait_for_long(patch: Patch) -> None:
    patch.setattr(Throttle, "wait_ms", lambda self: 600_000)
    patch.setattr(fetchers, "THROTTLE_CHECK_MS_MAX", 600_000)


def throttled_partitions_get_no_whole_batch(patch: Patch) -> None:
    original = FollowerBudget.of

    def of(self: FollowerBudget, partition: Any) -> int:
        allowed = original(self, partition)
        return 0 if allowed < WHOLE_BATCH else allowed

    patch.setattr(FollowerBudget, "of", of)


def moves_are_forgotten(patch: Patch) -> None:
    patch.setattr(Reassignments, "load", lambda self: None)


def moves_end_before_replicas_are_in_sync(patch: Patch) -> None:
    patch.setattr(reassignments, "is_complete", lambda assignment, isr: True)


# The coordination server and its clients


def sessions_end_with_their_server(patch: Patch) -> None:
    original = Sessions.__init__
    patch.setattr(Sessions, "__init__", lambda self, stored, *arguments: original(self, (), *arguments))


def halted_time_counts(patch: Patch) -> None:
    def expired(self: Sessions, now_ms: int) -> list[int]:
        return [session.id for session in self._sessions.values() if session.deadline_ms <= now_ms]

    patch.setattr(Sessions, "expired", expired)


def watches_end_with_their_connection(patch: Patch) -> None:
    patch.setattr(ZooKeeperStore, "_reads_to_arm_again", lambda self: [])


def repeated_writes_fail(patch: Patch) -> None:
    patch.setattr(store, "results_if_applied", lambda operations, nodes, **details: None)


def zxids_begin_anew(patch: Patch) -> None:
    original = Coordinator.__init__
    patch.setattr(
        Coordinator, "__init__", lambda self, tree, sessions, zxid, limits: original(self, tree, sessions, 0, limits)
    )


GUARDS = [
    RemovableGuard("producers are known after a roll", producers_are_forgotten_at_a_roll),
    RemovableGuard("producers are rebuilt after a truncation", producers_stay_over_a_truncation),
    RemovableGuard("leader epochs are truncated with the log", epochs_stay_over_a_truncation),
    RemovableGuard("five batches of a producer are remembered", one_batch_is_remembered),
    RemovableGuard("the high watermark at a start is the checkpointed one", everything_is_committed_at_a_start),
    RemovableGuard("segments are synced before the recovery point rises", nothing_is_synced),
    RemovableGuard(
        "the last stable offset waits for uncommitted markers", transactions_are_stable_before_their_markers
    ),
    RemovableGuard("epochs of replicated batches", epochs_of_fetched_batches_are_not_checked),
    RemovableGuard("an UpdateMetadata is applied in one step", metadata_changes_partition_by_partition),
    RemovableGuard("OffsetCommit waits for the ISR", commits_do_not_wait),
    RemovableGuard("markers wait until the ISR has PrepareCommit", states_of_transactions_do_not_wait),
    RemovableGuard("InitProducerId raises the epoch", no_new_epoch),
    RemovableGuard("an end of version 2 raises the epoch", ends_raise_no_epoch),
    RemovableGuard("followers serve consumers what is committed", followers_serve_to_their_end),
    RemovableGuard("leader epoch of a fetch from a follower", any_epoch_may_read_followers),
    RemovableGuard("a near replica is in sync and has the offset", any_follower_is_near),
    RemovableGuard("what a follower learns wakes its consumers", followers_wake_no_readers),
    RemovableGuard("replicas in sync are not throttled", replicas_in_sync_are_throttled),
    RemovableGuard("throttled partitions are fetched again", throttled_partitions_wait_for_long),
    RemovableGuard("a throttled replica gets whole batches", throttled_partitions_get_no_whole_batch),
    RemovableGuard("the next controller continues a move", moves_are_forgotten),
    RemovableGuard("a move waits for its new replicas", moves_end_before_replicas_are_in_sync),
    RemovableGuard("sessions outlive the coordination server", sessions_end_with_their_server),
    RemovableGuard("time in which the coordination server is halted does not count", halted_time_counts),
    RemovableGuard("watches outlive a connection", watches_end_with_their_connection),
    RemovableGuard("a repeated write is recognised", repeated_writes_fail),
    RemovableGuard("zxids rise over restarts", zxids_begin_anew),
]


def all_guards() -> dict[str, Callable[[Patch], None]]:
    """Return the patch of each guard by its name."""
    from tests.sim import test_guards  # it imports this module's users

    scripted = ((guard.name, guard.remove) for guard in test_guards.GUARDS)
    return {**dict(GUARDS), **dict(scripted)}


def rule_without(guard: str, brokers: int, seed: int) -> tuple[int, str | None]:
    """Run a seed without a guard; return the rule that it breaks, or None."""
    with pytest.MonkeyPatch.context() as patch:
        all_guards()[guard](patch)
        try:
            violations = run_alone(brokers, seed).violations
        except Exception as error:  # the simulator itself does not survive the absence of some guards
            return seed, f"the run ends with {error!r}"
    return seed, violations[0].rule if violations else None


def seeds_until_caught(catches: Iterable[int], first: int, last: int) -> Iterator[int]:
    """Yield for each seed from `first` on how many seeds run until one of `catches`, which all lie up to `last`."""
    left = sorted(catches)
    for seed in range(first, last + 1):
        while left and left[0] < seed:
            del left[0]
        if not left:
            return
        yield left[0] - seed + 1


def line_of(name: str, rules: dict[int, str], first: int, last: int) -> str:
    """Return a row of the table in docs/simulation.md: guard, median seed, share of catching seeds, first rule."""
    if not rules:
        return f"| {name} | not caught by {last - first + 1} | | |"
    count = median(seeds_until_caught(rules, first, last))
    share = f"{len(rules)} of {last - first + 1}"
    return f"| {name} | {count:.0f} | {share} | {rules[min(rules)]} |"
