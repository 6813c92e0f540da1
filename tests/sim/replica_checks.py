"""Compares what brokers know of their logs with what is on their disks, while a run goes on.

Owns the moments at which replicas are compared, and the rules: the state of each log follows from its batches; what a
replica had synced is there after a power loss, and what it had written is there after a kill; what one replica counts
as committed is on every in-sync replica. Replication heals most of such damage before a run ends, so it is looked for
where it arises. Must not know clients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from protocol.ids import id_text
from tests.sim.cluster import Cluster, Machine
from tests.sim.disk import SimulatedDisk
from tests.sim.history import History, Partition
from tests.sim.inspection import StateRecorder, directories, has_offset, hosted_partition
from tests.sim.plain_log import (
    KEPT,
    PlainBatch,
    PlainProducer,
    PlainState,
    aborted_in,
    batches_of,
    snapshot_entries,
    state_of,
)

AGREES = "the state of a log follows from its batches"
SURVIVES = "what a replica has synced survives on it"
COMMITTED = "what is committed is on every in-sync replica"


class ReplicaChecks:
    """Looks at all replicas of a cluster when it is told to, and where a machine dies or a broker has started."""

    def __init__(
        self,
        cluster: Cluster,
        history: History,
        states: StateRecorder,
        note: Callable[[str, str, Partition | None], None],
    ) -> None:
        self._cluster = cluster
        self._history = history
        self._states = states
        self._note = note
        self._seen: dict[str, tuple[object, ...]] = {}
        self._kept: dict[int, tuple[object, dict[str, frozenset[PlainBatch]]]] = {}
        """By broker: its disk, and what was written to each replica."""
        cluster.on_death = self._has_died
        cluster.on_power_loss = self._has_lost_power
        cluster.on_started.append(self._has_started)

    def look(self) -> None:
        """Compare all replicas of the brokers that run."""
        for machine in self._cluster.machines.values():
            if self._cluster.is_running(machine.broker_id):
                for log in _logs(machine):
                    if not machine.disk.fails(str(log.directory)):
                        self._compare(machine, log)

    def _compare(self, machine: Machine, log: Any) -> None:
        directory = str(log.directory)
        version = (id(log), log.truncation_count, log.log_end_offset, log.high_watermark, log.log_start_offset)
        known = f"{machine.host}:{directory}"
        if self._seen.get(known) == version:
            return
        self._seen[known] = version
        partition = self._judged(log)
        was_loaded = machine.starts > 1 or log.truncation_count > 0
        if not self._is_cleaned(log):
            for text in disagreements(log, machine.disk, directory, was_loaded=was_loaded):
                self._note(AGREES, f"{partition}: replica {machine.broker_id}: {text}", None)
                break
        self._check_committed(partition, log, machine)

    def _is_cleaned(self, log: Any) -> bool:
        """Return whether batches of a log may be removed from anywhere, so that its state does not follow from them."""
        return self._cluster.properties["log.cleaner.enable"] == "true" and "compact" in log.config.cleanup_policy

    def _check_committed(self, partition: Partition, log: Any, machine: Machine) -> None:
        state = self._states.latest.get(partition)
        last = log.high_watermark - 1
        if state is None or partition.topic in self._history.deleted_topics or last < log.log_start_offset:
            return
        lossy = {loss.broker for loss in self._history.losses}
        stored_as = Partition(partition.topic.partition("#")[0], partition.index)
        for broker in state.isr:
            hosted = hosted_partition(self._cluster.machines[broker], stored_as)
            if hosted is not None and last < hosted.log.log_start_offset:
                continue  # its leader has had it deleted
            disk, is_cleaned = self._cluster.machines[broker].disk, self._is_cleaned(log)
            if broker not in lossy and not has_offset(disk, stored_as, last, is_cleaned=is_cleaned):
                self._note(
                    COMMITTED,
                    f"{partition}: replica {machine.broker_id} has the high watermark {last + 1}, but the in-sync "
                    f"replica {broker} lacks {last}",
                    partition,
                )

    def _judged(self, log: Any) -> Partition:
        topic_id = None if log.topic_id is None else id_text(log.topic_id)
        return Partition(self._history.incarnation(log.topic, topic_id), log.partition)

    # Deaths and starts

    def _has_died(self, machine: Machine) -> None:
        """Note what the replicas of a dead process have written: the page cache outlives it."""
        kept = {
            f"{log.topic}-{log.partition}": frozenset(
                batch
                for batch in stored_batches(machine.disk, str(log.directory))
                if log.log_start_offset <= batch.last_offset < log.log_end_offset
            )
            for log in _logs(machine)
            if not self._is_cleaned(log)
        }
        self._kept[machine.broker_id] = machine.disk.root, kept

    def _has_lost_power(self, machine: Machine, cut: Callable[[], None]) -> None:
        """Compare what the replicas had synced with what the power cut leaves."""
        synced = [
            (
                self._judged(log),
                f"{log.topic}-{log.partition}",
                [
                    batch
                    for batch in stored_batches(machine.disk, str(log.directory))
                    if log.log_start_offset <= batch.last_offset < log.durability.recovery_point
                ],
            )
            for log in _logs(machine)
            if not self._is_cleaned(log)
        ]
        self._kept.pop(machine.broker_id, None)
        cut()
        for partition, name, batches in synced:
            left = {batch for path in _copies(machine.disk, name) for batch in stored_batches(machine.disk, path)}
            for batch in batches:
                if batch not in left:
                    self._note(
                        SURVIVES,
                        f"{partition}: replica {machine.broker_id} has lost offset {batch.base_offset} in a power cut, "
                        f"below its recovery point",
                        None,
                    )
                    break

    def _has_started(self, machine: Machine) -> None:
        disk, kept = self._kept.pop(machine.broker_id, (machine.disk.root, {}))
        if disk is not machine.disk.root:
            kept = {}  # it was lost, and the machine got an empty one
        for log in _logs(machine):
            directory = str(log.directory)
            self._compare(machine, log)
            if log.truncation_count:
                continue  # the leader has had it removed
            left = set(stored_batches(machine.disk, directory))
            lost = [batch for batch in kept.get(f"{log.topic}-{log.partition}", ()) if batch not in left]
            if lost and log.log_start_offset <= min(lost).last_offset:
                self._note(
                    SURVIVES,
                    f"{self._judged(log)}: replica {machine.broker_id} has lost offset {min(lost).base_offset} in a "
                    "restart",
                    None,
                )


def _copies(disk: SimulatedDisk, name: str) -> list[str]:
    """Return the directories of which a start chooses that of a replica: it may be on its way to another one."""
    return [
        path
        for path in directories(disk)
        if path.endswith(f"/{name}") or (f"/{name}." in path and path.endswith("-future"))
    ]


def _logs(machine: Machine) -> Iterator[Any]:
    """Yield the logs of a broker that are in service and stand still."""
    process = machine.process
    services = None if process is None else getattr(process.server, "_services", None)
    if services is None:
        return
    for log in list(services.log_manager.logs()):
        if not log.is_offline and not log.planned.count and log.truncation_count % 2 == 0:
            yield log


def stored_batches(disk: SimulatedDisk, directory: str) -> list[PlainBatch]:
    """Return the whole batches in the segments of a replica, up to a damaged one in each segment."""
    folder: Any = disk.find(directory)
    if folder is None:
        return []
    return [
        batch for name in sorted(folder.entries) if name.endswith(".log") for batch in _parsed(_content(folder, name))
    ]


def _content(folder: Any, name: str) -> bytes:
    file = folder.entries[name]
    return bytes(file.read(file.size, 0))


@lru_cache(maxsize=512)
def _parsed(content: bytes) -> tuple[PlainBatch, ...]:
    return tuple(batches_of(content))


def disagreements(log: Any, disk: SimulatedDisk, directory: str, *, was_loaded: bool) -> Iterator[str]:
    """Yield where the state of a log in memory, and what it has derived on its disk, differs from its batches.

    `was_loaded` says whether a start or a truncation may have loaded a snapshot. Snapshots name no ended transactions,
    in Kafka's format as well. So a marker below the snapshot counts as committed, even if the high watermark is lower.
    That is harmless: the outcome of the transaction is durable before its markers are written.
    """
    batches = [batch for batch in stored_batches(disk, directory) if batch.last_offset < log.log_end_offset]
    plain = state_of(batches)
    # What was deleted may be known or not: a start derives everything from what is left, a running broker keeps it.
    has_beginning = log.log_start_offset == 0 and (not batches or batches[0].base_offset == 0)
    if batches and plain.end != log.log_end_offset:
        yield f"the last batch ends at {plain.end}, the log at {log.log_end_offset}"
    yield from _other_epochs(log, plain)
    yield from _other_producers(log, plain, has_beginning=has_beginning)
    stable = plain.last_stable_offset(log.high_watermark)
    folder: Any = disk.find(directory)
    names = () if folder is None else sorted(folder.entries)
    loaded = [int(name[:20]) for name in names if was_loaded and name.endswith(".snapshot")]
    possible = {stable, *(plain.last_stable_offset(log.high_watermark, committed=offset) for offset in loaded)}
    if has_beginning and log.last_stable_offset not in {max(it, log.log_start_offset) for it in possible}:
        yield f"the last stable offset is {log.last_stable_offset}, expected {possible} below {log.high_watermark}"
    indexed = [entry for name in names if name.endswith(".txnindex") for entry in aborted_in(_content(folder, name))]
    if has_beginning and indexed != plain.aborted:
        yield f"the indexes of aborted transactions hold {indexed}, expected {plain.aborted}"
    for name in names:
        if name.endswith(".snapshot") and has_beginning and int(name[:20]) <= log.log_end_offset:
            yield from _other_snapshot(name, _content(folder, name), batches)


def _other_epochs(log: Any, plain: PlainState) -> Iterator[str]:
    known = [(entry.epoch, entry.start_offset) for entry in log.leader_epochs.entries]
    if known and known[-1][1] == log.log_end_offset:
        known.pop()  # a leader's epoch without a record yet
    latest_from = {max(start, log.log_start_offset): epoch for epoch, start in plain.epochs}
    expected = [(epoch, start) for start, epoch in latest_from.items() if start < log.log_end_offset]
    if known != expected:
        yield f"the leader epochs are {known}, expected {expected}"


def _other_producers(log: Any, plain: PlainState, *, has_beginning: bool) -> Iterator[str]:
    entries = log.producer_state.producers
    for producer_id, expected in plain.producers.items():
        entry = entries.get(producer_id)
        wanted = _sequences(expected, log.log_start_offset)
        if entry is None:
            if wanted or has_beginning:
                yield f"producer {producer_id} is unknown"
            continue
        known = [
            (batch.first_sequence, batch.last_sequence, batch.first_offset)
            for batch in entry.batches
            if batch.first_offset >= log.log_start_offset
        ]
        if entry.epoch != expected.epoch or known[-1:] != wanted[-1:] or known != wanted[len(wanted) - len(known) :]:
            yield (
                f"producer {producer_id} has epoch {entry.epoch} and the batches {known}, expected epoch "
                f"{expected.epoch} and {wanted}"
            )
        if has_beginning and entry.coordinator_epoch != expected.coordinator_epoch:
            yield (
                f"producer {producer_id} has coordinator epoch {entry.coordinator_epoch}, expected "
                f"{expected.coordinator_epoch}"
            )
        if has_beginning and entry.current_transaction_first_offset != expected.open_since:
            yield (
                f"the transaction of producer {producer_id} is open since {entry.current_transaction_first_offset}, "
                f"expected {expected.open_since}"
            )
    for producer_id, entry in entries.items():
        if producer_id not in plain.producers and has_beginning:
            yield f"producer {producer_id} is known at offset {entry.last_data_offset}, but has no batch"


def _sequences(producer: PlainProducer, log_start: int) -> list[tuple[int, int, int]]:
    return [
        (batch.first_sequence, batch.last_sequence, batch.base_offset)
        for batch in producer.batches[-KEPT:]
        if batch.base_offset >= log_start
    ]


def _other_snapshot(name: str, content: bytes, batches: list[PlainBatch]) -> Iterator[str]:
    plain = state_of(batch for batch in batches if batch.last_offset < int(name[:20]))
    for entry in snapshot_entries(content):
        expected = plain.producers.get(entry.producer_id)
        if expected is None:
            yield f"{name} names producer {entry.producer_id}, which has no batch below"
            continue
        last = expected.batches[-1] if expected.batches else None
        known = (entry.epoch, entry.last_sequence, entry.last_offset, entry.open_since)
        wanted = (
            expected.epoch,
            -1 if last is None else last.last_sequence,
            -1 if last is None else last.last_offset,
            expected.open_since,
        )
        if known != wanted:
            yield f"{name} has {known} of producer {entry.producer_id}, expected {wanted}"
