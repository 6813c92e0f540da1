"""The trees of nodes that tools read and change: an ensemble of ZooKeeper, and a broker's embedded store.

Owns how each is opened, read and changed, and one set of errors for both. Must not know commands or what is printed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import (
    BadArgumentsError,
    BadVersionError,
    InvalidACLError,
    KazooException,
    NoAuthError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.hosts import collect_hosts
from kazoo.interfaces import IAsyncResult
from kazoo.protocol import serialization
from kazoo.protocol.states import ZnodeStat
from kazoo.security import ACL, OPEN_ACL_UNSAFE, Id

from broker.loop.clock import SystemClock
from controller.embedded.sqlite_store import METADATA_FILE, SqliteStore
from controller.store import state_store
from controller.store.state_store import Create, Delete, SetData, Stat, StateStore, StoreError, StoreUnavailable
from controller.zookeeper.connection import new_client
from controller.zookeeper.security import UNPROTECTED, ZooKeeperSecurity
from tools.base.command_line import UnreachableError
from tools.client.bootstrap import Endpoint, require_reachable

T = TypeVar("T")

CONNECT_TIMEOUT_S: Final = 15.0
REACH_TIMEOUT_S: Final = 3.5
"""With the start of the interpreter and the import of ZooKeeper's client, a tool ends within 5 seconds."""
EMBEDDED: Final = "sqlite:"
"""Begins the address of an embedded store: the log directories that have it follow, separated by commas."""
NO_SERVER_HINT: Final = "If there is none, use --bootstrap-server"


class TreeError(Exception):
    """A command failed; the text is that of ZooKeeper's own client."""


class MissingNodeError(TreeError):
    """The node does not exist, or the parent of a node to be created does not."""


class TreeUnavailableError(Exception):
    """The tree cannot be opened or reached; the text names it."""


@dataclass(frozen=True)
class NodeStat:
    """A node's metadata; None for what its store does not keep."""

    czxid: int
    ctime_ms: int
    mzxid: int
    mtime_ms: int | None
    pzxid: int | None
    cversion: int | None
    data_version: int
    acl_version: int | None
    ephemeral_owner: int
    data_length: int
    children_count: int


class TreeNode(NamedTuple):
    """A node as read. `data` is None if it was created without data, which differs from empty data."""

    data: bytes | None
    stat: NodeStat


class AclEntry(NamedTuple):
    """One entry of an access list; `permissions` are the bits of ZooKeeper."""

    scheme: str
    id: str
    permissions: int


Change = Create | SetData | Delete


class Tree(Protocol):
    """One open tree. Its methods raise TreeError and TreeUnavailableError."""

    def get(self, path: str) -> TreeNode: ...
    def children(self, path: str) -> Sequence[str]: ...
    def create(self, node: Create, *, container: bool = False, acl: Sequence[AclEntry] | None = None) -> str:
        """Create a node and return its path."""
        ...

    def apply(self, changes: Sequence[Change]) -> None:
        """Apply changes in their order. If one fails, ZooKeeper applies the others, and the embedded store none."""
        ...

    def acl(self, path: str) -> tuple[Sequence[AclEntry], NodeStat]: ...
    def set_acl(self, path: str, acl: Sequence[AclEntry], version: int) -> None: ...
    def add_auth(self, scheme: str, credential: str) -> None: ...
    def sync(self, path: str) -> None: ...
    def close(self) -> None: ...


def require_server(hosts: str) -> None:
    """Return when a server of `host:port,host:port` accepts a connection.

    The client of ZooKeeper would log each attempt, and would give up after a longer time.

    Raises:
        TreeUnavailableError: No server accepts one within `REACH_TIMEOUT_S`.
    """
    found, _ = collect_hosts(hosts)
    try:
        require_reachable([Endpoint(host, int(port)) for host, port in found], REACH_TIMEOUT_S)
    except UnreachableError:
        raise TreeUnavailableError(_no_server(hosts, REACH_TIMEOUT_S)) from None


def _no_server(hosts: str, timeout_s: float) -> str:
    return f"Unable to connect to ZooKeeper {hosts} within {timeout_s:g} s: expected host:port of a running server"


def open_zookeeper(address: str, security: ZooKeeperSecurity = UNPROTECTED, *, is_chroot_created: bool = False) -> Tree:
    """Connect to `host:port,.../chroot`; create the chroot if that is wanted and it does not exist.

    Raises:
        TreeUnavailableError: No server responds.
        TreeError: The chroot cannot be created.
    """
    hosts, slash, path = address.partition("/")
    chroot = f"{slash}{path}".rstrip("/")
    require_server(hosts)
    client = new_client(hosts, security)
    try:
        client.start(CONNECT_TIMEOUT_S)
    except KazooTimeoutError:
        client.close()
        raise TreeUnavailableError(_no_server(hosts, CONNECT_TIMEOUT_S)) from None
    tree = _ZooKeeperTree(client)
    if chroot and is_chroot_created:
        try:
            _asked(chroot, lambda: client.ensure_path(chroot))
        except BaseException:
            tree.close()
            raise
    client.chroot = chroot
    return tree


