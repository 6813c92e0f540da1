"""Which permission a copied ACL grants at the target: only the mirror writes there.

Owns the rule. Must not know clusters or topics. Numbers are those of the protocol.
"""

from __future__ import annotations

from typing import Final

ALL, READ, WRITE = 2, 3, 4
"""Operations."""
ALLOW: Final = 3
"""A permission; the other one is to deny."""


def mirrored_operation(operation: int, permission: int) -> int | None:
    """Return the operation of an ACL's copy; None if it is not copied. What is denied is denied at the target too."""
    if permission != ALLOW:
        return operation
    return {WRITE: None, ALL: READ}.get(operation, operation)
