"""Users, quotas and ACLs for the console, and the question whether a principal may do something.

Owns what the page contains. Secrets stay in the broker: SCRAM users are shown with mechanism and iterations only. Must
not know HTTP.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any, TypedDict

from base.dataclass import dataclass
from base.pause import Pause
from broker.console.console import Console
from broker.console.problem import bad_request
from broker.network.outgoing import PeerUnavailable
from broker.security.acls import EVERYONE, OPERATIONS, Operation, PatternType, Permission, ResourceType
from protocol.errors import ErrorCode, KafkaError, Malformed
from protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest

SHOWN_MAX = 1_000
STEP_SIZE = 100
"""Resources whose rules are processed in one step."""
ANY, ANY_PATTERN = 1, 1
MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}


class UserRow(TypedDict):
    """A SCRAM user."""

    user: str
    credentials: list[str]


class QuotaRow(TypedDict):
    """The quotas of users and clients."""

    entity: dict[str, str]
    quotas: dict[str, float]


class AclRow(TypedDict):
    """One access rule."""

    resource_type: str
    resource: str
    pattern: str
    principal: str
    host: str
    operation: str
    permission: str


class Security(TypedDict):
    """Who may do what; `problems` says which part could not be read, and why."""

    has_authorizer: bool
    principal: str
    users: list[UserRow]
    quotas: list[QuotaRow]
    acls: list[AclRow]
    acl_count: int
    problems: list[str]


class Verdict(TypedDict):
    """Whether a principal may do something, and the rules that concern it."""

    is_allowed: bool
    reason: str
    rules: list[AclRow]


@dataclass(frozen=True, slots=True)
class _Asked:
    """The requester of a question whether something is allowed."""

    principal: str
    client_host: str
    api_key: int = 3


async def security(console: Console) -> Security:
    """Return quotas and ACLs as this broker knows them, and users as the controller does."""
    problems: list[str] = []
    here, controller = console.services.broker_id, console.services.metadata_cache.controller_id
    users = await _part(console, controller, "users", DescribeUserScramCredentialsRequest(users=None), problems)
    every = DescribeClientQuotasRequest(components=[], strict=False)
    quotas = await _part(console, here, "quotas", every, problems)
    rules = await acls(console, problems)
    return Security(
        has_authorizer=console.services.authorizer.is_active,
        principal=console.client.principal,
        users=[
            UserRow(
                user=one.user,
                credentials=[
                    f"{MECHANISMS.get(each.mechanism, each.mechanism)}, {each.iterations} iterations"
                    for each in one.credential_infos
                ],
            )
            for one in ([] if users is None else users.results[:SHOWN_MAX])
        ],
        quotas=[
            QuotaRow(
                entity={each.entity_type: each.entity_name or "<default>" for each in one.entity},
                quotas={each.key: each.value for each in one.values},
            )
            for one in ([] if quotas is None else (quotas.entries or [])[:SHOWN_MAX])
        ],
        acls=rules[:SHOWN_MAX],
        acl_count=len(rules),
        problems=problems,
    )


async def may(
    console: Console, *, principal: str, host: str, operation: str, resource_type: str, resource: str
) -> Verdict:
    """Return whether a principal may do something. Raises ProblemError."""
    kind, wanted = ResourceType[resource_type], Operation[operation]
    if wanted not in OPERATIONS[kind]:
        expected = ", ".join(sorted(each.name for each in OPERATIONS[kind]))
        raise bad_request(f"operation {operation} does not exist on {resource_type}, expected one of {expected}")
    if ":" not in principal:
        raise bad_request(f"principal {principal!r}: expected a type and a name, such as User:alice")
    try:
        ip_address(host)
    except ValueError:
        raise bad_request(f"host {host!r}: expected a numeric address") from None
    problems: list[str] = []
    rules = await acls(console, problems)
    if problems:
        raise bad_request(problems[0])
    authorizer = console.services.authorizer
    is_allowed = authorizer.allows(_Asked(principal, host), wanted, kind, resource, is_logged_if_denied=False)
    concerning = [row for row in rules if _concerns(row, principal, host, kind, resource)]
    if not authorizer.is_active:
        reason = "This broker has no authorizer, so everything is allowed."
    elif concerning:
        reason = "These rules concern the principal and the resource; a rule that denies wins."
    elif is_allowed:
        reason = "No rule concerns it: it is a super user, or allow.everyone.if.no.acl.found is true."
    else:
        reason = "No rule allows it."
    return Verdict(is_allowed=is_allowed, reason=reason, rules=concerning[:SHOWN_MAX])


def _concerns(row: AclRow, principal: str, host: str, kind: ResourceType, resource: str) -> bool:
    if row["resource_type"] != kind.title or row["principal"] not in (principal, EVERYONE):
        return False
    if row["host"] not in (host, "*"):
        return False
    if row["pattern"] == PatternType.PREFIXED.name:
        return resource.startswith(row["resource"])
    return row["resource"] in (resource, "*")


async def acls(console: Console, problems: list[str]) -> list[AclRow]:
    pause = console.pause
    if not console.services.authorizer.is_active:
        return []
    request = DescribeAclsRequest(
        resource_type_filter=ANY,
        resource_name_filter=None,
        pattern_type_filter=ANY_PATTERN,
        principal_filter=None,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )
    response = await _part(console, console.services.broker_id, "ACLs", request, problems)
    return [] if response is None else await _rows(response, pause)


async def _rows(response: DescribeAclsResponse, pause: Pause) -> list[AclRow]:
    rows: list[AclRow] = []
    for number, each in enumerate(response.resources, 1):
        if number % STEP_SIZE == 0:
            await pause()
        rows += [
            AclRow(
                resource_type=ResourceType(each.resource_type).title,
                resource=each.resource_name,
                pattern=PatternType(each.pattern_type).name,
                principal=one.principal,
                host=one.host,
                operation=Operation(one.operation).title,
                permission=Permission(one.permission_type).title,
            )
            for one in each.acls
        ]
    return rows


async def _part(console: Console, broker_id: int, what: str, request: object, problems: list[str]) -> Any:
    """Return the response of a broker to one request; None, and a problem, if it failed."""
    try:
        response = await console.client.ask(broker_id, request)
    except (KafkaError, Malformed, PeerUnavailable) as error:
        problems.append(f"{what}: {error}")
        return None
    if response.error_code:
        problems.append(f"{what}: {ErrorCode(response.error_code).name}")
        return None
    return response
