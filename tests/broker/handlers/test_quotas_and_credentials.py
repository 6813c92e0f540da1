"""Requests about client quotas and SCRAM credentials through the whole broker."""

from pathlib import Path

import pytest

from protocol.errors import ErrorCode
from protocol.messages import alter_client_quotas
from protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from tests.support.in_process import InProcessBroker, running_broker

Entity = tuple[tuple[str, str | None], ...]
EXACT = 0
ALICE: Entity = (("user", "alice"),)
APP_OF_ALICE: Entity = (("client-id", "app1"), ("user", "alice"))


async def set_quotas(
    broker: InProcessBroker, quotas: dict[Entity, dict[str, float]], *, validate_only: bool = False, version: int = 1
) -> list[tuple[ErrorCode, str | None]]:
    entries = [
        alter_client_quotas.EntryData(
            entity=[alter_client_quotas.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
            ops=[OpData(key=key, value=value, remove=False) for key, value in values.items()],
        )
        for entity, values in quotas.items()
    ]
    response = await broker.ask(AlterClientQuotasRequest(entries=entries, validate_only=validate_only), version)
    for entity, result in zip(quotas, response.entries, strict=True):
        assert tuple((part.entity_type, part.entity_name) for part in result.entity) == entity
    return [(ErrorCode(result.error_code), result.error_message) for result in response.entries]


async def quotas_of(broker: InProcessBroker, user: str, *, version: int = 1) -> dict[Entity, dict[str, float]]:
    component = ComponentData(entity_type="user", match_type=EXACT, match=user)
    response = await broker.ask(DescribeClientQuotasRequest(components=[component], strict=False), version)
    assert (response.error_code, response.error_message) == (ErrorCode.NONE, "")
    return {
        tuple((part.entity_type, part.entity_name) for part in entry.entity): {
            value.key: value.value for value in entry.values
        }
        for entry in response.entries
    }


@pytest.mark.parametrize("version", [0, 1])
async def test_each_entity_gets_its_own_code(served: InProcessBroker, version: int) -> None:
    responses = await set_quotas(
        served,
        {
            ALICE: {"producer_byte_rate": 1048576.0, "consumer_byte_rate": 2097152.0},
            (("user", "bob"),): {"producer_bytes_rate": 1.0},
            APP_OF_ALICE: {"producer_byte_rate": 524288.0},
        },
        version=version,
    )
    assert responses == [
        (ErrorCode.NONE, None),
        (ErrorCode.INVALID_REQUEST, "Invalid configuration key producer_bytes_rate, expected producer_byte_rate"),
        (ErrorCode.NONE, None),
    ]
    assert await quotas_of(served, "alice", version=version) == {
        ALICE: {"producer_byte_rate": 1048576.0, "consumer_byte_rate": 2097152.0},
        APP_OF_ALICE[::-1]: {"producer_byte_rate": 524288.0},
    }


async def test_entries_for_one_entity_get_one_code_after_the_last(served: InProcessBroker) -> None:
    parts = [EntityData(entity_type="user", entity_name=name) for name in ("nobody", "alice")]
    entries = [
        EntryData(entity=parts[index:], ops=[OpData(key="producer_byte_rate", value=value, remove=False)])
        for index, value in ((0, 1.0), (1, 2.0))
    ]
    (response,) = (await served.ask(AlterClientQuotasRequest(entries=entries, validate_only=False))).entries
    assert (response.error_code, response.entity) == (ErrorCode.NONE, parts[1:])
    assert await quotas_of(served, "alice") == {ALICE: {"producer_byte_rate": 2.0}}


async def test_orders_are_those_of_kafka_and_not_of_the_request(served: InProcessBroker) -> None:
    entry = EntryData(
        entity=[
            EntityData(entity_type="user", entity_name="alice"),
            EntityData(entity_type="client-id", entity_name="app1"),
        ],
        ops=[
            OpData(key=key, value=1.0, remove=False)
            for key in ("consumer_byte_rate", "controller_mutation_rate", "producer_byte_rate", "request_percentage")
        ],
    )
    response = await served.ask(AlterClientQuotasRequest(entries=[entry], validate_only=False))
    assert [[part.entity_type for part in it.entity] for it in response.entries] == [["client-id", "user"]]
    ((entity, quotas),) = (await quotas_of(served, "alice")).items()
    assert [entity_type for entity_type, _ in entity] == ["user", "client-id"]
    assert list(quotas) == [
        "request_percentage",
        "producer_byte_rate",
        "consumer_byte_rate",
        "controller_mutation_rate",
    ]


async def test_validation_only_changes_no_quota(served: InProcessBroker) -> None:
    wanted: dict[Entity, dict[str, float]] = {ALICE: {"request_percentage": 50.0}, (): {"request_percentage": 50.0}}
    assert await set_quotas(served, wanted, validate_only=True) == [
        (ErrorCode.NONE, None),
        (ErrorCode.INVALID_REQUEST, "Invalid empty client quota entity"),
    ]
    assert await quotas_of(served, "alice") == {}


async def test_filter_with_an_unknown_entity_type_is_rejected(served: InProcessBroker) -> None:
    component = ComponentData(entity_type="team", match_type=EXACT, match="red")
    response = await served.ask(DescribeClientQuotasRequest(components=[component], strict=True))
    assert (response.error_code, response.error_message, response.entries) == (
        ErrorCode.UNSUPPORTED_VERSION,
        "Custom entity type 'team' not supported",
        None,
    )


def credential(user: str, mechanism: int, iterations: int = 4096) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(
        name=user, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=b"salted"
    )


async def test_credentials_survive_a_restart_and_share_the_node_with_quotas(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await set_quotas(broker, {ALICE: {"producer_byte_rate": 5.0}})
        upsertions = [credential("alice", 2), credential("alice", 1, 8192), credential("weak", 1, 5)]
        deletions = [ScramCredentialDeletion(name="nobody", mechanism=1)]
        response = await broker.ask(AlterUserScramCredentialsRequest(deletions=deletions, upsertions=upsertions))
        assert [it.user for it in response.results] == ["weak", "nobody", "alice"], "the refused first"
        assert {it.user: (it.error_code, it.error_message) for it in response.results} == {
            "alice": (ErrorCode.NONE, ""),
            "weak": (ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"),
            "nobody": (ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"),
        }
    async with running_broker(tmp_path) as broker:
        for users in (None, [], [UserName(name="alice")]):
            response = await broker.ask(DescribeUserScramCredentialsRequest(users=users))
            (found,) = response.results
            assert (response.error_code, response.error_message) == (ErrorCode.NONE, "")
            assert (found.user, found.error_code, found.error_message) == ("alice", ErrorCode.NONE, "")
            assert [(it.mechanism, it.iterations) for it in found.credential_infos] == [(1, 8192), (2, 4096)]
        assert await quotas_of(broker, "alice") == {ALICE: {"producer_byte_rate": 5.0}}


async def test_users_without_credentials(served: InProcessBroker) -> None:
    response = await served.ask(DescribeUserScramCredentialsRequest(users=[UserName(name="nosuch")]))
    (result,) = response.results
    assert (result.error_code, result.error_message) == (
        ErrorCode.RESOURCE_NOT_FOUND,
        "Attempt to describe a user credential that does not exist: nosuch",
    )
    response = await served.ask(DescribeUserScramCredentialsRequest(users=[UserName(name="")]))
    (result,) = response.results
    assert (result.error_code, result.error_message) == (ErrorCode.RESOURCE_NOT_FOUND, "Username must not be empty")
