"""metadata-copy: copies a cluster's metadata between ZooKeeper, the embedded store of a single broker, and the
coordination server of a cluster on one machine, and between these and the nodes of KRaft.

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
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Final

from controller.embedded.sqlite_store import METADATA_FILE
from controller.store.state_store import Create, Delete, SetData
from controller.tree import paths
from protocol.errors import Malformed
from tools.base.command_line import CommandLine, UsageError, is_given, run_tool
from tools.kraft.node_folders import FolderError, locked
from tools.kraft.znodes import Node
from tools.launch.coordination_thread import COORDINATION_FILE, CoordinationThread
from tools.zookeeper import kraft_copy
from tools.zookeeper.kraft_copy import ConversionError
from tools.zookeeper.znode_trees import (
    Change,
    EmbeddedTree,
    MissingNodeError,
    Tree,
    TreeError,
    TreeUnavailableError,
    metadata_files,
    open_zookeeper,
)

_PLACES: Final = ("zookeeper", "log-dir", "cluster", "kraft")
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
    paths.FEATURE_LEVELS,
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


_FAILURES: Final = (
    ConversionError,
    CopyError,
    FolderError,
    Malformed,
    TreeError,
    TreeUnavailableError,
    ValueError,
    OSError,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status: 0 if the target is equal to the source."""
    return run_tool(_command_line(), _run, arguments)


