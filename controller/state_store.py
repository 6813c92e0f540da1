"""The port to the metadata store: a tree of small nodes with ZooKeeper's semantics.

Owns the operations, their results and errors, and the promises every implementation keeps. Must not know what the
nodes mean (`controller.paths` does) nor where they are kept.

Promises:
- A node's `version` starts at 0 and rises by one with each `SetData`; a conditional operation names the version it saw.
- Every transaction has a `zxid` that only rises, over restarts too; `czxid` is the one that made the node.
- `multi` is all or nothing, and durable before it returns. Operations see those before them in the same `multi`.
- An ephemeral node goes with the session that made it, and has no children.
- A sequential name ends in the number of children that the parent ever had, ten digits wide.
- A watch is armed by the same read that returns the value, so no change between the two is missed; it fires once, on
  the event loop, before the change's writer resumes.
- Operations of one store take effect in the order in which they were called.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

ANY_VERSION = -1
SEQUENCE_DIGITS = 10

# ZooKeeper refuses more in one request (jute.maxbuffer), so no store here accepts it: a tree always fits both.
DATA_SIZE_MAX = 1024 * 1024


class StoreError(Exception):
    """An operation that the store refused; nothing was changed.

    `path` is the node, `index` the operation's place in its `multi` (0 outside of one).
    """

    def __init__(self, path: str, index: int = 0) -> None:
        self.path = path
        self.index = index
        super().__init__(path)


class NoNode(StoreError):  # noqa: N818 - these say what is the matter with the node
    """The node does not exist, or the parent of a node to be created does not."""


class NodeExists(StoreError):  # noqa: N818
    """The node to be created exists."""


class BadVersion(StoreError):  # noqa: N818
    """The node has another version than the operation expects: somebody else wrote it."""


class NotEmpty(StoreError):  # noqa: N818
    """The node to be deleted has children."""


class NoChildrenForEphemerals(StoreError):  # noqa: N818
    """The parent of the node to be created is ephemeral."""


class DataTooLarge(StoreError):  # noqa: N818
    """The data is larger than `DATA_SIZE_MAX`."""


class StoreUnavailable(Exception):  # noqa: N818
    """The store could not be asked; whether a write took effect is unknown. Also raised after `close`."""


class SessionExpired(StoreUnavailable):
    """The session is over: its ephemeral nodes and watches are gone. Only a new `open` helps."""


@dataclass(frozen=True, slots=True)
class Stat:
    """What the store knows about a node. `ephemeral_owner` is a session id, 0 for persistent nodes."""

    version: int
    czxid: int
    mzxid: int
    ctime_ms: int
    ephemeral_owner: int


@dataclass(frozen=True, slots=True)
class Node:
    """A node as read. `data` is None where it was created without, which is not the same as empty."""

    data: bytes | None
    stat: Stat


@dataclass(frozen=True, slots=True)
class Create:
    """Create a node; its result is the path, which differs from the one given when it is sequential."""

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
    """Change nothing, but let the `multi` fail unless the node exists with this version; its result is None."""

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


class StateStore(Protocol):
    """One session with the store. Methods raise a `StoreError` or `StoreUnavailable`, and nothing else."""

    @property
    def session_id(self) -> int:
        """Owner of the ephemeral nodes that this session creates."""
        ...

    async def open(self) -> None:
        """Start a session. After `SessionExpired` this starts a new one, without nodes or watches of the old."""
        ...

    async def close(self) -> None:
        """End the session; its ephemeral nodes go."""
        ...

    def on_session_expired(self, callback: Callable[[], None]) -> None:
        """Have `callback` called on the event loop whenever the session is lost for good (never by `close`)."""
        ...

    async def get(self, path: str, watch: Watch | None = None) -> Node:
        """The node. The watch fires when its data changes or it is deleted."""
        ...

    async def get_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[Node | None]:
        """The nodes in the order of `paths`, None for those that do not exist; one round trip or a pipeline.

        The watch is armed on each that exists, as by `get`.
        """
        ...

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """The node's stat. The watch fires when it is created, changed or deleted, and is armed in either case."""
        ...

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Names (not paths) of the children, sorted. The watch fires when one comes or goes, or the node does."""
        ...

    async def create(
        self, path: str, data: bytes | None = None, *, ephemeral: bool = False, sequential: bool = False
    ) -> str:
        """Create a node and return its path."""
        ...

    async def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Stat:
        """Replace the node's data."""
        ...

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Delete the node."""
        ...

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        """Do all operations, or none and raise the error of the first that cannot be done."""
        ...


def parent_path(path: str) -> str:
    """`/a/b` -> `/a`, `/a` -> `/`."""
    return path.rpartition("/")[0] or "/"
