"""ACLs and the decision that follows from them. Pure.

Owns: the elements of an ACL with their numbers and names, which ACLs may exist, the index of those in force, and the
decision (KIP-11, KIP-290). Must not know stores, requests or connections.

The decision for a principal, a host, an operation and a resource takes the ACLs of the resource's own name, of `*`, and
of every prefix of the name. Without any, a setting decides. A matching Deny denies, else a matching Allow allows, else
it is denied. The order of ACLs never matters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from ipaddress import ip_address
from typing import NamedTuple

WILDCARD = "*"
EVERYONE = "User:*"
"""The principal of an ACL for all principals, whatever their type."""
CLUSTER_NAME = "kafka-cluster"
_NOT_IN_PATHS = "[\0-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]"
"""Characters that ZooKeeper refuses in paths."""


class Element(IntEnum):
    """An element of ACLs, with its number in requests."""

    @property
    def title(self) -> str:
        """The name in the metadata store and in log lines: `TransactionalId`."""
        return self.name.replace("_", " ").title().replace(" ", "")


class ResourceType(Element):
    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(Element):
    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(Element):
    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class Permission(Element):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


OPERATIONS: Mapping[ResourceType, frozenset[Operation]] = {
    ResourceType.TOPIC: frozenset(
        {
            Operation.READ,
            Operation.WRITE,
            Operation.CREATE,
            Operation.DELETE,
            Operation.ALTER,
            Operation.DESCRIBE,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
        }
    ),
    ResourceType.GROUP: frozenset({Operation.READ, Operation.DELETE, Operation.DESCRIBE}),
    ResourceType.CLUSTER: frozenset(
        {
            Operation.CREATE,
            Operation.ALTER,
            Operation.DESCRIBE,
            Operation.CLUSTER_ACTION,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
            Operation.IDEMPOTENT_WRITE,
        }
    ),
    ResourceType.TRANSACTIONAL_ID: frozenset({Operation.WRITE, Operation.DESCRIBE}),
    ResourceType.DELEGATION_TOKEN: frozenset({Operation.DESCRIBE}),
    ResourceType.USER: frozenset({Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS}),
}
"""The operations that exist on each type of resource."""

IMPLIED_BY: Mapping[Operation, frozenset[Operation]] = {
    Operation.DESCRIBE: frozenset({Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.ALTER_CONFIGS}),
}
"""An Allow of one of these operations allows the operation as well. A Deny denies nothing else."""


class Pattern(NamedTuple):
    """The resources that an ACL is about."""

    resource_type: ResourceType
    name: str
    pattern_type: PatternType = PatternType.LITERAL

    def __str__(self) -> str:
        return f"{self.resource_type.title}:{self.pattern_type.name}:{self.name}"


class Acl(NamedTuple):
    """One rule. `host` is an address or `*`."""

    principal: str
    host: str
    operation: Operation
    permission: Permission


class InvalidAclError(ValueError):
    """An ACL that cannot exist. The message states why."""


class Filter(NamedTuple):
    """Selects ACLs; None and ANY match everything."""

    resource_type: ResourceType
    name: str | None
    pattern_type: PatternType
    principal: str | None
    host: str | None
    operation: Operation
    permission: Permission

    def matches(self, pattern: Pattern, acl: Acl) -> bool:
        return (
            self.resource_type in (ResourceType.ANY, pattern.resource_type)
            and self._matches_name(pattern)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
        )

    def _matches_name(self, pattern: Pattern) -> bool:
        match self.pattern_type:
            case PatternType.MATCH if self.name is not None:
                if pattern.pattern_type is PatternType.PREFIXED:
                    return self.name.startswith(pattern.name)
                return pattern.name in (self.name, WILDCARD)
            case PatternType.ANY | PatternType.MATCH:
                return self.name in (None, pattern.name)
            case _:
                return pattern.pattern_type is self.pattern_type and self.name in (None, pattern.name)


def is_only_for_filters(pattern: Pattern, acl: Acl) -> bool:
    """Return whether an element of the ACL selects several values, so that no ACL can have it."""
    elements = (pattern.resource_type, pattern.pattern_type, acl.operation, acl.permission)
    return any(element.name in ("ANY", "MATCH") for element in elements)


def check_acl(pattern: Pattern, acl: Acl) -> None:
    """Raise InvalidAclError unless the ACL may be created, under the rules and in the words of Kafka.

    Kafka checks neither that the operation exists on the resource nor that the host is an address.
    """
    if pattern.resource_type is ResourceType.CLUSTER and pattern.name != CLUSTER_NAME:
        raise InvalidAclError(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not pattern.name:
        raise InvalidAclError("Invalid empty resource name")
    is_unknown = not all((pattern.resource_type, pattern.pattern_type, acl.operation, acl.permission))
    if is_unknown or "/" in pattern.name:
        raise InvalidAclError("Failed to create ACL")


def problem_of_storing(pattern: Pattern, acls: Iterable[Acl]) -> str | None:
    """Return why the store cannot hold ACLs that passed `check_acl`; None if it can."""
    if pattern.name in (".", "..") or re.search(_NOT_IN_PATHS, pattern.name):
        return f"{pattern.name!r} cannot be the name of a node"
    unparsable = next((acl.principal for acl in acls if ":" not in acl.principal), None)
    return None if unparsable is None else f"expected a principal as Type:name, found {unparsable!r}"


def _usual_form(host: str) -> str:
    """Return an address as connections have it: there are several ways to write an address of IPv6."""
    try:
        return str(ip_address(host))
    except ValueError:
        return host


class _Rules:
    """The ACLs of one pattern, by principal."""

    def __init__(self, acls: frozenset[Acl]) -> None:
        self.acls = acls
        self._by_principal: dict[str, list[Acl]] = {}
        for acl in acls:
            in_usual_form = acl._replace(host=_usual_form(acl.host))
            self._by_principal.setdefault(acl.principal, []).append(in_usual_form)

    def of(self, principal: str) -> Iterator[Acl]:
        """Yield the ACLs of a principal and of everyone; their hosts are in the usual form."""
        yield from self._by_principal.get(principal, ())
        if principal != EVERYONE:
            yield from self._by_principal.get(EVERYONE, ())


class AclIndex:
    """The ACLs in force."""

    def __init__(self) -> None:
        self._literal: dict[ResourceType, dict[str, _Rules]] = {}
        self._prefixed: dict[ResourceType, dict[str, _Rules]] = {}
        self._prefix_counts: dict[ResourceType, dict[int, int]] = {}
        """How many prefixes have a length, by length in ascending order."""

    def __iter__(self) -> Iterator[tuple[Pattern, frozenset[Acl]]]:
        for pattern_type, by_type in ((PatternType.LITERAL, self._literal), (PatternType.PREFIXED, self._prefixed)):
            for resource_type, by_name in by_type.items():
                for name, rules in by_name.items():
                    yield Pattern(resource_type, name, pattern_type), rules.acls

    def put(self, pattern: Pattern, acls: Iterable[Acl]) -> None:
        """Replace the ACLs of a pattern; none removes it."""
        rules = _Rules(frozenset(acls))
        is_prefixed = pattern.pattern_type is PatternType.PREFIXED
        by_name = (self._prefixed if is_prefixed else self._literal).setdefault(pattern.resource_type, {})
        was_present = by_name.pop(pattern.name, None) is not None
        if rules.acls:
            by_name[pattern.name] = rules
        if is_prefixed and was_present is not bool(rules.acls):
            self._count_prefix(pattern, 1 if rules.acls else -1)

    def _count_prefix(self, pattern: Pattern, change: int) -> None:
        counts, length = self._prefix_counts.get(pattern.resource_type, {}), len(pattern.name)
        count = counts.get(length, 0) + change
        if length in counts and count:
            counts[length] = count
        else:
            changed = {**counts, length: count}
            self._prefix_counts[pattern.resource_type] = {one: changed[one] for one in sorted(changed) if changed[one]}

    def decide(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool | None:
        """Return whether the operation is allowed; None if no ACL is about the resource."""
        found = list(self._about(resource_type, name))
        if not found:
            return None
        implied_by = IMPLIED_BY.get(operation, frozenset())
        is_allowed = False
        for rules in found:
            for acl in rules.of(principal):
                if acl.host not in (WILDCARD, host):
                    continue
                if acl.permission is Permission.DENY:
                    if acl.operation in (operation, Operation.ALL):
                        return False
                elif acl.operation in (operation, Operation.ALL) or acl.operation in implied_by:
                    is_allowed = True
        return is_allowed

    def denies_all(self, principal: str, host: str, operation: Operation, resource_type: ResourceType) -> bool:
        """Return whether the operation is denied on every resource of a type."""
        rules = self._literal.get(resource_type, {}).get(WILDCARD)
        return rules is not None and any(
            acl.permission is Permission.DENY
            and acl.host in (WILDCARD, host)
            and acl.operation in (operation, Operation.ALL)
            for acl in rules.of(principal)
        )

    def allows_any(self, principal: str, host: str, operation: Operation, resource_type: ResourceType) -> bool:
        """Return whether the operation is allowed on some resource of a type, which need not exist.

        An allowed name or prefix counts unless a Deny covers all of it: one of the same name, of `*`, or of a prefix.
        """
        denied_names: set[str] = set()
        denied_prefixes: set[str] = set()
        allowed: list[Pattern] = []
        for pattern, rules in self._of_type(resource_type):
            for acl in rules.of(principal):
                if acl.host not in (WILDCARD, host) or acl.operation not in (operation, Operation.ALL):
                    continue
                if acl.permission is Permission.ALLOW:
                    allowed.append(pattern)
                elif pattern.pattern_type is PatternType.PREFIXED:
                    denied_prefixes.add(pattern.name)
                else:
                    denied_names.add(pattern.name)
        if WILDCARD in denied_names:
            return False
        return any(not _is_covered(pattern, denied_names, denied_prefixes) for pattern in allowed)

    def _about(self, resource_type: ResourceType, name: str) -> Iterator[_Rules]:
        literal = self._literal.get(resource_type, {})
        for literal_name in (name, WILDCARD) if name != WILDCARD else (name,):
            if (rules := literal.get(literal_name)) is not None:
                yield rules
        prefixed = self._prefixed.get(resource_type, {})
        for length in self._prefix_counts.get(resource_type, ()):
            if length > len(name):
                break
            if (rules := prefixed.get(name[:length])) is not None:
                yield rules

    def _of_type(self, resource_type: ResourceType) -> Iterator[tuple[Pattern, _Rules]]:
        for pattern_type, by_type in ((PatternType.LITERAL, self._literal), (PatternType.PREFIXED, self._prefixed)):
            for name, rules in by_type.get(resource_type, {}).items():
                yield Pattern(resource_type, name, pattern_type), rules


def _is_covered(pattern: Pattern, denied_names: set[str], denied_prefixes: set[str]) -> bool:
    if pattern.pattern_type is PatternType.LITERAL:
        if pattern.name in denied_names:
            return True
        if pattern.name == WILDCARD:
            return False
    return any(pattern.name[:length] in denied_prefixes for length in range(1, len(pattern.name) + 1))