def _command_line() -> CommandLine:
    line = CommandLine(
        "metadata-copy",
        "This tool copies the metadata of a cluster between ZooKeeper, the embedded store of a broker that runs alone, "
        "kafka-cluster-start and the nodes of Kafka 4, so that data directories can be handed from Apache Kafka to "
        "Milena and back.",
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
    nodes = "separated by commas, which become"
    line.add_option(
        "--to-kraft",
        value="folders",
        help_text=f"The log.dirs of stopped brokers, {nodes} nodes of Kafka 4. The broker of the first folder becomes "
        "the controller too, and that folder holds the metadata.",
    )
    line.add_option(
        "--from-kraft",
        value="folders",
        help_text=f"The log.dirs of stopped nodes of Kafka 4, {nodes} brokers of Kafka 3.9 or Milena. One holds the "
        "metadata.",
    )
    line.add_flag("--check", "With --to-kraft or --from-kraft: print what would be done and what does not fit.")
    line.add_option(
        "--rehearse",
        value="folder",
        help_text="With --to-kraft: change copies of the folders in this new folder, on the same file system. Closed "
        "segments are hard links; the folders themselves stay as they are.",
    )
    return line


def _run(line: CommandLine, options: argparse.Namespace) -> int:
    for names in ([f"--{side}-{place}" for place in _PLACES] for side in ("from", "to")):
        for number, name in enumerate(names):
            line.forbid(options, name, *names[number + 1 :])
        is_needed = not (options.check and options.from_kraft)
        if is_needed and not any(is_given(options, name) for name in names):
            expected = ", ".join(names[:-1])
            raise UsageError(f"Please specify either {expected} or {names[-1]}")
    line.forbid(options, "--from-kraft", "--to-kraft")
    line.forbid(options, "--check", "--rehearse")
    _need(options, "--check", "--to-kraft", "--from-kraft")
    _need(options, "--rehearse", "--to-kraft")
    try:
        for text in _performed(options):
            print(text)
    except _FAILURES as error:
        for text in str(error).splitlines():
            print(f"Error: {text}", file=sys.stderr)
        return 1
    return 0


def _need(options: argparse.Namespace, name: str, *places: str) -> None:
    if is_given(options, name) and not any(is_given(options, place) for place in places):
        raise UsageError(f"{name} needs {' or '.join(places)}")


def _performed(options: argparse.Namespace) -> Iterator[str]:
    """Do what is asked for; yield the lines to print."""
    if options.to_kraft is not None:
        return _to_kraft(options)
    if options.from_kraft is not None:
        return _from_kraft(options)
    return iter([_copy(options)])


def _copy(options: argparse.Namespace) -> str:
    with _source(options) as (source, source_name), _target(options) as (target, target_name):
        cluster_id = _cluster_id(source)
        if cluster_id is None:
            raise CopyError(f"{source_name} holds no metadata of a cluster")
        _require_cluster(target, target_name, cluster_id)
        wanted = _read(source)
        _write(target, wanted, _read(target))
    topics = sum(path.startswith(f"{paths.TOPICS}/") and path.count("/") == 3 for path in wanted)
    return f"Copied {topics} topics of cluster {cluster_id} from {source_name} to {target_name}"


def _to_kraft(options: argparse.Namespace) -> Iterator[str]:
    folders = _folders(options.to_kraft)
    with locked(folders):
        with _source(options) as (source, _):
            nodes = _read(source)
        rehearsal = None if options.rehearse is None else Path(options.rehearse)
        yield from kraft_copy.to_kraft(nodes, folders, rehearsal=rehearsal, is_check=options.check)


def _from_kraft(options: argparse.Namespace) -> Iterator[str]:
    folders = _folders(options.from_kraft)
    with locked(folders):
        conversion = kraft_copy.FromKraft(folders)
        if options.check:
            yield from conversion.lines()
            return
        with _target(options) as (target, target_name):
            _require_cluster(target, target_name, conversion.cluster_id)
            found = _read(target)
            wanted = conversion.nodes(found)
            if wanted is not None:
                _write(target, wanted, found)
        finished = conversion.finish()
        if wanted is None:
            yield f"The metadata in {target_name} stays: brokers have run on it since the nodes of KRaft stopped"
        else:
            yield from conversion.lines()
            yield f"Copied the metadata of cluster {conversion.cluster_id} to {target_name}"
        yield finished


def _folders(text: str) -> list[Path]:
    folders = [Path(part.strip()) for part in text.split(",") if part.strip()]
    for folder in folders:
        if not folder.is_dir():
            raise CopyError(f"{folder} is not a directory, expected log.dirs of a broker")
        if [each.resolve() for each in folders].count(folder.resolve()) > 1:
            raise CopyError(f"{folder} is named twice")
    if not folders:
        raise CopyError("no folder is named, expected log.dirs of a broker")
    return folders


def _require_cluster(tree: Tree, name: str, cluster_id: str) -> None:
    found = _cluster_id(tree)
    if found not in (None, cluster_id):
        raise CopyError(f"{name} is the metadata of cluster {found}, expected {cluster_id} or none")


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


def _read(tree: Tree) -> dict[str, Node]:
    """Return every node to copy, parents first."""
    found: dict[str, Node] = {}
    pending = list(reversed(_ROOTS))
    while pending:
        path = pending.pop()
        try:
            node = tree.get(path)
            names = () if path in _NOTIFICATIONS else tree.children(path)
        except MissingNodeError:
            continue
        if not node.stat.ephemeral_owner:
            found[path] = Node(node.data, node.stat.data_version)
            pending += [f"{path}/{name}" for name in sorted(names, reverse=True)]
    return found


def _write(target: Tree, wanted: Mapping[str, Node], found: Mapping[str, Node]) -> None:
    for batch in _batches(_changes(wanted, found)):
        target.apply(batch)


def _changes(wanted: Mapping[str, Node], found: Mapping[str, Node]) -> Iterator[Change]:
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
            version = found[path].version if path in found else 0
            yield from (SetData(path, node.data) for _ in range(version, node.version))
    if paths.CLUSTER_ID not in found:
        yield Create(paths.CLUSTER_ID, wanted[paths.CLUSTER_ID].data)


def _batches(changes: Iterator[Change]) -> Iterator[list[Change]]:
    while batch := list(islice(changes, CHANGES_PER_BATCH)):
        yield batch


def _source(options: argparse.Namespace) -> AbstractContextManager[tuple[Tree, str]]:
    return _opened(options.from_zookeeper, options.from_log_dir, options.from_cluster, is_target=False)


def _target(options: argparse.Namespace) -> AbstractContextManager[tuple[Tree, str]]:
    return _opened(options.to_zookeeper, options.to_log_dir, options.to_cluster, is_target=True)


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
        files = metadata_files(folder)
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
