"""What a client that fails over asks a cluster: the copies that it has, and where a group continues.

`RemoteClusterUtils` and `MirrorClient` in Kafka. Owns the questions. Must not know connectors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Self

from base.topic_partition import TopicPartition
from spark_jobs.connect.base.definitions import Definition
from spark_jobs.connect.mirror import policies
from spark_jobs.connect.mirror.cluster import Cluster, Position
from spark_jobs.connect.mirror.connector_settings import BASE, TARGET, ConnectorSettings, is_of_cluster
from spark_jobs.connect.mirror.formats import Checkpoint
from spark_jobs.connect.mirror.topic_reader import TopicReader

UNKNOWN_HOPS: Final = -1
_ROLE: Final = "mirror-client"
_DEFINITION: Final = Definition(BASE)


class MirrorClient:
    """Asks one cluster. Not thread-safe; use as a context manager. All methods raise ConnectError."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        """`settings` are those of a client, with Java's names, and those of the replication policy."""
        prefixed = {f"target.cluster.{key}" if is_of_cluster(key) else key: value for key, value in settings.items()}
        self._settings = ConnectorSettings(_DEFINITION, {policies.SOURCE_ALIAS: "source", **prefixed})
        self._policy = policies.replication_policy(settings)
        self._cluster = Cluster(_ROLE, self._settings.admin(TARGET), self._settings.admin_timeout_ms)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._cluster.close()

    def replication_hops(self, upstream_alias: str) -> int:
        """Return by how many flows the nearest path from a cluster leads here, `UNKNOWN_HOPS` without heartbeats."""
        hops = (list(self._sources(topic)) for topic in self.heartbeat_topics())
        return min((found.index(upstream_alias) + 1 for found in hops if upstream_alias in found), default=UNKNOWN_HOPS)

    def heartbeat_topics(self) -> set[str]:
        return {topic for topic in self._topics() if policies.is_heartbeats_topic(self._policy, topic)}

    def checkpoint_topics(self) -> set[str]:
        return set(filter(self._policy.is_checkpoints_topic, self._topics()))

    def upstream_clusters(self) -> set[str]:
        """Return the aliases of all clusters from which heartbeats come."""
        return {source for topic in self.heartbeat_topics() for source in self._sources(topic)}

    def remote_topics(self) -> set[str]:
        """Return the topics that are copies."""
        policy = self._policy
        return {
            topic for topic in self._topics() if not policy.is_internal(topic) and policy.source_of(topic) is not None
        }

    def translated_positions(self, group: str, source_alias: str, timeout_s: float) -> dict[TopicPartition, Position]:
        """Return where a group continues, by its checkpoints from a cluster; topics are named as here."""
        topic = self._policy.checkpoints_topic(source_alias)
        reader = TopicReader(topic, self._settings.consumer(TARGET, _ROLE), Checkpoint.from_record)
        try:
            found = list(reader.to_end(timeout_s))
        finally:
            reader.close()
        return {
            (each.topic, each.partition): Position(each.downstream_offset, each.metadata)
            for each in found
            if each.group == group
        }

    def _topics(self) -> list[str]:
        return list(self._cluster.partitions())

    def _sources(self, topic: str) -> Iterator[str]:
        """Yield the clusters through which a topic came, from the nearest one on, each once."""
        seen = set()
        while (source := self._policy.source_of(topic)) is not None and source not in seen:
            seen.add(source)
            yield source
            topic = self._policy.upstream_topic(topic) or topic
