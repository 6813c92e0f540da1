"""The record of a broker's log directories in use, by which a start detects that one was swapped or emptied.

Owns the nodes under `/milena/log_dirs`, one for each directory in use, and the decision which directories a start must
refuse:

- an empty directory in place of one that was in use, as under a failed mount;
- a directory that returns after an empty one was accepted in its place.

Must not know logs, or how to read a directory.

The zxid that created a directory's node is the start of its use. The store's copy in a directory is written as long as
the directory is in use; so a copy older than the node was last written before that use began.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from controller.store.state_store import Create, Delete, NoNode, Operation, StateStore
from controller.tree import paths


class FoundDirectory(NamedTuple):
    """What a start finds at one path of `log.dirs`."""

    path: str
    is_claimed: bool
    """Whether it has a meta.properties, which names its broker and cluster."""
    store_zxid: int | None
    """The last transaction of the store's copy in it; None if there is no copy."""


async def read(store: StateStore) -> dict[str, int]:
    """Return the zxid since which each directory is in use, by path."""
    try:
        names = await store.children(paths.LOG_DIRS_IN_USE)
    except NoNode:
        return {}
    known = [paths.log_dir_of_name(name) for name in names]
    nodes = await store.get_many([paths.log_dir_in_use_path(path) for path in known])
    return {path: node.stat.czxid for path, node in zip(known, nodes, strict=True) if node is not None}


def why_refused(found: Iterable[FoundDirectory], in_use_since: Mapping[str, int]) -> dict[str, str]:
    """Return the directories that must not be used, with the reason."""
    reasons = {}
    for path, is_claimed, store_zxid in found:
        since = in_use_since.get(path)
        if since is None:
            continue
        if store_zxid is None and not is_claimed:
            reasons[path] = "it was in use before and is empty now: is its file system mounted?"
        elif store_zxid is not None and store_zxid < since:
            reasons[path] = "it is as it was before an empty directory was accepted in its place"
    return reasons


async def write(
    store: StateStore, *, in_use: Collection[str], configured: Collection[str], replaced: Collection[str]
) -> None:
    """Record the directories `in_use`, and delete the records of those that are no longer `configured`.

    Configured directories that are offline stay recorded. The use of those `replaced` starts now.
    """
    known = await read(store)
    gone = [path for path in known if path not in configured or path in replaced]
    new = [path for path in in_use if path not in known or path in replaced]
    operations: list[Operation] = [Delete(paths.log_dir_in_use_path(path)) for path in gone]
    operations += [Create(paths.log_dir_in_use_path(path)) for path in new]
    if not operations:
        return
    parents = paths.MILENA, paths.LOG_DIRS_IN_USE
    missing = [Create(path) for path, node in zip(parents, await store.get_many(parents), strict=True) if node is None]
    await store.multi([*missing, *operations])
