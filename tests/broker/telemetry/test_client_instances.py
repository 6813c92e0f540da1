"""The clients that push metrics: when they may send what, and what is kept of it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from uuid import UUID

import pytest

from broker.telemetry import client_instances
from broker.telemetry.client_instances import ClientAttributes, ClientInstances, Instance, Point
from broker.telemetry.subscriptions import subscription_of
from protocol.errors import ErrorCode, KafkaError

CLIENT = ClientAttributes("billing", "apache-kafka-java", "4.1.0", "10.1.2.3", 5000)
OTHER = ClientAttributes("orders", "librdkafka", "2.11.0", "10.1.2.4", 5001)
NEW = UUID(int=0)
INTERVAL_MS = 1000
T = 1_000_000


@pytest.fixture
def instances() -> ClientInstances:
    numbers = count(2)
    found = ClientInstances(100, lambda: UUID(int=next(numbers) << 64))
    found.subscribe("all", subscription_of("all", {"metrics": "a,b", "interval.ms": str(INTERVAL_MS)}))
    return found


def push(
    instances: ClientInstances,
    instance: Instance,
    now_ms: int,
    *,
    subscription_id: int | None = None,
    codec: int = 0,
    size: int = 10,
    is_terminating: bool = False,
) -> str:
    """The name of the code of a push."""
    try:
        instances.check_push(
            instance.id,
            CLIENT,
            now_ms,
            subscription_id=instance.subscription_id if subscription_id is None else subscription_id,
            codec=codec,
            size=size,
            is_terminating=is_terminating,
        )
    except KafkaError as error:
        return error.code.name
    return "NONE"


def ask_again(instances: ClientInstances, instance: Instance, now_ms: int) -> str:
    try:
        instances.ask(instance.id, CLIENT, now_ms)
    except KafkaError as error:
        return error.code.name
    return "NONE"


def shown(instances: ClientInstances, now_ms: int = T) -> Iterator[tuple[str, str, str, float]]:
    """Client id, name, attributes and value of what is kept."""
    return ((client_id, *named, value) for (client_id, _, *named), value in instances.values(now_ms))


def test_a_client_without_id_gets_one_and_keeps_it(instances: ClientInstances) -> None:
    first, second = instances.ask(NEW, CLIENT, T), instances.ask(NEW, CLIENT, T)
    assert len({NEW, first.id, second.id}) == 3
    assert instances.ask(first.id, CLIENT, T + INTERVAL_MS) is first


def test_a_client_gets_the_union_of_the_subscriptions_that_match_it(instances: ClientInstances) -> None:
    instances.subscribe("c", subscription_of("c", {"metrics": "c", "interval.ms": "500", "match": "client_id=b.*"}))
    assert (instances.ask(NEW, CLIENT, T).metrics, instances.ask(NEW, OTHER, T).metrics) == (
        ("a", "b", "c"),
        ("a", "b"),
    )
    assert (instances.ask(NEW, CLIENT, T).interval_ms, instances.ask(NEW, OTHER, T).interval_ms) == (500, INTERVAL_MS)


def test_a_star_stands_for_all_metrics(instances: ClientInstances) -> None:
    instances.subscribe("every", subscription_of("every", {"metrics": "*"}))
    assert instances.ask(NEW, CLIENT, T).metrics == ("*",)


def test_without_a_subscription_nothing_is_requested_every_five_minutes(instances: ClientInstances) -> None:
    instances.subscribe("all", None)
    instance = instances.ask(NEW, CLIENT, T)
    assert (instance.metrics, instance.interval_ms) == ((), 300_000)


def test_the_id_of_a_subscription_is_that_of_its_content(instances: ClientInstances) -> None:
    instance = instances.ask(NEW, CLIENT, T)
    before = instance.subscription_id
    instances.subscribe("other", subscription_of("other", {"metrics": "x", "match": "client_id=other"}))
    assert instances.ask(instance.id, CLIENT, T).subscription_id == before
    instances.subscribe("more", subscription_of("more", {"metrics": "x"}))
    assert instances.ask(instance.id, CLIENT, T).subscription_id != before
    assert instances.ask(NEW, CLIENT, T).subscription_id != instance.subscription_id
    assert -(1 << 31) <= before < 1 << 31


def test_requests_before_the_end_of_the_interval_are_throttled(instances: ClientInstances) -> None:
    instance = instances.ask(NEW, CLIENT, T)
    assert ask_again(instances, instance, T + INTERVAL_MS - 1) == "THROTTLING_QUOTA_EXCEEDED"
    assert ask_again(instances, instance, T + INTERVAL_MS) == "NONE"


def test_the_same_subscription_again_does_not_end_the_interval(instances: ClientInstances) -> None:
    instance = instances.ask(NEW, CLIENT, T)
    instances.subscribe("all", subscription_of("all", {"metrics": "a,b", "interval.ms": str(INTERVAL_MS)}))
    assert ask_again(instances, instance, T + 1) == "THROTTLING_QUOTA_EXCEEDED"


def test_the_first_push_may_come_at_once_and_the_next_after_the_interval(instances: ClientInstances) -> None:
    instance = instances.ask(NEW, CLIENT, T)
    assert push(instances, instance, T + 1) == "NONE"
    assert push(instances, instance, T + INTERVAL_MS) == "THROTTLING_QUOTA_EXCEEDED"
    assert push(instances, instance, T + 1 + INTERVAL_MS) == "NONE"


def test_the_last_push_need_not_wait_and_ends_the_client(instances: ClientInstances) -> None:
    instance = instances.ask(NEW, CLIENT, T)
    assert push(instances, instance, T) == "NONE"
    assert push(instances, instance, T + 1, is_terminating=True) == "NONE"
    assert push(instances, instance, T + 2 * INTERVAL_MS) == "INVALID_REQUEST"


@pytest.mark.parametrize("code", ["UNKNOWN_SUBSCRIPTION_ID", "UNSUPPORTED_COMPRESSION_TYPE"])
def test_after_some_codes_a_client_asks_again_without_waiting(instances: ClientInstances, code: str) -> None:
    instance = instances.ask(NEW, CLIENT, T)
    if code == "UNKNOWN_SUBSCRIPTION_ID":
        assert push(instances, instance, T, subscription_id=instance.subscription_id ^ 1) == code
        assert instances.unknown_subscription_count == 1
    else:
        assert push(instances, instance, T, codec=5) == code
    assert ask_again(instances, instance, T + 1) == "NONE"
    assert ask_again(instances, instance, T + 2) == "THROTTLING_QUOTA_EXCEEDED"


def test_a_changed_subscription_is_noticed_by_the_next_push(instances: ClientInstances) -> None:
    instance = instances.ask(NEW, CLIENT, T)
    before = instance.subscription_id
    instances.subscribe("more", subscription_of("more", {"metrics": "x"}))
    assert push(instances, instance, T, subscription_id=before) == "UNKNOWN_SUBSCRIPTION_ID"


def test_too_large_pushes_are_refused(instances: ClientInstances) -> None:
    instance = instances.ask(NEW, CLIENT, T)
    assert push(instances, instance, T, size=101) == "TELEMETRY_TOO_LARGE"


@pytest.mark.parametrize("number", [0, 1])
def test_reserved_ids_are_refused(instances: ClientInstances, number: int) -> None:
    with pytest.raises(KafkaError) as caught:
        instances.check_push(UUID(int=number), CLIENT, T, subscription_id=0, codec=0, size=0, is_terminating=False)
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_a_broker_that_does_not_know_a_client_has_it_ask_again(instances: ClientInstances) -> None:
    """After a restart of the broker, or at another one."""
    unknown = Instance(UUID(int=77), CLIENT, 0, (), INTERVAL_MS, 5)
    assert push(instances, unknown, T) == "UNKNOWN_SUBSCRIPTION_ID"
    assert ask_again(instances, unknown, T) == "NONE"


def test_the_latest_values_are_kept(instances: ClientInstances) -> None:
    instance = instances.ask(NEW, CLIENT, T)
    instances.keep(instance.id, [Point("a", "", 1.0, False), Point("b", "t=1", 2, True), Point("b", "t=2", 3, True)])
    instances.keep(instance.id, [Point("a", "", 5.0, False), Point("b", "t=1", 2, True)])
    assert list(shown(instances)) == [("billing", "a", "", 5.0), ("billing", "b", "t=1", 4), ("billing", "b", "t=2", 3)]


def test_a_client_that_stays_away_is_forgotten(instances: ClientInstances) -> None:
    instance = instances.ask(NEW, CLIENT, T)
    instances.keep(instance.id, [Point("a", "", 1.0, False)])
    assert len(list(shown(instances, T + client_instances.KEPT_MS_MIN - 1))) == 1
    assert list(shown(instances, T + client_instances.KEPT_MS_MIN)) == []
    assert instances.count == 0
    instances.keep(instance.id, [Point("a", "", 1.0, False)])
    assert instances.count == 0


def test_a_slow_client_is_kept_for_three_intervals(instances: ClientInstances) -> None:
    instances.subscribe("all", None)
    instance = instances.ask(NEW, CLIENT, T)
    instances.keep(instance.id, [Point("a", "", 1.0, False)])
    assert len(list(shown(instances, T + 899_999))) == 1
    assert list(shown(instances, T + 900_000)) == []


def test_too_many_clients_take_the_place_of_those_heard_of_longest_ago(
    instances: ClientInstances, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_instances, "INSTANCES_MAX", 2)
    first, second = instances.ask(NEW, CLIENT, T), instances.ask(NEW, CLIENT, T)
    instances.ask(first.id, CLIENT, T + INTERVAL_MS)
    third = instances.ask(NEW, CLIENT, T)
    for instance in first, second, third:
        instances.keep(instance.id, [Point("a", "", 1.0, False)])
    assert instances.count == len(list(shown(instances))) == 2


def test_values_are_bounded_for_each_client_and_for_all(
    instances: ClientInstances, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_instances, "INSTANCE_VALUES_MAX", 3)
    monkeypatch.setattr(client_instances, "VALUES_MAX", 5)
    many = [Point(str(number), "", number, False) for number in range(10)]
    for expected in (3, 5, 5):
        instances.keep(instances.ask(NEW, CLIENT, T).id, many)
        assert len(list(shown(instances))) == expected
    assert instances.dropped_count == 7 + 8 + 10
    assert list(shown(instances, T + client_instances.KEPT_MS_MIN)) == []
    instances.keep(instances.ask(NEW, CLIENT, T).id, many)
    assert len(list(shown(instances))) == 3


def test_long_texts_of_clients_are_cut(instances: ClientInstances) -> None:
    instance = instances.ask(NEW, ClientAttributes("c" * 1000, "n" * 1000, "v" * 1000, "h", 1), T)
    assert {len(text) for text in instance.client[:3] if text} == {200}
