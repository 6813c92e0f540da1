"""Transactions for the console: open ones and hanging ones (KIP-664).

Owns what the page contains. Must not know HTTP.
"""

from __future__ import annotations

from typing import TypedDict

from broker.console.console import Console
from broker.console.topics import Unavailable, unavailable_of
from protocol.messages.describe_transactions import DescribeTransactionsRequest
from protocol.messages.list_transactions import ListTransactionsRequest

SHOWN_MAX = 500
GRACE_MS = 60_000
OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort")


class TransactionPartitions(TypedDict):
    """Partitions of one topic that a transaction has written to."""

    topic: str
    partitions: list[int]


class TransactionRow(TypedDict):
    """One transactional id."""

    transactional_id: str
    state: str
    producer_id: str
    producer_epoch: int
    coordinator: int
    timeout_ms: int
    start_ms: int
    age_ms: int
    is_late: bool
    partitions: list[TransactionPartitions]


class HangingTransaction(TypedDict):
    """An open transaction in a partition led here that is older than any may be."""

    topic: str
    partition: int
    producer_id: str
    first_offset: str
    last_write_ms: str


class Transactions(TypedDict):
    """Transactional ids with an open transaction first; `total` counts all.

    `late_partitions` counts the partitions with a hanging transaction, also those that `hanging` has no room for.
    """

    total: int
    transactions: list[TransactionRow]
    late_partitions: int
    hanging: list[HangingTransaction]
    unavailable: list[Unavailable]


async def transactions(console: Console) -> Transactions:
    """Return the transactions of all coordinators."""
    now_ms = console.services.clock.now_ms()
    responses = await console.client.ask_all(ListTransactionsRequest(state_filters=[], producer_id_filters=[]))
    listed = []
    for broker, response in responses.by_broker.items():
        listed += [(one, broker) for one in response.transaction_states]
    listed.sort(key=lambda each: (each[0].transaction_state not in OPEN_STATES, each[0].transactional_id))
    by_broker: dict[int, list[str]] = {}
    for one, broker in listed[:SHOWN_MAX]:
        by_broker.setdefault(broker, []).append(one.transactional_id)
    details = await console.client.ask_each(
        {broker: DescribeTransactionsRequest(transactional_ids=ids) for broker, ids in by_broker.items()}
    )
    rows = []
    for broker, response in details.by_broker.items():
        for one in response.transaction_states:
            if one.error_code:
                continue
            is_open = one.transaction_start_time_ms >= 0 and one.transaction_state in OPEN_STATES
            age_ms = now_ms - one.transaction_start_time_ms if is_open else -1
            rows.append(
                TransactionRow(
                    transactional_id=one.transactional_id,
                    state=one.transaction_state,
                    producer_id=str(one.producer_id),
                    producer_epoch=one.producer_epoch,
                    coordinator=broker,
                    timeout_ms=one.transaction_timeout_ms,
                    start_ms=one.transaction_start_time_ms,
                    age_ms=age_ms,
                    is_late=is_open and age_ms > one.transaction_timeout_ms + GRACE_MS,
                    partitions=[
                        TransactionPartitions(topic=each.topic, partitions=sorted(each.partitions))
                        for each in one.topics
                    ],
                )
            )
    rows.sort(key=lambda row: (-row["age_ms"], row["transactional_id"]))
    hanging = await _hanging(console, now_ms)
    return Transactions(
        total=len(listed),
        transactions=rows,
        late_partitions=len(hanging),
        hanging=hanging[:SHOWN_MAX],
        unavailable=unavailable_of(responses),
    )


async def _hanging(console: Console, now_ms: int) -> list[HangingTransaction]:
    """Return the oldest open transaction of each partition led here that the check of hanging transactions reports."""
    pause = console.pause
    found: list[HangingTransaction] = []
    for partition in list(console.services.replica_manager.hosted()):
        await pause()
        oldest = partition.log.producer_state.oldest_open if partition.is_leader else None
        if oldest is None or not console.services.late_transactions.is_late(oldest, now_ms):
            continue
        if console.may_describe(partition.topic):
            found.append(
                HangingTransaction(
                    topic=partition.topic,
                    partition=partition.partition,
                    producer_id=str(oldest.producer_id),
                    first_offset=str(oldest.current_transaction_first_offset),
                    last_write_ms=str(oldest.last_timestamp_ms),
                )
            )
    return found
