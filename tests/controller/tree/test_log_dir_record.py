"""Which log directories a start must refuse, and what it records of the others."""

import pytest

from controller.coordination.memory_store import MemoryStore, MemoryTree
from controller.tree import log_dir_record, paths
from controller.tree.log_dir_record import FoundDirectory

EMPTY, OLDER = "it was in use before and is empty now", "it is as it was before an empty directory was accepted"

CASES: list[tuple[str, FoundDirectory, int | None, str | None]] = [
    ("new", FoundDirectory("/d", False, None), None, None),
    ("of a broker from before there was a record", FoundDirectory("/d", True, 40), None, None),
    ("moved here with its data", FoundDirectory("/d", True, None), None, None),
    ("as it was left", FoundDirectory("/d", True, 40), 40, None),
    ("behind, as it was offline", FoundDirectory("/d", True, 39), 7, None),
    ("without its copy of the store", FoundDirectory("/d", True, None), 7, None),
    ("a crash came before it was claimed", FoundDirectory("/d", False, 40), 7, None),
    ("empty", FoundDirectory("/d", False, None), 7, EMPTY),
    ("from before another was begun there", FoundDirectory("/d", True, 6), 7, OLDER),
]


@pytest.mark.parametrize(("found", "since", "reason"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_lost_or_foreign_directories_are_rejected(found: FoundDirectory, since: int | None, reason: str | None) -> None:
    in_use_since = {"/other": 3} | ({} if since is None else {"/d": since})
    reasons = log_dir_record.why_refused([found, FoundDirectory("/other", True, 50)], in_use_since)
    assert list(reasons) == ([] if reason is None else ["/d"])
    assert reason is None or reasons["/d"].startswith(reason)


async def test_record_contains_the_directories_of_the_broker() -> None:
    tree = MemoryTree()
    store = MemoryStore(tree)
    await store.open()
    assert await log_dir_record.read(store) == {}
    both = ["/data/a", "/data/ä b%2F"]
    await log_dir_record.write(store, in_use=both, configured=both, replaced=[])
    first = await log_dir_record.read(store)
    assert sorted(first) == both
    assert set(first.values()) == {tree.zxid}
    written = tree.zxid
    await log_dir_record.write(store, in_use=both[:1], configured=both, replaced=[])
    assert tree.zxid == written
    await log_dir_record.write(store, in_use=[*both, "/data/c"], configured=[*both, "/data/c"], replaced=both[1:])
    second = await log_dir_record.read(store)
    assert second == {both[0]: first[both[0]], both[1]: tree.zxid, "/data/c": tree.zxid}
    await log_dir_record.write(store, in_use=["/data/c"], configured=["/data/c"], replaced=[])
    assert await log_dir_record.read(store) == {"/data/c": second["/data/c"]}


@pytest.mark.parametrize("path", ["/", "/data/a", "/data/ä b", "/a%2Fb", "/data/\udce4"])
def test_each_directory_has_one_node(path: str) -> None:
    node = paths.log_dir_in_use_path(path)
    assert node.count("/") == 3
    assert paths.log_dir_of_name(node.rpartition("/")[2]) == path
