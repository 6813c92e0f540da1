"""The record of a broker's log directories, by which a start notices that one is not what it was.

Owns the nodes under `/milena/log_dirs`, one for each directory that is in use, and the decision which directories a
start must not use: an empty one in the place of one that was in use, as below a mount that failed, and one that an
empty one was accepted in the place of. Must not know logs, nor how to read a directory.

The zxid that created a directory's node says since when it is in use. The copy of the store in a directory is written
as long as the directory is, so a copy that is older than the node was written before.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from controller import paths
from controller.state_store import Create, Delete, NoNode, Operation, StateStore


class FoundDirectory(NamedTuple):
    """What a start finds at one path of `log.dirs`."""

    path: str
    is_claimed: bool
    """Whether it says whose it is (meta.properties)."""
    store_zxid: int | None
    """The last transaction of the copy of the store in it; None without one."""


async def read(store: StateStore) -> dict[str, int]:
    """The zxid since which each directory is in use, by path."""
    try:
        names = await store.children(paths.LOG_DIRS_IN_USE)
    except NoNode:
        return {}
    known = [paths.log_dir_of_name(name) for name in names]
    nodes = await store.get_many([paths.log_dir_in_use_path(path) for path in known])
    return {path: node.stat.czxid for path, node in zip(known, nodes, strict=True) if node is not None}


def why_refused(found: Iterable[FoundDirectory], in_use_since: Mapping[str, int]) -> dict[str, str]:
    """The directories that must not be used, with the reason."""
    reasons = {}
    for path, is_claimed, store_zxid in found:
        since = in_use_since.get(path)
        if since is None:
            continue
        if store_zxid is None and not is_claimed:
            reasons[path] = "it was in use before and is empty now"
        elif store_zxid is not None and store_zxid < since:
            reasons[path] = "it is as it was before an empty directory was accepted in its place"
    return reasons


async def write(
    store: StateStore, *, in_use: Collection[str], configured: Collection[str], replaced: Collection[str]
) -> None:
    """Record the directories `in_use`; forget those that are not `configured` any more, keep those that are offline.

    Those that were `replaced` are in use from now on.
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
