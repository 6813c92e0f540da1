"""What a broker reads about users and permissions before it serves anyone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from broker.quotas.enforcement import EnforcedQuotas
from broker.security.acl_store import AclStore
from broker.security.delegation_tokens import DelegationTokens
from broker.security.password_encoder import PasswordEncoder
from broker.security.scram_credentials import ScramCredentials
from config.broker import BrokerConfig
from controller.tree.entity_configs import change_overrides, entity_overrides
from controller.tree.membership import Membership
from controller.tree.paths import broker_entity
from tests.support.in_process import running_broker

KEY = "ssl.key.password"
THIS_BROKER = broker_entity(0)
PARTS: tuple[tuple[type, str], ...] = (
    (ScramCredentials, "load"),
    (EnforcedQuotas, "load"),
    (AclStore, "start"),
    (DelegationTokens, "start"),
    (Membership, "register"),
)


async def test_permissions_are_read_before_the_controller_hears_of_the_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A registered broker serves the controller, whose requests need a permission."""
    ended: list[type] = []

    def noted(part: type, wrapped: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def run(*args: Any, **named: Any) -> Any:
            result = await wrapped(*args, **named)
            ended.append(part)
            return result

        return run

    for part, name in PARTS:
        monkeypatch.setattr(part, name, noted(part, getattr(part, name)))
    async with running_broker(tmp_path):
        assert ended == [part for part, _ in PARTS]


async def test_stored_passwords_follow_a_new_secret(tmp_path: Path) -> None:
    def secrets(new: str, old: str | None = None) -> dict[str, str]:
        named = {"password.encoder.secret": new}
        return named if old is None else {**named, "password.encoder.old.secret": old}

    async with running_broker(tmp_path, secrets("one")) as broker:
        text = PasswordEncoder(BrokerConfig.from_properties(secrets("one"))).encode("p")
        await change_overrides(broker.services.controller._store, THIS_BROKER, lambda _: {KEY: text, "other": "1"})
    async with running_broker(tmp_path, secrets("two", "one")) as broker:
        stored = await entity_overrides(broker.services.controller._store, THIS_BROKER)
    assert stored["other"] == "1"
    assert PasswordEncoder(BrokerConfig.from_properties(secrets("two"))).decode(stored[KEY]) == "p"
