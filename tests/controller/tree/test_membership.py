"""What a broker does when its session expires, and in which order."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from controller.coordination.memory_store import MemoryStore, MemoryTree
from controller.machine.model import Broker, Endpoint
from controller.tree import paths
from controller.tree.membership import UNREGISTERED_EPOCH, Membership
from controller.tree.registration import BrokerRegistration, IdentityError
from protocol.errors import ErrorCode, KafkaError

BROKER = Broker(1, (Endpoint("PLAINTEXT", "a", 9092, "PLAINTEXT"),))
TURNS = 50


class _Broker:
    """A broker that writes down what its membership has it do."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.done: list[str] = []
        self.broker = BROKER
        self.registrations = 0
        self.rejoin_fails: Exception | None = None
        self.reading_fails: Exception | None = None
        self.membership = Membership(store)

    def registration(self) -> BrokerRegistration:
        self.registrations += 1
        return BrokerRegistration(self.broker, timestamp_ms=self.registrations)

    def _note(self, what: str) -> None:
        is_registered = "registered" if paths.broker_path(1) in self.store.tree.entries else "not registered"
        self.done.append(f"{what}, {is_registered}")

    async def session_expired(self) -> None:
        self._note("resign")

    async def rejoin(self) -> None:
        self._note("rejoin")
        if self.rejoin_fails is not None:
            error, self.rejoin_fails = self.rejoin_fails, None
            raise error

    async def read_again(self) -> None:
        self._note("read")
        if self.reading_fails is not None:
            error, self.reading_fails = self.reading_fails, None
            raise error

    async def settle(self) -> None:
        for _ in range(TURNS):
            await asyncio.sleep(0)


@pytest.fixture
async def broker(store: MemoryStore) -> AsyncIterator[_Broker]:
    made = _Broker(store)
    await made.membership.register(made.registration, wait_ms=0)
    made.membership.keep(made, made.read_again)
    yield made
    await made.membership.stop()


IN_ORDER = ["resign, not registered", "read, registered", "rejoin, registered"]


async def test_broker_has_no_epoch_before_it_is_registered(store: MemoryStore) -> None:
    assert _Broker(store).membership.broker_epoch == UNREGISTERED_EPOCH


async def test_first_registration_gives_the_epoch(broker: _Broker, tree: MemoryTree) -> None:
    assert broker.membership.broker_epoch == tree.entries[paths.broker_path(1)].czxid
    assert broker.done == []


async def test_expired_session_is_followed_by_another_in_kafkas_order(broker: _Broker, tree: MemoryTree) -> None:
    before = broker.membership.broker_epoch
    broker.store.expire()
    await broker.settle()
    assert broker.done == IN_ORDER
    assert broker.membership.broker_epoch == tree.entries[paths.broker_path(1)].czxid > before


async def test_session_that_expires_while_it_begins_is_followed_by_another(broker: _Broker) -> None:
    async def expire() -> None:
        broker.store.expire()
        await broker.store.exists("/")

    broker.membership.keep(broker, expire)
    broker.store.expire()
    for _ in range(5):
        await asyncio.sleep(0)
    broker.membership.keep(broker, broker.read_again)
    await broker.settle()
    assert broker.done[-3:] == IN_ORDER
    assert broker.store.is_usable


async def test_registration_of_an_earlier_session_is_replaced(broker: _Broker, tree: MemoryTree) -> None:
    """The client may give a session up before the server does."""
    session = broker.store.session_id
    before = broker.membership.broker_epoch
    del tree.sessions[session]
    broker.store._expired = True
    broker.store._notify_expired()
    await broker.settle()
    entry = tree.entries[paths.broker_path(1)]
    assert entry.owner == broker.store.session_id != session
    assert broker.membership.broker_epoch == entry.czxid > before


