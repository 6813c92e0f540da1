"""A read of everything that ends late does not undo changes that were made since it began."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from random import Random

import pytest

from base.pause import never
from broker.cluster.topic_configs import TopicConfigs
from broker.loop.slices import SlicedWork
from broker.quotas.client_quotas import ClientQuotas, QuotaChange
from broker.quotas.enforcement import EnforcedQuotas, Key, QuotaWindows
from broker.security.acl_store import AclStore
from broker.security.acls import Acl, Filter, Operation, Pattern, PatternType, Permission, ResourceType
from broker.security.authorizer import Authorizer
from broker.security.delegation_tokens import DelegationTokens, TokenTimes
from broker.security.scram_credentials import Deletion, Mechanism, ScramCredentials, Upsertion
from config.broker import BrokerConfig
from controller.coordination.memory_store import MemoryTree
from controller.tree import paths
from controller.tree.entity_configs import overrides_of_topics
from controller.tree.registration import ensure_paths
from tests.support.held_store import HeldStore
from tests.support.manual_clock import ManualClock


@pytest.fixture
async def store() -> AsyncIterator[HeldStore]:
    opened = HeldStore(MemoryTree(now_ms=1_000_000_000))
    await opened.open()
    await ensure_paths(opened)
    await opened.create(paths.CONTROLLER, paths.encode_controller(1, 0))
    yield opened
    await opened.close()


async def settle() -> None:
    """Let changes and their notifications end, except those that wait for a load: they take far fewer turns."""
    for _ in range(200):
        await asyncio.sleep(0)


async def overlap(store: HeldStore, loading: Awaitable[object], below: str, change: Awaitable[object]) -> None:
    """Begin to load everything, change something after it was read, and end both."""
    await settle()
    held = asyncio.ensure_future(store.hold_next_read(below))
    await asyncio.sleep(0)
    loads = asyncio.ensure_future(loading)
    await held
    changes = asyncio.ensure_future(change)
    await settle()
    store.release()
    await loads
    await changes


async def test_deleted_credential_stays_deleted(store: HeldStore) -> None:
    credentials = ScramCredentials(store, SlicedWork(ManualClock().monotonic_ms))
    scram = Mechanism.SCRAM_SHA_256
    await credentials.alter([], [Upsertion("alice", scram.number, 4096, b"salt", b"password")])
    assert credentials.credential("alice", scram.stored_name) is not None
    deletion = credentials.alter([Deletion("alice", scram.number)], [])
    await overlap(store, credentials.load(), "/config/users", deletion)
    assert credentials.credential("alice", scram.stored_name) is None


async def test_changed_quota_stays_changed(store: HeldStore) -> None:
    enforced = EnforcedQuotas(store, QuotaWindows(), ManualClock().monotonic_ms)
    quotas = ClientQuotas(store, enforced.apply)
    user = [("user", "alice")]
    await quotas.alter(user, [QuotaChange(Key.PRODUCE.value, 100)], validate_only=False)
    change = quotas.alter(user, [QuotaChange(Key.PRODUCE.value, 50)], validate_only=False)
    await overlap(store, enforced.load(), "/config/users", change)
    assert enforced.bound("alice", "", Key.PRODUCE) == 50


async def test_acls_changed_during_a_load_stay_changed(store: HeldStore) -> None:
    authorizer = Authorizer(is_active=True)
    acls = AclStore(store, authorizer, never)
    await acls.start()
    allow = Acl("User:alice", "*", Operation.READ, Permission.ALLOW)
    removed, created = Pattern(ResourceType.TOPIC, "removed"), Pattern(ResourceType.TOPIC, "created")
    await acls.create([(removed, allow)])

    async def change() -> None:
        everything = Filter(ResourceType.ANY, None, PatternType.ANY, None, None, Operation.ANY, Permission.ANY)
        await acls.delete(everything)
        await acls.create([(created, allow)])

    await overlap(store, acls.start(), "/kafka-acl/Topic/", change())
    assert [pattern for pattern, _ in authorizer.index] == [created]
    acls.stop()


async def test_removed_token_stays_removed(store: HeldStore) -> None:
    clock = ManualClock(1_000_000_000)
    tokens = DelegationTokens(store, clock, Random(1), "secret", TokenTimes(10_000, 5_000))
    await tokens.start()
    token = await tokens.create("User:alice", "User:alice", [], -1)
    removal = tokens.expire("User:alice", tokens.hmac_of(token), -1)
    await overlap(store, tokens.start(), "/delegation_token/tokens/", removal)
    assert tokens.known == []
    tokens.stop()


async def test_changed_override_of_a_topic_stays_changed(store: HeldStore) -> None:
    configs = TopicConfigs(BrokerConfig.from_properties({}), lambda topics: overrides_of_topics(store, topics))
    path = paths.config_path(paths.topic_entity("t"))
    await store.create(path, paths.encode_config({"retention.ms": "1"}))

    async def change() -> None:
        await store.set(path, paths.encode_config({"retention.ms": "2"}))
        assert await configs.load_known("t", never), "the topic is being announced"

    await overlap(store, configs.load(["t"], never), "/config/topics", change())
    assert configs.effective("t").retention_ms == 2
    assert not await configs.load_known("unknown", never)