def open_embedded(location: str, *, writable: bool) -> Tree:
    """Open the store of `metadata_files`. Raises TreeUnavailableError, also if one is missing or a broker uses them."""
    return EmbeddedTree(existing_files(location), is_writable=writable)


def metadata_files(location: str) -> list[Path]:
    """Return the files of an embedded store in log directories, separated by commas; a file may be named itself.

    Raises TreeUnavailableError if there is no name.
    """
    named = [Path(part.strip()) for part in location.split(",") if part.strip()]
    if not named:
        raise TreeUnavailableError(f"'{location}' names no log directory, expected a broker's log.dirs")
    return [path if path.is_file() or path.name == METADATA_FILE else path / METADATA_FILE for path in named]


def existing_files(location: str) -> list[Path]:
    """Return `metadata_files`. Raises TreeUnavailableError also if one is missing."""
    files = metadata_files(location)
    for file in files:
        if not file.exists():
            raise TreeUnavailableError(
                f"{file} does not exist, expected a broker's log directory or its {METADATA_FILE}"
            )
    return files


def paths_below(tree: Tree, top: str) -> Iterator[str]:
    """Return the path and all below it: the children of a node, then those of each child, as ZooKeeper's client does.

    A node that is deleted at the same time has no children.
    """
    found = _child_paths(tree, top)
    yield top
    pending = [found]
    while pending:
        children = pending.pop()
        yield from children
        for path in reversed(children):
            try:
                pending.append(_child_paths(tree, path))
            except TreeError:
                continue


def _child_paths(tree: Tree, path: str) -> list[str]:
    return [f"{path.rstrip('/')}/{name}" for name in tree.children(path)]


_CONTAINER_FLAG: Final = 4


class _CreateContainer(serialization.Create):  # type: ignore[misc] # kazoo has no types
    """The request of ZooKeeper 3.5 that creates a container; its fields are those of `Create`."""

    type = 19


class _ZooKeeperTree:
    def __init__(self, client: KazooClient) -> None:
        self._client = client

    def get(self, path: str) -> TreeNode:
        data, stat = _asked(path, lambda: self._client.get(path))
        return TreeNode(data, _node_stat(stat))

    def children(self, path: str) -> Sequence[str]:
        return sorted(_asked(path, lambda: self._client.get_children(path)))

    def create(self, node: Create, *, container: bool = False, acl: Sequence[AclEntry] | None = None) -> str:
        access = OPEN_ACL_UNSAFE if acl is None else _access(acl)
        if container:
            return _asked(node.path, lambda: self._create_container(node, access))
        created: str = _asked(node.path, self._begin(node, access).get)
        return created

    def apply(self, changes: Sequence[Change]) -> None:
        # Not a transaction: kazoo's cannot create a node without data, which Kafka distinguishes from empty data.
        pending = [(change.path, self._begin(change)) for change in changes]
        for path, result in pending:
            _asked(path, result.get)

    def _begin(self, change: Change, access: Sequence[ACL] = OPEN_ACL_UNSAFE) -> IAsyncResult:
        """Send the change; the server processes those of one session in their order."""
        match change:
            case Create(path, data, ephemeral, sequential):
                return self._client.create_async(path, data, access, ephemeral, sequential)
            case SetData(path, data, version):
                return self._client.set_async(path, data, version)
            case Delete(path, version):
                return self._client.delete_async(path, version)

    def _create_container(self, node: Create, access: Sequence[ACL]) -> str:
        """Send a request that kazoo does not have: the server deletes the node after its last child."""
        client = self._client
        result = client.handler.async_result()
        client._call(_CreateContainer(f"{client.chroot}{node.path}", node.data, access, _CONTAINER_FLAG), result)
        created: str = client.unchroot(result.get())
        return created

    def acl(self, path: str) -> tuple[Sequence[AclEntry], NodeStat]:
        found, stat = _asked(path, lambda: self._client.get_acls(path))
        return [AclEntry(entry.id.scheme, entry.id.id, entry.perms) for entry in found], _node_stat(stat)

    def set_acl(self, path: str, acl: Sequence[AclEntry], version: int) -> None:
        _asked(path, lambda: self._client.set_acls(path, _access(acl), version))

    def add_auth(self, scheme: str, credential: str) -> None:
        _asked("", lambda: self._client.add_auth(scheme, credential))

    def sync(self, path: str) -> None:
        _asked(path, lambda: self._client.sync(path))

    def close(self) -> None:
        self._client.stop()
        self._client.close()


def _access(acl: Sequence[AclEntry]) -> list[ACL]:
    return [ACL(entry.permissions, Id(entry.scheme, entry.id)) for entry in acl]


