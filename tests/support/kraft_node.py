"""A real Apache Kafka 4.1 without ZooKeeper: one process that is broker and controller.

Owns its command line and server.properties. A folder becomes that of such a node by `metadata-copy --to-kraft`, or by
`empty_node`, which needs no JVM.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Final
from uuid import UUID

from tests.support.apache_kafka import KRAFT_VERSION, TEST_JVM_OPTIONS, kafka_java_command, kraft_jars
from tests.support.class_archive import archive_options
from tests.support.ivy import CACHE
from tests.support.metadata_probe import is_serving
from tests.support.ports import quiet_port
from tests.support.processes import ServerProcess
from tools.kraft import metadata_log, node_folders
from tools.kraft.image import ClusterImage, records_of
from tools.kraft.metadata_log import SnapshotId
from tools.kraft.node_folders import KRAFT_VERSION as KRAFT_FOLDER
from tools.kraft.node_folders import ZOOKEEPER_VERSION, NodeFolder
from tools.kraft.znodes import LEVELS

CLUSTER_ID = "7ym0r3ycTc-XAnwnQmXzjg"
CONTROLLER_LISTENER = "CONTROLLER"
NO_FEATURES: Mapping[str, int] = MappingProxyType({})

NEWER_GROUPS: Final = {
    "group.coordinator.rebalance.protocols": "classic,consumer,share",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}
"""Settings with which one broker, of Kafka 4.1 or Milena, serves groups of all protocols."""


class KraftNode(ServerProcess):
    """One node on 127.0.0.1; ready when it knows `broker_count` brokers."""

    def __init__(
        self,
        folder: Path,
        log_dirs: str,
        *,
        node_id: int = 0,
        port: int = 0,
        controller: tuple[int, int] | None = None,
        broker_count: int = 1,
        overrides: Mapping[str, str] | None = None,
        jvm_options: Sequence[str] | None = None,
        classes: Sequence[Path] = (),
    ) -> None:
        """
        Args:
            folder: of its settings and its log.
            classes: folders of further classes, such as plug-ins.
            controller: the id and the port of the node that is the controller, None if it is this one.
            jvm_options: those of a quick start if there are none.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self.log_dir = Path(log_dirs.partition(",")[0])
        settings = folder / "kraft.properties"
        controller_id, self.controller_port = controller or (node_id, quiet_port())
        listener = "" if controller else f",{CONTROLLER_LISTENER}://127.0.0.1:{self.controller_port}"

        def properties(port: int) -> Mapping[str, str]:
            listeners = (overrides or {}).get("listeners", "PLAINTEXT://127.0.0.1:{port}") + listener
            return {
                "process.roles": "broker" if controller else "broker,controller",
                "node.id": str(node_id),
                "controller.quorum.voters": f"{controller_id}@127.0.0.1:{self.controller_port}",
                "controller.listener.names": CONTROLLER_LISTENER,
                "listener.security.protocol.map": ",".join(
                    f"{name}:{protocol}"
                    for name, protocol in (
                        (CONTROLLER_LISTENER, "PLAINTEXT"),
                        ("PLAINTEXT", "PLAINTEXT"),
                        ("SASL_PLAINTEXT", "SASL_PLAINTEXT"),
                    )
                ),
                "log.dirs": log_dirs,
                "offsets.topic.replication.factor": "1",
                "transaction.state.log.replication.factor": "1",
                "transaction.state.log.min.isr": "1",
                "group.initial.rebalance.delay.ms": "0",
                **(overrides or {}),
                "listeners": listeners.replace("{port}", str(port)),
            }

        options = (*TEST_JVM_OPTIONS, *_archive_options()) if jvm_options is None else jvm_options
        super().__init__(
            f"Apache Kafka {KRAFT_VERSION} {node_id}",
            kafka_java_command(
                [kraft_jars() / "*", *classes], "kafka.Kafka", [str(settings)], options=options, log_level="WARN"
            ),
            folder / "kraft.log",
            lambda port: is_serving(port, broker_count),
            settings=settings,
            properties=properties,
            port=port or quiet_port(),
        )


def empty_node(folder: Path, node_id: int = 0, features: Mapping[str, int] = NO_FEATURES) -> None:
    """Make a new folder the log directory of a node without topics; `features` are further ones with their levels."""
    folder.mkdir(parents=True)
    new = NodeFolder(folder, ZOOKEEPER_VERSION, node_id, CLUSTER_ID, UUID(int=1 << 64 | node_id))
    records = list(records_of(ClusterImage(features={**LEVELS, **features})))
    end = SnapshotId(len(records), 1)
    node_folders.write_snapshot(new, metadata_log.snapshot(records, end, 0), end)
    node_folders.write_meta_properties(NodeFolder(folder, KRAFT_FOLDER, node_id, CLUSTER_ID, new.directory_id))


@cache
def _archive_options() -> tuple[str, ...]:
    """Return the options for an archive of the classes that a starting node has loaded."""

    def run(option: str) -> None:
        with tempfile.TemporaryDirectory() as folder:
            empty_node(Path(folder) / "data")
            with KraftNode(Path(folder), f"{folder}/data", jvm_options=(*TEST_JVM_OPTIONS, option)):
                pass

    jars = sorted(kraft_jars().glob("*.jar"))
    return tuple(archive_options(f"apache-kafka-{KRAFT_VERSION}", jars, CACHE / "archives", run))
