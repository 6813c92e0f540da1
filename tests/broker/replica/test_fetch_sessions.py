"""Fetch sessions (KIP-227): epochs, changes, the partitions in a response, and eviction."""

import itertools
from collections.abc import Callable
from uuid import UUID

import pytest

from base.pause import never, whole
from broker.replica import fetch_sessions
from broker.replica.fetch_news import UNWATCHED_TOGETHER_MAX, FetchNews
from broker.replica.fetch_sessions import (
    EPOCH_MAX,
    EVICTION_MS,
    FINAL_EPOCH,
    INITIAL_EPOCH,
    FetchContext,
    FetchPartition,
    FetchSession,
    FetchSessionCache,
    PartitionKey,
)
from broker.replica.machine.isr import FollowerProgress
from protocol.errors import ErrorCode, KafkaError
from tests.storage.builders import done, pause, steps_of
from tests.support.invariants import broken, stated
from tests.support.lines import counted_lines

NO_ID = UUID(int=0)
CONSUMER = (-1, False)


def wanted(topic: str, partition: int, fetch_offset: int = 0) -> FetchPartition:
    return FetchPartition((topic, partition), topic, NO_ID, partition, fetch_offset, 1000)


def cache_of(slots: int, news: FetchNews | None = None, *, room: int = 10_000) -> FetchSessionCache:
    """`room` is the number of partitions that all sessions may have."""
    numbers = itertools.count(1)
    return FetchSessionCache(slots, room, lambda: next(numbers), news or no_news())


def no_news() -> FetchNews:
    return FetchNews(lambda callback: callback())


def ask(
    cache: FetchSessionCache,
    session_id: int,
    epoch: int,
    *partitions: FetchPartition,
    forgotten: tuple[PartitionKey, ...] = (),
    by_id: bool = False,
    now_ms: int = 0,
) -> FetchContext:
    try:
        return whole(
            cache.context(
                session_id, epoch, partitions, forgotten, never, uses_topic_ids=by_id, reader=CONSUMER, now_ms=now_ms
            )
        )
    finally:
        cache.check()


def opened(
    cache: FetchSessionCache, *partitions: FetchPartition, is_follower: bool = False, now_ms: int = 0
) -> FetchSession | None:
    """The session, whose partitions all know it, as after a response that mentions all of them."""
    context = ask(cache, 0, INITIAL_EPOCH, *partitions, now_ms=now_ms)
    session = cache.open(context, is_follower=is_follower, uses_topic_ids=False, reader=CONSUMER, now_ms=now_ms)
    if session is not None:
        for partition in session.partitions.values():
            partition.session = session
    cache.check()
    return session


def settled(cache: FetchSessionCache, *partitions: FetchPartition) -> FetchSession:
    """A session whose client has everything of each partition."""
    session = opened(cache, *partitions)
    assert session is not None
    for partition in partitions:
        cache.settle(session, partition)
    assert not session.news
    return session


def test_session_keeps_its_partitions_and_applies_changes() -> None:
    cache = cache_of(10)
    session = opened(cache, wanted("a", 0), wanted("a", 1))
    assert session is not None
    assert session.id == 1
    assert list(session.partitions) == [("a", 0), ("a", 1)]
    assert list(ask(cache, 1, 1).partitions) == [("a", 0), ("a", 1)]
    context = ask(cache, 1, 2, wanted("a", 1, 55), wanted("b", 0), forgotten=(("a", 0),))
    assert context.session is session
    assert list(session.partitions) == list(context.partitions) == [("a", 1), ("b", 0)]
    assert context.partitions["a", 1].fetch_offset == 55
    assert {partition.session for partition in session.partitions.values()} == {session}


