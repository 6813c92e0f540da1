"""Replication between two or three brokers with real logs: what is acknowledged survives, and logs become equal.

The scenarios (a) to (f) are those that replication protocols of Kafka have got wrong once (KIP-101, KIP-279, KIP-320).
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from base.pause import AT_ONCE, Awaited, never, whole
from broker.metrics.subjects.replicas import fetcher_metrics
from broker.replica import fetchers, isr_changes
from broker.replica.machine import fetcher as machine
from broker.replica.machine.fetcher import FetchedPartition, FetchVersions, Position
from broker.replica.machine.isr import IsrChange
from broker.replica.partition import IsrResponse
from config.addresses import HostAndPort
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.fetch import FetchRequest
from protocol.messages.stop_replica import StopReplicaPartitionState, StopReplicaRequest, StopReplicaTopicState
from storage.disk.shortages import TryLaterError
from storage.log.log_durability import LogDurability
from storage.log.log_truncation import LogTruncation
from tests.broker.replica import replicas
from tests.broker.replica.replicas import TOPIC, Cluster, Node, until

A, B, C = 1, 2, 3


@pytest.fixture(autouse=True)
def short_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isr_changes, "RETRY_S", 0.005)


BY_QUESTION = FetchVersions(fetch=11, list_offsets=5, offset_for_leader_epoch=3, compares_by_fetch=False)
"""The followers of protocol 2.6 compare their epochs with the leader's before they fetch."""
BY_FIRST_QUESTION = FetchVersions(fetch=7, list_offsets=2, offset_for_leader_epoch=0, compares_by_fetch=False)
"""Those of protocol 1.1 learn from the response where an epoch ends, not which epoch that is."""
BY_NO_EPOCH = FetchVersions(fetch=2, list_offsets=0, offset_for_leader_epoch=None, compares_by_fetch=False)
"""Those of protocol 0.10 truncate to their high watermark."""
BY_EVERY_PROTOCOL = pytest.mark.parametrize(
    "start", [FetchVersions(), BY_QUESTION, BY_FIRST_QUESTION], ids=["3.9", "2.6", "1.1"], indirect=True
)
BY_EPOCHS = pytest.mark.parametrize("start", [FetchVersions(), BY_QUESTION], ids=["3.9", "2.6"], indirect=True)


@pytest.fixture
async def start(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Callable[..., Cluster]]:
    """Start clusters, and stop them at the end. A parameter is the protocol of the followers."""
    clusters: list[Cluster] = []

    def started(*broker_ids: int, partitions: int = 1, **settings: str) -> Cluster:
        cluster = Cluster(tmp_path, broker_ids, partitions=partitions, **settings)
        cluster.versions = getattr(request, "param", cluster.versions)
        clusters.append(cluster)
        for node in cluster.nodes.values():
            node.start()
        return cluster

    yield started
    for cluster in clusters:
        await cluster.stop()
        assert not cluster.failures


async def restart(cluster: Cluster, node: Node) -> None:
    if node.is_running:
        await node.crash()
    node.start()


async def test_followers_become_equal_to_their_leader(start: Callable[..., Cluster]) -> None:
    cluster = start(A, B, C)
    await cluster.elect(A)
    leader = cluster.nodes[A]
    for number in range(50):
        assert await leader.produce(b"%d" % number, count=3) is ErrorCode.NONE
    await cluster.until_equal()
    assert leader.ends() == (150, 150)


async def test_acknowledged_means_stored_by_every_in_sync_replica(start: Callable[..., Cluster]) -> None:
    cluster = start(A, B, C)
    await cluster.elect(A)
    for number in range(20):
        assert await cluster.nodes[A].produce() is ErrorCode.NONE
        assert all(cluster.nodes[it].ends()[0] > number for it in cluster.state[0].isr)


async def test_empty_follower_catches_up_and_joins_the_isr(start: Callable[..., Cluster]) -> None:
    cluster = start(A, B)
    await cluster.elect(A, isr=[A], notified=[A])
    leader = cluster.nodes[A]
    for _ in range(300):
        leader.append(b"v" * 10_000)
    await cluster.inform(B)
    await cluster.until_in_sync([A, B])
    await cluster.until_equal()
    assert (leader.isr_changes.expand_count, cluster.nodes[B].fetchers.lag_max) == (1, 0)


@pytest.mark.parametrize("crashes", [1, 5])
async def test_follower_restarts_in_the_middle(start: Callable[..., Cluster], crashes: int) -> None:
    cluster = start(A, B, C)
    await cluster.elect(A)
    leader, follower = cluster.nodes[A], cluster.nodes[B]
    for _ in range(crashes):
        for _ in range(20):
            leader.append(b"v" * 5_000)
        await asyncio.sleep(0.002)
        await restart(cluster, follower)
        await cluster.inform(B)
    await cluster.until_equal()


