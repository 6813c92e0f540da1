"""Which replica a consumer reads: the leader, or an in-sync follower that is near the consumer (KIP-392).

Owns the choice: which replicas are candidates, and the selector of Kafka that compares racks. Must not know requests,
or how a selector of another kind is loaded. A follower serves every consumer that asks it; only a leader chooses.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from broker.replica.partition import Partition

logger = logging.getLogger("kafka.server.ReplicaManager")


class ReadingClient(NamedTuple):
    """What is known of the consumer."""

    rack: str
    """`client.rack`; empty if the client has none."""
    client_id: str
    host: str
    principal: str
    listener: str


class ReplicaView(NamedTuple):
    """A replica from which the consumer can read at its offset."""

    broker_id: int
    host: str
    port: int
    rack: str | None
    log_end_offset: int
    behind_ms: int
    """How long ago the replica last had everything that the leader had; 0 for the leader."""


class ReplicaSelector(Protocol):
    """A class of `replica.selector.class`."""

    def select(
        self, topic: str, partition: int, client: ReadingClient, leader: ReplicaView, replicas: Sequence[ReplicaView]
    ) -> ReplicaView | None:
        """Return one of `replicas`, which include the leader; None stands for the leader."""


class RackAwareSelector:
    """Kafka's selector: the leader if it is in the client's rack, or else the most current replica that is."""

    def select(
        self, topic: str, partition: int, client: ReadingClient, leader: ReplicaView, replicas: Sequence[ReplicaView]
    ) -> ReplicaView | None:
        near = [replica for replica in replicas if client.rack and replica.rack == client.rack]
        if not near or leader in near:
            return leader
        return max(near, key=lambda replica: (replica.log_end_offset, -replica.behind_ms, replica.broker_id))


class Node(Protocol):
    """A live broker: `broker.cluster.metadata_cache.BrokerNode`."""

    @property
    def rack(self) -> str | None: ...
    @property
    def endpoints(self) -> Mapping[str, tuple[str, int]]: ...


class NearReads:
    """Chooses for the partitions that this broker leads."""

    def __init__(
        self,
        selector: ReplicaSelector,
        broker_id: int,
        brokers: Callable[[], Mapping[int, Node]],
        monotonic_ms: Callable[[], int],
    ) -> None:
        """`brokers()` returns the live brokers by id."""
        self._selector = selector
        self._broker_id = broker_id
        self._brokers = brokers
        self._monotonic_ms = monotonic_ms
        self._failed = False

    def for_client(
        self, rack: str, client_id: str, host: str, principal: str, listener: str
    ) -> Callable[[Partition, int], int | None]:
        """Return `preferred` for one client, as a function of the partition and the fetch offset."""
        client = ReadingClient(rack, client_id, host, principal, listener)
        return lambda partition, fetch_offset: self.preferred(partition, fetch_offset, client)

    def preferred(self, partition: Partition, fetch_offset: int, client: ReadingClient) -> int | None:
        """Return the id of the follower that the client had better read; None for the leader.

        Candidates have records from `fetch_offset` on, are in sync, alive and known on the client's listener.
        """
        if not partition.is_leader or partition.is_alone:
            return None
        leader = self._view(self._broker_id, client.listener, partition.log.log_end_offset, 0)
        if leader is None:
            return None
        replicas = [leader]
        now_ms = self._monotonic_ms()
        for broker_id in partition.leadership.isr:
            progress = partition.progress_of(broker_id)
            if progress is not None and progress.log_start_offset <= fetch_offset <= progress.log_end_offset:
                view = self._view(
                    broker_id, client.listener, progress.log_end_offset, max(now_ms - progress.caught_up_ms, 0)
                )
                if view is not None:
                    replicas.append(view)
        if len(replicas) == 1:
            return None
        selected = self._select(partition, client, leader, replicas)
        return None if selected.broker_id == self._broker_id else selected.broker_id

    def _view(self, broker_id: int, listener: str, log_end_offset: int, behind_ms: int) -> ReplicaView | None:
        node = self._brokers().get(broker_id)
        endpoint = None if node is None else node.endpoints.get(listener)
        if node is None or endpoint is None:
            return None
        return ReplicaView(broker_id, *endpoint, node.rack, log_end_offset, behind_ms)

    def _select(
        self, partition: Partition, client: ReadingClient, leader: ReplicaView, replicas: Sequence[ReplicaView]
    ) -> ReplicaView:
        """Return the selected replica, or the leader if the selector fails, which is logged once."""
        name = type(self._selector).__qualname__
        try:
            selected = self._selector.select(partition.topic, partition.partition, client, leader, replicas)
        except Exception:
            if not self._failed:
                logger.exception("the replica selector %s failed; consumers read from leaders", name)
            self._failed = True
            return leader
        if selected is None or selected in replicas:
            return selected or leader
        if not self._failed:
            logger.error("the replica selector %s returned %r, which is none of the replicas", name, selected)
        self._failed = True
        return leader
