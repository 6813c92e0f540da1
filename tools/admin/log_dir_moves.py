"""Moves of replicas between the log directories of a broker, for kafka-reassign-partitions.

Owns where each replica is, the state of a move with its text, and how moves begin. Must not know options.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from protocol.errors import ErrorCode, KafkaError
from protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from tools.admin.reassignment_plans import Replica
from tools.client.admin_client import AdminClient

RETRY_INTERVAL_S: Final = 0.1
_NOT_YET: Final = frozenset({ErrorCode.REPLICA_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER})


class MoveState(NamedTuple):
    """Where a replica is, and where a plan wants it. None for a directory that is not known."""

    replica: Replica
    current: str | None
    future: str | None
    target: str
    target_is_offline: bool

    @property
    def is_done(self) -> bool:
        """Whether nothing is being moved."""
        return self.future is None

    def __str__(self) -> str:
        replica = self.replica
        where = f"Partition {replica.topic}-{replica.partition}"
        on_broker = f"{where} on broker {replica.broker_id}"
        if self.current is None:
            if self.target_is_offline:
                return (
                    f"{where} is not found in any live log dir on broker {replica.broker_id}. There is likely an "
                    "offline log directory on the broker."
                )
            return f"{where} cannot be found in any live log directory on broker {replica.broker_id}."
        if self.future is not None:
            if self.future == self.target:
                return f"Reassignment of replica {replica} is still in progress."
            return f"{on_broker} is being moved to log dir {self.future} instead of {self.target}."
        if self.current == self.target:
            return f"Reassignment of replica {replica} completed successfully."
        return f"{on_broker} is not being moved from log dir {self.current} to {self.target}."


def move_states(admin: AdminClient, targets: Mapping[Replica, str]) -> list[MoveState]:
    """Return the state of each replica that a plan puts into a directory. Raises KafkaError and CallTimedOut."""
    found: list[MoveState] = []
    for broker_id, replicas in _by_broker(targets).items():
        admin.metadata([])
        response = admin.call(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse, broker_id=broker_id)
        current: dict[tuple[str, int], str] = {}
        future: dict[tuple[str, int], str] = {}
        for result in response.results:
            for topic in result.topics:
                for partition in topic.partitions:
                    place = future if partition.is_future_key else current
                    place[topic.name, partition.partition_index] = result.log_dir
        offline = any(result.error_code for result in response.results)
        for replica in replicas:
            name = (replica.topic, replica.partition)
            found.append(MoveState(replica, current.get(name), future.get(name), targets[replica], offline))
    return sorted(found)


def begin_moves(admin: AdminClient, targets: Mapping[Replica, str], timeout_ms: int) -> Iterator[list[Replica]]:
    """Begin the moves; yield the replicas whose moves have begun, as they do.

    A replica that a broker is about to get is tried again until the timeout. Raises KafkaError for the first other
    failure, and TimeoutError, which names the replicas that are left.
    """
    pending = dict(targets)
    deadline_s = time.monotonic() + timeout_ms / 1000
    while pending:
        begun: list[Replica] = []
        for broker_id, replicas in _by_broker(pending).items():
            for replica, code in _alter(admin, broker_id, {replica: pending[replica] for replica in replicas}):
                if code == ErrorCode.NONE:
                    begun.append(replica)
                elif code not in _NOT_YET:
                    raise KafkaError(code)
        for replica in begun:
            del pending[replica]
        if begun:
            yield sorted(begun)
        if pending:
            if time.monotonic() > deadline_s:
                plural = "" if len(pending) == 1 else "s"
                names = ",".join(map(str, sorted(pending)))
                raise TimeoutError(f"Timed out before log directory move{plural} could be started for: {names}")
            time.sleep(RETRY_INTERVAL_S)


def _alter(admin: AdminClient, broker_id: int, targets: Mapping[Replica, str]) -> Iterator[tuple[Replica, ErrorCode]]:
    topics_by_dir: defaultdict[str, defaultdict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for replica, path in targets.items():
        topics_by_dir[path][replica.topic].append(replica.partition)
    request = AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDir(
                path=path,
                topics=[AlterReplicaLogDirTopic(name=name, partitions=found) for name, found in topics.items()],
            )
            for path, topics in topics_by_dir.items()
        ]
    )
    response = admin.call(request, AlterReplicaLogDirsResponse, broker_id=broker_id)
    for topic in response.results:
        for partition in topic.partitions:
            yield Replica(topic.topic_name, partition.partition_index, broker_id), ErrorCode(partition.error_code)


def _by_broker(targets: Mapping[Replica, str]) -> dict[int, list[Replica]]:
    found: defaultdict[int, list[Replica]] = defaultdict(list)
    for replica in sorted(targets):
        found[replica.broker_id].append(replica)
    return dict(found)