async def test_follower_that_lost_its_data_starts_anew(start: Callable[..., Cluster]) -> None:
    cluster = start(A, B)
    await cluster.elect(A)
    for _ in range(20):
        assert await cluster.nodes[A].produce() is ErrorCode.NONE
    follower = cluster.nodes[B]
    await follower.crash()
    for path in (follower.folder / f"{TOPIC}-0").iterdir():
        path.unlink()
    (follower.folder / f"{TOPIC}-0").rmdir()
    follower.start()
    await cluster.elect(A, isr=[A])
    await cluster.until_in_sync([A, B])
    await cluster.until_equal()


# The pitfalls


@BY_EVERY_PROTOCOL
async def test_a_follower_does_not_truncate_to_its_stale_high_watermark(start: Callable[..., Cluster]) -> None:
    """(a) KIP-101: the follower restarts before it knows the high watermark, and then is elected."""
    cluster = start(A, B)
    await cluster.elect(A)
    assert await cluster.nodes[A].produce(b"acknowledged") is ErrorCode.NONE
    follower = cluster.nodes[B]
    await restart(cluster, follower)
    await cluster.nodes[A].crash()
    await cluster.elect(B, isr=[B])
    assert follower.ends() == (1, 1)
    assert b"acknowledged" in follower.log_bytes()


@BY_EVERY_PROTOCOL
async def test_b_logs_that_diverged_agree_again(start: Callable[..., Cluster]) -> None:
    """(b) KIP-101: two leaders write different records at one offset."""
    cluster = start(A, B)
    await cluster.elect(A)
    first, second = cluster.nodes[A], cluster.nodes[B]
    assert await first.produce(b"both") is ErrorCode.NONE
    cluster.cut.add(frozenset((A, B)))
    first.append(b"of the first", count=3)  # not acknowledged
    await cluster.elect(B, isr=[B], notified=[B])
    assert await second.produce(b"of the second") is ErrorCode.NONE
    cluster.cut.clear()
    await cluster.inform(A)
    await cluster.until_equal()
    assert b"of the second" in first.log_bytes()
    assert b"of the first" not in first.log_bytes()


