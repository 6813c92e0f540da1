"""Which quota applies to a client, who shares it, and when a change is in force."""

from typing import Any
from weakref import WeakSet

import pytest

from broker.loop.rates import SampledRate
from broker.quotas.client_quotas import ClientQuotas, QuotaChange
from broker.quotas.enforcement import CLIENT_ID_LENGTH_MAX, IDLE_MS_MAX, EnforcedQuotas, Key, QuotaWindows
from controller.coordination.memory_store import MemoryStore
from controller.tree import paths
from controller.tree.paths import ConfigEntity
from tests.support.manual_clock import ManualClock

LEVELS: list[list[tuple[str, str | None]]] = [
    [("user", "u"), ("client-id", "c")],
    [("user", "u"), ("client-id", None)],
    [("user", "u")],
    [("user", None), ("client-id", "c")],
    [("user", None), ("client-id", None)],
    [("user", None)],
    [("client-id", "c")],
    [("client-id", None)],
]
"""In the order of precedence."""


class Quotas:
    """Stored quotas and those in force."""

    def __init__(self, store: MemoryStore, **defaults: Any) -> None:
        self.clock = ManualClock()
        self.enforced = EnforcedQuotas(store, QuotaWindows(), self.clock.monotonic_ms, **defaults)
        self.stored = ClientQuotas(store, self.enforced.apply)

    async def set(self, names: list[tuple[str, str | None]], key: Key | str, value: float | None) -> None:
        key = key.value if isinstance(key, Key) else key
        await self.stored.alter(names, [QuotaChange(key, value)], validate_only=False)


@pytest.mark.parametrize("first", range(len(LEVELS)))
async def test_most_specific_quota_applies(store: MemoryStore, first: int) -> None:
    quotas = Quotas(store)
    for level in range(len(LEVELS) - 1, first - 1, -1):
        await quotas.set(LEVELS[level], Key.PRODUCE, 1000 + level)
    assert quotas.enforced.bound("u", "c", Key.PRODUCE) == 1000 + first
    again = Quotas(store)
    await again.enforced.load()
    assert again.enforced.bound("u", "c", Key.PRODUCE) == 1000 + first
    assert again.enforced.bound("u", "c", Key.FETCH) is None


async def test_clients_of_a_user_share_the_users_quota(store: MemoryStore) -> None:
    quotas = Quotas(store)
    await quotas.set([("user", "u")], Key.PRODUCE, 100)
    assert quotas.enforced.record("u", "c1", Key.PRODUCE, 1000) == 0
    assert quotas.enforced.record("u", "c2", Key.PRODUCE, 1000) > 0
    assert quotas.enforced.record("v", "c2", Key.PRODUCE, 9999) == 0


async def test_each_client_has_its_own_part_of_a_default(store: MemoryStore) -> None:
    quotas = Quotas(store)
    await quotas.set([("client-id", None)], Key.PRODUCE, 100)
    assert quotas.enforced.record("u", "c1", Key.PRODUCE, 1000) == 0
    assert quotas.enforced.record("u", "c2", Key.PRODUCE, 1000) == 0
    assert quotas.enforced.record("v", "c1", Key.PRODUCE, 1000) > 0


async def test_change_is_in_force_at_once_and_keeps_the_rate(store: MemoryStore) -> None:
    quotas = Quotas(store)
    await quotas.set([("client-id", "c")], Key.FETCH, 1000)
    assert quotas.enforced.record("u", "c", Key.FETCH, 2000) == 0
    await quotas.set([("client-id", "c")], Key.FETCH, 100)
    assert quotas.enforced.record("u", "c", Key.FETCH, 0) > 0
    await quotas.set([("client-id", "c")], Key.FETCH, None)
    assert quotas.enforced.record("u", "c", Key.FETCH, 9999) == 0


async def test_request_throttle_is_one_window_at_most(store: MemoryStore) -> None:
    quotas = Quotas(store)
    await quotas.set([("client-id", "c")], Key.REQUEST, 1)
    assert quotas.enforced.record("u", "c", Key.REQUEST, 10_000) == 1000


async def test_strict_clients_are_refused_once_tokens_are_missing(store: MemoryStore) -> None:
    quotas = Quotas(store)
    await quotas.set([("client-id", "c")], Key.MUTATION, 1)
    take = quotas.enforced.take
    assert [take("u", "c", 6, is_strict=True) for _ in range(3)] == [True, True, False]
    assert quotas.enforced.mutation_throttle_ms("u", "c") == 1000
    quotas.clock.advance(1000)
    assert take("u", "c", 5, is_strict=False)
    assert quotas.enforced.mutation_throttle_ms("u", "c") == 5000


async def test_returned_tokens_can_be_taken_again(store: MemoryStore) -> None:
    quotas = Quotas(store)
    await quotas.set([("client-id", "c")], Key.MUTATION, 1)
    quotas.enforced.take("u", "c", 1000, is_strict=True)
    quotas.enforced.take("u", "c", 2, is_strict=False)
    quotas.enforced.return_tokens("u", "c", 1000)
    (used,) = quotas.enforced.usage(Key.MUTATION)
    assert (used.rate, used.tokens) == (0.2, 9.0), "over ten windows; of 11 tokens"


