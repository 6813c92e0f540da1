"""Reads what brokers keep, from outside: state nodes of ZooKeeper, logs on disks, high watermarks in memory.

Owns the translation into a history. Must not know when it is called, or what is right.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from controller.store.state_store import Create, Operation, SetData
from controller.tree.paths import CONTROLLER, TOPICS
from protocol.ids import id_text
from storage.disk.names import PARTITION_METADATA
from tests.sim.batches import last_offset, opened_batches
from tests.sim.cluster import FOLDERS, Cluster, Machine
from tests.sim.disk import SimulatedDisk
from tests.sim.history import Anomaly, History, LeaderState, LogRecord, Partition, ReplicaLog

_STATE: Final = re.compile(r"/brokers/topics/([^/]+)/partitions/(\d+)/state")
_TOPIC: Final = re.compile(r"/brokers/topics/([^/]+)")
_TOPIC_NODE: Final = re.compile(r"/(?:brokers/topics|config/topics|admin/delete_topics)/([^/]+)")
_REPLICA: Final = re.compile(r"([a-zA-Z0-9._-]+)-(\d+)")
_TOPIC_ID: Final = re.compile(rb"topic_id: ([a-zA-Z0-9_-]{22})")
TRANSACTION_TOPIC: Final = "__transaction_state"
_STATUS: Final = 16
"""Where the status is in a value of that topic: behind int16 version, int64 id, int16 epoch, int32 timeout."""
_EPOCH: Final = slice(10, 12)
_DECISIONS: Final = (b"\x02", b"\x03")
"""PrepareCommit and PrepareAbort."""
ABORT_KEY: Final = b"\x00\x00\x00\x00"
LATEST_WRITES: Final = "only the latest controller writes states"
"""The rule that no controller writes anything about topics once another one has been elected."""


class StateRecorder:
    """Notes each write of a state node of a partition."""

    def __init__(self, cluster: Cluster, history: History) -> None:
        self._cluster = cluster
        self._history = history
        self._latest: dict[Partition, LeaderState] = {}
        self._controller = 0  # the session of the latest controller
        cluster.zookeeper.on_commit.append(self._committed)

    @property
    def latest(self) -> dict[Partition, LeaderState]:
        return self._latest

    def _committed(self, operations: Sequence[Operation], session_id: int) -> None:
        if any(isinstance(operation, Create) and operation.path == CONTROLLER for operation in operations):
            self._history.counts["controller elections"] += 1
            self._controller = session_id
        for operation in operations:
            self._cluster.world.note("store", session_id, type(operation).__name__, operation.path)
            # In older protocols leaders write states. That is judged by these: the leader and its epoch stay.
            is_by_leader = self._history.leaders_write_states and _STATE.fullmatch(operation.path)
            if session_id != self._controller and self._is_of_controller(operation) and not is_by_leader:
                self._note_late(operation)
            if isinstance(operation, Create | SetData):
                found = _STATE.fullmatch(operation.path)
                if found is not None:
                    self._note_state(Partition(found[1], int(found[2])), operation.path)
                elif created := _TOPIC.fullmatch(operation.path):
                    node = json.loads(self._cluster.zookeeper.tree.entries[operation.path].data or b"{}")
                    self._history.incarnation(created[1], node.get("topic_id"))
                    self._history.partition_counts.setdefault(created[1], set()).add(len(node["partitions"]))

    @staticmethod
    def _is_of_controller(operation: Operation) -> bool:
        """Return whether only controllers write this. Every broker may create a topic."""
        is_new_topic = isinstance(operation, Create) and _TOPIC.fullmatch(operation.path)
        return operation.path.startswith(f"{TOPICS}/") and not is_new_topic

    def _note_late(self, operation: Operation) -> None:
        text = f"{operation.path} was written in an earlier session than that of the latest controller"
        self._history.anomalies.append(Anomaly(LATEST_WRITES, text, self._cluster.world.now_us))

    def _note_state(self, partition: Partition, path: str) -> None:
        world, entries = self._cluster.world, self._cluster.zookeeper.tree.entries
        entry = entries[path]
        node = json.loads(entry.data or b"{}")
        topic = json.loads(entries[f"/brokers/topics/{partition.topic}"].data or b"{}")
        partition = Partition(self._history.incarnation(partition.topic, topic.get("topic_id")), partition.index)
        state = LeaderState(
            world.now_us,
            partition,
            node["leader"],
            node["leader_epoch"],
            tuple(node["isr"]),
            entry.version,
            node["controller_epoch"],
            tuple(topic["partitions"].get(str(partition.index), ())),
        )
        before = self._latest.get(partition)
        self._latest[partition] = state
        self._history.leader_states.append(state)
        world.note("state", partition, state.leader, state.leader_epoch, state.isr, state.partition_epoch)
        if before is not None:
            if before.leader != state.leader:
                self._history.counts["elections"] += 1
                if state.leader >= 0 and state.leader not in before.isr:
                    self._history.counts["unclean elections"] += 1
            if before.isr != state.isr:
                self._history.counts["ISR changes"] += 1

    def assignment(self, partition: Partition) -> tuple[int, ...]:
        """Return the present replicas, which the topic node may have changed since the last state."""
        topic = partition.topic.partition("#")[0]
        entry = self._cluster.zookeeper.tree.entries.get(f"/brokers/topics/{topic}")
        if entry is None:
            return ()
        node = json.loads(entry.data or b"{}")
        if self._history.incarnation(topic, node.get("topic_id")) != partition.topic:
            return ()
        return tuple(node["partitions"].get(str(partition.index), ()))

    def is_reassigning(self) -> bool:
        tree = self._cluster.zookeeper.tree
        if "/brokers/topics" not in tree.entries:
            return False
        for topic in tree.children("/brokers/topics"):
            node = json.loads(tree.entries[f"/brokers/topics/{topic}"].data or b"{}")
            if node.get("adding_replicas") or node.get("removing_replicas"):
                return True
        return False

    def are_isrs_complete(self, deleted: set[str]) -> bool:
        return all(
            state.leader >= 0 and set(state.isr) == set(self.assignment(partition))
            for partition, state in self._latest.items()
            if partition.topic not in deleted
        )


def remains_of_topics(cluster: Cluster, history: History) -> dict[str, list[str]]:
    """Return where something of each incarnation is: nodes of ZooKeeper, and brokers with a directory of a replica."""
    places: dict[str, list[str]] = {}
    for path, entry in sorted(cluster.zookeeper.tree.entries.items()):
        if found := _TOPIC_NODE.fullmatch(path):
            topic_id = json.loads(entry.data or b"{}").get("topic_id") if _TOPIC.fullmatch(path) else None
            places.setdefault(history.incarnation(found[1], topic_id), []).append(path)
    for machine in cluster.machines.values():
        for path in directories(machine.disk):
            if found := _REPLICA.fullmatch(path.rpartition("/")[2]):
                written = _TOPIC_ID.search(_content(machine.disk, f"{path}/{PARTITION_METADATA}"))
                topic_id = written[1].decode() if written is not None else None
                places.setdefault(history.incarnation(found[1], topic_id), []).append(f"{machine.host}:{path}")
    return places


def has_offset(disk: SimulatedDisk, partition: Partition, offset: int, *, is_cleaned: bool = False) -> bool:
    """Return whether a record at `offset` is in the log of a replica on this disk.

    What follows a damaged batch, as a power loss leaves it, does not count: the recovery of the log removes it. In a
    log that is cleaned, a later segment is enough.
    """
    segments = [path for path, _ in _segments(disk, directory_of(disk, partition))]
    names = [path for path in segments if int(path[-24:-4]) <= offset]
    if is_cleaned and len(names) < len(segments):
        return True
    return bool(names) and last_offset(_content(disk, names[-1])) >= offset


def copies_of_text(cluster: Cluster, topic: str, text: str) -> int:
    """Return how many machines have a replica of the topic whose segments contain a text."""
    return sum(
        any(
            text.encode() in _content(machine.disk, segment)
            for path in directories(machine.disk)
            if path.rpartition("/")[2].startswith(f"{topic}-")
            for segment, _ in _segments(machine.disk, path)
        )
        for machine in cluster.machines.values()
    )


def copies_of_decision(cluster: Cluster, transactional_id: str, epoch: int, broker: int) -> int | None:
    """Return how many machines have the last PrepareCommit or PrepareAbort that a coordinator has written.

    It is about a transaction of this transactional id and producer epoch.

    None if there is none.
    """
    disk = cluster.machines[broker].disk
    for path in directories(disk):
        name = path.rpartition("/")[2]
        if not name.startswith(f"{TRANSACTION_TOPIC}-"):
            continue
        decided = -1
        for segment, _ in _segments(disk, path):
            for _, records in opened_batches(_content(disk, segment)):
                for record in records:
                    key, value = bytes(record.key or b""), bytes(record.value or b"")
                    is_of_instance = key[4:] == transactional_id.encode() and value[_EPOCH] == epoch.to_bytes(2)
                    if is_of_instance and value[_STATUS : _STATUS + 1] in _DECISIONS:
                        decided = record.offset
        if decided >= 0:
            partition = Partition(TRANSACTION_TOPIC, int(name.rpartition("-")[2]))
            return sum(has_offset(machine.disk, partition, decided) for machine in cluster.machines.values())
    return None


def directories(disk: SimulatedDisk) -> list[str]:
    """Return the paths of all that is in the log directories of a machine."""
    found: list[str] = []
    for folder in FOLDERS:
        node: Any = disk.find(folder)
        found += [] if node is None else [f"{folder}/{name}" for name in sorted(node.entries)]
    return found


def moves_in(disk: SimulatedDisk) -> list[str]:
    """Return the paths of copies of replicas that are on the way to another log directory, or twice."""
    paths = directories(disk)
    replicas = Counter(name for path in paths if _REPLICA.fullmatch(name := path.rpartition("/")[2]))
    return [path for path in paths if path.endswith("-future") or replicas[path.rpartition("/")[2]] > 1]


def directory_of(disk: SimulatedDisk, partition: Partition) -> str:
    """Return the path of a replica, in the first log directory if there is none."""
    paths = [f"{folder}/{partition}" for folder in FOLDERS]
    return next((path for path in paths if disk.find(path) is not None), paths[0])


def _segments(disk: SimulatedDisk, folder: str) -> list[tuple[str, int]]:
    found = disk.find(folder)
    if found is None or not hasattr(found, "entries"):
        return []
    return [(f"{folder}/{name}", 0) for name in sorted(found.entries) if name.endswith(".log")]


def _content(disk: SimulatedDisk, path: str) -> bytes:
    found: Any = disk.find(path)
    return found.read(found.size, 0) if found is not None else b""


def replica_logs(machine: Machine, history: History) -> list[ReplicaLog]:
    """Return the logs of all replicas of a machine, whose broker runs, without those of internal topics."""
    folders: dict[Partition, list[bytes]] = {}
    for directory in directories(machine.disk):
        named = _REPLICA.fullmatch(directory.rpartition("/")[2])
        if named is not None and not named[1].startswith("__"):
            contents = [content for path, content in machine.disk.files_below(directory) if path.endswith(".log")]
            if contents:
                folders.setdefault(Partition(named[1], int(named[2])), []).extend(contents)
    logs = []
    for partition, contents in sorted(folders.items()):
        hosted = hosted_partition(machine, partition)
        if hosted is None:
            continue
        log_start = hosted.log.log_start_offset
        records = [record for content in contents for record in log_records(content) if record.offset >= log_start]
        topic_id = None if hosted.topic_id is None else id_text(hosted.topic_id)
        judged = Partition(history.incarnation(partition.topic, topic_id), partition.index)
        size = sum(map(len, contents))
        logs.append(ReplicaLog(machine.broker_id, judged, log_start, hosted.log.high_watermark, records, size))
    return logs


def log_records(content: bytes) -> list[LogRecord]:
    """Return the records of a segment."""
    found = []
    for header, records in opened_batches(content):
        for record in records:
            if header.is_control:
                value = "ABORT" if record.key == ABORT_KEY else "COMMIT"
            else:
                value = (record.value or b"").decode(errors="replace")
            found.append(
                LogRecord(
                    record.offset,
                    header.partition_leader_epoch,
                    value,
                    header.producer_id,
                    header.is_control,
                    header.is_transactional,
                    record.timestamp,
                )
            )
    return found


def hosted_partition(machine: Machine, partition: Partition) -> Any:
    """Return the partition as its broker knows it, or None."""
    process = machine.process
    if process is None or not hasattr(process.server, "_services"):
        return None
    return process.server._services.replica_manager.find(partition.topic, partition.index)