def _asked(path: str, request: Callable[[], T]) -> T:
    try:
        return request()
    except KazooException as error:
        kind = MissingNodeError if isinstance(error, NoNodeError) else TreeError
        raise kind(_text_of(error, path)) from None
    except KazooTimeoutError as error:
        raise TreeUnavailableError(f"ZooKeeper does not respond: {error or type(error).__name__}") from None


def _text_of(error: KazooException, path: str) -> str:
    texts: dict[type[KazooException], str] = {
        NoNodeError: "Node does not exist",
        NodeExistsError: "Node already exists",
        NotEmptyError: "Node not empty",
        BadVersionError: "version No is not valid",
        NoChildrenForEphemeralsError: "Ephemerals cannot have children",
        BadArgumentsError: "Arguments are not valid",
        InvalidACLError: "Acl is not valid",
        NoAuthError: "Insufficient permission",
    }
    text = next((text for kind, text in texts.items() if isinstance(error, kind)), type(error).__name__)
    return f"{text}{' ' if text.endswith(('valid', 'permission')) else ''}: {path}"


def _node_stat(stat: ZnodeStat) -> NodeStat:
    return NodeStat(
        stat.czxid,
        stat.ctime,
        stat.mzxid,
        stat.mtime,
        stat.pzxid,
        stat.cversion,
        stat.version,
        stat.aversion,
        stat.ephemeralOwner,
        stat.dataLength,
        stat.numChildren,
    )


class EmbeddedTree:
    """The store in `files`, the copies of one. It is asynchronous; each call runs to its end on a loop of its own."""

    def __init__(self, files: Sequence[Path], *, is_writable: bool) -> None:
        """Raise TreeUnavailableError, also if a broker uses a file. With `is_writable`, missing files are created."""
        store = SqliteStore(files, SystemClock(), sleep=time.sleep)
        self._store: StateStore = store
        self._is_writable = is_writable
        self._loop = asyncio.new_event_loop()
        try:
            # A session would delete the ephemeral nodes of the last one and make this copy the newest.
            self._run(store.open() if is_writable else store.examine())
        except BaseException:
            self._loop.close()
            raise

    def get(self, path: str) -> TreeNode:
        node = self._run(self._store.get(path))
        return TreeNode(node.data, _embedded_stat(node.stat, node.data, len(self.children(path))))

    def children(self, path: str) -> Sequence[str]:
        return self._run(self._store.children(path))

    def create(self, node: Create, *, container: bool = False, acl: Sequence[AclEntry] | None = None) -> str:
        if acl is not None:
            raise TreeError(_NO_ACCESS_LISTS)
        if container:
            raise TreeError("The embedded store has no containers: Kafka uses none")
        self._require_writable()
        return self._run(self._store.create(node.path, node.data, ephemeral=node.ephemeral, sequential=node.sequential))

    def apply(self, changes: Sequence[Change]) -> None:
        self._require_writable()
        self._run(self._store.multi(changes))

    def acl(self, path: str) -> tuple[Sequence[AclEntry], NodeStat]:
        raise TreeError(_NO_ACCESS_LISTS)

    def set_acl(self, path: str, acl: Sequence[AclEntry], version: int) -> None:
        raise TreeError(_NO_ACCESS_LISTS)

    def add_auth(self, scheme: str, credential: str) -> None:
        raise TreeError(_NO_ACCESS_LISTS)

    def sync(self, path: str) -> None:
        """There is one server only, so nothing is out of date."""

    def close(self) -> None:
        with closing(self._loop):
            self._run(self._store.close())

    def _require_writable(self) -> None:
        if not self._is_writable:
            raise TreeError("The embedded store is open for reading: --write allows changes")

    def _run(self, request: Coroutine[Any, Any, T]) -> T:
        try:
            return self._loop.run_until_complete(request)
        except StoreError as error:
            kind = MissingNodeError if isinstance(error, state_store.NoNode) else TreeError
            raise kind(f"{_EMBEDDED_TEXTS[type(error)]}: {error.path}") from None
        except StoreUnavailable as error:
            raise TreeUnavailableError(str(error)) from None


_NO_ACCESS_LISTS: Final = "The embedded store has no access lists: the permissions of its file protect it"
_EMBEDDED_TEXTS: Final[dict[type[StoreError], str]] = {
    state_store.NoNode: "Node does not exist",
    state_store.NodeExists: "Node already exists",
    state_store.NotEmpty: "Node not empty",
    state_store.BadVersion: "version No is not valid ",
    state_store.NoChildrenForEphemerals: "Ephemerals cannot have children",
    state_store.DataTooLarge: f"Data is larger than {state_store.DATA_SIZE_MAX} bytes",
}


def _embedded_stat(stat: Stat, data: bytes | None, children_count: int) -> NodeStat:
    return NodeStat(
        stat.czxid,
        stat.ctime_ms,
        stat.mzxid,
        None,
        None,
        None,
        stat.version,
        None,
        stat.ephemeral_owner,
        len(data or b""),
        children_count,
    )
