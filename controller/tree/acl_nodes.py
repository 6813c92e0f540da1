"""Build and parse the paths of ACLs in the metadata tree, and encode and decode the data of their nodes.

Owns the layout and the JSON (docs/formats/metadata-store.md). Must not know what an ACL means: its elements are text.

    /kafka-acl/TYPE/NAME                            the ACLs of a literal name
    /kafka-acl-extended/prefixed/TYPE/NAME          the ACLs of a prefix
    /kafka-acl-changes/acl_changes_N                a literal name whose ACLs have changed: `TOPIC:name`
    /kafka-acl-extended-changes/acl_changes_N       the same of a prefix, as JSON
"""

import json
from collections.abc import Iterable
from typing import NamedTuple

from controller.tree.paths import Undecodable

LITERAL, PREFIXED = "LITERAL", "PREFIXED"
LITERAL_ROOT = "/kafka-acl"
PREFIXED_ROOT = "/kafka-acl-extended/prefixed"
LITERAL_CHANGES = "/kafka-acl-changes"
PREFIXED_CHANGES = "/kafka-acl-extended-changes"
CHANGE_NAME = "acl_changes_"
RESOURCE_TYPES = ("Topic", "Group", "Cluster", "TransactionalId", "DelegationToken", "User")

ACL_PATHS = (
    LITERAL_ROOT,
    *(f"{LITERAL_ROOT}/{name}" for name in RESOURCE_TYPES),
    LITERAL_CHANGES,
    "/kafka-acl-extended",
    PREFIXED_ROOT,
    *(f"{PREFIXED_ROOT}/{name}" for name in RESOURCE_TYPES),
    PREFIXED_CHANGES,
)
"""Every broker with an authorizer creates these at its start, parents first."""


class PatternText(NamedTuple):
    """A pattern: the title of a resource type, a name, and LITERAL or PREFIXED."""

    resource_type: str
    name: str
    pattern_type: str


class AclText(NamedTuple):
    """One ACL in the words of the store."""

    principal: str
    permission: str
    operation: str
    host: str


def acl_path(pattern: PatternText) -> str:
    root = LITERAL_ROOT if pattern.pattern_type == LITERAL else PREFIXED_ROOT
    return f"{root}/{pattern.resource_type}/{pattern.name}"


def encode_acls(acls: Iterable[AclText]) -> bytes:
    members = [
        {"principal": acl.principal, "permissionType": acl.permission, "operation": acl.operation, "host": acl.host}
        for acl in acls
    ]
    return json.dumps({"version": 1, "acls": members}, separators=(",", ":")).encode()


def decode_acls(path: str, data: bytes | None) -> list[AclText]:
    """Raises Undecodable."""
    if not data:
        return []
    try:
        content = json.loads(data)
        if content["version"] != 1:
            raise Undecodable(f"{path}: version {content['version']}, expected 1")
        return [
            AclText(str(one["principal"]), str(one["permissionType"]), str(one["operation"]), str(one["host"]))
            for one in content["acls"]
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise Undecodable(f"{path}: expected ACLs, found {error!r}") from error


def change_path(pattern: PatternText) -> str:
    """Return the path of a new notification, to which the store appends a number."""
    return f"{LITERAL_CHANGES if pattern.pattern_type == LITERAL else PREFIXED_CHANGES}/{CHANGE_NAME}"


def encode_change(pattern: PatternText) -> bytes:
    resource_type = _CONSTANTS[pattern.resource_type]
    if pattern.pattern_type == LITERAL:
        return f"{resource_type}:{pattern.name}".encode()
    members = {
        "version": 1,
        "resourceType": resource_type,
        "name": pattern.name,
        "patternType": pattern.pattern_type,
    }
    return json.dumps(members, separators=(",", ":")).encode()


def decode_change(changes: str, data: bytes | None) -> PatternText:
    """Decode a notification below `changes`. Raises Undecodable."""
    try:
        if changes == LITERAL_CHANGES:
            constant, _, name = (data or b"").decode().partition(":")
            return PatternText(_title(constant), name, LITERAL)
        content = json.loads(data or b"")
        return PatternText(_title(content["resourceType"]), str(content["name"]), PREFIXED)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Undecodable(f"{changes}: expected a changed pattern, found {error!r}") from error


_CONSTANTS = {
    "Topic": "TOPIC",
    "Group": "GROUP",
    "Cluster": "CLUSTER",
    "TransactionalId": "TRANSACTIONAL_ID",
    "DelegationToken": "DELEGATION_TOKEN",
    "User": "USER",
}
_TITLES = {title.lower(): title for title in RESOURCE_TYPES}


def _title(text: str) -> str:
    """Return the title of a resource type that is written in any case, with or without underscores."""
    return _TITLES[text.replace("_", "").lower()]
