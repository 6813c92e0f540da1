"""Recognize that a transaction which is rejected now was applied before, by its first sending.

A write whose response is lost with the connection is sent again. If the server had applied it, the second execution
mostly fails: the node exists already, or its version is one further. The state of the nodes then says which of the two
happened: all that one transaction wrote has one zxid. A transaction that only deletes leaves nothing that says it.

Owns this decision, as a pure function. Must not know how nodes are read.
"""

from collections.abc import Mapping, Sequence

from base.dataclass import dataclass
from controller.store.state_store import ANY_VERSION, Check, Create, Delete, Node, Operation, Result, SetData


@dataclass(slots=True)
class _Expected:
    """A node after the transaction: its data, and its version if the operations determine it."""

    data: bytes | None
    version: int | None
    ephemeral: bool = False


def paths_to_read(operations: Sequence[Operation]) -> list[str]:
    """Return the nodes whose state decides; none if the decision is impossible.

    The name that a sequential node got is unknown, so its transaction is never recognized.
    """
    if any(isinstance(operation, Create) and operation.sequential for operation in operations):
        return []
    return list(dict.fromkeys(it.path for it in operations if not isinstance(it, Check)))


def results_if_applied(
    operations: Sequence[Operation], nodes: Mapping[str, Node | None], *, session_id: int, zxid_before: int
) -> list[Result] | None:
    """Return the results of the transaction if `nodes` are as it leaves them, else None.

    `zxid_before` is a zxid that the server had reached before the first sending.
    """
    expected = _expected(operations)
    zxids = set()
    for path, after in expected.items():
        node = nodes[path]
        if after is None or node is None:
            if not (after is None and node is None):
                return None
            continue
        if node.data != after.data or after.version not in (None, node.stat.version):
            return None
        if after.ephemeral and node.stat.ephemeral_owner != session_id:
            return None
        zxids.add(node.stat.mzxid)
    if len(zxids) != 1 or any(zxid <= zxid_before for zxid in zxids):
        return None
    return [_result(operation, nodes) for operation in operations]


def _expected(operations: Sequence[Operation]) -> dict[str, _Expected | None]:
    """Return each changed node as the transaction leaves it, None for one that it deletes."""
    expected: dict[str, _Expected | None] = {}
    for operation in operations:
        match operation:
            case Create(path, data, ephemeral):
                expected[path] = _Expected(data, 0, ephemeral)
            case SetData(path, data, version):
                before = expected.get(path)
                if before is not None:
                    before.data = data
                    before.version = None if before.version is None else before.version + 1
                else:
                    expected[path] = _Expected(data, None if version == ANY_VERSION else version + 1)
            case Delete(path):
                expected[path] = None
            case Check():
                pass
    return expected


def _result(operation: Operation, nodes: Mapping[str, Node | None]) -> Result:
    if isinstance(operation, Create):
        return operation.path
    node = nodes.get(operation.path)
    return node.stat if isinstance(operation, SetData) and node is not None else None
