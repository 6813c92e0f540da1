"""Quotas in the store: the filter against a dumb twin, what is refused, and what the nodes hold."""

import itertools
from collections.abc import Sequence

import pytest

from broker.quotas.client_quotas import (
    CLIENT_ID,
    IP,
    USER,
    ClientQuotas,
    FilterComponent,
    MatchType,
    QuotaChange,
    entity_of,
    matches,
    stored_quota,
)
from controller.coordination.memory_store import MemoryStore, MemoryTree
from controller.tree import paths
from controller.tree.entity_configs import change_overrides, entity_overrides
from controller.tree.paths import ConfigEntity
from protocol.errors import ErrorCode, KafkaError

Names = tuple[tuple[str, str | None], ...]

ENTITIES: list[Names] = [
    ((USER, "alice"),),
    ((USER, None),),
    ((CLIENT_ID, "app"),),
    ((CLIENT_ID, None),),
    ((USER, "alice"), (CLIENT_ID, "app")),
    ((USER, "alice"), (CLIENT_ID, None)),
    ((USER, None), (CLIENT_ID, "app")),
    ((USER, None), (CLIENT_ID, None)),
    ((IP, "10.0.0.1"),),
    ((IP, None),),
]


async def nothing(entity: ConfigEntity) -> None:
    """No quota is in force."""


@pytest.fixture
def quotas(store: MemoryStore) -> ClientQuotas:
    return ClientQuotas(store, nothing)


def exact(entity_type: str, name: str) -> FilterComponent:
    return FilterComponent(entity_type, MatchType.EXACT, name)


def default(entity_type: str) -> FilterComponent:
    return FilterComponent(entity_type, MatchType.DEFAULT, None)


def any_of(entity_type: str) -> FilterComponent:
    return FilterComponent(entity_type, MatchType.ANY, None)


async def refusal(quotas: ClientQuotas, names: Sequence[tuple[str, str | None]], key: str, value: float) -> str:
    with pytest.raises(KafkaError) as refused:
        await quotas.alter(names, [QuotaChange(key, value)], validate_only=False)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    return refused.value.message


# -- the filter ----------------------------------------------------------------------------------------------------


def expected_match(components: Sequence[FilterComponent], names: Names, is_strict: bool) -> bool:
    """The rules one by one, in the words of the documentation."""
    for component in components:
        for entity_type, name in names:
            if entity_type == component.entity_type:
                if component.match_type == MatchType.EXACT and name != component.name:
                    return False
                if component.match_type == MatchType.DEFAULT and name is not None:
                    return False
                break
        else:
            return False
    asked_types = [component.entity_type for component in components]
    return not is_strict or all(entity_type in asked_types for entity_type, _ in names)


def test_the_filter_in_every_combination() -> None:
    of_type = {
        USER: [None, exact(USER, "alice"), exact(USER, "bob"), default(USER), any_of(USER)],
        CLIENT_ID: [None, exact(CLIENT_ID, "app"), default(CLIENT_ID), any_of(CLIENT_ID)],
        IP: [None, exact(IP, "10.0.0.1"), default(IP), any_of(IP)],
    }
    for chosen in itertools.product(*of_type.values()):
        components = [component for component in chosen if component is not None]
        for names, is_strict in itertools.product(ENTITIES, (False, True)):
            assert matches(components, entity_of(names), is_strict=is_strict) == expected_match(
                components, names, is_strict
            ), (components, names, is_strict)


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([any_of("")], ErrorCode.INVALID_REQUEST),
        ([any_of("team")], ErrorCode.UNSUPPORTED_VERSION),
        ([any_of(USER), default(USER)], ErrorCode.INVALID_REQUEST),
        ([any_of(USER), any_of(IP)], ErrorCode.INVALID_REQUEST),
        ([any_of(IP), any_of(CLIENT_ID)], ErrorCode.INVALID_REQUEST),
        ([FilterComponent(USER, 3, None)], ErrorCode.INVALID_REQUEST),
    ],
)
async def test_filters_that_are_refused(
    quotas: ClientQuotas, components: list[FilterComponent], code: ErrorCode
) -> None:
    with pytest.raises(KafkaError) as refused:
        await quotas.describe(components, is_strict=False)
    assert refused.value.code is code


