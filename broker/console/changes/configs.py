"""Settings of topics and brokers are changed.

Owns which requests make up such a change, and its preview. Must not know HTTP.
"""

from __future__ import annotations

from typing import Final, TypedDict

from broker.console.changes.change import TIMEOUT_MS, Change, Plan, change_row, changed, require_success
from broker.console.configs import TYPES, ConfigRow, ResourceKind, broker_of, configs
from broker.console.console import Console
from broker.console.problem import bad_request
from config.broker import is_password
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

SET, DELETE = 0, 1
SECRET: Final = "a secret value"


class ConfigChange(TypedDict):
    """Values to set by name; null removes the value, so that the next source is in effect.

    `confirm` is the token of a preview.
    """

    changes: dict[str, str | None]
    confirm: str


async def change_configs(console: Console, *, kind: ResourceKind, name: str, body: ConfigChange) -> Change:
    """Set and remove dynamic values. Raises ProblemError."""
    changes = dict(sorted(body["changes"].items()))
    if not changes:
        raise bad_request("changes is empty, expected at least one setting")
    present = {each["name"]: each for each in (await configs(console, kind=kind, name=name))["configs"]}
    await _alter(console, kind, name, changes, validate_only=True)
    rows = [
        change_row(each, _before(present.get(each)), _after(each, present.get(each), value))
        for each, value in changes.items()
    ]

    async def perform() -> list[str]:
        await _alter(console, kind, name, changes, validate_only=False)
        return [""] * len(rows)

    return await changed(Plan(rows, perform), body["confirm"])


def _before(present: ConfigRow | None) -> str | None:
    if present is None:
        return None
    return f"{SECRET if present['is_sensitive'] else present['value']} ({present['source']})"


def _after(name: str, present: ConfigRow | None, value: str | None) -> str:
    if value is not None:
        return SECRET if is_password(name) or (present is not None and present["is_sensitive"]) else value
    others = [] if present is None else [each for each in present["sources"] if each["source"] != present["source"]]
    if others:
        return f"{others[0]['value']} ({others[0]['source']})"
    return "the default" if present is None or present["default"] is None else f"{present['default']} (default)"


async def _alter(
    console: Console, kind: ResourceKind, name: str, changes: dict[str, str | None], *, validate_only: bool
) -> None:
    request = IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=TYPES[kind],
                resource_name=name,
                configs=[
                    AlterableConfig(name=each, config_operation=DELETE if value is None else SET, value=value)
                    for each, value in changes.items()
                ],
            )
        ],
        validate_only=validate_only,
    )
    response = await console.client.ask(broker_of(console, kind, name), request, timeout_ms=TIMEOUT_MS)
    result = response.responses[0]
    require_success(result.error_code, result.error_message)
