"""DescribeTransactions: the state of each transactional id, with its own code."""

from __future__ import annotations

from pathlib import Path

from broker.handlers import describe_transactions
from protocol.errors import ErrorCode
from protocol.messages.describe_transactions import DescribeTransactionsRequest
from tests.broker.transactions.served import MINUTE_MS, ServedTransactions


async def test_state_and_partitions_of_each_id_are_returned(tmp_path: Path) -> None:
    served = await ServedTransactions(tmp_path).lead_all()
    producer = await served.new_producer()
    await served.there.add_partitions("id", producer, [("t", 1), ("u", 0), ("t", 0)])
    await served.new_producer("idle")
    request = DescribeTransactionsRequest(transactional_ids=["id", "idle", "nosuch", ""])
    opened, idle, unknown, empty = (await served.ask(describe_transactions, request, 0)).transaction_states
    assert (opened.error_code, opened.transactional_id, opened.transaction_state) == (0, "id", "Ongoing")
    assert (opened.transaction_timeout_ms, opened.transaction_start_time_ms) == (MINUTE_MS, served.there.clock.now_ms())
    assert (opened.producer_id, opened.producer_epoch) == producer
    assert [(each.topic, each.partitions) for each in opened.topics] == [("t", [1, 0]), ("u", [0])]
    assert (idle.transaction_state, idle.transaction_start_time_ms, idle.topics) == ("Empty", -1, [])
    assert (unknown.error_code, unknown.transactional_id) == (ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, "nosuch")
    assert empty.error_code == ErrorCode.INVALID_REQUEST


async def test_id_of_another_coordinator_gets_not_coordinator(tmp_path: Path) -> None:
    served = await ServedTransactions(tmp_path).lead_all()
    served.transactions.partitions.resign(0)
    request = DescribeTransactionsRequest(transactional_ids=["id"])
    (state,) = (await served.ask(describe_transactions, request, 0)).transaction_states
    assert state.error_code == ErrorCode.NOT_COORDINATOR
