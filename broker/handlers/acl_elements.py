"""The elements of ACLs as requests number them.

Owns the conversion of requests into patterns, ACLs and filters. Must not know what they decide.
"""

from __future__ import annotations

from typing import TypeVar

from broker.security.acls import Acl, Element, Filter, Operation, Pattern, PatternType, Permission, ResourceType
from protocol.errors import Malformed
from protocol.messages.create_acls import AclCreation
from protocol.messages.delete_acls import DeleteAclsFilter
from protocol.messages.describe_acls import DescribeAclsRequest

E = TypeVar("E", bound=Element)


def _element(kind: type[E], number: int) -> E:
    """Return an element by its number, UNKNOWN for a number of a later release.

    Raises Malformed for the number of UNKNOWN itself, which closes the connection.
    """
    if not number:
        raise Malformed(f"an ACL, or a filter for them, has {kind.__name__} {number}, which stands for UNKNOWN")
    return next((one for one in kind if one == number), kind(0))


def acl_of(creation: AclCreation) -> tuple[Pattern, Acl]:
    """Raises Malformed."""
    pattern = Pattern(
        _element(ResourceType, creation.resource_type),
        creation.resource_name,
        _element(PatternType, creation.resource_pattern_type),
    )
    acl = Acl(
        creation.principal,
        creation.host,
        _element(Operation, creation.operation),
        _element(Permission, creation.permission_type),
    )
    return pattern, acl


def filter_of(request: DescribeAclsRequest | DeleteAclsFilter) -> Filter:
    """Raises Malformed."""
    return Filter(
        _element(ResourceType, request.resource_type_filter),
        request.resource_name_filter,
        _element(PatternType, request.pattern_type_filter),
        request.principal_filter,
        request.host_filter,
        _element(Operation, request.operation),
        _element(Permission, request.permission_type),
    )
