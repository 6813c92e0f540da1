"""Watches are called once for each time they are armed, and for changes while no watch was armed."""

import pytest

from controller.store.state_store import WatchEvent, WatchKind
from controller.zookeeper.armed_watches import ArmedWatches


@pytest.mark.parametrize(
    ("armed", "found", "kind"),
    [
        (5, 5, None),
        (5, 6, WatchKind.CHANGED),
        (5, None, WatchKind.DELETED),
        (None, None, None),
        (None, 6, WatchKind.CREATED),
    ],
)
def test_node_read_again_fires_if_it_has_changed(armed: int | None, found: int | None, kind: WatchKind | None) -> None:
    watches, seen = ArmedWatches(), list[WatchEvent]()
    watches.arm_data("/a", seen.append, armed)
    watches.data_read_again("/a", found)
    watches.data_read_again("/a", found)
    assert seen == ([] if kind is None else [WatchEvent(kind, "/a")])
    assert watches.paths_of_data() == (["/a"] if kind is None else [])


@pytest.mark.parametrize(("found", "kind"), [(5, None), (6, WatchKind.CHILDREN), (None, WatchKind.DELETED)])
def test_children_read_again_fire_if_they_have_changed(found: int | None, kind: WatchKind | None) -> None:
    watches, seen = ArmedWatches(), list[WatchEvent]()
    watches.arm_children("/a", seen.append, 5)
    watches.children_read_again("/a", found)
    assert seen == ([] if kind is None else [WatchEvent(kind, "/a")])


def test_watch_that_is_armed_twice_is_called_once() -> None:
    watches, seen = ArmedWatches(), list[WatchEvent]()
    watch = seen.append
    watches.arm_data("/a", watch, 5)
    watches.arm_data("/a", watch, 6)
    watches.data_read_again("/a", 6)
    watches.fire(WatchKind.CHANGED, "/a")
    watches.fire(WatchKind.CHANGED, "/a")
    assert seen == [WatchEvent(WatchKind.CHANGED, "/a")]


def test_deletion_fires_the_watches_of_node_and_children() -> None:
    watches, seen = ArmedWatches(), list[str]()
    watches.arm_data("/a", lambda _: seen.append("data"), 5)
    watches.arm_children("/a", lambda _: seen.append("children"), 5)
    watches.arm_children("/b", lambda _: seen.append("another"), 5)
    watches.fire(WatchKind.DELETED, "/a")
    assert seen == ["data", "children"]