# -- changes -------------------------------------------------------------------------------------------------------


async def test_nodes_have_kafkas_paths_and_data(store: MemoryStore, tree: MemoryTree) -> None:
    quotas = ClientQuotas(store, nothing)
    client_changes = [QuotaChange("producer_byte_rate", 1048576.0), QuotaChange("request_percentage", 50.0)]
    for names in ENTITIES[:-2]:
        await quotas.alter(names[::-1], client_changes, validate_only=False)
    for names in ENTITIES[-2:]:
        await quotas.alter(names, [QuotaChange("connection_creation_rate", 20.0)], validate_only=False)
    nodes = {path: data for path, data in tree.dump().items() if path.startswith("/config/") and data is not None}
    of_client = b'{"version":1,"config":{"producer_byte_rate":"1048576","request_percentage":"50.0"}}'
    of_ip = b'{"version":1,"config":{"connection_creation_rate":"20"}}'
    assert {path: data for path, data in nodes.items() if "changes" not in path} == {
        "/config/users/alice": of_client,
        "/config/users/<default>": of_client,
        "/config/clients/app": of_client,
        "/config/clients/<default>": of_client,
        "/config/users/alice/clients/app": of_client,
        "/config/users/alice/clients/<default>": of_client,
        "/config/users/<default>/clients/app": of_client,
        "/config/users/<default>/clients/<default>": of_client,
        "/config/ips/10.0.0.1": of_ip,
        "/config/ips/<default>": of_ip,
    }
    assert b'{"version":2,"entity_path":"users/alice/clients/app"}' in nodes.values()
    everything = await quotas.describe([], is_strict=False)
    assert {entity for entity, _ in everything} == {entity_of(names) for names in ENTITIES}
    assert everything[0][1] == {"producer_byte_rate": 1048576.0, "request_percentage": 50.0}


async def test_quotas_come_and_go_beside_credentials(store: MemoryStore, tree: MemoryTree) -> None:
    await store.create("/config/users/alice", paths.encode_config({"SCRAM-SHA-256": "secret"}))
    quotas = ClientQuotas(store, nothing)
    alice = [(USER, "alice")]
    assert await quotas.describe([], is_strict=False) == []
    await quotas.alter(alice, [QuotaChange("producer_byte_rate", 5)], validate_only=False)
    assert await quotas.describe([exact(USER, "alice")], is_strict=True) == [
        (entity_of(alice), {"producer_byte_rate": 5.0})
    ]
    await quotas.alter(alice, [QuotaChange("producer_byte_rate", None)], validate_only=False)
    assert tree.dump()["/config/users/alice"] == b'{"version":1,"config":{"SCRAM-SHA-256":"secret"}}'


async def test_the_last_quota_takes_the_node_along(store: MemoryStore, tree: MemoryTree) -> None:
    quotas = ClientQuotas(store, nothing)
    for value in (5.0, None):
        await quotas.alter([(CLIENT_ID, "app")], [QuotaChange("consumer_byte_rate", value)], validate_only=False)
    assert "/config/clients/app" not in tree.dump()


