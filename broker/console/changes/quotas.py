"""Quotas of users, clients and addresses are set and removed.

Owns which requests make up such a change, and its preview. Must not know HTTP.
"""

from __future__ import annotations

from typing import Any, Final, TypedDict

from broker.console.changes.change import TIMEOUT_MS, Change, Plan, change_row, changed, require_success
from broker.console.console import Console
from broker.console.problem import bad_request
from protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest

EXACT, DEFAULT_ENTITY = 0, 1
QUOTAS_MAX: Final = 20


class QuotaChange(TypedDict):
    """Quotas to set for users, clients or addresses, by the types of Kafka; a null name stands for the default.

    A null quota removes it. `confirm` is the token of a preview.
    """

    entity: dict[str, str | None]
    quotas: dict[str, float | None]
    confirm: str


async def change_quotas(console: Console, *, body: QuotaChange) -> Change:
    """Set and remove quotas of an entity. Raises ProblemError."""
    entity, quotas = body["entity"], body["quotas"]
    if not entity:
        raise bad_request("entity is empty, expected user, client-id or ip")
    if not 0 < len(quotas) <= QUOTAS_MAX:
        raise bad_request(f"{len(quotas)} quotas, expected 1 to {QUOTAS_MAX}")
    await _alter(console, entity, quotas, validate_only=True)
    present = await _present(console, entity)
    name = ", ".join(f"{kind} {'<default>' if each is None else each}" for kind, each in sorted(entity.items()))
    rows = [
        change_row(f"{name}: {key}", _text(present.get(key)), _text(value)) for key, value in sorted(quotas.items())
    ]

    async def perform() -> list[str]:
        await _alter(console, entity, quotas, validate_only=False)
        return [""] * len(rows)

    return await changed(Plan(rows, perform), body["confirm"])


def _text(value: float | None) -> str | None:
    return None if value is None else f"{value:,.15g}"


async def _alter(
    console: Console, entity: dict[str, str | None], quotas: dict[str, float | None], *, validate_only: bool
) -> None:
    request = AlterClientQuotasRequest(
        entries=[
            EntryData(
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
                ops=[
                    OpData(key=key, value=0.0 if value is None else float(value), remove=value is None)
                    for key, value in quotas.items()
                ],
            )
        ],
        validate_only=validate_only,
    )
    response = await console.client.ask(console.services.broker_id, request, timeout_ms=TIMEOUT_MS)
    result = response.entries[0]
    require_success(result.error_code, result.error_message)


async def _present(console: Console, entity: dict[str, str | None]) -> dict[str, Any]:
    """Return the quotas that an entity has itself. Raises ProblemError."""
    components = [
        ComponentData(entity_type=kind, match_type=DEFAULT_ENTITY if name is None else EXACT, match=name)
        for kind, name in entity.items()
    ]
    request = DescribeClientQuotasRequest(components=components, strict=True)
    response = await console.client.ask(console.services.broker_id, request)
    require_success(response.error_code, response.error_message)
    return {each.key: each.value for one in response.entries or () for each in one.values}