@BY_EPOCHS
async def test_truncation_that_fails_unexpectedly_is_tried_again(
    start: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else is fetched, so only the failure itself can wake the fetcher."""
    cluster = start(A, B)
    await cluster.elect(A)
    first, second = cluster.nodes[A], cluster.nodes[B]
    cluster.cut.add(frozenset((A, B)))
    first.append(b"of the first", count=3)
    await cluster.elect(B, isr=[B], notified=[B])
    assert await second.produce(b"of the second") is ErrorCode.NONE
    cluster.cut.clear()
    truncate = LogTruncation.truncate_to_epoch_end
    attempts = itertools.count()

    def fails_at_first(truncation: LogTruncation, *arguments: Any, **named: Any) -> bool:
        if not next(attempts):
            raise RuntimeError("a defect")
        return truncate(truncation, *arguments, **named)

    monkeypatch.setattr(LogTruncation, "truncate_to_epoch_end", fails_at_first)
    await cluster.inform(A)
    await cluster.until_equal()
    assert next(attempts) > 1


@BY_EPOCHS
async def test_c_epoch_that_the_follower_does_not_know_is_found_by_a_second_question(
    start: Callable[..., Cluster],
) -> None:
    """(c) KIP-279: in fast elections each broker writes an epoch that the other does not have."""
    cluster = start(A, B)
    await cluster.elect(A)
    first, second = cluster.nodes[A], cluster.nodes[B]
    assert await first.produce(b"both") is ErrorCode.NONE
    cluster.cut.add(frozenset((A, B)))
    for leader, value in ((A, b"epoch 1"), (B, b"epoch 2"), (A, b"epoch 3"), (B, b"epoch 4")):
        await cluster.elect(leader, isr=[leader], notified=[leader])
        cluster.nodes[leader].append(value, count=2)
    cluster.cut.clear()
    await cluster.inform(A)
    await cluster.until_equal()
    assert list(first.partition().log.leader_epochs.entries) == list(second.partition().log.leader_epochs.entries)
    assert b"epoch 4" in first.log_bytes()
    assert b"epoch 2" in first.log_bytes()
    assert b"epoch 3" not in first.log_bytes()
    assert b"epoch 1" not in first.log_bytes()


async def test_d_leader_of_an_older_epoch_can_neither_acknowledge_nor_change_the_isr(
    start: Callable[..., Cluster],
) -> None:
    """(d) KIP-320: a leader that has not heard of its successor."""
    cluster = start(A, B, C, min_insync_replicas="2")
    await cluster.elect(A)
    zombie = cluster.nodes[A]
    assert await zombie.produce(b"both") is ErrorCode.NONE
    await cluster.elect(B, isr=[B, C], notified=[B, C])
    produced = asyncio.ensure_future(zombie.produce(b"lost"))
    assert await cluster.nodes[B].produce(b"kept") is ErrorCode.NONE
    for effect in zombie.partition().time_passed(zombie.clock.monotonic_ms() + 10 * cluster.lag_ms):
        zombie.isr_changes.submit(zombie.partition(), effect)  # type: ignore[arg-type]
    await until(lambda: zombie.isr_changes.failure_count)
    assert sorted(cluster.state[0].isr) == [B, C]
    assert not produced.done()
    assert zombie.ends()[1] == 1
    await cluster.inform(A)
    assert await produced is ErrorCode.NOT_LEADER_OR_FOLLOWER
    await cluster.until_in_sync([A, B, C])
    await cluster.until_equal()
    assert b"lost" not in zombie.log_bytes()


@BY_EVERY_PROTOCOL
async def test_e_clean_election_truncates_nothing_below_the_high_watermark(start: Callable[..., Cluster]) -> None:
    """(e)"""
    cluster = start(A, B, C)
    await cluster.elect(A)
    for epoch, leader in enumerate([A, B, C, A, C, B]):
        if epoch:
            await cluster.elect(leader)
        for _ in range(5):
            assert await cluster.nodes[leader].produce() is ErrorCode.NONE
        committed = {it: node.ends()[1] for it, node in cluster.nodes.items()}
        assert all(node.ends()[0] >= committed[it] for it, node in cluster.nodes.items())
    await cluster.until_equal()
    assert cluster.nodes[A].ends() == (30, 30)


@BY_EVERY_PROTOCOL
async def test_f_new_epoch_alone_truncates_nothing(start: Callable[..., Cluster]) -> None:
    """(f)"""
    cluster = start(A, B, C)
    await cluster.elect(A)
    assert await cluster.nodes[A].produce(count=5) is ErrorCode.NONE
    await cluster.until_equal()
    for leader in (B, A, C, C, B):
        await cluster.elect(leader)
    assert await cluster.nodes[B].produce() is ErrorCode.NONE
    await cluster.until_equal()
    assert all(node.partition().log.truncation_count == 0 for node in cluster.nodes.values())


@BY_EPOCHS
async def test_five_quick_elections_under_load_lose_nothing_acknowledged(start: Callable[..., Cluster]) -> None:
    cluster = start(A, B, C)
    await cluster.elect(A)
    acknowledged: list[bytes] = []
    for epoch, leader in enumerate([A, B, C, B, A]):
        if epoch:
            await cluster.elect(leader)
        waiting = {
            (value := b"<%d-%d>" % (epoch, number)): asyncio.ensure_future(cluster.nodes[leader].produce(value))
            for number in range(20)
        }
        if epoch % 2 == 0:
            await until(lambda: any(outcome.done() for outcome in waiting.values()))  # noqa: B023
        for value, outcome in waiting.items():
            if outcome.done() and outcome.result() is ErrorCode.NONE:
                acknowledged.append(value)
    await cluster.until_equal()
    content = cluster.nodes[A].log_bytes()
    assert acknowledged
    assert all(content.count(value) == 1 for value in acknowledged)


# The ISR


async def test_frozen_follower_leaves_the_isr_and_returns(start: Callable[..., Cluster]) -> None:
    cluster = start(A, B, C)
    cluster.lag_ms = 400  # the other follower has to stay in sync on a busy machine
    for node in cluster.nodes.values():
        await restart(cluster, node)
    await cluster.elect(A)
    leader = cluster.nodes[A]
    assert await leader.produce() is ErrorCode.NONE
    cluster.cut.add(frozenset((A, C)))
    produced = asyncio.ensure_future(leader.produce())

    async def check() -> None:
        while True:
            await leader.replica_manager.check_in_sync(leader.sliced_work.pause)
            await asyncio.sleep(cluster.lag_ms / 2000)

    checking = asyncio.ensure_future(check())
    assert await produced is ErrorCode.NONE
    assert sorted(cluster.state[0].isr) == [A, B]
    assert (leader.isr_changes.shrink_count, leader.isr_changes.expand_count) == (1, 0)
    cluster.cut.clear()
    await cluster.until_in_sync([A, B, C])
    checking.cancel()
    await cluster.until_equal()


async def test_idle_follower_stays_in_sync_without_naming_its_partition(start: Callable[..., Cluster]) -> None:
    """Its session says nothing of a partition without news; the next record must not find it long out of date."""
    cluster = start(A, B)
    cluster.lag_ms = 400
    for node in cluster.nodes.values():
        await restart(cluster, node)
    await cluster.elect(A)
    leader = cluster.nodes[A]
    assert await leader.produce() is ErrorCode.NONE
    await cluster.until_equal()
    await asyncio.sleep(0.9)
    leader.append()
    assert leader.partition().time_passed(leader.clock.monotonic_ms()) == ()


async def test_dead_follower_of_an_idle_partition_leaves_with_the_next_record(start: Callable[..., Cluster]) -> None:
    cluster = start(A, B)
    cluster.lag_ms = 100
    for node in cluster.nodes.values():
        await restart(cluster, node)
    await cluster.elect(A)
    leader = cluster.nodes[A]
    assert await leader.produce() is ErrorCode.NONE
    await cluster.until_equal()
    await cluster.nodes[B].crash()
    await asyncio.sleep(0.4)
    assert leader.partition().time_passed(leader.clock.monotonic_ms()) == ()
    leader.append()
    assert leader.partition().time_passed(leader.clock.monotonic_ms())


async def test_too_few_in_sync_replicas_refuse_acks_all_before_the_append(start: Callable[..., Cluster]) -> None:
    cluster = start(A, B, min_insync_replicas="2")
    await cluster.elect(A, isr=[A], notified=[A])
    leader = cluster.nodes[A]
    with pytest.raises(KafkaError) as refused:
        leader.append(needs_isr=True)
    assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    leader.append(b"acks=1")
    assert leader.ends() == (1, 0), "not visible to consumers until the ISR recovers"
    await cluster.inform(B)
    await cluster.until_in_sync([A, B])
    await cluster.until_equal()


async def test_isr_that_shrinks_after_the_append_fails_it_and_keeps_the_record(start: Callable[..., Cluster]) -> None:
    cluster = start(A, B, C, min_insync_replicas="2")
    await cluster.elect(A)
    leader = cluster.nodes[A]
    cluster.cut.add(frozenset((A, C)))
    produced = asyncio.ensure_future(leader.produce(b"kept"))
    await until(lambda: cluster.nodes[B].ends()[0] == 1)
    await cluster.elect(A, isr=[A])
    assert not produced.done(), "the high watermark waits for min.insync.replicas"
    await cluster.until_in_sync([A, B])
    assert await produced is ErrorCode.NONE


async def test_follower_that_restarted_is_not_added_with_what_its_predecessor_had(
    start: Callable[..., Cluster],
) -> None:
    """The change is in flight while the follower loses its data: the controller compares the broker epochs."""
    cluster = start(A, B)
    await cluster.elect(A, isr=[A], notified=[A])
    leader = cluster.nodes[A]
    leader.append(count=5)
    cluster.may_alter.clear()
    await cluster.inform(B)
    await until(lambda: cluster.alterations)
    await cluster.nodes[B].crash()
    cluster.nodes[B].start()
    cluster.may_alter.set()
    await until(lambda: leader.isr_changes.failure_count)
    assert cluster.state[0].isr == [A]
    await cluster.inform(B)
    await cluster.until_in_sync([A, B])


# Sessions


async def test_requests_name_only_what_is_new(start: Callable[..., Cluster]) -> None:
    cluster = start(A, B)
    for index in range(20):
        await cluster.elect(A, index=index)
    leader = cluster.nodes[A]
    await until(lambda: leader.requests and not leader.requests[-1][2].topics)
    del leader.requests[:]
    for number in range(30):
        assert await leader.produce(index=number % 3) is ErrorCode.NONE
    named = [
        len(topic.partitions)
        for _, _, request in leader.requests
        if isinstance(request, FetchRequest)
        for topic in request.topics
    ]
    assert named
    assert max(named) <= 3
    assert {version for _, version, _ in leader.requests} == {17}
    assert all(request.session_id and request.session_epoch > 0 for _, _, request in leader.requests)
    for index in range(20):
        await cluster.until_equal(index)


@BY_EPOCHS
async def test_session_that_the_leader_lost_is_opened_again(start: Callable[..., Cluster]) -> None:
    cluster = start(A, B)
    await cluster.elect(A)
    leader = cluster.nodes[A]
    assert await leader.produce() is ErrorCode.NONE
    leader.fetch_sessions._sessions.clear()
    assert await leader.produce() is ErrorCode.NONE
    await cluster.until_equal()


# Many batches


def note_pieces(node: Node, monkeypatch: pytest.MonkeyPatch, then: Callable[[], None] = lambda: None) -> list[int]:
    """Let an append have at most ten batches; return the ends of the log after each append. `then` follows each."""
    monkeypatch.setattr("storage.log.replicated.PIECE_BATCHES", 10)
    manager, ends = node.replica_manager, [0]
    append_fetched = manager.append_fetched

    def noted(*args: Any, **options: Any) -> None:
        append_fetched(*args, **options)
        ends.append(node.ends()[0])
        then()

    monkeypatch.setattr(manager, "append_fetched", noted)
    return ends


async def test_response_of_many_batches_is_appended_in_pieces(
    start: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = start(A, B)
    await cluster.elect(A, isr=[A], notified=[A])
    for _ in range(105):
        cluster.nodes[A].append()
    ends = note_pieces(cluster.nodes[B], monkeypatch)
    await cluster.inform(B)
    await cluster.until_equal()
    assert max(after - before for before, after in itertools.pairwise(ends)) == 10
    assert len([request for _, _, request in cluster.nodes[A].requests if isinstance(request, FetchRequest)]) <= 4


async def test_fetching_that_ends_between_two_pieces_leaves_the_rest(
    start: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = start(A, B)
    await cluster.elect(A, isr=[A], notified=[A])
    for _ in range(30):
        cluster.nodes[A].append()
    follower = cluster.nodes[B]
    ends = note_pieces(follower, monkeypatch, lambda: follower.fetchers.unfollow((TOPIC, 0)))
    await cluster.inform(B)
    await until(lambda: len(ends) > 1)
    for _ in range(20):
        await asyncio.sleep(0)
    assert ends == [0, 10]


# Bad data


@pytest.mark.parametrize("damage", ["flipped", "repeated", "cut"])
async def test_damaged_data_of_one_partition_stops_no_other(start: Callable[..., Cluster], damage: str) -> None:
    cluster = start(A, B)
    for index in (0, 1):
        await cluster.elect(A, index=index)
    leader = cluster.nodes[A]
    assert await leader.produce(b"first-one") is ErrorCode.NONE

    def tampered(key: int, payload: bytes) -> bytes:
        at = payload.find(b"damage-me")
        if key != 1 or at < 0:
            return payload
        if damage == "flipped":
            return payload.replace(b"damage-me", b"damaged!!")
        start = at - 66 - 1
        offset = (0).to_bytes(8) if damage == "repeated" else (1 << 40).to_bytes(8)
        return (
            payload[: payload.rfind((1).to_bytes(8), 0, at)]
            + offset
            + payload[start:][len(payload[start:]) - (len(payload) - payload.rfind((1).to_bytes(8), 0, at) - 8) :]
        )

    cluster.tamper = tampered
    leader.append(b"damage-me")
    for _ in range(10):
        assert await leader.produce(index=1) is ErrorCode.NONE
    if damage != "cut":
        assert cluster.nodes[B].ends()[0] == 1
    cluster.tamper = lambda key, payload: payload
    if damage != "cut":
        await cluster.until_equal()
        await cluster.until_equal(1)


# Offsets out of range


@BY_EVERY_PROTOCOL
async def test_follower_below_the_leaders_start_starts_anew(start: Callable[..., Cluster]) -> None:
    cluster = start(A, B)
    await cluster.elect(A)
    leader, follower = cluster.nodes[A], cluster.nodes[B]
    assert await leader.produce(count=5) is ErrorCode.NONE
    await cluster.until_equal()
    await follower.crash()
    await cluster.elect(A, isr=[A])
    for _ in range(5):
        leader.append(count=2)
    leader.replica_manager.delete_records(leader.partition(), 9)
    leader.partition().log.appends.roll(leader.clock.now_ms())
    leader.append()
    follower.start()
    await cluster.inform(B)
    await cluster.until_in_sync([A, B])
    await until(lambda: follower.ends() == leader.ends())
    assert follower.partition().log.log_start_offset == 9


async def test_empty_follower_begins_with_the_batch_in_which_the_leaders_log_starts(
    start: Callable[..., Cluster],
) -> None:
    cluster = start(A, B)
    await cluster.elect(A, isr=[A], notified=[A])
    leader, follower = cluster.nodes[A], cluster.nodes[B]
    leader.append(count=10)
    leader.append(count=10)
    leader.replica_manager.delete_records(leader.partition(), 14)
    await cluster.inform(B)
    await cluster.until_in_sync([A, B])
    await until(lambda: follower.partition().log.log_start_offset == 14)
    assert follower.ends() == (20, 20)
    assert follower.partition().log.segments.first.base_offset == 10


async def test_deleted_records_are_deleted_on_followers_too(start: Callable[..., Cluster]) -> None:
    cluster = start(A, B)
    await cluster.elect(A)
    leader = cluster.nodes[A]
    assert await leader.produce(count=5) is ErrorCode.NONE
    await until(lambda: leader.ends() == (5, 5))
    deletion = leader.replica_manager.delete_records(leader.partition(), 3)
    decided = asyncio.get_running_loop().create_future()
    leader.replica_manager.await_deletions(
        [deletion], lambda broker_id: True, leader.clock.monotonic_ms() + 5_000, lambda: decided.set_result(None)
    )
    await decided
    assert (deletion.error, deletion.low_watermark) == (ErrorCode.NONE, 3)
    assert cluster.nodes[B].partition().log.log_start_offset == 3


# Changes during the comparison with the leader


def held_question(cluster: Cluster) -> tuple[asyncio.Event, asyncio.Event]:
    """Have the leader A hold questions for epochs; return events: one was received, and they may be answered."""
    received, may_respond = asyncio.Event(), asyncio.Event()
    respond = replicas.HANDLERS[23].handle

    async def handle(services: Node, request: Any, context: Any) -> Any:
        received.set()
        await may_respond.wait()
        return await respond(services, request, context)

    cluster.handlers[23] = SimpleNamespace(API=replicas.HANDLERS[23].API, handle=handle)
    return received, may_respond


async def in_comparison(cluster: Cluster) -> asyncio.Event:
    """Return when B waits for the answer of its new leader A, with the event that permits the answer."""
    await cluster.elect(A)
    assert await cluster.nodes[A].produce() is ErrorCode.NONE
    await restart(cluster, cluster.nodes[B])  # its fetcher has no session yet
    received, may_respond = held_question(cluster)
    await cluster.elect(A)
    await received.wait()
    return may_respond


@pytest.mark.parametrize("start", [BY_QUESTION], ids=["2.6"], indirect=True)
async def test_new_epoch_during_a_comparison_is_compared_too(start: Callable[..., Cluster]) -> None:
    cluster = start(A, B)
    may_respond = await in_comparison(cluster)
    await cluster.elect(A)
    may_respond.set()
    assert await cluster.nodes[A].produce() is ErrorCode.NONE
    await cluster.until_equal()


@pytest.mark.parametrize("start", [BY_QUESTION], ids=["2.6"], indirect=True)
async def test_fetcher_whose_last_partition_is_removed_during_a_comparison_ends(start: Callable[..., Cluster]) -> None:
    cluster = start(A, B)
    may_respond = await in_comparison(cluster)
    await cluster.elect(B)
    may_respond.set()
    await until(lambda: not cluster.nodes[B].fetchers._fetchers)


@pytest.mark.parametrize("start", [BY_QUESTION, BY_NO_EPOCH], ids=["2.6", "0.10"], indirect=True)
async def test_comparison_of_many_partitions_pauses_between_them(
    start: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = start(A, B)
    await cluster.elect(A)
    assert await cluster.nodes[A].produce() is ErrorCode.NONE
    follower, pauses = cluster.nodes[B], itertools.count()
    (fetcher,) = follower.fetchers._fetchers.values()
    asked = [FetchedPartition((TOPIC, index), None, 0, Position(1, 0, 0)) for index in range(1, 21)]

    def pause() -> Awaited:
        next(pauses)
        return AT_ONCE

    monkeypatch.setattr(follower.sliced_work, "pause", pause)
    await fetcher._compare_all(asked)
    assert next(pauses) >= len(asked)


@pytest.mark.parametrize("start", [BY_QUESTION, BY_NO_EPOCH], ids=["2.6", "0.10"], indirect=True)
async def test_few_changes_of_logs_begin_when_a_control_request_ends(
    start: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (fetchers, machine):
        monkeypatch.setattr(module, "COMPARED_MAX", 2)
    cluster = start(A, B, partitions=20)
    for index in range(20):
        await cluster.elect(A, index=index)
    for index in range(20):
        assert await cluster.nodes[A].produce(index=index) is ErrorCode.NONE
    follower, opened = cluster.nodes[B], [0]
    await restart(cluster, follower)
    change_log = fetchers.LeaderFetcher._change_log

    def noted(fetcher: fetchers.LeaderFetcher, *arguments: Any) -> None:
        change_log(fetcher, *arguments)
        opened.append(len(fetcher._changes))

    monkeypatch.setattr(fetchers.LeaderFetcher, "_change_log", noted)
    async with follower.replica_manager.truncations.kept_out(list):
        await cluster.inform(B)
        await until(lambda: len(opened) > 2)
        await asyncio.sleep(0.02)
        assert max(opened) <= 3
    for index in range(20):
        assert await cluster.nodes[A].produce(index=index) is ErrorCode.NONE
    assert max(opened) <= 3


# Requests that wait at the leader


async def test_partitions_added_meanwhile_cost_one_abandoned_request(
    start: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "WAIT_MS", 60_000)
    cluster = start(A, B, partitions=20)
    await cluster.elect(A)
    assert await cluster.nodes[A].produce() is ErrorCode.NONE
    follower, leader = cluster.nodes[B], cluster.nodes[A]
    (fetcher,) = follower.fetchers._fetchers.values()
    await until(lambda: len(leader.requests) > 2 and fetcher._is_awaiting_fetch and not fetcher._machine.has_unnamed)
    for index in range(1, 20):
        await cluster.elect(A, index=index)
    for index in range(1, 20):
        assert await leader.produce(index=index) is ErrorCode.NONE
    assert cluster.abandoned <= 1


async def test_record_that_waited_for_a_follower_about_to_join_is_committed_when_that_is_gone(
    start: Callable[..., Cluster],
) -> None:
    cluster = start(A, B, C)
    await cluster.elect(A, isr=[A, B], notified=[A, B])
    leader = cluster.nodes[A]
    partition, now_ms = leader.partition(), leader.clock.monotonic_ms()
    (change,) = (it for it in partition.follower_fetched(C, 0, 0, now_ms) if isinstance(it, IsrChange))
    partition.isr_responded(change, IsrResponse(ErrorCode.INELIGIBLE_REPLICA), now_ms)
    produced = asyncio.ensure_future(leader.produce())
    await until(lambda: (progress := partition.progress_of(B)) is not None and progress.log_end_offset == 1)
    assert not produced.done()
    cluster.dead.add(C)
    whole(leader.replica_manager.brokers_left(never))
    assert await produced is ErrorCode.NONE


async def test_deletion_of_records_that_waited_for_a_replica_is_complete_when_that_is_gone(
    start: Callable[..., Cluster],
) -> None:
    cluster = start(A, B, C)
    await cluster.elect(A, isr=[A, B], notified=[A, B])
    leader = cluster.nodes[A]
    assert await leader.produce() is ErrorCode.NONE
    deletion = leader.replica_manager.delete_records(leader.partition(), 1)
    decided: list[ErrorCode | None] = []
    deadline_ms = leader.clock.monotonic_ms() + 60_000
    leader.replica_manager.await_deletions(
        [deletion], lambda broker: broker not in cluster.dead, deadline_ms, lambda: decided.append(deletion.error)
    )
    await until(lambda: (progress := leader.partition().progress_of(B)) is not None and progress.log_start_offset == 1)
    assert decided == []
    cluster.dead.add(C)
    whole(leader.replica_manager.brokers_left(never))
    assert decided == [ErrorCode.NONE]


async def test_broker_that_leaves_follows_nothing_new_outside_of_the_isr(start: Callable[..., Cluster]) -> None:
    cluster = start(A, B, partitions=2)
    await cluster.elect(A)
    leaving = cluster.nodes[A]
    leaving.fetchers.leave()
    await cluster.elect(B, isr=[B])
    assert not leaving.fetchers._homes
    await cluster.elect(B, isr=[A, B], index=1)
    assert await cluster.nodes[B].produce(index=1) is ErrorCode.NONE


# Leaders that are missing


async def test_follower_without_a_live_leader_waits_for_the_controller(start: Callable[..., Cluster]) -> None:
    cluster = start(A, B)
    await cluster.nodes[A].crash()
    await cluster.elect(A, notified=[B])
    assert not cluster.nodes[B].fetchers._fetchers
    cluster.nodes[A].start()
    await cluster.elect(A)
    assert await cluster.nodes[A].produce() is ErrorCode.NONE


async def test_fetcher_without_partitions_ends(start: Callable[..., Cluster]) -> None:
    cluster = start(A, B)
    await cluster.elect(A)
    follower = cluster.nodes[B]
    assert await cluster.nodes[A].produce() is ErrorCode.NONE
    await cluster.elect(B)
    await until(lambda: not follower.fetchers._fetchers)


async def test_follower_of_a_newer_leader_stops_until_the_controller_speaks(start: Callable[..., Cluster]) -> None:
    cluster = start(A, B, C)
    await cluster.elect(A)
    assert await cluster.nodes[A].produce() is ErrorCode.NONE
    await cluster.elect(A, notified=[A, B])
    await until(lambda: cluster.nodes[C].fetchers.failed_count == 1)
    await cluster.inform(C)
    await until(lambda: cluster.nodes[C].fetchers.failed_count == 0)
    assert await cluster.nodes[A].produce() is ErrorCode.NONE
    await cluster.until_equal()


async def test_leader_that_cannot_be_reached_is_asked_again(start: Callable[..., Cluster]) -> None:
    cluster = start(A, B)
    cluster.cut.add(frozenset((A, B)))
    await cluster.elect(A)
    produced = asyncio.ensure_future(cluster.nodes[A].produce())
    await asyncio.sleep(0.02)
    assert not produced.done()
    cluster.cut.clear()
    assert await produced is ErrorCode.NONE


# Metrics of fetchers


async def test_fetchers_count_their_traffic_and_their_lag(start: Callable[..., Cluster]) -> None:
    cluster = start(A, B)
    await cluster.elect(A)
    for number in range(3):
        assert await cluster.nodes[A].produce(b"%d" % number) is ErrorCode.NONE
    await cluster.until_equal()
    fetchers = cluster.nodes[B].fetchers
    address = HostAndPort("leader", 9092)
    metrics = {metric.bean: metric for metric in fetcher_metrics(fetchers, {A: address}.get)}

    def samples(name: str) -> list[Any]:
        return list(metrics[f"kafka.server:type={name}"].read())

    tags = ("ReplicaFetcherThread-0-1", "leader", "9092")
    (fetcher,) = fetchers.running
    assert samples("FetcherStats,name=BytesPerSec") == [(tags, fetcher.byte_count)]
    assert fetcher.byte_count == cluster.nodes[A].partition(0).log.size
    ((shown, requests),) = samples("FetcherStats,name=RequestsPerSec")
    assert shown == tags
    assert requests >= 3
    assert samples("FetcherLagMetrics,name=ConsumerLag") == [((tags[0], TOPIC, "0"), 0)]
    assert samples("ReplicaFetcherManager,name=DeadThreadCount") == [(("Replica",), 0)]
    fetcher.task.cancel()
    await asyncio.wait({fetcher.task})
    assert samples("ReplicaFetcherManager,name=DeadThreadCount") == [(("Replica",), 1)]


# The disks of followers


async def test_a_follower_that_syncs_keeps_its_connection(start: Callable[..., Cluster]) -> None:
    """Another partition has no news meanwhile, so the leader would hold the request for long."""
    cluster = start(A, B, partitions=2, flush_messages="1")
    for index in range(2):
        await cluster.elect(A, index=index)
    for _ in range(5):
        assert await cluster.nodes[A].produce() is ErrorCode.NONE
    assert cluster.abandoned == 0


async def test_what_a_follower_cannot_sync_yet_is_not_committed(
    start: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = start(A, B, flush_messages="1")
    await cluster.elect(A)
    leader, log = cluster.nodes[A], cluster.nodes[B].partition().log
    failures = iter(range(3))
    flush = LogDurability.flush

    def fail_at_first(self: LogDurability, now_ms: int) -> None:
        if self is log.durability:
            assert leader.ends() == (1, 0)
            if next(failures, None) is not None:
                raise TryLaterError("no file descriptors are left")
        flush(self, now_ms)

    monkeypatch.setattr(LogDurability, "flush", fail_at_first)
    assert await leader.produce() is ErrorCode.NONE
    assert next(failures, None) is None
    assert log.log_end_offset == 1


async def test_what_waits_for_several_partitions_waits_on_when_one_is_stopped(start: Callable[..., Cluster]) -> None:
    cluster = start(A, B, partitions=2)
    for index in range(2):
        await cluster.elect(A, index=index)
    leader = cluster.nodes[A]
    cluster.cut.add(frozenset((A, B)))
    appends = [leader.append(index=index, needs_isr=True) for index in range(2)]
    decided = asyncio.Event()
    leader.replica_manager.await_commit(appends, leader.clock.monotonic_ms() + 60_000, decided.set)
    stopped = StopReplicaPartitionState(partition_index=0, leader_epoch=1, delete_partition=False)
    request = StopReplicaRequest(
        controller_id=1,
        controller_epoch=1,
        topic_states=[StopReplicaTopicState(topic_name=TOPIC, partition_states=[stopped])],
    )
    await leader.assigned_replicas.stop_replicas(request, leader.clock.now_ms(), leader.sliced_work.pause)
    assert [append.error for append in appends] == [ErrorCode.NOT_LEADER_OR_FOLLOWER, None]
    cluster.cut.clear()
    async with asyncio.timeout(10):
        await decided.wait()
    assert appends[1].error is ErrorCode.NONE
