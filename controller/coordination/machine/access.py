"""Access control lists: who may do what with a node.

Owns the schemes world, auth and digest. Other schemes are refused: no connection can prove an identity of them.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Collection, Iterable, Sequence
from enum import IntFlag
from hashlib import sha1
from typing import Final

from controller.coordination.machine.messages import Acl
from controller.store.state_store import StoreError


class Permission(IntFlag):
    READ = 1
    WRITE = 2
    CREATE = 4
    DELETE = 8
    ADMIN = 16
    ALL = 31


SCHEMES: Final = ("world", "auth", "digest")
ENTRIES_MAX: Final = 1000
"""Of one list, in which each entry of the scheme auth counts once for each identity."""
ENTRIES_OF_TRANSACTION_MAX: Final = 10_000
"""Of all lists that one transaction sets, counted in the same way: it is performed without a pause."""
IDENTITIES_MAX: Final = 100
"""Of one connection."""
CREDENTIALS_BYTES_MAX: Final = 1000
"""Of one identity: a list may name its user a thousand times."""
_ANYONE: Final = ("world", "anyone")
OPEN: Final = (Acl(int(Permission.ALL), *_ANYONE),)
READ_ONLY: Final = (Acl(int(Permission.READ), *_ANYONE),)


class NoAuthError(StoreError):
    """The identities of the connection do not have the permission."""


class InvalidAclError(StoreError):
    """The list is empty or too long, or has an entry that no connection could match.

    `scheme` is the scheme of that entry, None without one.
    """

    def __init__(self, path: str, scheme: str | None) -> None:
        self.scheme = scheme
        super().__init__(path)


def digest_identity(credentials: bytes) -> str:
    """Return the id of the scheme digest for `user:password`."""
    user = credentials.decode(errors="replace").partition(":")[0]
    return f"{user}:{b64encode(sha1(credentials, usedforsecurity=False).digest()).decode()}"


def resolved(path: str, entries: Sequence[Acl] | None, identities: Collection[str]) -> tuple[Acl, ...]:
    """Return the list to store: entries of the scheme auth become those of the connection's identities.

    Raises:
        InvalidAclError
    """
    if not entries:
        raise InvalidAclError(path, None)
    found: list[Acl] = []
    for entry in dict.fromkeys(entries):
        if (entry.scheme, entry.id) == _ANYONE or (entry.scheme == "digest" and _is_digest(entry.id)):
            found.append(entry)
        elif entry.scheme == "auth" and identities:
            found += (Acl(entry.permissions, "digest", identity) for identity in identities)
        else:
            raise InvalidAclError(path, entry.scheme)
        if len(found) > ENTRIES_MAX:
            raise InvalidAclError(path, None)
    return tuple(found)


def _is_digest(text: str) -> bool:
    return len(text.rstrip(":").split(":")) == 2  # as Java splits


def allows(acl: Sequence[Acl], permission: int, identities: Iterable[str]) -> bool:
    """Return whether any of the permissions, a set of bits, is given to anyone or to one of the identities."""
    if not acl:
        return True
    return any(
        entry.permissions & permission
        and ((entry.scheme, entry.id) == _ANYONE or (entry.scheme == "digest" and entry.id in identities))
        for entry in acl
    )


def without_hashes(acl: Sequence[Acl]) -> tuple[Acl, ...]:
    """Return the list for those who may read the node, but not administer it: guessing passwords needs the hash."""
    return tuple(
        entry._replace(id=f"{entry.id.partition(':')[0]}:x") if entry.scheme == "digest" else entry for entry in acl
    )
