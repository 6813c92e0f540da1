"""metadata-copy: copies a cluster's metadata between ZooKeeper, the embedded store of a single broker, and the
coordination server of a cluster on one machine.

This allows a data directory to change hands: the brokers stop, the metadata is copied, and the other kind of broker
starts on the same files. The coordination server stops with its cluster: the tool runs it while it copies.

Owns which nodes make up a cluster, and the order in which they are written. Must not know their contents.

The target becomes equal to the source: nodes that the source does not have are deleted. So a target must be new or of
the same cluster, and no broker may run on either side. Ephemeral nodes and sequential notifications between brokers are
not copied: every broker reads everything when it starts. An interrupted copy can be repeated; until it is complete, a
new target has no cluster id, and no broker of that cluster starts on it.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Final

from controller import paths
from controller.embedded.sqlite_store import METADATA_FILE
from controller.state_store import Create, Delete, SetData
from tools.base.command_line import CommandLine, UsageError, run_tool
from tools.launch.coordination_thread import COORDINATION_FILE, CoordinationThread
from tools.zookeeper.znode_trees import (
    Change,
    EmbeddedTree,
    MissingNodeError,
    Tree,
    TreeError,
    TreeNode,
    TreeUnavailableError,
    open_zookeeper,
)

CHANGES_PER_BATCH: Final = 200
KILLED_BROKERS_S: Final = 10.0
KILLED_BROKERS_POLL_S: Final = 0.2

_NOTIFICATIONS: Final = (
    paths.CONFIG_CHANGES,
    paths.ISR_CHANGE_NOTIFICATIONS,
    paths.LOG_DIR_EVENT_NOTIFICATIONS,
    "/delegation_token/token_changes",
    "/kafka-acl-changes",
    "/kafka-acl-extended-changes",
)
# The nodes of a cluster. An ensemble without a chroot may also hold nodes of other systems.
_ROOTS: Final = (
    "/admin",
    "/brokers",
    "/cluster",
    "/config",
    "/consumers",
    paths.CONTROLLER_EPOCH,
    "/delegation_token",
    paths.FEATURE,
    paths.ISR_CHANGE_NOTIFICATIONS,
    "/kafka-acl",
    "/kafka-acl-changes",
    "/kafka-acl-extended",
    "/kafka-acl-extended-changes",
    paths.PRODUCER_ID_BLOCK,
    paths.LOG_DIR_EVENT_NOTIFICATIONS,
    paths.MIGRATION,
)


class CopyError(Exception):
    """Nothing was copied; the text names the problem."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status: 0 if the target is equal to the source."""
    return run_tool(_command_line(), _run, arguments)


def _command_line() -> CommandLine:
    line = CommandLine(
        "metadata-copy",
        "This tool copies the metadata of a cluster between ZooKeeper, the embedded store of a broker that runs alone, "
        "and kafka-cluster-start, so that data directories can be handed from Apache Kafka to Milena and back.",
        help_succeeds=True,
    )
    connect = "ZooKeeper's addresses as in zookeeper.connect: host:port,.../chroot."
    folders = f"A broker's log.dirs, separated by commas: each holds a copy of its metadata in {METADATA_FILE}"
    cluster = "The folder that was --data of kafka-cluster-start, which must be stopped."
    line.add_option("--from-zookeeper", value="urls", help_text=f"Copy from here. {connect}")
    line.add_option("--from-cluster", value="folder", help_text=f"Copy from here. {cluster}")
    line.add_option("--from-log-dir", value="folders", help_text=f"Copy from here. {folders}; the newest is read.")
    line.add_option("--to-zookeeper", value="urls", help_text=f"Copy to here. {connect}")
    line.add_option("--to-cluster", value="folder", help_text=f"Copy to here. {cluster}")
    line.add_option("--to-log-dir", value="folders", help_text=f"Copy to here. {folders}; all are written.")
    return line


