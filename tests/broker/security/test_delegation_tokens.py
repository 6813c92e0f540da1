"""The life of delegation tokens, their nodes, and logins with them."""

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator
from random import Random

import pytest

from broker.network.sasl.clients import ScramClient
from broker.network.sasl.exchange import InvalidCredentials, Login
from broker.network.sasl.scram import Digest, ScramExchange
from broker.security.delegation_tokens import DelegationToken, DelegationTokens, TokenTimes
from controller.coordination.memory_store import MemoryStore
from protocol.errors import ErrorCode, KafkaError
from tests.support.manual_clock import ManualClock

TIMES = TokenTimes(lifetime_ms_max=1000, expiry_ms=100)
ALICE, BOB, EVE = "User:alice", "User:bob", "User:eve"


class Tokens:
    """The tokens of one broker, and its clock."""

    def __init__(self, store: MemoryStore) -> None:
        self.clock = ManualClock(1_000_000_000)
        self.tokens = DelegationTokens(store, self.clock, Random(1), "secret", TIMES)

    async def created(self, lifetime_ms: int = -1) -> DelegationToken:
        return await self.tokens.create(ALICE, ALICE, [BOB], lifetime_ms)

    def log_in(
        self, token: DelegationToken, *, hmac: bytes | None = None, digest: Digest = Digest.SCRAM_SHA_512
    ) -> Login:
        password = b64encode(self.tokens.hmac_of(token) if hmac is None else hmac).decode()
        client = ScramClient(digest, token.token_id, password, "nonce", uses_token=True)
        server = ScramExchange(
            digest, lambda name, is_by_token: self.tokens.user(name, digest) if is_by_token else None, "s", b"x" * 32
        )
        final = client.respond(server.evaluate(client.first()).token)
        assert final is not None
        login = server.evaluate(final).login
        assert login is not None
        return login


@pytest.fixture
async def tokens(store: MemoryStore) -> AsyncIterator[Tokens]:
    here = Tokens(store)
    await here.tokens.start()
    yield here
    here.tokens.stop()


@pytest.mark.parametrize("digest", Digest)
async def test_token_logs_in_as_its_owner_until_it_expires(tokens: Tokens, digest: Digest) -> None:
    token = await tokens.created()
    now_ms = tokens.clock.now_ms()
    assert tokens.log_in(token, digest=digest) == Login("alice", now_ms + 100, is_by_token=True)
    with pytest.raises(InvalidCredentials):
        tokens.log_in(token, hmac=b"wrong", digest=digest)
    tokens.clock.advance(101)
    with pytest.raises(InvalidCredentials):
        tokens.log_in(token, digest=digest)


async def test_node_has_no_secret(tokens: Tokens, store: MemoryStore) -> None:
    token = await tokens.created()
    node = await store.get(f"/delegation_token/tokens/{token.token_id}")
    now_ms = tokens.clock.now_ms()
    assert json.loads(node.data or b"") == {
        "version": 3,
        "owner": "User%3Aalice",
        "tokenRequester": "User%3Aalice",
        "renewers": ["User%3Abob"],
        "issueTimestamp": now_ms,
        "maxTimestamp": now_ms + 1000,
        "expiryTimestamp": now_ms + 100,
        "tokenId": token.token_id,
    }


@pytest.mark.parametrize(("asked", "lifetime_ms"), [(-1, 1000), (0, 1000), (50, 50), (5000, 1000)])
async def test_lifetime_is_limited(tokens: Tokens, asked: int, lifetime_ms: int) -> None:
    token = await tokens.created(asked)
    assert token.ends_ms - token.issued_ms == lifetime_ms
    assert token.expires_ms - token.issued_ms == min(lifetime_ms, 100)


@pytest.mark.parametrize(("period_ms", "extended_ms"), [(-1, 100), (300, 300), (9999, 1000)])
async def test_renewal_extends_up_to_the_end(tokens: Tokens, period_ms: int, extended_ms: int) -> None:
    token = await tokens.created()
    expires_ms = await tokens.tokens.renew(BOB, tokens.tokens.hmac_of(token), period_ms)
    assert expires_ms == tokens.clock.now_ms() + extended_ms


async def test_strangers_and_expired_tokens_are_refused(tokens: Tokens) -> None:
    token = await tokens.created()
    secret = tokens.tokens.hmac_of(token)
    for change in (tokens.tokens.renew, tokens.tokens.expire):
        with pytest.raises(KafkaError) as caught:
            await change(EVE, secret, 1)
        assert caught.value.code is ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        with pytest.raises(KafkaError) as caught:
            await change(ALICE, b"unknown", 1)
        assert caught.value.code is ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    tokens.clock.advance(101)
    for change in (tokens.tokens.renew, tokens.tokens.expire):
        with pytest.raises(KafkaError) as caught:
            await change(ALICE, secret, 1)
        assert caught.value.code is ErrorCode.DELEGATION_TOKEN_EXPIRED


async def test_negative_period_removes_a_token(tokens: Tokens, store: MemoryStore) -> None:
    token = await tokens.created()
    await tokens.tokens.expire(ALICE, tokens.tokens.hmac_of(token), -1)
    assert tokens.tokens.known == []
    assert await store.children("/delegation_token/tokens") == []


async def test_expired_tokens_are_removed(tokens: Tokens) -> None:
    await tokens.created()
    tokens.clock.advance(50)
    kept = await tokens.created()
    tokens.clock.advance(60)
    await tokens.tokens.remove_expired()
    assert tokens.tokens.known == [kept]


async def test_other_brokers_follow(tokens: Tokens, store: MemoryStore) -> None:
    other = Tokens(store)
    await other.tokens.start()
    token = await tokens.created()
    for _ in range(20):
        await asyncio.sleep(0)
    assert other.log_in(token).user == "alice"
    await tokens.tokens.expire(ALICE, tokens.tokens.hmac_of(token), -1)
    for _ in range(20):
        await asyncio.sleep(0)
    assert other.tokens.known == []
    other.tokens.stop()


async def test_tokens_are_off_without_a_secret(store: MemoryStore) -> None:
    off = DelegationTokens(store, ManualClock(), Random(1), None, TIMES)
    await off.start()
    with pytest.raises(KafkaError) as caught:
        await off.create(ALICE, ALICE, [], -1)
    assert caught.value.code is ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


async def test_a_token_is_found_without_a_look_at_the_others(tokens: Tokens, monkeypatch: pytest.MonkeyPatch) -> None:
    created = [await tokens.created() for _ in range(20)]
    named = tokens.tokens.hmac_of(created[7])
    computed: list[DelegationToken] = []
    hmac_of = tokens.tokens.hmac_of

    def counted(token: DelegationToken) -> bytes:
        computed.append(token)
        return hmac_of(token)

    monkeypatch.setattr(tokens.tokens, "hmac_of", counted)
    assert await tokens.tokens.renew(ALICE, named, -1)
    assert {token.token_id for token in computed} <= {created[7].token_id}
    await tokens.tokens.expire(ALICE, named, -1)
    with pytest.raises(KafkaError) as raised:
        await tokens.tokens.renew(ALICE, named, -1)
    assert raised.value.code is ErrorCode.DELEGATION_TOKEN_NOT_FOUND


async def test_more_renewers_than_a_node_can_have_are_refused(tokens: Tokens) -> None:
    renewers = [f"User:renewer-{number:05}" for number in range(70_000)]
    with pytest.raises(KafkaError) as refused:
        await tokens.tokens.create(ALICE, ALICE, renewers, -1)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert not list(tokens.tokens.known)
