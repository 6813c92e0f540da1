"""Decide whether a client may do something, by ACLs, `super.users` and settings, and log it in the audit log.

Owns: the decision as requests ask for it, its cache, and the audit log (`kafka.authorizer.logger`: denied at INFO,
allowed at DEBUG). Must not know where ACLs are stored, or what a request means.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from typing import Protocol

from broker.security.acls import (
    CLUSTER_NAME,
    OPERATIONS,
    WILDCARD,
    Acl,
    AclIndex,
    Operation,
    Pattern,
    PatternType,
    ResourceType,
)
from controller.machine.topic_creation import NAME_LENGTH_MAX
from protocol.api import APIS

logger = logging.getLogger("kafka.authorizer.logger")

NOT_ASKED = -(2**31)
"""The bit field of operations in a response to a request that does not ask for it."""
NAME_SHOWN_MAX = 1000
"""The characters of a name in the audit log; the names of groups and ids may have 32,767."""
DECISIONS_MAX = 50_000
"""The most decisions that are remembered. All are forgotten when there are more, or when an ACL changes."""


class Requester(Protocol):
    """The client of a request: what ACLs are compared with."""

    @property
    def principal(self) -> str: ...

    @property
    def client_host(self) -> str: ...

    @property
    def api_key(self) -> int: ...


class _Known:
    """The names of resources about which was decided, for one requester, operation and type."""

    __slots__ = ("allowed", "denied")

    def __init__(self) -> None:
        self.allowed: set[str] = set()
        self.denied: set[str] = set()


class Authorizer:
    """The decisions of one broker. Without `authorizer.class.name` everything is allowed."""

    def __init__(
        self, *, is_active: bool, super_users: Iterable[str] = (), allow_everyone_if_no_acl_found: bool = False
    ) -> None:
        self.is_active = is_active
        self.index = AclIndex()
        self.version = 0
        """Rises when a decision may have changed."""
        self._super_users = frozenset(super_users)
        self._allow_everyone_if_no_acl_found = allow_everyone_if_no_acl_found
        self._known: dict[tuple[str, str, Operation, ResourceType], _Known] = {}
        self._known_on_any: dict[tuple[str, str, Operation, ResourceType], bool] = {}
        self._known_count = 0

    def put(self, pattern: Pattern, acls: Iterable[Acl]) -> None:
        """Replace the ACLs of a pattern."""
        self.index.put(pattern, acls)
        self.version += 1
        self._forget()

    def allows(
        self,
        requester: Requester,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
        *,
        is_logged_if_denied: bool = True,
    ) -> bool:
        """Return whether the requester may do this.

        `is_logged_if_denied` is False for questions about what a response may contain, which are no attempts.
        """
        return not self.denied(requester, operation, resource_type, (name,), is_logged_if_denied=is_logged_if_denied)

    def denied(
        self,
        requester: Requester,
        operation: Operation,
        resource_type: ResourceType,
        names: Collection[str],
        *,
        is_logged_if_denied: bool = True,
    ) -> Collection[str]:
        """Return the names of resources on which the requester may not do this, each once; see `allows`."""
        if not self.is_active:
            return ()
        known = self._known.get((requester.principal, requester.client_host, operation, resource_type))
        if known is not None and known.allowed.issuperset(names) and not logger.isEnabledFor(logging.DEBUG):
            return ()
        refused = set()
        for name in dict.fromkeys(names):
            if self._is_allowed(requester, operation, resource_type, name):
                if logger.isEnabledFor(logging.DEBUG):
                    _log(logging.DEBUG, "Allowed", requester, operation, resource_type, name)
            else:
                refused.add(name)
                if is_logged_if_denied:
                    _log(logging.INFO, "Denied", requester, operation, resource_type, name)
        return refused

    def allows_cluster(self, requester: Requester, operation: Operation, *, is_logged_if_denied: bool = True) -> bool:
        return self.allows(
            requester, operation, ResourceType.CLUSTER, CLUSTER_NAME, is_logged_if_denied=is_logged_if_denied
        )

    def allows_on_any(self, requester: Requester, operation: Operation, resource_type: ResourceType) -> bool:
        """Return whether the requester may do this on some resource of a type.

        If it may not, nothing is logged: the caller asks for another permission then.
        """
        if not self.is_active:
            return True
        key = (requester.principal, requester.client_host, operation, resource_type)
        is_allowed = self._known_on_any.get(key)
        if is_allowed is None:
            self._make_room()
            is_allowed = self._known_on_any[key] = self._decide_on_any(*key)
        if is_allowed and logger.isEnabledFor(logging.DEBUG):
            _log(logging.DEBUG, "Allowed", requester, operation, resource_type, WILDCARD)
        return is_allowed

    def _decide_on_any(self, principal: str, host: str, operation: Operation, resource_type: ResourceType) -> bool:
        if principal in self._super_users:
            return True
        if self.index.denies_all(principal, host, operation, resource_type):
            return False
        return self._allow_everyone_if_no_acl_found or self.index.allows_any(principal, host, operation, resource_type)

    def operations(self, requester: Requester, resource_type: ResourceType, name: str = CLUSTER_NAME) -> int:
        """Return the operations that the requester may perform, as a bit field by their numbers (KIP-430)."""
        return sum(
            1 << operation
            for operation in OPERATIONS[resource_type]
            if self.allows(requester, operation, resource_type, name, is_logged_if_denied=False)
        )

    def _is_allowed(self, requester: Requester, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        key = (requester.principal, requester.client_host, operation, resource_type)
        known = self._known.get(key)
        if known is not None:
            if name in known.allowed:
                return True
            if name in known.denied:
                return False
        is_allowed = self._decide(*key, name)
        if len(name) <= NAME_LENGTH_MAX:  # a topic never has a longer name, which would only cost memory
            self._make_room()
            known = self._known.setdefault(key, _Known())
            (known.allowed if is_allowed else known.denied).add(name)
        return is_allowed

    def _make_room(self) -> None:
        """Count a decision that will be remembered; forget the others if there are too many."""
        if self._known_count >= DECISIONS_MAX:
            self._forget()
        self._known_count += 1

    def _forget(self) -> None:
        self._known.clear()
        self._known_on_any.clear()
        self._known_count = 0

    def _decide(self, principal: str, host: str, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        if principal in self._super_users:
            return True
        decision = self.index.decide(principal, host, operation, resource_type, name)
        return self._allow_everyone_if_no_acl_found if decision is None else decision


def _log(
    level: int, outcome: str, requester: Requester, operation: Operation, resource_type: ResourceType, name: str
) -> None:
    logger.log(
        level,
        "Principal = %s is %s Operation = %s from host = %s on resource = %s for request = %s with "
        "resourceRefCount = 1",
        requester.principal,
        outcome,
        operation.title,
        requester.client_host,
        Pattern(resource_type, name[:NAME_SHOWN_MAX], PatternType.LITERAL),
        APIS[requester.api_key].name,
    )
