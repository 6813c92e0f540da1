"""Fetch sessions (KIP-227): epochs, changes, what is worth sending, and who gives up a slot."""

import itertools
from uuid import UUID

import pytest

from broker.replica.fetch_sessions import (
    EPOCH_MAX,
    EVICTION_MS,
    FINAL_EPOCH,
    INITIAL_EPOCH,
    FetchContext,
    FetchPartition,
    FetchSessionCache,
    PartitionKey,
)
from broker.slices import whole
from protocol.errors import ErrorCode, KafkaError

NO_ID = UUID(int=0)


def wanted(topic: str, partition: int, fetch_offset: int = 0) -> tuple[PartitionKey, FetchPartition]:
    return (topic, partition), FetchPartition(topic, NO_ID, partition, fetch_offset, 1000)


def cache_of(slots: int) -> FetchSessionCache:
    numbers = itertools.count(1)
    return FetchSessionCache(slots, lambda: next(numbers))


def ask(
    cache: FetchSessionCache,
    session_id: int,
    epoch: int,
    *partitions: tuple[PartitionKey, FetchPartition],
    forgotten: tuple[PartitionKey, ...] = (),
    by_id: bool = False,
    now_ms: int = 0,
) -> FetchContext:
    return whole(cache.context(session_id, epoch, dict(partitions), forgotten, uses_topic_ids=by_id, now_ms=now_ms))


def opened(
    cache: FetchSessionCache,
    *partitions: tuple[PartitionKey, FetchPartition],
    is_follower: bool = False,
    now_ms: int = 0,
) -> int:
    context = ask(cache, 0, INITIAL_EPOCH, *partitions, now_ms=now_ms)
    return cache.open(context, is_follower=is_follower, uses_topic_ids=False, now_ms=now_ms)


def test_a_session_remembers_and_is_changed() -> None:
    cache = cache_of(10)
    session_id = opened(cache, wanted("a", 0), wanted("a", 1))
    assert session_id == 1
    assert list(ask(cache, 1, 1).partitions) == [("a", 0), ("a", 1)]
    context = ask(cache, 1, 2, wanted("a", 1, 55), wanted("b", 0), forgotten=(("a", 0),))
    assert list(context.partitions) == [("a", 1), ("b", 0)]
    assert context.partitions["a", 1].fetch_offset == 55


@pytest.mark.parametrize(
    ("session_id", "epoch", "by_id", "code"),
    [
        (99, 1, False, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (1, 2, False, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (1, 1, True, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
    ],
)
def test_a_wrong_session_is_refused_and_stays_as_it_is(session_id: int, epoch: int, by_id: bool, code: int) -> None:
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
    assert cache.open(replaced, is_follower=False, uses_topic_ids=False, now_ms=0) == 3
    assert len(cache) == 1


def test_a_session_without_partitions_ends() -> None:
    cache = cache_of(10)
    opened(cache, wanted("a", 0))
    assert ask(cache, 1, 1, forgotten=(("a", 0),)).session is None
    assert len(cache) == 0


def test_only_changes_are_worth_sending_and_served_partitions_move_back() -> None:
    cache = cache_of(10)
    opened(cache, wanted("a", 0), wanted("a", 1))

    def sent(
        context: FetchContext,
        partition: int,
        *,
        has_records: bool = False,
        error_code: int = 0,
        high_watermark: int = 5,
    ) -> bool:
        return context.is_worth_sending(
            ("a", partition),
            has_records=has_records,
            error_code=error_code,
            high_watermark=high_watermark,
            log_start_offset=0,
        )

    context = ask(cache, 1, 1)
    assert sent(context, 0)
    assert sent(context, 1)
    assert not sent(context, 0)
    assert sent(context, 0, has_records=True)
    assert list(context.partitions) == [("a", 1), ("a", 0)]
    assert sent(context, 1, high_watermark=6)
    assert sent(context, 1, error_code=3, high_watermark=6)
    assert sent(context, 1, high_watermark=6), "told again once the error is over"
    assert not sent(context, 1, high_watermark=6)


def test_without_a_free_slot_there_is_no_session() -> None:
    cache = cache_of(1)
    assert opened(cache, wanted("a", 0)) == 1
    assert opened(cache, wanted("b", 0)) == 0
    assert opened(cache_of(0), wanted("b", 0)) == 0


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
def test_who_may_take_a_slot(is_follower: bool, size: int, now_ms: int, is_evicted: bool) -> None:
    cache = cache_of(1)
    opened(cache, wanted("a", 0), now_ms=0)
    partitions = [wanted("b", number) for number in range(size)]
    assert bool(opened(cache, *partitions, is_follower=is_follower, now_ms=now_ms)) is is_evicted


def test_a_larger_session_takes_the_slot_of_an_old_smaller_one_that_is_in_use() -> None:
    cache = cache_of(1)
    opened(cache, wanted("a", 0), now_ms=0)
    ask(cache, 1, 1, now_ms=EVICTION_MS)
    assert opened(cache, wanted("b", 0), now_ms=EVICTION_MS + 1) == 0
    assert opened(cache, wanted("b", 0), wanted("b", 1), now_ms=EVICTION_MS + 1) == 2