async def test_broker_tries_again_while_another_has_its_id(
    broker: _Broker, other_store: MemoryStore, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controller.tree.membership.RETRY_PAUSE_SECONDS_MIN", 0)
    monkeypatch.setattr("controller.tree.membership.RETRY_PAUSE_SECONDS_MAX", 0)
    broker.store.lose_session_silently()
    await other_store.create(paths.broker_path(1), b"{}", ephemeral=True)
    broker.store._notify_expired()
    await broker.settle()
    assert "a broker with id 1 is already registered" in caplog.text
    assert "rejoin, registered" not in broker.done
    await other_store.delete(paths.broker_path(1))
    await broker.settle()
    assert broker.done[-2:] == IN_ORDER[1:]


async def test_foreign_registration_stops_the_start(store: MemoryStore, other_store: MemoryStore) -> None:
    await other_store.create(paths.broker_path(1), b"{}", ephemeral=True)
    made = _Broker(store)
    with pytest.raises(IdentityError, match=r"id 1 is already registered: .* after its zookeeper.session.timeout.ms"):
        await made.membership.register(made.registration, wait_ms=0)


async def test_start_waits_for_the_session_of_its_killed_predecessor(
    store: MemoryStore, other_store: MemoryStore, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controller.tree.membership.PREDECESSOR_POLL_SECONDS", 0.001)
    await other_store.create(paths.broker_path(1), b"{}", ephemeral=True)
    made = _Broker(store)
    with pytest.raises(IdentityError, match="id 1 is already registered"):
        await made.membership.register(made.registration, wait_ms=3)
    with pytest.raises(IdentityError, match="id 1 is already registered"):
        await made.membership.register(made.registration, wait_ms=3_600_000, is_stopped=lambda: True)
    starting = asyncio.create_task(made.membership.register(made.registration, wait_ms=60_000))
    await made.settle()
    assert not starting.done()
    assert "waiting up to 60000 ms for the end of an earlier session: a broker with id 1 is already" in caplog.text
    store.expire()  # that of the start, which must not end it
    await other_store.delete(paths.broker_path(1))
    await starting
    assert made.store.tree.entries[paths.broker_path(1)].owner == store.session_id


async def test_election_that_fails_does_not_end_the_session(broker: _Broker) -> None:
    broker.rejoin_fails = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
    broker.store.expire()
    await broker.settle()
    assert broker.done == IN_ORDER


async def test_session_that_expires_before_the_registration_is_replaced(store: MemoryStore) -> None:
    made = _Broker(store)
    store.expire()
    await made.membership.register(made.registration, wait_ms=0)
    assert paths.broker_path(1) in store.tree.entries


async def test_changed_addresses_are_written_without_a_new_epoch(broker: _Broker, tree: MemoryTree) -> None:
    before = tree.entries[paths.broker_path(1)]
    await broker.membership.update()
    assert tree.entries[paths.broker_path(1)] == before
    broker.broker = replace(BROKER, endpoints=(Endpoint("PLAINTEXT", "b", 9093, "PLAINTEXT"),))
    await broker.membership.update()
    entry = tree.entries[paths.broker_path(1)]
    assert entry.data is not None
    assert b"PLAINTEXT://b:9093" in entry.data
    assert entry.czxid == before.czxid == broker.membership.broker_epoch


async def test_stopped_membership_begins_no_session(broker: _Broker) -> None:
    await broker.membership.stop()
    broker.store.expire()
    await broker.settle()
    assert broker.done == []


@pytest.mark.parametrize(
    "error", [KafkaError(ErrorCode.INVALID_CONFIG), ValueError("defect")], ids=["config", "defect"]
)
async def test_settings_that_cannot_be_read_do_not_keep_the_broker_out(broker: _Broker, error: Exception) -> None:
    broker.reading_fails = error
    broker.store.expire()
    await broker.settle()
    assert broker.done == IN_ORDER
    broker.store.expire()
    await broker.settle()
    assert broker.done == 2 * IN_ORDER


async def test_defect_does_not_end_the_attempts_to_begin_a_session(
    broker: _Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("controller.tree.membership.RETRY_PAUSE_SECONDS_MIN", 0)
    broker.rejoin_fails = ValueError("defect")
    broker.store.expire()
    await broker.settle()
    assert broker.done == [*IN_ORDER, "resign, registered", *IN_ORDER[1:]]
    assert "ValueError: defect" in caplog.text
