"""The members of a group of the consumer protocol: joins, steps, errors, sessions."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from broker.groups.machine.consumer.events import Heartbeat, HeartbeatResult
from broker.groups.machine.consumer.membership import ConsumerGroupState
from broker.groups.machine.consumer.partitions import NOTHING, partitions
from broker.groups.machine.events import JoinResult
from broker.groups.machine.records import OffsetAndMetadata
from protocol.errors import ErrorCode, KafkaError
from tests.broker.groups.machine.consumer.cluster import (
    REBALANCE_MS,
    SESSION_MS,
    Client,
    Cluster,
    Ticket,
    heartbeats,
    stored,
    topic_id,
)
from tests.broker.groups.support import join_request

STABLE = ConsumerGroupState.STABLE


def code(result: object) -> ErrorCode:
    assert isinstance(result, KafkaError), result
    return result.code


def test_a_member_alone_gets_everything_with_its_first_heartbeat() -> None:
    cluster = Cluster(t=3)
    client = Client(cluster, "a", "t")
    client.heartbeat()
    assert (client.epoch, client.numbers) == (1, [0, 1, 2])
    assert cluster.group.state is STABLE
    assert client.last is not None
    assert client.last.heartbeat_interval_ms == 5000


def test_a_heartbeat_without_news_says_nothing_and_stores_nothing() -> None:
    cluster = Cluster(t=3)
    client = Client(cluster, "a", "t")
    client.heartbeat()
    stored = dict(cluster.log)
    client.heartbeat()
    assert client.last is not None
    assert client.last.assigned is None
    assert cluster.log == stored


def test_a_partition_is_given_to_another_member_only_after_it_was_given_up() -> None:
    cluster = Cluster(t=2)
    first, second = Client(cluster, "a", "t"), Client(cluster, "b", "t")
    first.heartbeat()
    second.heartbeat()
    assert (second.epoch, second.numbers) == (2, [])
    assert cluster.group.state is ConsumerGroupState.RECONCILING
    first.heartbeat()  # is told to give one up
    assert (first.epoch, len(first.numbers)) == (1, 1)
    second.heartbeat()
    assert second.numbers == []
    first.heartbeat()  # reports that it has
    assert first.epoch == 2
    second.heartbeat()
    assert sorted(first.numbers + second.numbers) == [0, 1]
    assert cluster.group.state is STABLE


def test_a_member_that_leaves_gives_its_partitions_to_the_others() -> None:
    cluster = Cluster(t=4)
    first, second = Client(cluster, "a", "t"), Client(cluster, "b", "t")
    heartbeats(first, second)
    assert (len(first.numbers), len(second.numbers)) == (2, 2)
    second.leave()
    first.heartbeat()
    assert first.numbers == [0, 1, 2, 3]
    first.leave()
    assert cluster.group.state is ConsumerGroupState.EMPTY


@pytest.mark.parametrize("epoch", [2, 7])
def test_an_epoch_that_is_not_known_is_fenced_and_the_member_joins_again(epoch: int) -> None:
    cluster = Cluster(t=2)
    client = Client(cluster, "a", "t")
    client.heartbeat()
    assert code(client.heartbeat(epoch=epoch)) is ErrorCode.FENCED_MEMBER_EPOCH
    client.heartbeat()
    assert client.numbers == [0, 1]


def test_the_previous_epoch_is_accepted_if_the_response_may_have_been_lost() -> None:
    cluster = Cluster(t=2)
    first, second = Client(cluster, "a", "t"), Client(cluster, "b", "t")
    heartbeats(first, second)
    before = first.epoch
    second.leave()
    first.heartbeat()
    assert first.epoch == before + 1
    lost = first.has
    result = first.heartbeat(epoch=before, reported=NOTHING)
    assert not isinstance(result, KafkaError)
    assert code(first.heartbeat(epoch=before, reported=partitions([(topic_id(1), [0, 1, 2])]))) is (
        ErrorCode.FENCED_MEMBER_EPOCH
    )
    assert len(lost) == 1


def test_a_request_of_an_unknown_member_is_refused() -> None:
    client = Client(Cluster(t=1), "a", "t")
    assert code(client.heartbeat(epoch=3)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert code(client.heartbeat(epoch=-1)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_full_group_takes_no_new_member() -> None:
    cluster = Cluster(max_size=1, t=1)
    first = Client(cluster, "a", "t")
    first.heartbeat()
    assert code(Client(cluster, "b", "t").heartbeat()) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert not isinstance(first.heartbeat(), KafkaError)


def test_a_silent_member_is_removed_after_its_session() -> None:
    cluster = Cluster(t=2)
    first, second = Client(cluster, "a", "t"), Client(cluster, "b", "t")
    heartbeats(first, second)
    cluster.advance(SESSION_MS - 1)
    first.heartbeat()
    cluster.advance(1)
    first.heartbeat()
    assert first.numbers == [0, 1]
    assert code(second.heartbeat()) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_does_not_give_up_partitions_in_time_is_removed() -> None:
    cluster = Cluster(t=2)
    first, second = Client(cluster, "a", "t"), Client(cluster, "b", "t")
    first.heartbeat()
    kept = first.has
    second.heartbeat()
    first.heartbeat()
    for _ in range(3):
        cluster.advance(REBALANCE_MS // 3)
        second.heartbeat()
        result = first.heartbeat(reported=kept)  # it goes on with what it had
    assert code(result) is ErrorCode.UNKNOWN_MEMBER_ID
    second.heartbeat()
    assert second.numbers == [0, 1]


def test_changes_of_topics_reach_the_members_with_their_next_heartbeats() -> None:
    cluster = Cluster(t=1)
    client = Client(cluster, "a", "t", "later")
    client.heartbeat()
    cluster.topics.put("t", 2)
    client.heartbeat()
    assert client.numbers == [0, 1]
    cluster.topics.put("later", 1)
    client.heartbeat()
    assert len(client.has) == 2
    cluster.topics.remove("t")
    heartbeats(client, rounds=2)
    assert client.numbers == [0]
    epoch = cluster.group.epoch
    cluster.topics.put("other", 1)
    client.heartbeat()
    assert cluster.group.epoch == epoch


def test_a_regular_expression_stands_for_the_topics_that_match_it_and_may_be_seen() -> None:
    cluster = Cluster(orders=1, bills=1)
    client = Client(cluster, "a", regex="(orders|secret).*")
    client.heartbeat(may_see=lambda name: name != "secret")
    assert len(client.has) == 1
    cluster.topics.put("orders-2", 1)
    cluster.topics.put("secret", 1)
    client.heartbeat(may_see=lambda name: name != "secret")
    assert len(client.has) == 2
    assert cluster.group.regexes["(orders|secret).*"].topics == ["orders", "orders-2"]
    client.leave()
    other = Client(cluster, "b", "bills")
    other.heartbeat()
    assert not cluster.group.regexes


def test_questions_about_subscribed_topics_visit_no_member(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(orders=1, bills=1, t=1)
    first = Client(cluster, "a", "t", regex="orders.*")
    first.heartbeat()
    Client(cluster, "b", "t").heartbeat()
    heartbeats(first, rounds=2)
    group = cluster.group
    value = OffsetAndMetadata(offset=1, metadata="", commit_timestamp_ms=0)

    def kept() -> dict[str, bool]:
        is_expired = group.expiry_rule(now_ms=2, retention_ms=1)
        assert is_expired is not None
        found = {name: group.is_subscribed_to(name) for name in ("orders", "bills", "t")}
        assert found == {name: not is_expired(name, value) for name in found}
        return found

    with monkeypatch.context() as patched:
        patched.setattr(group, "members", None)
        assert kept() == {"orders": True, "bills": False, "t": True}
    first.leave()
    with monkeypatch.context() as patched:
        patched.setattr(group, "members", None)
        assert kept() == {"orders": False, "bills": False, "t": True}


def test_a_changed_subscription_is_assigned_anew() -> None:
    cluster = Cluster(t=1, u=2)
    client = Client(cluster, "a", "t")
    client.heartbeat()
    client.heartbeat(topic_names=("u",))
    heartbeats(client, rounds=2)
    assert set(client.has) == {topic_id(2)}


def test_the_assignor_is_that_of_most_members() -> None:
    cluster = Cluster(t=2, u=2)
    clients = [Client(cluster, name, "t", "u", assignor=assignor) for name, assignor in zip(
        "abc", ("range", "range", "uniform"), strict=True
    )]  # fmt: skip
    heartbeats(*clients)
    assert cluster.group.assignor_name() == "range"
    assert [client.numbers for client in clients] == [[0, 0], [1, 1], []]


# Static members


def test_a_static_member_that_left_for_a_while_gets_the_same_back_under_another_id() -> None:
    cluster = Cluster(t=4)
    first, second = Client(cluster, "a", "t", instance_id="one"), Client(cluster, "b", "t")
    heartbeats(first, second)
    had, epoch = first.has, cluster.group.epoch
    first.leave(-2)
    second.heartbeat()
    assert len(second.numbers) == 2
    again = Client(cluster, "c", "t", instance_id="one")
    again.heartbeat()
    assert again.has == had
    assert cluster.group.epoch == epoch
    assert code(first.heartbeat(epoch=epoch)) is ErrorCode.FENCED_INSTANCE_ID


def test_an_instance_id_in_use_is_not_given_to_another_member() -> None:
    cluster = Cluster(t=1)
    Client(cluster, "a", "t", instance_id="one").heartbeat()
    assert code(Client(cluster, "b", "t", instance_id="one").heartbeat()) is ErrorCode.UNRELEASED_INSTANCE_ID
    assert code(Client(cluster, "b", "t", instance_id="two").heartbeat(epoch=3)) is ErrorCode.UNKNOWN_MEMBER_ID


# Commits


def test_a_commit_needs_the_epoch_of_the_member() -> None:
    cluster = Cluster(t=1)
    group, moment = cluster.group, cluster.moment
    assert group.commit("", None, -1, moment) is ErrorCode.NONE
    client = Client(cluster, "a", "t")
    client.heartbeat()
    assert group.commit("a", None, client.epoch, moment) is ErrorCode.NONE
    assert group.commit("a", None, client.epoch + 1, moment) is ErrorCode.STALE_MEMBER_EPOCH
    assert group.commit("b", None, client.epoch, moment) is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.commit("", None, -1, moment) is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.fetch_error(None, -1) is ErrorCode.NONE
    assert group.fetch_error("a", 0) is ErrorCode.STALE_MEMBER_EPOCH


# The log


def test_what_cannot_be_appended_is_undone_and_the_member_tries_again() -> None:
    cluster = Cluster(t=2)
    first, second = Client(cluster, "a", "t"), Client(cluster, "b", "t")
    first.heartbeat()
    before = dict(cluster.log)
    cluster.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert code(second.heartbeat()) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert list(cluster.group.members) == ["a"]
    assert cluster.log == before
    cluster.group.check()
    heartbeats(first, second)
    assert sorted(first.numbers + second.numbers) == [0, 1]


def test_a_loaded_group_is_the_group_that_was_stored() -> None:
    cluster = Cluster(t=4, u=2)
    clients = [
        Client(cluster, "a", "t", instance_id="one"),
        Client(cluster, "b", "t", "u"),
        Client(cluster, "c", regex="u"),
    ]
    heartbeats(*clients, rounds=2)
    loaded = cluster.reloaded()
    assert stored(loaded) == stored(cluster.group)
    assert (loaded.epoch, loaded.target_epoch, loaded.topics) == (
        cluster.group.epoch, cluster.group.target_epoch, cluster.group.topics,
    )  # fmt: skip
    loaded.check()
    loaded.resume(cluster.moment)
    cluster.group = loaded
    heartbeats(*clients)
    assert cluster.group.state is STABLE
    cluster.advance(SESSION_MS)
    assert not cluster.group.members


def test_a_deleted_group_removes_all_its_records() -> None:
    cluster = Cluster(t=4)
    client = Client(cluster, "a", "t", regex="u.*")
    client.heartbeat()
    assert cluster.group.delete() is ErrorCode.NON_EMPTY_GROUP
    assert set(cluster.group.record_keys()) >= set(cluster.log)
    client.leave()
    assert cluster.group.delete() is ErrorCode.NONE
    assert cluster.group.state is ConsumerGroupState.DEAD
    assert cluster.group.delete() is ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize(
    ("is_resigning", "expected"), [(True, ErrorCode.NOT_COORDINATOR), (False, ErrorCode.UNKNOWN_SERVER_ERROR)]
)
def test_parked_heartbeats_fail_when_the_coordinator_moves_or_the_assignor_fails(
    is_resigning: bool, expected: ErrorCode
) -> None:
    cluster = Cluster(t=1)
    group = cluster.group
    request = Heartbeat("a", 0, None, None, 1000, ("t",), None, None, NOTHING, "client", "/host", lambda _: True)
    group.consumer_heartbeat(request, cluster.topics, Ticket(), cluster.moment)
    if is_resigning:
        group.resign()
    else:
        group.refreshed(cluster.moment, "broken")
    effect = group.take_effects()
    assert effect is not None
    ((_, result),) = effect.responses
    assert code(result) is expected


def test_a_heartbeat_while_targets_are_computed_gets_them() -> None:
    cluster = Cluster(t=4)
    first, second = Client(cluster, "a", "t"), Client(cluster, "b", "t")
    heartbeats(first, second)
    group, leaving = cluster.group, Ticket()
    group.consumer_heartbeat(_request(second, epoch=-1), cluster.topics, leaving, cluster.moment)
    computing = group.refresh(cluster.topics, Paused).__await__()
    next(computing)  # the targets are not there yet
    ticket = Ticket()
    group.consumer_heartbeat(_request(first), cluster.topics, ticket, cluster.moment)
    for _ in computing:
        pass
    group.refreshed(cluster.moment)
    cluster.settle()
    assert isinstance(ticket.result, HeartbeatResult)
    assert ticket.result.assigned == partitions([(topic_id(1), range(4))])


def test_a_parked_join_of_a_member_that_changed_its_protocol_is_refused_and_later_requests_are_answered() -> None:
    cluster = Cluster(t=4)
    group, joining, changed, later = cluster.group, Ticket(), Ticket(), Ticket()
    group.consumer_heartbeat(_request(Client(cluster, "a", "t")), cluster.topics, Ticket(), cluster.moment)
    group.join(join_request("m", generated_id="m"), joining, cluster.moment)
    group.consumer_heartbeat(_request(Client(cluster, "m", "t")), cluster.topics, changed, cluster.moment)
    group.consumer_heartbeat(_request(Client(cluster, "z", "t")), cluster.topics, later, cluster.moment)
    cluster.settle()
    assert joining.result == JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, "m")
    assert isinstance(changed.result, HeartbeatResult)
    assert isinstance(later.result, HeartbeatResult)


class Paused:
    """A pause after which another event comes."""

    def __await__(self) -> Generator[None, None, None]:
        yield


def _request(client: Client, epoch: int | None = None) -> Heartbeat:
    at = client.epoch if epoch is None else epoch
    return Heartbeat(
        client.member_id, at, None, None, -1, None, None, None, client.has, "client", "/127.0.0.1", lambda _: True
    )


def test_after_a_move_an_expression_waits_for_a_member_that_says_what_it_may_see() -> None:
    cluster = Cluster(orders=1)
    first, second = Client(cluster, "a", regex="o.*"), Client(cluster, "b", regex="(orders|secret).*")
    heartbeats(first, second)
    cluster.group = cluster.reloaded()
    cluster.group.resume(cluster.moment)
    cluster.topics.put("secret", 1)
    cluster.topics.put("orders-2", 1)
    first.heartbeat()
    known = cluster.group.regexes
    assert known["o.*"].topics == ["orders", "orders-2"]
    assert known["(orders|secret).*"].topics == ["orders"]
    second.heartbeat(may_see=lambda name: name != "secret")
    assert known["(orders|secret).*"].topics == ["orders", "orders-2"]
    epoch = cluster.group.epoch
    heartbeats(first, second)
    assert cluster.group.epoch == epoch
