"""The port to the metadata store: a tree of small nodes with ZooKeeper's semantics.

Owns the operations, their results and errors, and the promises that every implementation keeps. Must not know what the
nodes mean (`controller.tree.paths` does) or where they are kept.

Promises:
- A node's `version` starts at 0 and rises by one with each `SetData`; a conditional operation names the version read.
- Each transaction has a `zxid`, which always rises, also across restarts; `czxid` is the one that created the node.
- `multi` is atomic, and durable before it returns. Its operations see the effects of those before them.
- An ephemeral node is deleted with the session that created it, and has no children.
- A path that no node can have, as with a name `..`, is read like that of a missing node.
- A sequential name ends in the number of children that the parent has ever had, ten digits wide.
- A watch is armed by the same read that returns the value, so no change between the two is missed. It fires once, on
  the event loop. It may fire late, after the writer has resumed and others have read the change, but it fires before
  its own session reads the change, and the watches of one session fire in the order of the changes.
- The operations of one store take effect in the order of the calls.
- A lost connection is waited out: operations take as long as it takes, until the connection is back or the session has
  expired. An operation whose response was lost is performed again, in its order. So a write may be performed twice: one
  that is conditional, or creates a node by its name, has the result of its first execution; one that only deletes may
  raise `NoNode` although it was its first execution that deleted; an unconditional `SetData` may overwrite what another
  session wrote in between; a sequential node may exist twice.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Protocol

from base.dataclass import dataclass

ANY_VERSION = -1
SEQUENCE_DIGITS = 10

NOT_NAMES_OF_NODES = frozenset({".", ".."})
"""ZooKeeper refuses paths with these names."""

# ZooKeeper rejects larger requests (jute.maxbuffer). No store here accepts more either, so that a tree fits both.
DATA_SIZE_MAX = 1024 * 1024


class StoreError(Exception):
    """The store rejected an operation; nothing was changed.

    `path` is the node, `index` the operation's position in its `multi` (0 outside of one).
    """

    def __init__(self, path: str, index: int = 0) -> None:
        self.path = path
        self.index = index
        super().__init__(path)


class NoNode(StoreError):  # noqa: N818 - these names state the node's condition
    """The node does not exist, or the parent of a node to be created does not."""


class NodeExists(StoreError):  # noqa: N818
    """The node to be created exists already."""


class BadVersion(StoreError):  # noqa: N818
    """The node's version is not the expected one: another writer changed it."""


class NotEmpty(StoreError):  # noqa: N818
    """The node to be deleted has children."""


class NoChildrenForEphemerals(StoreError):  # noqa: N818
    """The parent of the node to be created is ephemeral."""


class DataTooLarge(StoreError):  # noqa: N818
    """The data is larger than `DATA_SIZE_MAX`."""


class StoreUnavailable(Exception):  # noqa: N818
    """The store is closed, refuses the session, or could not be reached to open one.

    Whether a write took effect is unknown.
    """


class SessionExpired(StoreUnavailable):
    """The session has expired: its ephemeral nodes and watches are gone. Call `open` for a new session."""


@dataclass(frozen=True, slots=True)
class Stat:
    """A node's metadata. `ephemeral_owner` is a session id, 0 for persistent nodes."""

    version: int
    czxid: int
    mzxid: int
    ctime_ms: int
    ephemeral_owner: int


@dataclass(frozen=True, slots=True)
class Node:
    """A node as read. `data` is None if it was created without data, which differs from empty data."""

    data: bytes | None
    stat: Stat


@dataclass(frozen=True, slots=True)
class Create:
    """Create a node. The result is its path, which for a sequential node has the number appended."""

    path: str
    data: bytes | None = None
    ephemeral: bool = False
    sequential: bool = False


@dataclass(frozen=True, slots=True)
class SetData:
    """Replace the data; its result is the new `Stat`."""

    path: str
    data: bytes | None
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a node without children; its result is None."""

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Check:
    """Fail the `multi` unless the node exists with this version; change nothing. The result is None."""

    path: str
    version: int = ANY_VERSION


Operation = Create | SetData | Delete | Check
Result = str | Stat | None


class WatchKind(Enum):
    """What happened to the watched node."""

    CREATED = "created"
    DELETED = "deleted"
    CHANGED = "changed"
    CHILDREN = "children"


@dataclass(frozen=True, slots=True)
class WatchEvent:
    kind: WatchKind
    path: str


Watch = Callable[[WatchEvent], None]


class SingleWrites(Protocol):
    """Writes of one node, as transactions of one operation."""

    async def create(
        self, path: str, data: bytes | None = None, *, ephemeral: bool = False, sequential: bool = False
    ) -> str:
        """Create a node and return its path."""
        (created,) = await self.multi([Create(path, data, ephemeral, sequential)])
        assert isinstance(created, str)
        return created

    async def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Stat:
        """Replace the node's data."""
        (stat,) = await self.multi([SetData(path, data, version)])
        assert isinstance(stat, Stat)
        return stat

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Delete the node."""
        await self.multi([Delete(path, version)])

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        """Perform all operations atomically; raise the error of the first that fails."""
        ...


class StateStore(SingleWrites, Protocol):
    """One session with the store. Methods raise a `StoreError` or `StoreUnavailable`, and nothing else."""

    @property
    def session_id(self) -> int:
        """The id that owns the ephemeral nodes of this session."""
        ...

    async def open(self) -> None:
        """Start a session. After `SessionExpired` it is a new one, without the nodes and watches of the old one."""
        ...

    async def close(self) -> None:
        """End the session and delete its ephemeral nodes."""
        ...

    def on_session_expired(self, callback: Callable[[], None]) -> None:
        """Register a callback, called on the event loop when the session has expired (not by `close`)."""
        ...

    async def get(self, path: str, watch: Watch | None = None) -> Node:
        """Return the node. The watch fires when its data changes or it is deleted."""
        ...

    async def get_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[Node | None]:
        """Return the nodes in the order of `paths`, None for those that do not exist, in one round trip or a pipeline.

        The watch is armed on each node that exists, as by `get`.
        """
        ...

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """Return the node's stat, or None. In either case the watch fires when it is created, changed or deleted."""
        ...

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Return the names (not paths) of the children, sorted.

        The watch fires when a child is created or deleted, or the node itself is deleted.
        """
        ...


def parent_path(path: str) -> str:
    """Return the path above: `/a/b` -> `/a`, `/a` -> `/`."""
    return path.rpartition("/")[0] or "/"