async def test_activity_is_reported_when_it_changes(store: MemoryStore) -> None:
    quotas = Quotas(store)
    reported: list[bool] = []
    quotas.enforced.activity.subscribe(lambda: reported.append(quotas.enforced.is_active))
    await quotas.set([("ip", "10.0.0.1")], "connection_creation_rate", 5)
    await quotas.set([("user", "u")], Key.PRODUCE, 5)
    await quotas.set([("user", "v")], Key.PRODUCE, 5)
    await quotas.set([("user", "u")], Key.PRODUCE, None)
    await quotas.set([("user", "v")], Key.PRODUCE, None)
    assert reported == [True, False]


async def test_rate_of_connections_of_an_address(store: MemoryStore) -> None:
    quotas = Quotas(store)
    assert quotas.enforced.connection_rate("10.0.0.1") is None
    await quotas.set([("ip", None)], "connection_creation_rate", 5)
    await quotas.set([("ip", "10.0.0.1")], "connection_creation_rate", 7)
    assert [quotas.enforced.connection_rate(host) for host in ("10.0.0.1", "10.0.0.2")] == [7, 5]


@pytest.mark.parametrize(
    ("stored", "host"), [("0:0:0:0:0:0:0:1", "::1"), ("2001:DB8::5", "2001:db8::5"), ("localhost", "127.0.0.1")]
)
async def test_an_address_has_one_rate_however_it_is_written(store: MemoryStore, stored: str, host: str) -> None:
    quotas = Quotas(store)
    await quotas.set([("ip", None)], "connection_creation_rate", 50)
    await quotas.set([("ip", stored)], "connection_creation_rate", 5)
    again = Quotas(store)
    await again.enforced.load()
    assert quotas.enforced.connection_rate(host) == again.enforced.connection_rate(host) == 5
    await quotas.set([("ip", stored)], "connection_creation_rate", None)
    assert quotas.enforced.connection_rate(host) == 50


async def test_changes_of_partitions_have_a_rate(store: MemoryStore) -> None:
    quotas = Quotas(store)
    await quotas.set([("user", "u")], Key.MUTATION, 5)
    quotas.enforced.take("u", "c", 20, is_strict=True)
    (used,) = quotas.enforced.usage(Key.MUTATION)
    assert (used.rate, used.tokens) == (2.0, 35.0), "over ten windows; of 55 tokens"


async def test_rates_that_are_not_used_for_an_hour_are_forgotten(store: MemoryStore) -> None:
    quotas = Quotas(store)
    await quotas.set([("user", None)], Key.PRODUCE, 5)
    quotas.enforced.record("u", "c", Key.PRODUCE, 1)
    quotas.clock.advance(IDLE_MS_MAX)
    quotas.enforced.purge()
    assert quotas.enforced.usage(Key.PRODUCE)
    quotas.clock.advance(1001)
    quotas.enforced.purge()
    assert not quotas.enforced.usage(Key.PRODUCE)


async def test_rates_are_bounded_and_those_used_last_are_kept(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    live: WeakSet[SampledRate] = WeakSet()

    class Watched(SampledRate):
        def __init__(self, window_count: int, window_ms: int) -> None:
            super().__init__(window_count, window_ms)
            live.add(self)

    monkeypatch.setattr("broker.quotas.enforcement.SampledRate", Watched)
    monkeypatch.setattr("broker.quotas.enforcement.CLIENTS_MAX", 10)
    quotas = Quotas(store, defaults={Key.FETCH: 50.0})
    for number in range(100):
        assert quotas.enforced.record("u", f"once-{number}", Key.FETCH, 1000) > 0
        assert (quotas.enforced.record("u", "regular", Key.FETCH, 100) > 0) is (number > 4), number
        quotas.clock.advance(1000)
    assert len(live) <= 1 + 3 * 10, "rates, the two of each throttle, and the time of requests without a quota"


async def test_long_client_ids_that_begin_alike_share_a_quota(store: MemoryStore) -> None:
    quotas = Quotas(store, defaults={Key.FETCH: 50.0})
    same = "c" * CLIENT_ID_LENGTH_MAX
    assert quotas.enforced.record("u", same + "a", Key.FETCH, 500) == 0
    assert quotas.enforced.record("u", same + "b", Key.FETCH, 500) > 0
    assert quotas.enforced.record("u", same[1:] + "b", Key.FETCH, 500) == 0
    assert max(len(used.client_id) for used in quotas.enforced.usage(Key.FETCH)) == CLIENT_ID_LENGTH_MAX


async def test_static_defaults_of_old_properties_come_last(store: MemoryStore) -> None:
    quotas = Quotas(store, defaults={Key.PRODUCE: 50.0})
    assert quotas.enforced.is_active
    assert quotas.enforced.bound("u", "c", Key.PRODUCE) == 50
    await quotas.set([("client-id", None)], Key.PRODUCE, 60)
    assert quotas.enforced.bound("u", "c", Key.PRODUCE) == 60


@pytest.mark.parametrize("text", ["nan", "much", ""])
async def test_stored_text_that_is_no_number_limits_nothing(store: MemoryStore, text: str) -> None:
    quotas = Quotas(store)
    entity = ConfigEntity((("users", "u"),))
    stored = {Key.PRODUCE.value: text, Key.FETCH.value: "100"}
    await store.create(paths.config_path(entity), paths.encode_config(stored))
    await quotas.enforced.load()
    assert quotas.enforced.record("u", "c", Key.PRODUCE, 10_000) == 0
    assert quotas.enforced.record("u", "c", Key.FETCH, 10_000) > 0
