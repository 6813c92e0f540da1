"""Which state of the nodes says that a transaction was applied before."""

from collections.abc import Mapping, Sequence

import pytest

from controller.store.state_store import Check, Create, Delete, Node, Operation, Result, SetData, Stat
from controller.zookeeper.second_execution import paths_to_read, results_if_applied

SESSION = 7
BEFORE = 100


def node(data: bytes | None, version: int = 0, zxid: int = 101, owner: int = 0) -> Node:
    return Node(data, Stat(version, 1, zxid, 0, owner))


SET, CREATE = SetData("/s", b"new", 4), Create("/c", b"x")

CASES: list[tuple[str, Sequence[Operation], Mapping[str, Node | None], bool]] = [
    ("versioned set, applied", [SET], {"/s": node(b"new", 5)}, True),
    ("versioned set, another's data", [SET], {"/s": node(b"other", 5)}, False),
    ("versioned set, changed again since", [SET], {"/s": node(b"new", 6)}, False),
    ("versioned set, the node is gone", [SET], {"/s": None}, False),
    ("create, applied", [CREATE], {"/c": node(b"x")}, True),
    ("create, an older node", [CREATE], {"/c": node(b"x", zxid=BEFORE)}, False),
    ("create, another's data", [CREATE], {"/c": node(b"y")}, False),
    ("create, not applied", [CREATE], {"/c": None}, False),
    ("own ephemeral", [Create("/c", None, True)], {"/c": node(None, owner=SESSION)}, True),
    ("another's ephemeral", [Create("/c", None, True)], {"/c": node(None, owner=8)}, False),
    ("create, then set", [CREATE, SetData("/c", b"z", 0)], {"/c": node(b"z", 1)}, True),
    ("create, then set, only created", [CREATE, SetData("/c", b"z", 0)], {"/c": node(b"x")}, False),
    ("one transaction", [Check("/e", 3), SET, CREATE], {"/s": node(b"new", 5), "/c": node(b"x")}, True),
    ("two transactions", [SET, CREATE], {"/s": node(b"new", 5), "/c": node(b"x", zxid=102)}, False),
    ("with a delete", [SET, Delete("/d")], {"/s": node(b"new", 5), "/d": None}, True),
    ("deleted node exists", [SET, Delete("/d")], {"/s": node(b"new", 5), "/d": node(b"")}, False),
    ("deletes alone leave no trace", [Delete("/d")], {"/d": None}, False),
    ("unconditional set", [SetData("/s", b"new")], {"/s": node(b"new", 9)}, True),
]


@pytest.mark.parametrize(
    ("operations", "nodes", "was_applied"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
def test_nodes_say_whether_the_transaction_was_applied(
    operations: Sequence[Operation], nodes: Mapping[str, Node | None], was_applied: bool
) -> None:
    assert set(paths_to_read(operations)) == nodes.keys()
    results = results_if_applied(operations, nodes, session_id=SESSION, zxid_before=BEFORE)
    assert (results is not None) == was_applied


def test_results_are_those_of_the_first_execution() -> None:
    nodes = {"/s": node(b"new", 5), "/c": node(b"x")}
    expected: list[Result] = [None, node(b"", 5).stat, "/c"]
    operations = [Check("/e", 3), SET, CREATE]
    assert results_if_applied(operations, nodes, session_id=SESSION, zxid_before=BEFORE) == expected


def test_transaction_with_a_sequential_node_is_never_recognized() -> None:
    assert paths_to_read([SET, Create("/n_", b"", sequential=True)]) == []