@pytest.mark.parametrize(
    ("session_id", "epoch", "by_id", "code"),
    [
        (99, 1, False, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (1, 2, False, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (1, 1, True, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
    ],
)
def test_request_with_a_wrong_epoch_is_rejected_and_changes_no_session(
    session_id: int, epoch: int, by_id: bool, code: int
) -> None:
    cache = cache_of(10)
    opened(cache, wanted("a", 0))
    with pytest.raises(KafkaError) as caught:
        ask(cache, session_id, epoch, by_id=by_id)
    assert caught.value.code == code
    assert list(ask(cache, 1, 1).partitions) == [("a", 0)]


def test_epochs_wrap_to_one() -> None:
    cache = cache_of(10)
    opened(cache, wanted("a", 0))
    session = ask(cache, 1, 1).session
    assert session is not None
    session.epoch = EPOCH_MAX
    ask(cache, 1, EPOCH_MAX)
    assert session.epoch == 1


def test_final_and_full_requests_close_the_session_they_name() -> None:
    cache = cache_of(10)
    opened(cache, wanted("a", 0))
    assert ask(cache, 1, FINAL_EPOCH, wanted("a", 0)).session is None
    assert len(cache) == 0
    opened(cache, wanted("a", 0))
    replaced = ask(cache, 2, INITIAL_EPOCH, wanted("b", 0))
    session = cache.open(replaced, is_follower=False, uses_topic_ids=False, reader=CONSUMER, now_ms=0)
    assert session is not None
    assert session.id == 3
    assert len(cache) == 1


def test_a_session_without_partitions_ends() -> None:
    cache = cache_of(10)
    opened(cache, wanted("a", 0))
    assert ask(cache, 1, 1, forgotten=(("a", 0),)).session is None
    assert len(cache) == 0


def note_sent(
    partition: FetchPartition, *, has_records: bool = False, is_urgent: bool = False, high_watermark: int = 5
) -> bool:
    return partition.note_sent(
        has_records=has_records, is_urgent=is_urgent, high_watermark=high_watermark, log_start_offset=0
    )


def test_response_contains_only_changed_partitions() -> None:
    one, other = wanted("a", 0), wanted("a", 1)
    assert note_sent(one)
    assert note_sent(other)
    assert not note_sent(one)
    assert note_sent(one, has_records=True)
    assert note_sent(other, high_watermark=6)
    assert note_sent(other, is_urgent=True, high_watermark=6)
    assert note_sent(other, high_watermark=6), "mentioned again once the error is over"
    assert not note_sent(other, high_watermark=6)


def test_partition_that_is_named_in_another_leader_epoch_is_sent_again() -> None:
    """A follower has dropped what was sent for the older epoch."""
    cache = cache_of(10)
    one, other = wanted("a", 0), wanted("a", 1)
    session = settled(cache, one, other)
    for partition in (one, other):
        assert note_sent(partition)
    newer, same = wanted("a", 0), wanted("a", 1)
    newer.current_leader_epoch = 7
    ask(cache, session.id, 1, newer, same)
    assert note_sent(one)
    assert not note_sent(other)


def test_served_partitions_are_read_after_the_others() -> None:
    cache = cache_of(10)
    session = opened(cache, wanted("a", 0), wanted("a", 1), wanted("a", 2))
    assert session is not None
    context = ask(cache, 1, 1)
    session.served(context.partitions["a", 0])
    assert list(context.partitions) == [("a", 1), ("a", 2), ("a", 0)]
    cache.settle(session, context.partitions["a", 2])
    assert list(context.partitions) == [("a", 1), ("a", 0)]
    assert list(session.partitions) == [("a", 0), ("a", 1), ("a", 2)]


def test_unchanged_partition_is_read_again_after_an_event_or_when_requested() -> None:
    news = no_news()
    cache = cache_of(10, news)
    session = settled(cache, wanted("a", 0), wanted("a", 1), wanted("a", 2))
    assert not ask(cache, 1, 1).partitions
    news.notify(("a", 2))
    assert list(ask(cache, 1, 2).partitions) == [("a", 2)]
    assert list(ask(cache, 1, 3, wanted("a", 1, 7)).partitions) == [("a", 2), ("a", 1)]
    assert session.partitions["a", 1].fetch_offset == 7
    news.notify(("a", 1))
    assert list(ask(cache, 1, 4).partitions) == [("a", 2), ("a", 1)], "it keeps its place"


def test_waiting_fetch_is_woken_by_events_of_its_session() -> None:
    news = no_news()
    cache = cache_of(10, news)
    session = settled(cache, wanted("a", 0), wanted("a", 1))
    called: list[PartitionKey] = []
    session.on_news = lambda partition: called.append(partition.key)
    news.notify(("a", 1))
    news.notify(("a", 1))
    assert called == [("a", 1)], "a watch ends with its event"
    session.on_news = None
    news.notify(("a", 0))
    assert called == [("a", 1)]
    assert list(session.news) == [("a", 1), ("a", 0)]


@pytest.mark.parametrize("end", ["final epoch", "replaced", "forgotten", "stale", "a follower needs the slot"])
def test_ended_session_has_no_watch(end: str) -> None:
    news = no_news()
    cache = cache_of(1, news)
    session = settled(cache, wanted("a", 0), wanted("a", 1))
    news.notify(("a", 1))
    assert list(news.watched) == [("a", 0)]
    match end:
        case "final epoch":
            ask(cache, 1, FINAL_EPOCH)
        case "replaced":
            ask(cache, 1, INITIAL_EPOCH, wanted("b", 0))
        case "forgotten":
            ask(cache, 1, 1, forgotten=(("a", 0), ("a", 1)))
        case "stale":
            assert opened(cache, wanted("b", 0), now_ms=EVICTION_MS + 1) is not None
        case "a follower needs the slot":
            assert opened(cache, wanted("b", 0), is_follower=True) is not None
    assert not news.watched
    assert not session.news
    called: list[FetchPartition] = []
    session.on_news = called.append
    for partition in (wanted("a", 0), *session.partitions.values()):
        partition.note_event()
    assert not session.news
    assert not called


def test_forgotten_partition_has_no_watch() -> None:
    news = no_news()
    cache = cache_of(1, news)
    settled(cache, wanted("a", 0), wanted("a", 1))
    ask(cache, 1, 1, forgotten=(("a", 0), ("b", 0)))
    assert list(news.watched) == [("a", 1)]


def test_a_request_is_resolved_in_slices_but_its_epoch_is_checked_at_once() -> None:
    cache = cache_of(10)
    opened(cache, *(wanted("a", number) for number in range(100)))
    slices = steps_of(
        cache.context(
            1,
            1,
            [wanted("a", number, 5) for number in range(50)],
            [("a", 99)],
            pause,
            uses_topic_ids=False,
            reader=CONSUMER,
            now_ms=0,
        )
    )
    next(slices)
    with pytest.raises(KafkaError) as caught:
        ask(cache, 1, 1)
    assert caught.value.code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    step_count = sum(1 for _ in slices) + 1
    assert step_count == 51
    session = ask(cache, 1, 2).session
    assert session is not None
    assert len(session.partitions) == 99
    assert [one.fetch_offset for one in session.partitions.values()] == [5] * 50 + [0] * 49


def test_no_session_is_created_without_a_free_slot() -> None:
    cache = cache_of(1)
    first = opened(cache, wanted("a", 0))
    assert first is not None
    assert first.id == 1
    assert opened(cache, wanted("b", 0)) is None
    assert opened(cache_of(0), wanted("b", 0)) is None


@pytest.mark.parametrize(
    ("is_follower", "size", "now_ms", "is_evicted"),
    [
        (False, 1, EVICTION_MS, False),
        (False, 1, EVICTION_MS + 1, True),
        (True, 1, 0, True),
        (False, 3, EVICTION_MS, False),
    ],
    ids=["not yet stale", "stale", "a follower goes first", "larger, but not left alone long enough"],
)
def test_session_is_evicted_only_by_the_rules_of_kip_227(
    is_follower: bool, size: int, now_ms: int, is_evicted: bool
) -> None:
    cache = cache_of(1)
    opened(cache, wanted("a", 0), now_ms=0)
    partitions = [wanted("b", number) for number in range(size)]
    session = opened(cache, *partitions, is_follower=is_follower, now_ms=now_ms)
    assert (session is not None) is is_evicted


def test_larger_session_replaces_an_old_smaller_one_in_use() -> None:
    cache = cache_of(1)
    opened(cache, wanted("a", 0), now_ms=0)
    ask(cache, 1, 1, now_ms=EVICTION_MS)
    assert opened(cache, wanted("b", 0), now_ms=EVICTION_MS + 1) is None
    session = opened(cache, wanted("b", 0), wanted("b", 1), now_ms=EVICTION_MS + 1)
    assert session is not None
    assert session.id == 2


def test_session_without_room_for_its_partitions_is_not_opened_or_is_closed() -> None:
    cache = cache_of(10, room=3)
    first = opened(cache, wanted("a", 0), wanted("a", 1))
    assert first is not None
    assert opened(cache, wanted("b", 0), wanted("b", 1)) is None
    ask(cache, first.id, 1, wanted("a", 2), wanted("a", 0, 7))
    assert cache.partition_count == 3
    with pytest.raises(KafkaError) as raised:
        ask(cache, first.id, 2, wanted("a", 3))
    assert raised.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (len(cache), cache.partition_count) == (0, 0)
    assert opened(cache, *(wanted("a", number) for number in range(4))) is None
    assert opened(cache, *(wanted("a", number) for number in range(3))) is not None


def test_forgotten_partitions_leave_room_for_others() -> None:
    cache = cache_of(10, room=2)
    session = opened(cache, wanted("a", 0), wanted("a", 1))
    assert session is not None
    ask(cache, session.id, 1, forgotten=(("a", 0), ("b", 0)))
    ask(cache, session.id, 2, wanted("b", 0))
    assert list(session.partitions) == [("a", 1), ("b", 0)]


def test_no_session_keeps_a_name_that_no_topic_can_have() -> None:
    cache = cache_of(10)
    longest, too_long = wanted("a" * 249, 0), wanted("a" * 250, 0)
    assert opened(cache, wanted("a", 0), too_long) is None
    session = opened(cache, longest)
    assert session is not None
    with pytest.raises(KafkaError) as raised:
        ask(cache, session.id, 1, too_long)
    assert raised.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(cache) == 0


@pytest.mark.parametrize(
    ("is_follower", "size", "now_ms", "sizes"),
    [
        (True, 4, 0, [1, 4]),
        (True, 1, 0, [5, 1]),
        (False, 5, EVICTION_MS, [1, 5]),
        (False, 6, EVICTION_MS + 1, [6]),
        (False, 1, EVICTION_MS + 1, [5, 1]),
        (False, 7, EVICTION_MS + 1, []),
    ],
    ids=[
        "a follower's evicts the one that is large enough",
        "a follower's evicts the smallest that is large enough",
        "too early",
        "all that are unused",
        "the first of those that are unused",
        "larger than all room",
    ],
)
def test_sessions_are_evicted_for_room(is_follower: bool, size: int, now_ms: int, sizes: list[int]) -> None:
    cache = cache_of(10, room=6)
    opened(cache, wanted("a", 0), now_ms=0)
    opened(cache, *(wanted("b", number) for number in range(5)), now_ms=0)
    opened(cache, *(wanted("c", number) for number in range(size)), is_follower=is_follower, now_ms=now_ms)
    assert [len(session.partitions) for session in cache._sessions.values()] == sizes


def test_session_closed_during_a_request_has_no_watch() -> None:
    news = no_news()
    cache = cache_of(10, news)
    partitions = [wanted("a", n) for n in range(1000)]
    session = opened(cache, *partitions)
    assert session is not None
    session_id = session.id
    work = steps_of(
        cache.context(session_id, 1, partitions, [], pause, uses_topic_ids=False, reader=CONSUMER, now_ms=0)
    )
    for _ in range(10):
        next(work)
    ask(cache, session_id, FINAL_EPOCH)
    context = done(work)
    if context.session is not None:
        for partition in list(context.session.partitions.values()):
            cache.settle(context.session, partition)
    assert (len(cache), cache.partition_count) == (0, 0)
    assert not news.watched


def test_session_closed_during_a_request_gets_no_partition() -> None:
    cache = cache_of(10)
    session = opened(cache, wanted("a", 0))
    assert session is not None
    partitions = [wanted("b", number) for number in range(3)]
    work = steps_of(
        cache.context(session.id, 1, partitions, [], pause, uses_topic_ids=False, reader=CONSUMER, now_ms=0)
    )
    next(work)
    ask(cache, session.id, FINAL_EPOCH)
    with pytest.raises(KafkaError) as raised:
        done(work)
    assert raised.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert cache.partition_count == 0


def test_forgotten_partition_does_not_return_when_it_is_served() -> None:
    cache = cache_of(10)
    session = opened(cache, wanted("a", 0), wanted("a", 1))
    assert session is not None
    session_id = session.id
    ask(cache, session_id, 1)
    gone = session.partitions["a", 0]
    ask(cache, session_id, 2, forgotten=(("a", 0),))
    ask(cache, session_id, 3, wanted("a", 0, 7))
    session.served(gone)
    assert session.news["a", 0].fetch_offset == 7


@pytest.mark.parametrize("count", [2_000, 5_000])
def test_thousands_of_partitions_of_a_session_are_left_in_parts(count: int) -> None:
    postponed: list[Callable[[], None]] = []
    news = FetchNews(postponed.append)
    cache = cache_of(10, news)
    context = ask(cache, 0, INITIAL_EPOCH, *(wanted("a", number) for number in range(count)))
    session = cache.open(context, is_follower=False, uses_topic_ids=False, reader=CONSUMER, now_ms=0)
    assert session is not None
    partitions = list(context.partitions.values())
    for partition in partitions:
        partition.session = session
        cache.settle(session, partition)
    assert len(news.watched) == count
    with counted_lines() as lines:
        ask(cache, session.id, FINAL_EPOCH)
    assert lines.count < 16 * UNWATCHED_TOGETHER_MAX, "a step that does not grow with the session"
    assert len(news.watched) == count - UNWATCHED_TOGETHER_MAX
    assert not any(partition.note_event() for partition in partitions)
    while postponed:
        postponed.pop()()
    assert not news.watched


def caught_up(*partitions: FetchPartition) -> list[int]:
    return [it.follower.caught_up_ms for it in partitions if isinstance(it.follower, FollowerProgress)]


def test_a_follower_of_a_closed_session_had_everything_until_the_next_event() -> None:
    postponed: list[Callable[[], None]] = []
    news = FetchNews(postponed.append)
    cache = cache_of(10, news)
    context = ask(cache, 0, INITIAL_EPOCH, *(wanted("a", number) for number in range(UNWATCHED_TOGETHER_MAX + 2)))
    session = cache.open(context, is_follower=True, uses_topic_ids=False, reader=CONSUMER, now_ms=70)
    assert session is not None
    *_, changed, last = context.partitions.values()
    for partition in context.partitions.values():
        partition.session = session
        partition.follower = FollowerProgress()
        partition.follower.fetched(0, 0, 0, 1, now_ms=0)
        cache.settle(session, partition)
    ask(cache, session.id, FINAL_EPOCH)
    news.notify((changed.topic, changed.partition))
    assert caught_up(changed, last) == [70, 0], "the step for the last one is to come"
    while postponed:
        postponed.pop()()
    assert caught_up(changed, last) == [70, 70]


BREAKS: dict[str, Callable[[FetchSessionCache, FetchSession], object]] = {
    "There are at most as many sessions as slots": lambda cache, session: setattr(cache, "_slots_max", 0),
    fetch_sessions._COUNTED: lambda cache, session: setattr(cache, "_partitions_max", 0),
    "A session is found by its id until it is closed": lambda cache, session: setattr(session, "is_closed", True),
    "The epoch of a session is positive": lambda cache, session: setattr(session, "epoch", INITIAL_EPOCH),
    "A partition belongs to its session alone, once the response that opens the session has named it": (
        lambda cache, session: setattr(session.partitions["t", 0], "session", opened(cache, wanted("t", 0)))
    ),
    "Only partitions of the session have news": lambda cache, session: session.news.update({("u", 0): wanted("u", 0)}),
}


def test_every_stated_invariant_is_checked() -> None:
    assert list(BREAKS) == stated(fetch_sessions)


@pytest.mark.parametrize("invariant", BREAKS)
def test_broken_invariant_is_named(invariant: str) -> None:
    cache = cache_of(2)
    session = opened(cache, wanted("t", 0))
    assert session is not None
    assert broken(cache.check) is None
    BREAKS[invariant](cache, session)
    assert broken(cache.check) == invariant


def test_session_under_another_id_is_noticed() -> None:
    cache = cache_of(2)
    session = opened(cache, wanted("t", 0))
    assert session is not None
    session.id += 1
    assert broken(cache.check) == "A session is found by its id until it is closed"


def test_a_follower_without_news_is_caught_up_until_its_session_ends() -> None:
    confirmed: list[tuple[str, int]] = []

    class Known:
        """What the leader knows of a follower of one partition."""

        def __init__(self, topic: str) -> None:
            self._topic = topic

        def confirm(self, fetched_ms: int) -> None:
            confirmed.append((self._topic, fetched_ms))

    news = no_news()
    cache = cache_of(2, news)
    session = opened(cache, wanted("t", 0), wanted("u", 0), is_follower=True)
    assert session is not None
    ask(cache, session.id, 1, now_ms=50)
    for known in session.partitions.values():
        known.follower = Known(known.topic or "")
        news.watch((known.topic, 0), known)
    news.notify(("u", 0))
    assert confirmed == [("u", 50)]
    ask(cache, session.id, FINAL_EPOCH, now_ms=60)
    assert confirmed == [("u", 50), ("t", 50)]
