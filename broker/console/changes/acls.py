"""Access rules are created and deleted.

Owns which requests make up such a change, and its preview. Must not know HTTP.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, Literal, TypedDict, TypeVar

from base.dataclass import dataclass
from base.pause import through
from broker.console.changes.change import TIMEOUT_MS, Change, Plan, change_row, changed
from broker.console.console import Console
from broker.console.problem import bad_request, of_code
from broker.console.security import AclRow, acls
from broker.security.acls import Operation, PatternType, Permission, ResourceType
from protocol.errors import ErrorCode
from protocol.messages.create_acls import AclCreation, CreateAclsRequest
from protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest

E = TypeVar("E", bound=IntEnum)

RULES_MAX: Final = 100
_WITHOUT_RULES: Final = ("UNKNOWN", "ANY", "MATCH")
"""Elements that filters have and rules do not."""


class AclChange(TypedDict):
    """Rules to create or to delete. `confirm` is the token of a preview."""

    action: Literal["create", "delete"]
    rules: list[AclRow]
    confirm: str


@dataclass(frozen=True, slots=True)
class _Rule:
    """A rule as requests have it."""

    resource_type: ResourceType
    resource: str
    pattern: PatternType
    principal: str
    host: str
    operation: Operation
    permission: Permission

    def __str__(self) -> str:
        """Return a text that only equal rules have."""
        resource = f"{self.resource_type.title} {self.resource} ({self.pattern.name.lower()})"
        return f"{self.permission.title} {self.principal} from {self.host}: {self.operation.title} on {resource}"


async def change_acls(console: Console, *, body: AclChange) -> Change:
    """Create or delete access rules. Raises ProblemError."""
    given = body["rules"]
    if not 0 < len(given) <= RULES_MAX:
        raise bad_request(f"{len(given)} rules, expected 1 to {RULES_MAX}")
    if not console.services.authorizer.is_active:
        raise of_code(ErrorCode.SECURITY_DISABLED, "this broker has no authorizer, set authorizer.class.name")
    rules = [_rule(each) for each in given]
    problems: list[str] = []
    present = {str(_rule(each)) async for each in through(await acls(console, problems), console.pause)}
    if problems:
        raise bad_request(problems[0])
    is_creating = body["action"] == "create"
    rows = []
    for each in rules:
        existing = each.permission.title if str(each) in present else None
        rows.append(change_row(str(each), existing, each.permission.title if is_creating else None))

    async def perform() -> list[str]:
        return await (_create(console, rules) if is_creating else _delete(console, rules))

    without_effect = [each["subject"] for each in rows if each["before"] == each["after"]]
    verb = "exists already" if is_creating else "does not exist"
    return await changed(Plan(rows, perform, [f"{each}: {verb}." for each in without_effect]), body["confirm"])


async def _create(console: Console, rules: list[_Rule]) -> list[str]:
    request = CreateAclsRequest(
        creations=[
            AclCreation(
                resource_type=each.resource_type,
                resource_name=each.resource,
                resource_pattern_type=each.pattern,
                principal=each.principal,
                host=each.host,
                operation=each.operation,
                permission_type=each.permission,
            )
            for each in rules
        ]
    )
    response = await console.client.ask(console.services.broker_id, request, timeout_ms=TIMEOUT_MS)
    return [_problem(each.error_code, each.error_message) for each in response.results]


async def _delete(console: Console, rules: list[_Rule]) -> list[str]:
    request = DeleteAclsRequest(
        filters=[
            DeleteAclsFilter(
                resource_type_filter=each.resource_type,
                resource_name_filter=each.resource,
                pattern_type_filter=each.pattern,
                principal_filter=each.principal,
                host_filter=each.host,
                operation=each.operation,
                permission_type=each.permission,
            )
            for each in rules
        ]
    )
    response = await console.client.ask(console.services.broker_id, request, timeout_ms=TIMEOUT_MS)
    return [
        _problem(each.error_code, each.error_message) or ("" if each.matching_acls else "there was no such rule")
        for each in response.filter_results
    ]


def _problem(code: int, message: str | None) -> str:
    return f"{ErrorCode(code).name}: {message or ''}" if code else ""


def _rule(rule: AclRow) -> _Rule:
    """Return a rule as requests have it. Raises ProblemError."""
    return _Rule(
        resource_type=_element(ResourceType, "resource_type", rule["resource_type"]),
        resource=rule["resource"],
        pattern=_element(PatternType, "pattern", rule["pattern"]),
        principal=rule["principal"],
        host=rule["host"],
        operation=_element(Operation, "operation", rule["operation"]),
        permission=_element(Permission, "permission", rule["permission"]),
    )


def _element(kind: type[E], name: str, text: str) -> E:
    """Return the element with a name, written as on the page or as Kafka's tools print it. Raises ProblemError."""
    known = {each.name.replace("_", "").lower(): each for each in kind if each.name not in _WITHOUT_RULES}
    found = known.get(text.replace("_", "").lower())
    if found is None:
        expected = ", ".join(each.name for each in known.values())
        raise bad_request(f"{name}={text[:40]!r}: expected one of {expected}")
    return found
