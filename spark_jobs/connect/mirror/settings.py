"""The file of a dedicated MirrorMaker, such as `mm2.properties`, and the settings that follow for each flow.

    clusters = A, B
    A.bootstrap.servers = a:9092        of a cluster: for its clients, or below producer., consumer. and admin.
    A->B.enabled = true                 of a flow: for its connectors
    tasks.max = 4                       of all flows, and of clusters if they secure a connection

Names and precedence are those of Kafka 3.9. What it would fail with later, or silently ignore, is an error or a warning
here: flows between unknown clusters, clusters without an address, and settings that nothing reads.

Owns the file. Must not know connectors and workers beyond the names of their settings.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from base import properties
from base.config_providers import PROVIDERS
from spark_jobs.connect.base.connector_settings import SOURCE_SETTINGS
from spark_jobs.connect.base.definitions import REQUIRED, Definition, Importance, Kind, Setting, not_empty, parse
from spark_jobs.connect.base.errors import ConfigError
from spark_jobs.connect.mirror.connector_settings import (
    CHECKPOINT_DEFINITION,
    EMIT_HEARTBEATS,
    ENABLED,
    HEARTBEAT_DEFINITION,
    OLD_NAMES,
    SOURCE_DEFINITION,
    TARGET_ALIAS,
    entries_with_prefix,
    is_of_cluster,
)
from spark_jobs.connect.mirror.policies import SOURCE_ALIAS

logger = logging.getLogger("org.apache.kafka.connect.mirror.MirrorMakerConfig")

CLUSTERS: Final = "clusters"
INTERNAL_REST: Final = "dedicated.mode.enable.internal.rest"

CONNECTORS: Mapping[str, Definition] = {
    "MirrorSourceConnector": SOURCE_DEFINITION,
    "MirrorHeartbeatConnector": HEARTBEAT_DEFINITION,
    "MirrorCheckpointConnector": CHECKPOINT_DEFINITION,
}
"""The connectors of each flow, by the names under which they run."""
PACKAGE: Final = "org.apache.kafka.connect.mirror."

_CLIENTS: Final = ("producer", "consumer", "admin")
_BYTES: Final = "org.apache.kafka.connect.converters.ByteArrayConverter"
_OF_WORKERS: Final = (
    "offset.storage", "config.storage", "status.storage", "key.converter", "value.converter", "header.converter",
    "task", "worker", "replication.policy",
)  # fmt: skip
"""What settings of all workers begin with; others are those of a cluster, such as `B.offset.flush.interval.ms`."""
_OF_REST: Final = ("listeners", "rest.", "admin.listeners", "response.http.headers.config", "listeners.")
_DEFINITION: Final = Definition(
    [
        Setting(CLUSTERS, Kind.LIST, REQUIRED, Importance.HIGH, "The aliases of the clusters.", not_empty),
        Setting(
            INTERNAL_REST, Kind.BOOLEAN, False, Importance.HIGH,
            "Whether the workers of one flow reach each other, so that several nodes share its work.",
        ),
    ]
)  # fmt: skip


class Flow(NamedTuple):
    """A pair of clusters; its connectors run at the target."""

    source: str
    target: str

    def __str__(self) -> str:
        return f"{self.source}->{self.target}"


class MirrorMakerSettings:
    """The settings of a file. Those of workers and connectors may have variables of config providers."""

    def __init__(self, given: Mapping[str, str]) -> None:
        """Raises ConfigError, which names the setting."""
        self._given = dict(given)
        values = _DEFINITION.parse(given)
        self.clusters: Sequence[str] = list(dict.fromkeys(values[CLUSTERS]))
        self.enables_internal_rest: bool = values[INTERNAL_REST]
        self._check_flows()
        self.flows: Sequence[Flow] = [
            flow
            for source in self.clusters
            for target in self.clusters
            if source != target and self._runs(flow := Flow(source, target))
        ]
        for alias in dict.fromkeys(alias for flow in self.flows for alias in flow):
            if not self._cluster(alias).get("bootstrap.servers", "").strip():
                raise ConfigError(f"Missing required configuration {alias}.bootstrap.servers: expected host:port")
        for flow in self.flows:
            self._check_connectors(flow)
        self._warn_unused()

    @classmethod
    def from_file(cls, path: str | Path) -> MirrorMakerSettings:
        """Raises ConfigError."""
        try:
            return cls(properties.load(path))
        except (OSError, ValueError) as error:
            raise ConfigError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error

    def flows_to(self, targets: Sequence[str]) -> Sequence[Flow]:
        """Return the flows to some clusters, without `targets` to all. Raises ConfigError if there is none."""
        for alias in targets:
            if alias not in self.clusters:
                raise ConfigError(f"{alias} is not one of {CLUSTERS}: {', '.join(self.clusters)}")
        found = [flow for flow in self.flows if not targets or flow.target in targets]
        if not found:
            raise ConfigError(f"there is no flow to {', '.join(targets or self.clusters)}: set SOURCE->TARGET.enabled")
        return found

    def worker(self, flow: Flow) -> dict[str, str]:
        """Return the settings of the distributed worker of a flow."""
        own = {**self._cluster(flow.target), **self._beginning_with(*_OF_WORKERS), **self._beginning_with(PROVIDERS)}
        return {
            "client.id": str(flow),
            "group.id": f"{flow.source}-mm2",
            "offset.storage.topic": f"mm2-offsets.{flow.source}.internal",
            "status.storage.topic": f"mm2-status.{flow.source}.internal",
            "config.storage.topic": f"mm2-configs.{flow.source}.internal",
            "key.converter": _BYTES,
            "value.converter": _BYTES,
            "header.converter": _BYTES,
            **own,
        }

    def rest(self) -> dict[str, str]:
        """Return the settings of the REST interface that workers of one flow use among themselves."""
        return self._beginning_with(*_OF_REST)

    def connectors(self, flow: Flow) -> dict[str, dict[str, str]]:
        """Return the settings of the three connectors of a flow, by their class names without the package."""
        return {class_name: self._connector(flow, class_name) for class_name in CONNECTORS}

    def _connector(self, flow: Flow, class_name: str) -> dict[str, str]:
        return {
            "name": class_name,
            "connector.class": f"{PACKAGE}{class_name}",
            SOURCE_ALIAS: flow.source,
            TARGET_ALIAS: flow.target,
            ENABLED: "false",
            **{key: value for key, value in self._given.items() if _is_of_all_connectors(key)},
            **self._beginning_with(PROVIDERS, "replication.policy"),
            **_prefixed("source.", self._cluster(flow.source)),
            **_prefixed("target.", self._cluster(flow.target)),
            **entries_with_prefix(self._given, f"{flow}."),
        }

    def _cluster(self, alias: str) -> dict[str, str]:
        """Return the settings of a cluster, with those of its clients: each has its own, or that of the cluster."""
        own = entries_with_prefix(self._given, f"{alias}.")
        common = {key: value for key, value in self._given.items() if is_of_cluster(key)}
        shared = {**common, **{key: value for key, value in own.items() if is_of_cluster(key)}}
        for_clients = {f"{kind}.{key}": value for kind in _CLIENTS for key, value in shared.items()}
        return {**for_clients, **shared, **own}

    def _beginning_with(self, *prefixes: str) -> dict[str, str]:
        return {key: value for key, value in self._given.items() if key.startswith(prefixes)}

    def _runs(self, flow: Flow) -> bool:
        """Whether a flow has workers: it mirrors, or it sends heartbeats that the flow back mirrors."""
        sends = self._switch(f"{EMIT_HEARTBEATS}.enabled", default=True)
        sends = self._switch(f"{flow}.{EMIT_HEARTBEATS}.enabled", default=sends)
        return self._switch(f"{flow}.{ENABLED}", default=False) or sends

    def _switch(self, name: str, *, default: bool) -> bool:
        return bool(parse(name, Kind.BOOLEAN, self._given[name])) if name in self._given else default

    def _check_flows(self) -> None:
        for key in self._given:
            source, arrow, rest = key.partition("->")
            if not arrow:
                continue
            targets = [alias for alias in self.clusters if rest.startswith(f"{alias}.")]
            if source not in self.clusters or not targets or source in targets:
                raise ConfigError(
                    f"{key} is not of a flow between two of {CLUSTERS}: expected SOURCE->TARGET.setting with "
                    f"{', '.join(self.clusters)}"
                )

    def _check_connectors(self, flow: Flow) -> None:
        """Raise ConfigError for the first invalid setting. Values of config providers are not known yet."""
        for class_name, config in self.connectors(flow).items():
            known = {key: value for key, value in config.items() if "${" not in value}
            try:
                CONNECTORS[class_name].parse(known)
            except ConfigError as error:
                raise ConfigError(f"{flow}, {class_name}: {error}") from error

    def _warn_unused(self) -> None:
        for key in self._given:
            if not self._is_used(key):
                logger.warning("%s is not used: is it a setting of a cluster (CLUSTER.%s) or a flow?", key, key)

    def _is_used(self, key: str) -> bool:
        prefixes = (*_OF_WORKERS, *_OF_REST, PROVIDERS, *(f"{alias}." for alias in self.clusters))
        return (
            key in (CLUSTERS, INTERNAL_REST)
            or "->" in key
            or key.startswith(prefixes)
            or is_of_cluster(key)
            or _is_of_all_connectors(key)
        )


def _is_of_all_connectors(key: str) -> bool:
    return key in _CONNECTOR_KEYS or (is_of_cluster(key) and key != "bootstrap.servers")


def _connector_keys() -> Iterator[str]:
    for definition in (SOURCE_SETTINGS, *CONNECTORS.values()):
        yield from (each.name for each in definition)
    yield from OLD_NAMES


def _prefixed(prefix: str, settings: Mapping[str, str]) -> dict[str, str]:
    """Put `source.` before settings of clients, and `source.cluster.` before others."""
    return {
        f"{prefix if key.startswith(_CLIENTS) else f'{prefix}cluster.'}{key}": value for key, value in settings.items()
    }


_CONNECTOR_KEYS: Final = frozenset(_connector_keys())
