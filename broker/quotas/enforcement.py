"""The quotas in force, and how long the clients that exceed them are throttled (KIP-13, KIP-124, KIP-219, KIP-599).

Owns: the copy of the stored quotas, which of them applies to a client, and the rates and buckets of those that share
one. Must not know requests, responses or connections.

The first quota that is set applies, in the order of `_levels`; its level says who shares it. Followers and other
brokers have no quotas.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, TypeVar

from broker.quotas.client_quotas import KEYS
from broker.quotas.rates import SampledRate, TokenBucket
from controller.entity_configs import all_overrides, entity_overrides
from controller.paths import ConfigEntity
from controller.state_store import StateStore

IDLE_MS_MAX = 3_600_000
"""Rates and buckets that were not used for so long are dropped."""
CLIENTS_MAX = 10_000
"""The most clients whose quotas are remembered. Client ids are free text, so any client can make new ones."""

S = TypeVar("S", SampledRate, TokenBucket)


class Key(Enum):
    """The quotas of users and clients, by their names in the store."""

    PRODUCE = "producer_byte_rate"
    FETCH = "consumer_byte_rate"
    REQUEST = "request_percentage"
    MUTATION = "controller_mutation_rate"


IP_KEY = "connection_creation_rate"

DEFAULT = None
"""The name of the default entity."""

_USERS, _CLIENTS, _IPS = "users", "clients", "ips"


@dataclass(frozen=True, slots=True)
class QuotaWindows:
    """The windows of rates, named like their properties."""

    count: int = 11
    ms: int = 1000
    mutation_count: int = 11
    mutation_ms: int = 1000


class Applied(NamedTuple):
    """A quota that applies to a client."""

    bound: float
    shared_by: tuple[Key, str, str]
    """The user and the client id that share it; empty: all of them."""


class EnforcedQuotas:
    """The quotas of one broker."""

    def __init__(
        self,
        store: StateStore,
        windows: QuotaWindows,
        monotonic_ms: Callable[[], int],
        defaults: Mapping[Key, float] | None = None,
    ) -> None:
        """`defaults` are the static defaults of client ids, of properties of Kafka 0.9."""
        self._store = store
        self._windows = windows
        self._monotonic_ms = monotonic_ms
        self._defaults = defaults or {}
        self._stored: dict[ConfigEntity, dict[str, float]] = {}
        self._clients: dict[tuple[str, str], dict[Key, Applied]] = {}
        self._rates: dict[tuple[Key, str, str], SampledRate] = {}
        self._buckets: dict[tuple[Key, str, str], TokenBucket] = {}
        self._purged_ms = 0
        self.is_active = bool(self._defaults)
        """Whether any client or user has a quota."""
        self.on_activity: Callable[[], None] = lambda: None
        """Called when `is_active` has changed."""

    async def load(self) -> None:
        """Read all quotas."""
        stored = {}
        for entity_type in (_USERS, _CLIENTS, _IPS):
            for entity, overrides in (await all_overrides(self._store, entity_type)).items():
                stored[entity] = _quotas(overrides)
        self._stored = {entity: quotas for entity, quotas in stored.items() if quotas}
        self._changed()

    async def apply(self, entity: ConfigEntity) -> None:
        """Read the quotas of an entity whose settings have changed. Has no effect for other types of entities."""
        if entity.parts[0][0] in (_USERS, _CLIENTS, _IPS):
            quotas = _quotas(await entity_overrides(self._store, entity))
            self._stored.pop(entity, None)
            if quotas:
                self._stored[entity] = quotas
            self._changed()

    def bound(self, user: str, client_id: str, key: Key) -> float | None:
        """Return the quota of a client, or None."""
        applied = self._applied(user, client_id).get(key)
        return None if applied is None else applied.bound

    def record(self, user: str, client_id: str, key: Key, amount: float) -> int:
        """Record what a client has used; return for how many ms to throttle it. Not for `Key.MUTATION`."""
        applied = self._applied(user, client_id).get(key)
        if applied is None:
            return 0
        now_ms = self._monotonic_ms()
        rate = self._shared(self._rates, applied, lambda: SampledRate(self._windows.count, self._windows.ms), now_ms)
        rate.record(amount, now_ms)
        throttle_ms = rate.throttle_ms(applied.bound, now_ms)
        return min(throttle_ms, self._windows.ms) if key is Key.REQUEST else throttle_ms

    def take_back(self, user: str, client_id: str, key: Key, amount: float) -> None:
        """Take back what was recorded and not used after all."""
        applied = self._applied(user, client_id).get(key)
        if applied is not None and applied.shared_by in self._rates:
            self._rates[applied.shared_by].record(-amount, self._monotonic_ms())

    def window_max(self, user: str, client_id: str, key: Key) -> float | None:
        """Return how much the quota of a client allows in all windows; None without a quota."""
        bound = self.bound(user, client_id, key)
        return None if bound is None else bound * (self._windows.count - 1) * self._windows.ms / 1000

    def take(self, user: str, client_id: str, amount: float, *, is_strict: bool) -> int | None:
        """Take the tokens of changes to partitions; return for how many ms to throttle the client.

        Returns None, and takes nothing, if `is_strict` and tokens are missing already.
        """
        applied = self._applied(user, client_id).get(Key.MUTATION)
        if applied is None:
            return 0
        now_ms = self._monotonic_ms()
        bucket = self._bucket(applied, now_ms)
        if is_strict and bucket.throttle_ms(applied.bound, now_ms):
            return None
        bucket.take(amount, applied.bound, now_ms)
        return 0 if is_strict else bucket.throttle_ms(applied.bound, now_ms)

    def mutation_throttle_ms(self, user: str, client_id: str) -> int:
        """Return after how long the client may change partitions again."""
        applied = self._applied(user, client_id).get(Key.MUTATION)
        if applied is None:
            return 0
        now_ms = self._monotonic_ms()
        return self._bucket(applied, now_ms).throttle_ms(applied.bound, now_ms)

    def connection_rate(self, host: str) -> float | None:
        """Return how many connections a second an address may open; None: any number."""
        for name in (host, DEFAULT):
            rate = self._stored.get(ConfigEntity(((_IPS, name),)), {}).get(IP_KEY)
            if rate is not None:
                return rate
        return None

    def _bucket(self, applied: Applied, now_ms: int) -> TokenBucket:
        windows = self._windows
        return self._shared(
            self._buckets, applied, lambda: TokenBucket(windows.mutation_count, windows.mutation_ms), now_ms
        )

    def _applied(self, user: str, client_id: str) -> dict[Key, Applied]:
        known = self._clients.get((user, client_id))
        if known is None:
            if len(self._clients) >= CLIENTS_MAX:
                self._clients.clear()
            known = self._clients[user, client_id] = self._resolve(user, client_id)
        return known

    def _resolve(self, user: str, client_id: str) -> dict[Key, Applied]:
        found: dict[Key, Applied] = {}
        for entity, shared_user, shared_client in _levels(user, client_id):
            quotas = self._stored.get(entity)
            for key in Key if quotas else ():
                assert quotas is not None
                if key not in found and key.value in quotas:
                    found[key] = Applied(quotas[key.value], (key, shared_user, shared_client))
        for key, bound in self._defaults.items():
            found.setdefault(key, Applied(bound, (key, "", client_id)))
        return found

    def _shared(self, known: dict[tuple[Key, str, str], S], applied: Applied, new: Callable[[], S], now_ms: int) -> S:
        found = known.get(applied.shared_by)
        if found is None:
            self._purge(now_ms)
            found = known[applied.shared_by] = new()
        return found

    def _purge(self, now_ms: int) -> None:
        """Drop what was not used for long; at most once a minute."""
        if now_ms - self._purged_ms < 60_000:
            return
        self._purged_ms = now_ms
        for known in (self._rates, self._buckets):
            for shared_by in [one for one, used in known.items() if now_ms - used.used_ms > IDLE_MS_MAX]:
                del known[shared_by]

    def _changed(self) -> None:
        self._clients.clear()
        was_active = self.is_active
        self.is_active = bool(self._defaults) or any(
            entity.parts[0][0] != _IPS and not quotas.keys().isdisjoint({key.value for key in Key})
            for entity, quotas in self._stored.items()
        )
        if self.is_active != was_active:
            self.on_activity()


def _levels(user: str, client_id: str) -> list[tuple[ConfigEntity, str, str]]:
    """Return the entities whose quotas may apply, the first first, with who shares each: a user and a client id."""
    return [
        (ConfigEntity(((_USERS, user), (_CLIENTS, client_id))), user, client_id),
        (ConfigEntity(((_USERS, user), (_CLIENTS, DEFAULT))), user, client_id),
        (ConfigEntity(((_USERS, user),)), user, ""),
        (ConfigEntity(((_USERS, DEFAULT), (_CLIENTS, client_id))), user, client_id),
        (ConfigEntity(((_USERS, DEFAULT), (_CLIENTS, DEFAULT))), user, client_id),
        (ConfigEntity(((_USERS, DEFAULT),)), user, ""),
        (ConfigEntity(((_CLIENTS, client_id),)), "", client_id),
        (ConfigEntity(((_CLIENTS, DEFAULT),)), "", client_id),
    ]


def _quotas(overrides: Mapping[str, str]) -> dict[str, float]:
    quotas = {}
    for key in KEYS:
        try:
            quotas[key] = float(overrides[key])
        except (KeyError, ValueError):
            continue
    return quotas
