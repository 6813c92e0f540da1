"""The quotas in force, and how long the clients that exceed them are throttled (KIP-13, KIP-124, KIP-219, KIP-599).

Owns: the copy of the stored quotas, which of them applies to a client, and the rates and buckets of those that share
one. Must not know requests, responses or connections.

The first quota that is set applies, in the order of `_levels`; its level says who shares it. Followers and other
brokers have no quotas.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from base.dataclass import dataclass
from broker.loop.in_order import InOrder
from broker.loop.rates import SampledRate, TokenBucket
from broker.loop.subscribers import Subscribers
from broker.quotas.client_quotas import addresses_of, readable_quotas
from controller.store.state_store import StateStore
from controller.tree.entity_configs import all_overrides, entity_overrides
from controller.tree.paths import ConfigEntity

if TYPE_CHECKING:
    from broker.quotas.callback import QuotaCallback

logger = logging.getLogger("kafka.server.ClientQuotaManager")

IDLE_MS_MAX = 3_600_000
"""Rates and buckets that were not used for so long are dropped."""
CLIENTS_MAX = 10_000
"""The most clients whose quotas are remembered, and the most rates, buckets and throttles, of each. Client ids are free
text, so any client can make new ones. Above it, the half of the rates that was used longest ago is dropped."""
CLIENT_ID_LENGTH_MAX = 1_000
"""In characters. Clients whose ids agree so far have the same quotas, and share them."""


class Key(Enum):
    """The quotas of users and clients, by their names in the store."""

    __hash__ = object.__hash__  # Enum's own is a function of Python, called for each request

    PRODUCE = "producer_byte_rate"
    FETCH = "consumer_byte_rate"
    REQUEST = "request_percentage"
    MUTATION = "controller_mutation_rate"


IP_KEY = "connection_creation_rate"

DEFAULT = None
"""The name of the default entity."""

_USERS, _CLIENTS, _IPS = "users", "clients", "ips"
_DEFAULT_IP = ConfigEntity(((_IPS, DEFAULT),))


@dataclass(frozen=True, slots=True)
class QuotaWindows:
    """The windows of rates, named like their properties."""

    count: int = 11
    ms: int = 1000
    mutation_count: int = 11
    mutation_ms: int = 1000


@dataclass(slots=True)
class Applied:
    """A quota that applies to a client."""

    bound: float
    shared_by: tuple[Key, str, str]
    """The user and the client id that share it; empty: all of them."""
    rate: SampledRate | None = None
    """What those that share it use; None until it is first used. Not for `Key.MUTATION`."""


class Usage(NamedTuple):
    """What those that share a quota use of it. `rate` is that of the quota's unit."""

    user: str
    client_id: str
    rate: float
    throttle_ms: float
    """On average, over the windows."""
    tokens: float
    """Of `Key.MUTATION`: the partitions that may still be changed."""


class _Throttles:
    """The throttles of those that share a quota."""

    __slots__ = ("_count", "_total_ms")

    def __init__(self, window_count: int, window_ms: int) -> None:
        self._total_ms = SampledRate(window_count, window_ms)
        self._count = SampledRate(window_count, window_ms)

    @property
    def used_ms(self) -> int:
        return self._count.used_ms

    def record(self, throttle_ms: int, now_ms: int) -> None:
        self._total_ms.record(throttle_ms, now_ms)
        self._count.record(1, now_ms)

    def average_ms(self, now_ms: int) -> float:
        count = self._count.total(now_ms)
        return self._total_ms.total(now_ms) / count if count else 0.0


S = TypeVar("S", SampledRate, TokenBucket, _Throttles)
_SharedBy = tuple[Key, str, str]
_Shares = dict[_SharedBy, SampledRate] | dict[_SharedBy, TokenBucket] | dict[_SharedBy, _Throttles]


