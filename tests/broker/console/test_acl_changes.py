"""Changes of access rules: how many existing rules are compared between pauses."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from broker.console.changes.acls import AclChange, change_acls
from broker.console.console import Console
from broker.console.security import AclRow
from broker.security.acls import Operation, PatternType, Permission, ResourceType
from protocol.messages.describe_acls import AclDescription, DescribeAclsResource, DescribeAclsResponse
from tests.storage.builders import done, pause, steps_of

RULES = 1_000


def rule(principal: str) -> AclRow:
    return AclRow(
        resource_type="Topic",
        resource="t",
        pattern="LITERAL",
        principal=principal,
        host="*",
        operation="Read",
        permission="Allow",
    )


def test_existing_rules_are_compared_in_steps() -> None:
    async def ask(broker: int, request: object) -> DescribeAclsResponse:
        described = [
            AclDescription(
                principal=f"User:{each}", host="*", operation=Operation.READ, permission_type=Permission.ALLOW
            )
            for each in range(RULES)
        ]
        resource = DescribeAclsResource(
            resource_type=ResourceType.TOPIC, resource_name="t", pattern_type=PatternType.LITERAL, acls=described
        )
        return DescribeAclsResponse(resources=[resource])

    services = SimpleNamespace(authorizer=SimpleNamespace(is_active=True), broker_id=1)
    console: Any = SimpleNamespace(services=services, client=SimpleNamespace(ask=ask), pause=pause)
    body = AclChange(action="create", rules=[rule("User:7"), rule("User:new")], confirm="")
    assert len(list(steps_of(change_acls(cast(Console, console), body=body)))) >= RULES
    change = done(change_acls(cast(Console, console), body=body))
    assert [each["before"] for each in change["rows"]] == ["Allow", None]
    assert change["warnings"] == [
        "Allow User:7 from *: Read on Topic t (literal): exists already.",
    ]
