"""ACLs in the store: what is written, and how other brokers follow."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from base.pause import never
from broker.security.acl_store import AclStore
from broker.security.acls import Acl, Filter, Operation, Pattern, PatternType, Permission, ResourceType
from broker.security.authorizer import Authorizer
from controller.coordination.memory_store import MemoryStore, MemoryTree
from protocol.errors import ErrorCode

ALLOW = Acl("User:alice", "*", Operation.READ, Permission.ALLOW)
TOPIC = Pattern(ResourceType.TOPIC, "t")
PREFIX = Pattern(ResourceType.TRANSACTIONAL_ID, "tx-", PatternType.PREFIXED)
EVERYTHING = Filter(ResourceType.ANY, None, PatternType.ANY, None, None, Operation.ANY, Permission.ANY)


class Broker:
    """One broker with an authorizer."""

    def __init__(self, store: MemoryStore) -> None:
        self.authorizer = Authorizer(is_active=True)
        self.acls = AclStore(store, self.authorizer, never)

    @property
    def known(self) -> dict[Pattern, frozenset[Acl]]:
        return dict(self.authorizer.index)


class Client:
    """Who asks for a permission."""

    principal = ALLOW.principal
    client_host = "127.0.0.1"
    api_key = 22


@pytest.fixture
async def brokers(store: MemoryStore, tree: MemoryTree) -> AsyncIterator[tuple[Broker, Broker]]:
    other_store = MemoryStore(tree)
    await other_store.open()
    both = Broker(store), Broker(other_store)
    for broker in both:
        await broker.acls.start()
    yield both
    for broker in both:
        broker.acls.stop()
    await other_store.close()


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_creation_is_in_force_at_once_here_and_soon_elsewhere(
    brokers: tuple[Broker, Broker], store: MemoryStore
) -> None:
    here, elsewhere = brokers
    assert await here.acls.create([(TOPIC, ALLOW), (PREFIX, ALLOW._replace(operation=Operation.WRITE))]) == [None, None]
    assert here.known.keys() == {TOPIC, PREFIX}
    await settle()
    assert elsewhere.known == here.known
    node = await store.get("/kafka-acl/Topic/t")
    assert json.loads(node.data or b"") == {
        "version": 1,
        "acls": [{"principal": "User:alice", "permissionType": "Allow", "operation": "Read", "host": "*"}],
    }
    assert (await store.get("/kafka-acl-changes/acl_changes_0000000000")).data == b"TOPIC:t"
    assert json.loads((await store.get("/kafka-acl-extended-changes/acl_changes_0000000000")).data or b"") == {
        "version": 1,
        "resourceType": "TRANSACTIONAL_ID",
        "name": "tx-",
        "patternType": "PREFIXED",
    }


async def test_acls_of_one_pattern_are_created_by_one_change(
    brokers: tuple[Broker, Broker], store: MemoryStore
) -> None:
    here, _ = brokers
    users = [ALLOW._replace(principal=f"User:u{number}") for number in range(50)]
    bad = ALLOW._replace(operation=Operation.UNKNOWN)
    results = await here.acls.create([*((TOPIC, user) for user in users), (TOPIC, bad), (PREFIX, bad)])
    assert [result.code if result else None for result in results[50:]] == [ErrorCode.INVALID_REQUEST] * 2
    assert results[:50] == [None] * 50
    assert here.known == {TOPIC: frozenset(users)}
    assert await store.children("/kafka-acl-changes") == ["acl_changes_0000000000"]


async def test_deletion_of_the_last_acl_deletes_the_node(brokers: tuple[Broker, Broker], store: MemoryStore) -> None:
    here, elsewhere = brokers
    second = ALLOW._replace(principal="User:bob")
    await here.acls.create([(TOPIC, ALLOW), (TOPIC, second)])
    assert await here.acls.delete(EVERYTHING._replace(principal="User:bob")) == [(TOPIC, second)]
    assert here.known == {TOPIC: frozenset({ALLOW})}
    assert await here.acls.delete(EVERYTHING) == [(TOPIC, ALLOW)]
    assert await store.exists("/kafka-acl/Topic/t") is None
    await settle()
    assert here.known == elsewhere.known == {}


async def test_change_of_two_brokers_keeps_both(brokers: tuple[Broker, Broker]) -> None:
    here, elsewhere = brokers
    second = ALLOW._replace(principal="User:bob")
    await asyncio.gather(here.acls.create([(TOPIC, ALLOW)]), elsewhere.acls.create([(TOPIC, second)]))
    await settle()
    assert here.known == elsewhere.known == {TOPIC: frozenset({ALLOW, second})}


async def test_impossible_acl_fails_alone(brokers: tuple[Broker, Broker]) -> None:
    here, _ = brokers
    bad = TOPIC._replace(name="a/b")
    first, second = await here.acls.create([(bad, ALLOW), (TOPIC, ALLOW)])
    assert first is not None
    assert (first.code, second) == (ErrorCode.INVALID_REQUEST, None)


async def test_acls_that_cannot_be_stored_fail_with_those_of_their_pattern(brokers: tuple[Broker, Broker]) -> None:
    here, _ = brokers
    bad = ALLOW._replace(principal="bob")
    results = await here.acls.create([(TOPIC, ALLOW), (PREFIX, ALLOW), (TOPIC, bad)])
    assert [result.code if result else None for result in results] == [
        ErrorCode.UNKNOWN_SERVER_ERROR,
        None,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ]
    assert here.known == {PREFIX: frozenset({ALLOW})}


async def test_acls_beyond_what_a_node_can_have_fail_and_those_of_other_patterns_do_not(
    brokers: tuple[Broker, Broker],
) -> None:
    here, _ = brokers
    many = [(TOPIC, ALLOW._replace(principal=f"User:account-{number:07}")) for number in range(12_000)]
    results = await here.acls.create([(PREFIX, ALLOW), *many])
    assert results[0] is None
    assert {result.code for result in results[1:] if result is not None} == {ErrorCode.UNKNOWN_SERVER_ERROR}
    assert None not in results[1:]
    assert here.known == {PREFIX: frozenset({ALLOW})}


async def test_acls_without_sense_that_kafka_stores_are_kept(
    brokers: tuple[Broker, Broker], store: MemoryStore
) -> None:
    here, _ = brokers
    await store.create(
        "/kafka-acl/Topic/t",
        b'{"version":1,"acls":[{"principal":"User:","permissionType":"Allow","operation":"CreateTokens","host":""}]}',
    )
    await here.acls.start()
    senseless = Acl("User:", "", Operation.CREATE_TOKENS, Permission.ALLOW)
    assert here.known == {TOPIC: frozenset({senseless})}
    assert await here.acls.create([(TOPIC, ALLOW)]) == [None]
    assert here.known == {TOPIC: frozenset({senseless, ALLOW})}
    assert await here.acls.delete(EVERYTHING._replace(host="")) == [(TOPIC, senseless)]


async def test_start_reads_what_kafka_has_written(brokers: tuple[Broker, Broker], store: MemoryStore) -> None:
    """Any case of the names, and any order of the members."""
    await store.create(
        "/kafka-acl/DelegationToken/id",
        b'{"acls":[{"principal":"User:alice","permissionType":"DENY","host":"10.0.0.9","operation":"describe"}],"version":1}',
    )
    broker = Broker(store)
    await broker.acls.start()
    expected = Acl("User:alice", "10.0.0.9", Operation.DESCRIBE, Permission.DENY)
    assert broker.known == {Pattern(ResourceType.DELEGATION_TOKEN, "id"): frozenset({expected})}
    broker.acls.stop()


async def test_new_session_forgets_what_was_deleted_meanwhile(
    brokers: tuple[Broker, Broker], store: MemoryStore
) -> None:
    here, _ = brokers
    await here.acls.create([(TOPIC, ALLOW)])
    here.acls.stop()
    await store.delete("/kafka-acl/Topic/t")
    await here.acls.start()
    assert here.known == {}


async def test_unreadable_acls_deny_everything(brokers: tuple[Broker, Broker], store: MemoryStore) -> None:
    here, _ = brokers
    await store.create("/kafka-acl/Topic/t", b"nonsense")
    await here.acls.start()
    assert here.authorizer.index.decide("User:alice", "::1", Operation.READ, ResourceType.TOPIC, "t") is False
    (result,) = await here.acls.create([(TOPIC, ALLOW)])
    assert result is not None, "the node is not overwritten"


async def test_a_search_yields_after_each_pattern(store: MemoryStore) -> None:
    pauses = 0

    async def pause() -> None:
        nonlocal pauses
        pauses += 1

    acls = AclStore(store, Authorizer(is_active=True), pause)
    await acls.start()
    names = [f"t-{number}" for number in range(20)]
    await acls.create([(Pattern(ResourceType.TOPIC, name), ALLOW) for name in names])
    for wanted, found in ((EVERYTHING, 20), (EVERYTHING._replace(name="none"), 0)):
        pauses = 0
        assert len(await acls.find(wanted)) == found
        assert pauses == len(names)
    acls.stop()


def test_permission_on_any_resource_is_decided_once_until_an_acl_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    authorizer = Authorizer(is_active=True)
    authorizer.put(TOPIC, [ALLOW])
    decided = []
    decide = authorizer.index.allows_any

    def counted(*question: object) -> bool:
        decided.append(question)
        return decide(*question)  # type: ignore[arg-type]

    monkeypatch.setattr(authorizer.index, "allows_any", counted)
    client = Client()
    for _ in range(3):
        assert authorizer.allows_on_any(client, Operation.READ, ResourceType.TOPIC)
    assert len(decided) == 1
    authorizer.put(TOPIC, [])
    assert not authorizer.allows_on_any(client, Operation.READ, ResourceType.TOPIC)
