"""The ACLs in the metadata store: reads them all, follows the changes of other brokers, creates and deletes.

Owns how ACLs become nodes and notifications, and the authorizer's index as their copy. Must not know requests.

A change writes the node of a pattern under the version that was read, tries again if another writer was faster, and
leaves a notification. This broker applies its own changes before it reports success.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from base.pause import Pause
from broker.loop.in_order import InOrder
from broker.security.acls import (
    EVERYONE,
    WILDCARD,
    Acl,
    Filter,
    InvalidAclError,
    Operation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
    check_acl,
    problem_of_storing,
)
from broker.security.authorizer import Authorizer
from controller.store.state_store import (
    BadVersion,
    Create,
    DataTooLarge,
    Delete,
    NodeExists,
    NoNode,
    SetData,
    StateStore,
)
from controller.tree.acl_nodes import (
    ACL_PATHS,
    LITERAL_CHANGES,
    LITERAL_ROOT,
    PREFIXED_CHANGES,
    PREFIXED_ROOT,
    RESOURCE_TYPES,
    AclText,
    PatternText,
    acl_path,
    change_path,
    decode_acls,
    decode_change,
    encode_acls,
    encode_change,
)
from controller.tree.change_notifications import ChangeListener
from controller.tree.paths import Undecodable
from controller.tree.registration import ensure_paths
from protocol.errors import ErrorCode, KafkaError, without_frames

logger = logging.getLogger("kafka.security.authorizer.AclAuthorizer")

ATTEMPTS_MAX = 10

Edit = Callable[[frozenset[Acl]], frozenset[Acl]]

_RESOURCE_TYPES = {one.title: one for one in ResourceType}
_OPERATIONS = {one.title.lower(): one for one in Operation}
_PERMISSIONS = {one.title.lower(): one for one in Permission}


class AclStore:
    """The stored ACLs of the cluster, as one broker reads and changes them."""

    def __init__(self, store: StateStore, authorizer: Authorizer, pause: Pause) -> None:
        """`pause` is awaited in loops over all patterns."""
        self._pause = pause
        self._store = store
        self._authorizer = authorizer
        self._reading = InOrder()
        """Keeps reads, writes and effects in one order: an older read of all ACLs must not undo a newer change."""
        self._listeners = [
            ChangeListener(store, changes, lambda data, changes=changes: self._changed(changes, data))  # type: ignore[misc]
            for changes in (LITERAL_CHANGES, PREFIXED_CHANGES)
        ]

    async def start(self) -> None:
        """Read all ACLs and follow their changes. May be called again, in a new session with the store."""
        if not self._authorizer.is_active:
            return
        await ensure_paths(self._store, ACL_PATHS)
        for listener in self._listeners:
            await listener.start()
        async with self._reading:
            await self._load()

    def stop(self) -> None:
        for listener in self._listeners:
            listener.stop()

    async def create(self, creations: Sequence[tuple[Pattern, Acl]]) -> list[KafkaError | None]:
        """Create ACLs, those of one pattern in one change; return one result per ACL, None for success.

        As in Kafka, ACLs of one pattern that cannot be stored fail together, with UNKNOWN_SERVER_ERROR.
        """
        results: list[KafkaError | None] = [None] * len(creations)
        of_pattern: dict[Pattern, list[int]] = {}
        for number, (pattern, acl) in enumerate(creations):
            await self._pause()
            try:
                check_acl(pattern, acl)
                of_pattern.setdefault(pattern, []).append(number)
            except InvalidAclError as error:
                results[number] = KafkaError(ErrorCode.INVALID_REQUEST, str(error))
        for pattern, numbers in of_pattern.items():
            new = frozenset(creations[number][1] for number in numbers)
            try:
                if (problem := problem_of_storing(pattern, new)) is not None:
                    raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, problem)
                async with self._reading:
                    await self._edit(pattern, new.union)
            except KafkaError as error:
                logger.warning("ACLs of %s cannot be created: %s", pattern, error.message)
                for number in numbers:
                    results[number] = without_frames(error)
        return results

    async def find(self, wanted: Filter) -> list[tuple[Pattern, list[Acl]]]:
        """Return the ACLs that match a filter, by pattern, as they are when this is called."""
        found = []
        for pattern, acls in list(self._authorizer.index):
            await self._pause()
            matching = sorted(acl for acl in acls if wanted.matches(pattern, acl))
            if matching:
                found.append((pattern, matching))
        return found

    async def delete(self, wanted: Filter) -> list[tuple[Pattern, Acl]]:
        """Delete the ACLs that match a filter and return them. Raises KafkaError."""
        deleted = []
        for pattern, acls in await self.find(wanted):
            async with self._reading:
                await self._edit(pattern, lambda before, acls=acls: before.difference(acls))  # type: ignore[misc]
            deleted += [(pattern, acl) for acl in acls]
        return deleted

    async def _load(self) -> None:
        patterns = []
        for pattern_type, root in ((PatternType.LITERAL, LITERAL_ROOT), (PatternType.PREFIXED, PREFIXED_ROOT)):
            for title in RESOURCE_TYPES:
                names = await self._store.children(f"{root}/{title}")
                patterns += [Pattern(_RESOURCE_TYPES[title], name, pattern_type) for name in names]
        nodes = await self._store.get_many([acl_path(pattern_text(pattern)) for pattern in patterns])
        for pattern, node in zip(patterns, nodes, strict=True):
            await self._pause()
            self._put(pattern, None if node is None else node.data)
        present = set(patterns)
        for pattern in [pattern for pattern, _ in self._authorizer.index if pattern not in present]:
            await self._pause()
            self._authorizer.put(pattern, ())

    async def _changed(self, changes: str, data: bytes | None) -> None:
        text = decode_change(changes, data)
        pattern = Pattern(_RESOURCE_TYPES[text.resource_type], text.name, PatternType[text.pattern_type])
        async with self._reading:
            (node,) = await self._store.get_many([acl_path(text)])
            self._put(pattern, None if node is None else node.data)

    def _put(self, pattern: Pattern, data: bytes | None) -> None:
        try:
            self._authorizer.put(pattern, decoded_acls(pattern, data))
        except Undecodable as error:
            # Without its ACLs more may be allowed than they say: everything but super users is denied instead.
            logger.error("all access to %s is denied until its ACLs can be read: %s", pattern, error)
            self._authorizer.put(pattern, {Acl(EVERYONE, WILDCARD, Operation.ALL, Permission.DENY)})

    async def _edit(self, pattern: Pattern, edit: Edit) -> None:
        """Replace the ACLs of a pattern by `edit(acls)`, which is called again after a conflict. Raises KafkaError."""
        text = pattern_text(pattern)
        path = acl_path(text)
        for _ in range(ATTEMPTS_MAX):
            (node,) = await self._store.get_many([path])
            try:
                before = decoded_acls(pattern, None if node is None else node.data)
            except Undecodable as error:
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error
            after = edit(before)
            if after != before:
                notification = Create(change_path(text), encode_change(text), sequential=True)
                try:
                    if node is None:
                        await self._store.multi([Create(path, encoded_acls(after)), notification])
                    elif after:
                        await self._store.multi([SetData(path, encoded_acls(after), node.stat.version), notification])
                    else:
                        await self._store.multi([Delete(path, node.stat.version), notification])
                except DataTooLarge as error:
                    raise KafkaError(
                        ErrorCode.UNKNOWN_SERVER_ERROR, f"{len(after)} ACLs of one pattern would exceed 1 MB"
                    ) from error
                except (BadVersion, NodeExists, NoNode):
                    continue
            self._authorizer.put(pattern, after)
            return
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"{path} changed during each of {ATTEMPTS_MAX} attempts: try again"
        )


def pattern_text(pattern: Pattern) -> PatternText:
    """Return the pattern in the words of the store."""
    return PatternText(pattern.resource_type.title, pattern.name, pattern.pattern_type.name)


def encoded_acls(acls: Iterable[Acl]) -> bytes:
    """Return the data of a pattern's node."""
    return encode_acls(
        AclText(acl.principal, acl.permission.title, acl.operation.title, acl.host) for acl in sorted(acls)
    )


def decoded_acls(pattern: Pattern, data: bytes | None) -> frozenset[Acl]:
    """Return the ACLs of a pattern's node. Raises Undecodable."""
    acls = set()
    for text in decode_acls(str(pattern), data):
        operation = _OPERATIONS.get(text.operation.lower())
        permission = _PERMISSIONS.get(text.permission.lower())
        if operation is None or permission is None:
            raise Undecodable(f"{pattern}: unknown operation or permission {text.operation}, {text.permission}")
        acls.add(Acl(text.principal, text.host, operation, permission))
    return frozenset(acls)