class EnforcedQuotas:
    """The quotas of one broker."""

    def __init__(
        self,
        store: StateStore,
        windows: QuotaWindows,
        monotonic_ms: Callable[[], int],
        defaults: Mapping[Key, float] | None = None,
        new_callback: Callable[[Callable[[], None]], QuotaCallback] | None = None,
    ) -> None:
        """`defaults` are the static defaults of client ids, of properties of Kafka 0.9.

        `new_callback(reset)` returns the plug-in that decides instead of the stored quotas.
        """
        self._store = store
        self._windows = windows
        self._monotonic_ms = monotonic_ms
        self._defaults = defaults or {}
        self._stored: dict[ConfigEntity, dict[str, float]] = {}
        self._reading = InOrder()
        """Keeps reads and their effects in one order: an older read of all quotas must not undo a newer one."""
        self._sources: dict[str, ConfigEntity] = {}
        """The entities whose rates apply to addresses, by address in its usual form."""
        self._clients: dict[tuple[str, str], dict[Key, Applied]] = {}
        self._rates: dict[_SharedBy, SampledRate] = {}
        self._buckets: dict[_SharedBy, TokenBucket] = {}
        self._throttles: dict[_SharedBy, _Throttles] = {}
        self._exempt_time = SampledRate(windows.count, windows.ms)
        """The time of requests that have no quota, in percent."""
        self._muted_until_ms: dict[Key, list[int]] = {key: [] for key in Key}
        self._callback = None if new_callback is None else new_callback(self._clients.clear)
        self.is_active = bool(self._defaults) or self._callback is not None
        """Whether any client or user has a quota."""
        self.activity: Subscribers[[]] = Subscribers()
        """Notified when `is_active` has changed."""

    async def load(self) -> None:
        """Read all quotas."""
        async with self._reading:
            stored = {}
            for entity_type in (_USERS, _CLIENTS, _IPS):
                for entity, overrides in (await all_overrides(self._store, entity_type)).items():
                    stored[entity] = readable_quotas(overrides)
            self._stored = {entity: quotas for entity, quotas in stored.items() if quotas}
            self._changed()
            for entity in [entity for entity in self._stored if entity.parts[0][0] == _IPS]:
                await self._resolve_addresses(entity)

    async def apply(self, entity: ConfigEntity) -> None:
        """Read the quotas of an entity whose settings have changed. Has no effect for other types of entities."""
        if entity.parts[0][0] in (_USERS, _CLIENTS, _IPS):
            async with self._reading:
                quotas = readable_quotas(await entity_overrides(self._store, entity))
                self._stored.pop(entity, None)
                if quotas:
                    self._stored[entity] = quotas
                self._changed()
                if entity.parts[0][0] == _IPS:
                    await self._resolve_addresses(entity)

    async def _resolve_addresses(self, entity: ConfigEntity) -> None:
        """Put the rate of an address, or of those that a host name stands for now, in force."""
        for address in [address for address, source in self._sources.items() if source == entity]:
            del self._sources[address]
        name = entity.parts[0][1]
        if entity not in self._stored or name is None:
            return
        try:
            for address in await addresses_of(name):
                self._sources[address] = entity
        except OSError as error:
            logger.error("the quota of %s has no effect: the name cannot be resolved: %s", name, error)

    def bound(self, user: str, client_id: str, key: Key) -> float | None:
        """Return the quota of a client, or None."""
        applied = self._applied(user, client_id).get(key)
        return None if applied is None else applied.bound

    def record(self, user: str, client_id: str, key: Key, amount: float) -> int:
        """Record what a client has used; return for how many ms to throttle it. Not for `Key.MUTATION`."""
        applied = self._applied(user, client_id).get(key)
        return 0 if applied is None else self._used(applied, amount, self._monotonic_ms())

    def record_request(self, user: str, client_id: str, percent: float, produced_size: int) -> int:
        """Record the time of a request, and its bytes if it produces records (else 0); return as `record` does."""
        applied = self._applied(user, client_id)
        now_ms = self._monotonic_ms()
        quota = applied.get(Key.REQUEST)
        throttle_ms = 0 if quota is None else self._used(quota, percent, now_ms)
        if produced_size and (quota := applied.get(Key.PRODUCE)) is not None:
            throttle_ms = max(throttle_ms, self._used(quota, produced_size, now_ms))
        return throttle_ms

    def record_exempt_request(self, percent: float) -> None:
        """Record the time of a request that has no quota: those of followers and of other brokers."""
        self._exempt_time.record(percent, self._monotonic_ms())

    def exempt_request_time(self) -> float:
        """Return the time of requests without a quota in percent of one second, for metrics."""
        return self._exempt_time.rate(self._monotonic_ms())

    def _used(self, applied: Applied, amount: float, now_ms: int) -> int:
        rate = applied.rate
        if rate is None:
            windows = self._windows
            rate = self._shared(self._rates, applied, lambda: SampledRate(windows.count, windows.ms))
            applied.rate = rate
        throttle_ms = rate.use(amount, applied.bound, now_ms)
        if not throttle_ms:
            return 0
        if applied.shared_by[0] is Key.REQUEST:
            throttle_ms = min(throttle_ms, self._windows.ms)
        return self._throttled(applied, throttle_ms, now_ms)

    def take_back(self, user: str, client_id: str, key: Key, amount: float) -> None:
        """Take back what was recorded and not used after all."""
        applied = self._applied(user, client_id).get(key)
        if applied is not None and applied.rate is not None:
            applied.rate.record(-amount, self._monotonic_ms())

    def window_max(self, user: str, client_id: str, key: Key) -> float | None:
        """Return how much the quota of a client allows in all windows; None without a quota."""
        bound = self.bound(user, client_id, key)
        return None if bound is None else bound * (self._windows.count - 1) * self._windows.ms / 1000

    def take(self, user: str, client_id: str, amount: float, *, is_strict: bool) -> bool:
        """Take the tokens of changes to partitions; return whether they are taken.

        Takes nothing if `is_strict` and tokens are missing already.
        """
        applied = self._applied(user, client_id).get(Key.MUTATION)
        if applied is None:
            return True
        if is_strict and self._bucket(applied).throttle_ms(applied.bound, self._monotonic_ms()):
            return False
        self._move_tokens(applied, amount)
        return True

    def return_tokens(self, user: str, client_id: str, amount: float) -> None:
        """Return what `take` has taken for changes that were not made after all."""
        applied = self._applied(user, client_id).get(Key.MUTATION)
        if applied is not None:
            self._move_tokens(applied, -amount)

    def _move_tokens(self, applied: Applied, amount: float) -> None:
        """Take tokens of a bucket, also more than are left, or return them if `amount` is negative."""
        now_ms = self._monotonic_ms()
        self._bucket(applied).take(amount, applied.bound, now_ms)
        windows = self._windows
        rate = self._shared(self._rates, applied, lambda: SampledRate(windows.mutation_count, windows.mutation_ms))
        rate.record(amount, now_ms)

    def mutation_throttle_ms(self, user: str, client_id: str) -> int:
        """Return after how long the client may change partitions again."""
        applied = self._applied(user, client_id).get(Key.MUTATION)
        if applied is None:
            return 0
        now_ms = self._monotonic_ms()
        return self._throttled(applied, self._bucket(applied).throttle_ms(applied.bound, now_ms), now_ms)

    def usage(self, key: Key) -> list[Usage]:
        """Return what those that share a quota use of it, for metrics."""
        now_ms = self._monotonic_ms()
        bounds = {applied.shared_by: applied.bound for known in self._clients.values() for applied in known.values()}
        used = []
        for shared_by in (self._buckets if key is Key.MUTATION else self._rates).keys() & bounds.keys():
            if shared_by[0] is key:
                throttles = self._throttles.get(shared_by)
                used.append(
                    Usage(
                        shared_by[1],
                        shared_by[2],
                        self._rates[shared_by].rate(now_ms) if shared_by in self._rates else 0.0,
                        0.0 if throttles is None else throttles.average_ms(now_ms),
                        self._buckets[shared_by].tokens(bounds[shared_by], now_ms) if key is Key.MUTATION else 0.0,
                    )
                )
        return used

    def muted_count(self, key: Key) -> int:
        """Return how many connections are muted because of this quota."""
        return len(self._still_muted(key, self._monotonic_ms()))

    def _throttled(self, applied: Applied, throttle_ms: int, now_ms: int) -> int:
        """Note a throttle for metrics, and return it."""
        if throttle_ms:
            windows = self._windows
            throttles = self._shared(self._throttles, applied, lambda: _Throttles(windows.count, windows.ms))
            throttles.record(throttle_ms, now_ms)
            heapq.heappush(self._still_muted(applied.shared_by[0], now_ms), now_ms + throttle_ms)
            if logger.isEnabledFor(logging.DEBUG):
                key, user, client_id = applied.shared_by
                logger.debug(
                    "%s of user %r and client id %r is exceeded (%s): throttled for %d ms",
                    key.value,
                    user,
                    client_id,
                    applied.bound,
                    throttle_ms,
                )
        return throttle_ms

    def _still_muted(self, key: Key, now_ms: int) -> list[int]:
        """Return the times when muted connections are read again, as a heap. A muted connection causes no more."""
        muted = self._muted_until_ms[key]
        while muted and muted[0] <= now_ms:
            heapq.heappop(muted)
        return muted

    def connection_rate(self, host: str) -> float | None:
        """Return how many connections a second an address may open; None: any number."""
        for entity in (self._sources.get(host, _DEFAULT_IP), _DEFAULT_IP):
            rate = self._stored.get(entity, {}).get(IP_KEY)
            if rate is not None:
                return rate
        return None

    def _bucket(self, applied: Applied) -> TokenBucket:
        windows = self._windows
        return self._shared(self._buckets, applied, lambda: TokenBucket(windows.mutation_count, windows.mutation_ms))

    def _applied(self, user: str, client_id: str) -> dict[Key, Applied]:
        known = self._clients.get((user, client_id))
        if known is None:
            if len(client_id) > CLIENT_ID_LENGTH_MAX:
                return self._applied(user, client_id[:CLIENT_ID_LENGTH_MAX])
            if len(self._clients) >= CLIENTS_MAX:
                self._clients.clear()
            known = self._clients[user, client_id] = self._resolve(user, client_id)
        return known

    def _resolve(self, user: str, client_id: str) -> dict[Key, Applied]:
        if self._callback is not None:
            return self._resolve_by(self._callback, user, client_id)
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

    def _resolve_by(self, callback: QuotaCallback, user: str, client_id: str) -> dict[Key, Applied]:
        found: dict[Key, Applied] = {}
        for key in Key:
            try:
                quota = callback.quota(key.value, user, client_id)
                if quota is not None:
                    limit, (shared_user, shared_client) = quota
                    found[key] = Applied(float(limit), (key, str(shared_user), str(shared_client)))
            except Exception:
                logger.exception("the quota callback fails, so %s of user %s is not limited", key.value, user)
        return found

    def _shared(self, known: dict[_SharedBy, S], applied: Applied, new: Callable[[], S]) -> S:
        found = known.get(applied.shared_by)
        if found is None:
            if len(known) >= CLIENTS_MAX:
                by_age = sorted(known, key=lambda shared_by: known[shared_by].used_ms)
                self._drop(known, by_age[: len(by_age) // 2])
            found = known[applied.shared_by] = new()
        return found

    def purge(self) -> None:
        """Drop what was not used for long. Call it periodically."""
        now_ms = self._monotonic_ms()
        for known in (self._rates, self._buckets, self._throttles):
            self._drop(known, [one for one, used in known.items() if now_ms - used.used_ms > IDLE_MS_MAX])

    def _drop(self, known: _Shares, idle: Sequence[_SharedBy]) -> None:
        """Forget what the clients that share these quotas have used. Those that come back begin anew."""
        for shared_by in idle:
            del known[shared_by]
        if idle:
            self._clients.clear()  # they know rates

    def _changed(self) -> None:
        self._clients.clear()
        was_active = self.is_active
        if self._callback is not None:
            try:
                self._callback.quotas_stored({entity.parts: quotas for entity, quotas in self._stored.items()})
            except Exception:
                logger.exception("the quota callback fails to note the stored quotas")
        self.is_active = (
            bool(self._defaults)
            or self._callback is not None
            or any(
                entity.parts[0][0] != _IPS and not quotas.keys().isdisjoint({key.value for key in Key})
                for entity, quotas in self._stored.items()
            )
        )
        if self.is_active != was_active:
            self.activity.notify()


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
