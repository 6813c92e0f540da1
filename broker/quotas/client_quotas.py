"""Describes and changes the client quotas in the metadata store (KIP-546, KIP-599, KIP-612).

Owns: the valid entities and keys, the rules of filters, the text of values. Must not know: response layouts, or how
quotas are enforced. The node of a user also holds SCRAM credentials, which this module neither shows nor changes.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from math import isfinite, isnan

from base.dataclass import dataclass
from broker.network.os_network import resolve_in_thread
from config.definition import ConfigType, text_of
from controller.store.state_store import StateStore
from controller.tree.entity_configs import all_overrides, change_overrides, check_names
from controller.tree.paths import ConfigEntity
from protocol.errors import ErrorCode, KafkaError

USER = "user"
CLIENT_ID = "client-id"
IP = "ip"

# The entity types of requests, in the order of the store's paths, and their names in the store.
STORED_TYPES = {USER: "users", CLIENT_ID: "clients", IP: "ips"}
ENTITY_TYPES = {stored: asked for asked, stored in STORED_TYPES.items()}

# In the order in which Kafka describes them, which is independent of the order in which they were set.
CLIENT_KEYS: Mapping[str, ConfigType] = {
    "request_percentage": ConfigType.DOUBLE,
    "producer_byte_rate": ConfigType.LONG,
    "consumer_byte_rate": ConfigType.LONG,
    "controller_mutation_rate": ConfigType.DOUBLE,
}
IP_KEYS: Mapping[str, ConfigType] = {"connection_creation_rate": ConfigType.INT}
KEYS = {**CLIENT_KEYS, **IP_KEYS}
# Printed in a well-known book.
MISPRINTS = {"producer_bytes_rate": "producer_byte_rate", "consumer_bytes_rate": "consumer_byte_rate"}

LARGEST = {ConfigType.LONG: (1 << 63) - 1, ConfigType.INT: (1 << 31) - 1}
# Clients send whole numbers as floating-point results of a computation.
EPSILON = 1e-6

Quotas = dict[str, float]


class MatchType(IntEnum):
    """How a component of a filter selects names; numbered as in requests."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2


MATCH_TYPES = frozenset(MatchType)


@dataclass(frozen=True, slots=True)
class FilterComponent:
    """The condition for names of one type. `match_type` may be any number."""

    entity_type: str
    match_type: int
    name: str | None

    def matches(self, name: str | None) -> bool:
        """Return whether `name` fulfils the condition; None is the default entity of the type."""
        if self.match_type == MatchType.ANY:
            return True
        return name == (self.name if self.match_type == MatchType.EXACT else None)


@dataclass(frozen=True, slots=True)
class QuotaChange:
    """A quota to set, or with None to take away."""

    key: str
    value: float | None


class ClientQuotas:
    """The client quotas as one broker describes and changes them."""

    def __init__(self, store: StateStore, on_changed: Callable[[ConfigEntity], Awaitable[None]]) -> None:
        """`on_changed` puts a change into effect before it is reported as done."""
        self._store = store
        self._on_changed = on_changed

    async def describe(
        self, components: Sequence[FilterComponent], *, is_strict: bool
    ) -> list[tuple[ConfigEntity, Quotas]]:
        """Return the entities with quotas that match every component; with `is_strict`, only those without other types.

        Raises:
            KafkaError: INVALID_REQUEST, UNSUPPORTED_VERSION.
        """
        check_filter(components)
        found = []
        for stored_type in STORED_TYPES.values():
            for entity, overrides in (await all_overrides(self._store, stored_type)).items():
                quotas = readable_quotas(overrides)
                if quotas and matches(components, entity, is_strict=is_strict):
                    found.append((entity, quotas))
        return found

    async def alter(
        self, names: Sequence[tuple[str, str | None]], changes: Iterable[QuotaChange], *, validate_only: bool
    ) -> None:
        """Change the quotas of the entity with these (type, name) pairs; the name None is the default entity.

        Raises:
            KafkaError: INVALID_REQUEST; nothing is changed.
        """
        entity = entity_of(names)
        check_names(entity)
        if entity.parts[0][0] == STORED_TYPES[IP]:
            await check_address(entity.parts[0][1])
        keys = _keys_of(entity)
        # The node of a user holds its SCRAM credentials as well, which are not taken away here.
        written = {
            change.key: stored_quota(entity, change)
            for change in changes
            if change.value is not None or change.key in keys
        }

        def edit(before: Mapping[str, str]) -> Mapping[str, str]:
            after = {**before, **written}
            return {key: text for key, text in after.items() if text is not None}

        if not validate_only:
            await change_overrides(self._store, entity, edit)
            await self._on_changed(entity)