def _run(line: CommandLine, options: argparse.Namespace) -> int:
    for side in ("from", "to"):
        line.forbid(options, f"--{side}-zookeeper", f"--{side}-log-dir", f"--{side}-cluster")
        line.forbid(options, f"--{side}-log-dir", f"--{side}-cluster")
    if not (options.from_zookeeper or options.from_log_dir or options.from_cluster):
        raise UsageError("Please specify either --from-zookeeper, --from-log-dir or --from-cluster")
    if not (options.to_zookeeper or options.to_log_dir or options.to_cluster):
        raise UsageError("Please specify either --to-zookeeper, --to-log-dir or --to-cluster")
    try:
        print(_copy(options))
    except (CopyError, TreeError, TreeUnavailableError, ValueError, OSError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    return 0


def _copy(options: argparse.Namespace) -> str:
    with (
        _opened(options.from_zookeeper, options.from_log_dir, options.from_cluster, is_target=False) as (
            source,
            source_name,
        ),
        _opened(options.to_zookeeper, options.to_log_dir, options.to_cluster, is_target=True) as (target, target_name),
    ):
        cluster_id = _cluster_id(source)
        if cluster_id is None:
            raise CopyError(f"{source_name} holds no metadata of a cluster")
        found = _cluster_id(target)
        if found not in (None, cluster_id):
            raise CopyError(f"{target_name} is the metadata of cluster {found}, expected {cluster_id} or none")
        wanted = _read(source)
        _write(target, wanted, _read(target))
    topics = sum(path.startswith(f"{paths.TOPICS}/") and path.count("/") == 3 for path in wanted)
    return f"Copied {topics} topics of cluster {cluster_id} from {source_name} to {target_name}"


def _cluster_id(tree: Tree) -> str | None:
    try:
        return paths.decode_cluster_id(tree.get(paths.CLUSTER_ID).data)
    except MissingNodeError:
        return None


def _refuse_running_brokers(tree: Tree, name: str) -> None:
    try:
        running = tree.children(paths.BROKER_IDS)
    except MissingNodeError:
        return
    if running:
        raise CopyError(
            f"brokers {', '.join(sorted(running))} are registered in {name}: stop them first "
            "(one that was killed stays until its session is over, 18 s by default)"
        )


def _read(tree: Tree) -> dict[str, TreeNode]:
    """Return every node to copy, parents first."""
    found: dict[str, TreeNode] = {}
    pending = list(reversed(_ROOTS))
    while pending:
        path = pending.pop()
        try:
            node = tree.get(path)
            names = () if path in _NOTIFICATIONS else tree.children(path)
        except MissingNodeError:
            continue
        if not node.stat.ephemeral_owner:
            found[path] = node
            pending += [f"{path}/{name}" for name in sorted(names, reverse=True)]
    return found


def _write(target: Tree, wanted: Mapping[str, TreeNode], found: Mapping[str, TreeNode]) -> None:
    for batch in _batches(_changes(wanted, found)):
        target.apply(batch)


def _changes(wanted: Mapping[str, TreeNode], found: Mapping[str, TreeNode]) -> Iterator[Change]:
    """Return the changes: children are deleted before and created after their parents, the cluster id last."""
    yield from (Delete(path) for path in reversed(list(found)) if path not in wanted)
    for path, node in wanted.items():
        if path == paths.CLUSTER_ID:
            continue
        if path not in found:
            yield Create(path, node.data)
        elif found[path].data != node.data:
            yield SetData(path, node.data)
        if path == paths.BROKER_SEQUENCE_ID:
            # The version of this node is the last generated broker id.
            version = found[path].stat.data_version if path in found else 0
            yield from (SetData(path, node.data) for _ in range(version, node.stat.data_version))
    if paths.CLUSTER_ID not in found:
        yield Create(paths.CLUSTER_ID, wanted[paths.CLUSTER_ID].data)


def _batches(changes: Iterator[Change]) -> Iterator[list[Change]]:
    while batch := list(islice(changes, CHANGES_PER_BATCH)):
        yield batch


@contextmanager
def _opened(
    connect: str | None, folder: str | None, cluster: str | None, *, is_target: bool
) -> Iterator[tuple[Tree, str]]:
    """Open the tree; also returns its name for messages."""
    tree: Tree
    if cluster is not None:
        with _coordination(Path(cluster), is_target=is_target) as (tree, name):
            yield tree, name
        return
    if connect is not None:
        name = f"ZooKeeper {connect}"
        tree = open_zookeeper(connect, is_chroot_created=is_target)
    else:
        assert folder is not None
        files = [Path(part.strip()) / METADATA_FILE for part in folder.split(",") if part.strip()]
        name = ", ".join(map(str, files))
        if not is_target and not any(path.exists() for path in files):
            raise CopyError(f"{name} does not exist, expected a broker's log.dirs")
        # A source is opened for reading: otherwise it could take precedence over a newer copy that was not named.
        tree = EmbeddedTree(files, is_writable=is_target)
    with closing(tree):
        if connect is not None:  # a broker with an embedded store locks its files instead
            _refuse_running_brokers(tree, name)
        yield tree, name


@contextmanager
def _coordination(folder: Path, *, is_target: bool) -> Iterator[tuple[Tree, str]]:
    """Run the coordination server of a stopped cluster, and open its tree."""
    own = folder / CoordinationThread.name
    name = str(own / COORDINATION_FILE)
    if not is_target and not Path(name).exists():
        raise CopyError(f"{name} does not exist, expected the folder of a cluster of kafka-cluster-start")
    server = CoordinationThread(own, "127.0.0.1", 0)
    server.spawn()
    if server.poll() is not None:
        raise CopyError(f"{name} cannot be used: {server.problem}. If kafka-cluster-start runs on it, stop it first")
    try:
        with closing(open_zookeeper(f"127.0.0.1:{server.port}")) as tree:
            _wait_for_killed_brokers(tree)
            _refuse_running_brokers(tree, name)
            yield tree, name
    finally:
        server.stop()


def _wait_for_killed_brokers(tree: Tree) -> None:
    """Return when no broker is registered, or after a while: the sessions of killed brokers end now."""
    deadline = time.monotonic() + KILLED_BROKERS_S
    with suppress(MissingNodeError):
        while tree.children(paths.BROKER_IDS) and time.monotonic() < deadline:
            time.sleep(KILLED_BROKERS_POLL_S)


if __name__ == "__main__":
    raise SystemExit(main())
