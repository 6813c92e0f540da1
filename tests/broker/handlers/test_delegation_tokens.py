"""Requests about delegation tokens: who may send them, and who sees which tokens."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from broker.network.sasl.exchange import Login
from broker.network.sasl.session import SaslListener, SaslSession
from broker.security.acls import Acl, Operation, Pattern, Permission, ResourceType
from config.broker_properties import AUTHORIZERS
from protocol.errors import ErrorCode
from protocol.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from protocol.messages.describe_delegation_token import DescribeDelegationTokenOwner, DescribeDelegationTokenRequest
from protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from tests.support.in_process import InProcessBroker, running_broker

ALICE, BOB = "User:alice", "User:bob"


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[InProcessBroker]:
    settings = {"delegation.token.secret.key": "secret", "authorizer.class.name": AUTHORIZERS[0]}
    async with running_broker(tmp_path, settings) as running:
        yield running


async def ask(broker: InProcessBroker, principal: str, request: object, version: int | None = None) -> Any:
    broker.channel.principal = principal
    return await broker.ask(request, version)


def creation(**fields: Any) -> CreateDelegationTokenRequest:
    return CreateDelegationTokenRequest(**{"renewers": [], "max_lifetime_ms": -1, **fields})


async def test_token_is_created_renewed_described_and_ended(broker: InProcessBroker) -> None:
    for version in range(4):
        renewer = CreatableRenewers(principal_type="User", principal_name="bob")
        token = await ask(broker, ALICE, creation(renewers=[renewer]), version)
        assert (token.error_code, token.principal_name) == (ErrorCode.NONE, "alice")
        renewed = await ask(broker, BOB, RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=1000))
        assert renewed.error_code == ErrorCode.NONE
        assert renewed.expiry_timestamp_ms < token.expiry_timestamp_ms
        described = await ask(broker, ALICE, DescribeDelegationTokenRequest(owners=None), version)
        (one,) = described.tokens
        assert (one.token_id, one.hmac, [each.principal_name for each in one.renewers]) == (
            token.token_id,
            token.hmac,
            ["bob"],
        )
        ended = await ask(broker, ALICE, ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=-1))
        assert ended.error_code == ErrorCode.NONE
        assert (await ask(broker, ALICE, DescribeDelegationTokenRequest(owners=None))).tokens == []


async def test_requests_need_an_own_login(broker: InProcessBroker) -> None:
    anonymous = await ask(broker, "User:ANONYMOUS", creation())
    session = SaslSession(SaslListener({}, receive_size_max=1, failure_delay_ms=0))
    session._login = Login("alice", is_by_token=True)
    broker.channel.sasl = session
    by_token = await ask(broker, ALICE, creation())
    assert {anonymous.error_code, by_token.error_code} == {ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED}


async def test_token_for_another_owner_needs_a_permission(broker: InProcessBroker) -> None:
    for_bob = creation(owner_principal_type="User", owner_principal_name="bob")
    denied = await ask(broker, ALICE, for_bob)
    assert denied.error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    acl = Acl(ALICE, "*", Operation.CREATE_TOKENS, Permission.ALLOW)
    broker.services.authorizer.put(Pattern(ResourceType.USER, BOB), {acl})
    token = await ask(broker, ALICE, for_bob)
    assert (token.error_code, token.principal_name, token.token_requester_principal_name) == (0, "bob", "alice")


async def test_renewers_must_be_users(broker: InProcessBroker) -> None:
    renewer = CreatableRenewers(principal_type="Group", principal_name="g")
    refused = await ask(broker, ALICE, creation(renewers=[renewer]))
    assert refused.error_code == ErrorCode.INVALID_PRINCIPAL_TYPE


async def test_tokens_of_others_are_seen_with_a_permission(broker: InProcessBroker) -> None:
    token = await ask(broker, ALICE, creation())
    asked = DescribeDelegationTokenRequest(
        owners=[DescribeDelegationTokenOwner(principal_type="User", principal_name="alice")]
    )
    assert (await ask(broker, BOB, asked)).tokens == []
    for resource_type, name, operation in (
        (ResourceType.DELEGATION_TOKEN, token.token_id, Operation.DESCRIBE),
        (ResourceType.USER, ALICE, Operation.DESCRIBE_TOKENS),
    ):
        pattern = Pattern(resource_type, name)
        broker.services.authorizer.put(pattern, {Acl(BOB, "*", operation, Permission.ALLOW)})
        assert len((await ask(broker, BOB, asked)).tokens) == 1
        broker.services.authorizer.put(pattern, ())
    assert (await ask(broker, ALICE, DescribeDelegationTokenRequest(owners=[]))).tokens == []


async def test_tokens_of_an_owner_are_also_those_that_it_may_renew(broker: InProcessBroker) -> None:
    await ask(broker, ALICE, creation(renewers=[CreatableRenewers(principal_type="User", principal_name="bob")]))
    of_bob = DescribeDelegationTokenRequest(
        owners=[DescribeDelegationTokenOwner(principal_type="User", principal_name="bob")]
    )
    assert len((await ask(broker, BOB, of_bob)).tokens) == 1