async def test_validation_alone_writes_nothing(store: MemoryStore, tree: MemoryTree) -> None:
    before = tree.dump()
    await ClientQuotas(store, nothing).alter([(USER, "a")], [QuotaChange("producer_byte_rate", 1)], validate_only=True)
    assert tree.dump() == before


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([], "Invalid empty client quota entity"),
        ([("team", "a")], "Unhandled client quota entity type: team"),
        ([(USER, "")], "Empty user not supported"),
        (
            [(USER, "a"), (IP, "10.0.0.1")],
            "Invalid quota entity combination, IP entity should not be used with user/client ID entity.",
        ),
        ([(IP, "no host.invalid")], "no host.invalid is not a valid IP or resolvable host."),
        ([(USER, "..")], "Invalid name '..' in users: no node of the store can have it."),
        ([(USER, "a"), (CLIENT_ID, ".")], "Invalid name '.' in clients: no node of the store can have it."),
    ],
)
async def test_entities_that_are_refused(
    quotas: ClientQuotas, names: list[tuple[str, str | None]], message: str
) -> None:
    assert await refusal(quotas, names, "producer_byte_rate", 1.0) == message
    with pytest.raises(KafkaError) as refused:
        await quotas.alter(names, [QuotaChange("producer_byte_rate", 1.0)], validate_only=True)
    assert refused.value.message == message


@pytest.mark.parametrize(
    ("names", "key", "value", "message"),
    [
        ([(USER, "a")], "SCRAM-SHA-256", 1, "Invalid configuration key SCRAM-SHA-256"),
        ([(USER, "a")], "connection_creation_rate", 1, "Invalid configuration key connection_creation_rate"),
        ([(IP, "::1")], "producer_byte_rate", 1, "Invalid configuration key producer_byte_rate"),
        (
            [(USER, "a")],
            "producer_bytes_rate",
            1,
            "Invalid configuration key producer_bytes_rate, expected producer_byte_rate",
        ),
        ([(USER, "a")], "producer_byte_rate", 1.5, "Configuration producer_byte_rate must be a LONG value"),
        ([(USER, "a")], "producer_byte_rate", 1e30, "Configuration producer_byte_rate must be a LONG value"),
        (
            [(IP, "::1")],
            "connection_creation_rate",
            2**31,
            "Configuration connection_creation_rate must be a INT value",
        ),
        (
            [(USER, "a")],
            "request_percentage",
            -1,
            "Configuration request_percentage must be a number that is not negative",
        ),
        (
            [(USER, "a")],
            "producer_byte_rate",
            float("nan"),
            "Configuration producer_byte_rate must be a number that is not negative",
        ),
        (
            [(USER, "a")],
            "request_percentage",
            float("inf"),
            "Configuration request_percentage must be a number that is not negative",
        ),
    ],
)
async def test_values_that_are_refused(
    quotas: ClientQuotas, names: list[tuple[str, str | None]], key: str, value: float, message: str
) -> None:
    assert await refusal(quotas, names, key, value) == message
    assert await quotas.describe([], is_strict=False) == []


async def test_the_largest_number_is_taken_as_unlimited(quotas: ClientQuotas) -> None:
    change = QuotaChange("producer_byte_rate", float(2**63 - 1))
    assert stored_quota(entity_of([(USER, "a")]), change) == "9223372036854775807"
    await quotas.alter([(USER, "a")], [change], validate_only=False)
    assert (await quotas.describe([], is_strict=False))[0][1] == {"producer_byte_rate": float(2**63)}


async def test_whole_numbers_that_were_computed_are_taken(quotas: ClientQuotas) -> None:
    await quotas.alter([(USER, "a")], [QuotaChange("producer_byte_rate", 0.1 * 30)], validate_only=False)
    assert (await quotas.describe([], is_strict=False))[0][1] == {"producer_byte_rate": 3.0}


async def test_only_quotas_are_taken_away(quotas: ClientQuotas, store: MemoryStore) -> None:
    entity = entity_of([(USER, "alice")])
    await change_overrides(store, entity, lambda _: {"SCRAM-SHA-512": "salt=", "request_percentage": "1"})
    changes = [QuotaChange("SCRAM-SHA-512", None), QuotaChange("request_percentage", None)]
    await quotas.alter([(USER, "alice")], changes, validate_only=False)
    assert await entity_overrides(store, entity) == {"SCRAM-SHA-512": "salt="}
