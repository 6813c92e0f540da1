"""metadata-copy: copies a cluster's metadata between ZooKeeper and the embedded store of a single broker.

This allows a data directory to change hands: the brokers stop, the metadata is copied, and the other kind of broker
starts on the same files. Owns which nodes make up a cluster, and the order in which they are written. Must not know
their contents.

The target becomes equal to the source: nodes that the source does not have are deleted. So a target must be new or of
the same cluster, and no broker may run on either side. Ephemeral nodes and sequential notifications between brokers are
not copied: every broker reads everything when it starts. An interrupted copy can be repeated; until it is complete, a
new target has no cluster id, and no broker of that cluster starts on it.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.interfaces import IAsyncResult

from broker.loop.clock import SystemClock
from controller import paths
from controller.sqlite_store import METADATA_FILE, SqliteStore
from controller.state_store import Create, Delete, NoNode, Operation, SetData, StoreError, StoreUnavailable
from tools.base.command_line import CommandLine, UsageError, run_tool

CONNECT_TIMEOUT_S: Final = 15.0
OPERATIONS_PER_BATCH: Final = 200

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


class FoundNode(NamedTuple):
    """`data` is None if the node was created without data, which differs from empty data."""

    data: bytes | None
    version: int = 0
    is_ephemeral: bool = False


class Tree(Protocol):
    """One tree of metadata nodes: ZooKeeper or the embedded store."""

    async def get(self, path: str) -> FoundNode | None: ...

    async def children(self, path: str) -> Sequence[str]:
        """Return the names of the children; none if the node does not exist."""
        ...

    async def running_brokers(self) -> Sequence[str]:
        """Return the ids of registered brokers."""
        ...

    async def apply(self, operations: Sequence[Operation]) -> None:
        """Apply the operations in order, up to the first that fails."""
        ...


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status: 0 if the target is equal to the source."""
    return run_tool(_command_line(), _run, arguments)


def _command_line() -> CommandLine:
    line = CommandLine(
        "metadata-copy",
        "This tool copies the metadata of a cluster between ZooKeeper and the embedded store of a broker that runs "
        "alone, so that its data directories can be handed from Apache Kafka to Milena and back.",
        help_succeeds=True,
    )
    connect = "ZooKeeper's addresses as in zookeeper.connect: host:port,.../chroot."
    folders = f"A broker's log.dirs, separated by commas: each holds a copy of its metadata in {METADATA_FILE}"
    line.add_option("--from-zookeeper", value="urls", help_text=f"Copy from here. {connect}")
    line.add_option("--from-log-dir", value="folders", help_text=f"Copy from here. {folders}; the newest is read.")
    line.add_option("--to-zookeeper", value="urls", help_text=f"Copy to here. {connect}")
    line.add_option("--to-log-dir", value="folders", help_text=f"Copy to here. {folders}; all are written.")
    return line


def _run(line: CommandLine, options: argparse.Namespace) -> int:
    for one, other in (("--from-zookeeper", "--from-log-dir"), ("--to-zookeeper", "--to-log-dir")):
        line.forbid(options, one, other)
    if not options.from_zookeeper and not options.from_log_dir:
        raise UsageError("Please specify either --from-zookeeper or --from-log-dir")
    if not options.to_zookeeper and not options.to_log_dir:
        raise UsageError("Please specify either --to-zookeeper or --to-log-dir")
    try:
        print(asyncio.run(_copy(options)))
    except (CopyError, StoreError, StoreUnavailable, KazooException, KazooTimeoutError, ValueError, OSError) as error:
        print(f"Error: {error or type(error).__name__}", file=sys.stderr)
        return 1
    return 0


async def _copy(options: argparse.Namespace) -> str:
    async with (
        _opened(options.from_zookeeper, options.from_log_dir, is_target=False) as (source, source_name),
        _opened(options.to_zookeeper, options.to_log_dir, is_target=True) as (target, target_name),
    ):
        cluster_id = await _cluster_id(source)
        if cluster_id is None:
            raise CopyError(f"{source_name} holds no metadata of a cluster")
        found = await _cluster_id(target)
        if found not in (None, cluster_id):
            raise CopyError(f"{target_name} is the metadata of cluster {found}, expected {cluster_id} or none")
        for tree, name in ((source, source_name), (target, target_name)):
            _refuse_running_brokers(await tree.running_brokers(), name)
        wanted = await _read(source)
        await _write(target, wanted, await _read(target))
    topics = sum(path.startswith(f"{paths.TOPICS}/") and path.count("/") == 3 for path in wanted)
    return f"Copied {topics} topics of cluster {cluster_id} from {source_name} to {target_name}"


async def _cluster_id(tree: Tree) -> str | None:
    node = await tree.get(paths.CLUSTER_ID)
    return None if node is None else paths.decode_cluster_id(node.data)