def entity_of(names: Sequence[tuple[str, str | None]]) -> ConfigEntity:
    """Return the entity of a request, which names its parts in any order. Raises KafkaError(INVALID_REQUEST)."""
    if not names:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid empty client quota entity")
    for entity_type, name in names:
        if entity_type not in STORED_TYPES:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unhandled client quota entity type: {entity_type}")
        if name == "":
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Empty {entity_type} not supported")
    by_type = dict(names)
    if IP in by_type and len(by_type) > 1:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "Invalid quota entity combination, IP entity should not be used with user/client ID entity.",
        )
    return ConfigEntity(
        tuple((stored, by_type[entity_type]) for entity_type, stored in STORED_TYPES.items() if entity_type in by_type)
    )


def check_filter(components: Sequence[FilterComponent]) -> None:
    """Check the components of a filter. Raises KafkaError: INVALID_REQUEST, UNSUPPORTED_VERSION."""
    seen: set[str] = set()
    for component in components:
        entity_type = component.entity_type
        if not entity_type:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Unexpected empty filter component entity type")
        if entity_type not in STORED_TYPES:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Custom entity type '{entity_type}' not supported")
        if entity_type in seen:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Duplicate {entity_type} filter component entity type")
        if component.match_type not in MATCH_TYPES:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unexpected match type: {component.match_type}")
        seen.add(entity_type)
    if IP in seen and len(seen) > 1:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "Invalid entity filter component combination, IP filter component should not be used with user or "
            "clientId filter component.",
        )


def matches(components: Iterable[FilterComponent], entity: ConfigEntity, *, is_strict: bool) -> bool:
    """Return whether the entity has a matching name for every component and, with `is_strict`, no other names."""
    names = {ENTITY_TYPES[stored]: name for stored, name in entity.parts}
    asked = {component.entity_type: component for component in components}
    fits = all(entity_type in names and one.matches(names[entity_type]) for entity_type, one in asked.items())
    return fits and not (is_strict and names.keys() - asked.keys())


def readable_quotas(overrides: Mapping[str, str]) -> dict[str, float]:
    """Return the quotas among the settings of an entity, without texts that are no numbers, as written by hand."""
    quotas = {}
    for key in KEYS:
        try:
            quota = float(overrides[key])
        except (KeyError, ValueError):
            continue
        if not isnan(quota):
            quotas[key] = quota
    return quotas


def stored_quota(entity: ConfigEntity, change: QuotaChange) -> str | None:
    """Return the stored text of a value: rates of bytes and connections are integers, others have a fraction.

    Raises:
        KafkaError: INVALID_REQUEST.
    """
    key, value = change.key, change.value
    keys = _keys_of(entity)
    if value is None:
        return None
    if key not in keys:
        hint = f", expected {MISPRINTS[key]}" if key in MISPRINTS else ""
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Invalid configuration key {key}{hint}")
    if not isfinite(value) or value < 0:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Configuration {key} must be a number that is not negative")
    if keys[key] is ConfigType.DOUBLE:
        return text_of(value)
    # The largest LONG is a usual "unlimited". As a float it is one more.
    whole = min(int(value + EPSILON), LARGEST[keys[key]])
    if abs(float(whole) - value) > EPSILON:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Configuration {key} must be a {keys[key].name} value")
    return str(whole)


def _keys_of(entity: ConfigEntity) -> Mapping[str, ConfigType]:
    return IP_KEYS if entity.parts[0][0] == STORED_TYPES[IP] else CLIENT_KEYS


async def check_address(name: str | None) -> None:
    """Check that `name` is an address, a host name, or None for the default. Raises KafkaError(INVALID_REQUEST)."""
    if name is None:
        return
    try:
        await addresses_of(name)
    except OSError as error:
        problem = f"{name} is not a valid IP or resolvable host."
        raise KafkaError(ErrorCode.INVALID_REQUEST, problem) from error


async def addresses_of(name: str) -> set[str]:
    """Return an address, or those that a host name stands for, in the form that connections have. Raises OSError."""
    try:
        return {str(ipaddress.ip_address(name))}
    except ValueError:
        pass
    try:
        found = await resolve_in_thread(name)
    except UnicodeError as error:
        raise OSError(f"{name!r} is no host name") from error
    return {str(ipaddress.ip_address(address.partition("%")[0])) for address in found}
