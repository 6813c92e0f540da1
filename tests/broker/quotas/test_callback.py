"""A plug-in that decides quotas: which clients it limits, when it is asked again, and which classes stop the start."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from broker.quotas.callback import CallbackQuota
from broker.quotas.enforcement import Key, QuotaWindows
from config.broker import BrokerConfig
from controller.coordination.memory_store import MemoryStore
from tests.broker.quotas.test_enforcement import Quotas
from tests.support.in_process import reason_not_to_start, running_broker

NAME = f"{__name__}:ByTeam"


class ByTeam:
    """Clients share the quota of their team, the first word of the user's name."""

    limit = 1000.0

    def __init__(self, settings: Mapping[str, str], reset: Callable[[], None]) -> None:
        self.settings, self.reset, self.stored, self.asked = settings, reset, {}, 0

    def quota(self, key: str, user: str, client_id: str) -> CallbackQuota | None:
        self.asked += 1
        if user == "broken":
            raise ValueError("no such team")
        team = user.partition("-")[0]
        return CallbackQuota(self.limit, (team, "")) if key == "producer_byte_rate" else None

    def quotas_stored(self, quotas: Mapping[Any, Mapping[str, float]]) -> None:
        self.stored = dict(quotas)


class Failing(ByTeam):
    def __init__(self, settings: Mapping[str, str], reset: Callable[[], None]) -> None:
        raise RuntimeError("no database")


def with_callback(store: MemoryStore) -> tuple[Quotas, ByTeam]:
    made: list[ByTeam] = []

    def new(reset: Callable[[], None]) -> ByTeam:
        made.append(ByTeam({}, reset))
        return made[0]

    quotas = Quotas(store, new_callback=new)
    return quotas, made[0]


async def test_clients_share_what_the_callback_says(store: MemoryStore) -> None:
    quotas, _ = with_callback(store)
    assert quotas.enforced.is_active
    assert quotas.enforced.record("red-1", "a", Key.PRODUCE, 10_000) == 0
    assert quotas.enforced.record("red-2", "b", Key.PRODUCE, 10_000) > 0
    assert quotas.enforced.record("blue-1", "a", Key.PRODUCE, 10_000) == 0
    assert quotas.enforced.record("blue-1", "a", Key.FETCH, 1e9) == 0
    assert [(used.user, used.client_id) for used in quotas.enforced.usage(Key.PRODUCE)].count(("red", "")) == 1


async def test_it_is_asked_once_until_it_resets(store: MemoryStore) -> None:
    quotas, callback = with_callback(store)
    for _ in range(3):
        quotas.enforced.record("red-1", "a", Key.PRODUCE, 1)
    assert callback.asked == len(Key)
    callback.limit = 5.0
    callback.reset()
    assert quotas.enforced.bound("red-1", "a", Key.PRODUCE) == 5.0


async def test_it_learns_the_stored_quotas(store: MemoryStore) -> None:
    quotas, callback = with_callback(store)
    await quotas.set([("user", "u"), ("client-id", None)], Key.PRODUCE, 7)
    assert callback.stored == {(("users", "u"), ("clients", None)): {"producer_byte_rate": 7.0}}


async def test_failing_callback_limits_nobody(store: MemoryStore, caplog: pytest.LogCaptureFixture) -> None:
    quotas, _ = with_callback(store)
    assert quotas.enforced.record("broken", "a", Key.PRODUCE, 1e9) == 0
    assert "the quota callback fails" in caplog.text


async def test_broker_loads_the_class(tmp_path: Path) -> None:
    async with running_broker(tmp_path, {"client.quota.callback.class": NAME, "x.y": "z"}) as broker:
        assert broker.services.enforced_quotas.bound("red-1", "a", Key.PRODUCE) == 1000.0


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("no.such:Class", "No module named"),
        (f"{__name__}:Missing", "has no attribute 'Missing'"),
        (f"{__name__}:Failing", "no database"),
    ],
)
async def test_class_that_cannot_be_used_stops_the_start(tmp_path: Path, name: str, text: str) -> None:
    settings = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path), "client.quota.callback.class": name}
    reason = await reason_not_to_start(BrokerConfig.from_properties(settings))
    assert "client.quota.callback.class" in reason
    assert text in reason


async def test_usage_for_metrics(store: MemoryStore) -> None:
    quotas = Quotas(store)
    assert quotas.enforced.usage(Key.PRODUCE) == []
    await quotas.set([("user", "u")], Key.PRODUCE, 100)
    await quotas.set([("user", "u")], Key.MUTATION, 5)
    quotas.enforced.record("u", "c", Key.PRODUCE, 1500)
    quotas.enforced.take("u", "c", 15, is_strict=False)
    (used,) = quotas.enforced.usage(Key.PRODUCE)
    assert (used.user, used.client_id, used.rate, used.throttle_ms) == ("u", "", 150.0, 5000.0)
    (tokens,) = quotas.enforced.usage(Key.MUTATION)
    assert tokens.tokens == 5 * QuotaWindows().mutation_count - 15
    assert quotas.enforced.muted_count(Key.PRODUCE) == 1
    quotas.clock.advance(5000)
    assert quotas.enforced.muted_count(Key.PRODUCE) == 0