def _refuse_running_brokers(running: Sequence[str], name: str) -> None:
    if running:
        raise CopyError(
            f"brokers {', '.join(sorted(running))} are registered in {name}: stop them first "
            "(one that was killed stays until its session is over, 18 s by default)"
        )


async def _read(tree: Tree) -> dict[str, FoundNode]:
    """Return every node to copy, parents first."""
    found: dict[str, FoundNode] = {}
    pending = list(reversed(_ROOTS))
    while pending:
        path = pending.pop()
        node = await tree.get(path)
        if node is None or node.is_ephemeral:
            continue
        found[path] = node
        if path not in _NOTIFICATIONS:
            pending += [f"{path}/{name}" for name in sorted(await tree.children(path), reverse=True)]
    return found


async def _write(target: Tree, wanted: Mapping[str, FoundNode], found: Mapping[str, FoundNode]) -> None:
    for batch in _batches(_changes(wanted, found)):
        await target.apply(batch)


def _changes(wanted: Mapping[str, FoundNode], found: Mapping[str, FoundNode]) -> Iterator[Operation]:
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


def _batches(operations: Iterator[Operation]) -> Iterator[list[Operation]]:
    while batch := list(islice(operations, OPERATIONS_PER_BATCH)):
        yield batch


@asynccontextmanager
async def _opened(connect: str | None, folder: str | None, *, is_target: bool) -> AsyncIterator[tuple[Tree, str]]:
    """Open the tree; also returns its name for messages."""
    if connect is not None:
        client = _zookeeper(connect, is_target=is_target)
        try:
            yield _ZooKeeperTree(client), f"ZooKeeper {connect}"
        finally:
            client.stop()
            client.close()
        return
    assert folder is not None
    files = [Path(part.strip()) / METADATA_FILE for part in folder.split(",") if part.strip()]
    name = ", ".join(map(str, files))
    if not is_target and not any(path.exists() for path in files):
        raise CopyError(f"{name} does not exist, expected a broker's log.dirs")
    store = SqliteStore(files, SystemClock(), sleep=time.sleep)
    # The source is opened read-only: otherwise it could take precedence over a newer copy that was not named.
    await (store.open() if is_target else store.examine())
    try:
        yield _EmbeddedTree(store), name
    finally:
        await store.close()


def _zookeeper(connect: str, *, is_target: bool) -> KazooClient:
    hosts, _, chroot = connect.partition("/")
    client = KazooClient(hosts)
    client.start(CONNECT_TIMEOUT_S)
    if chroot:
        if is_target:
            client.ensure_path(f"/{chroot}")
        client.chroot = f"/{chroot}"
    return client


class _EmbeddedTree:
    def __init__(self, store: SqliteStore) -> None:
        self._store = store

    async def get(self, path: str) -> FoundNode | None:
        (node,) = await self._store.get_many([path])
        if node is None:
            return None
        return FoundNode(node.data, node.stat.version, is_ephemeral=node.stat.ephemeral_owner != 0)

    async def children(self, path: str) -> Sequence[str]:
        try:
            return await self._store.children(path)
        except NoNode:
            return ()

    async def running_brokers(self) -> Sequence[str]:
        """Return none: a running broker locks its files."""
        return ()

    async def apply(self, operations: Sequence[Operation]) -> None:
        await self._store.multi(operations)


class _ZooKeeperTree:
    """ZooKeeper's tree. Each call waits for its response."""

    def __init__(self, client: KazooClient) -> None:
        self._client = client

    async def get(self, path: str) -> FoundNode | None:
        try:
            data, stat = self._client.get(path)
        except NoNodeError:
            return None
        return FoundNode(data, stat.version, is_ephemeral=stat.ephemeralOwner != 0)

    async def children(self, path: str) -> Sequence[str]:
        try:
            names: list[str] = self._client.get_children(path)
        except NoNodeError:
            return ()
        return names

    async def running_brokers(self) -> Sequence[str]:
        return await self.children(paths.BROKER_IDS)

    async def apply(self, operations: Sequence[Operation]) -> None:
        # Not a transaction: kazoo's cannot create a node without data, which Kafka distinguishes from empty data.
        pending = [(operation.path, self._begin(operation)) for operation in operations]
        for path, result in pending:
            try:
                result.get()
            except KazooException as error:
                raise CopyError(f"ZooKeeper refuses to write {path}: {type(error).__name__}") from error

    def _begin(self, operation: Operation) -> IAsyncResult:
        """Send the operation; the server processes the operations of one session in order."""
        match operation:
            case Create(path, data):
                return self._client.create_async(path, data)
            case SetData(path, data):
                return self._client.set_async(path, data)
            case _:
                return self._client.delete_async(operation.path)


if __name__ == "__main__":
    raise SystemExit(main())
