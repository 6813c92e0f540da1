"""ListTransactions: filters by state, producer and duration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.handlers import list_transactions
from protocol.errors import ErrorCode
from protocol.messages.list_transactions import ListTransactionsRequest
from tests.broker.groups.served import counted_pauses, versions_of
from tests.broker.transactions.served import ServedTransactions

VERSIONS = versions_of(ListTransactionsRequest)


def request(**filters: Any) -> ListTransactionsRequest:
    return ListTransactionsRequest(**{"state_filters": [], "producer_id_filters": [], **filters})


@pytest.fixture
async def served(tmp_path: Path) -> ServedTransactions:
    """`old` has been open for ten seconds, `young` for none, `idle` has no transaction."""
    served = await ServedTransactions(tmp_path).lead_all()
    for name in ("old", "young", "idle"):
        producer = await served.new_producer(name)
        if name != "idle":
            await served.there.add_partitions(name, producer, [("t", 0)])
        if name == "old":
            served.there.clock.advance(10_000)
    return served


@pytest.mark.parametrize("version", VERSIONS)
async def test_all_transactions_are_listed_without_filters(served: ServedTransactions, version: int) -> None:
    response = await served.ask(list_transactions, request(), version)
    assert response.error_code == ErrorCode.NONE
    listed = [(each.transactional_id, each.producer_id, each.transaction_state) for each in response.transaction_states]
    assert listed == [("old", 100, "Ongoing"), ("young", 101, "Ongoing"), ("idle", 102, "Empty")]


@pytest.mark.parametrize(
    ("filters", "names"),
    [
        ({"state_filters": ["Ongoing"]}, ["old", "young"]),
        ({"state_filters": ["Ongoing", "Empty"]}, ["old", "young", "idle"]),
        ({"state_filters": ["NoSuch"]}, []),
        ({"producer_id_filters": [101, 102, 103]}, ["young", "idle"]),
        ({"producer_id_filters": [101], "state_filters": ["Empty"]}, []),
        ({"duration_filter": 9_999, "state_filters": ["Ongoing"]}, ["old"]),
        ({"duration_filter": 10_000, "state_filters": ["Ongoing"]}, []),
        ({"duration_filter": -1}, ["old", "young", "idle"]),
        ({"transactional_id_pattern": "o.*|idle"}, ["old", "idle"]),
        ({"transactional_id_pattern": "o"}, []),
        ({"transactional_id_pattern": ""}, ["old", "young", "idle"]),
    ],
)
async def test_only_transactions_that_match_all_filters_are_listed(
    served: ServedTransactions, filters: dict[str, Any], names: list[str]
) -> None:
    response = await served.ask(list_transactions, request(**filters), 2)
    assert [each.transactional_id for each in response.transaction_states] == names
    assert response.unknown_state_filters == [each for each in filters.get("state_filters", []) if each == "NoSuch"]


async def test_other_work_may_run_between_transactions_that_do_not_match(
    served: ServedTransactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses = counted_pauses(monkeypatch)
    response = await served.ask(list_transactions, request(state_filters=["NoSuch"]), 2)
    assert (response.transaction_states, len(pauses)) == ([], 3)


async def test_an_invalid_expression_is_refused(served: ServedTransactions) -> None:
    response = await served.ask(list_transactions, request(transactional_id_pattern="("), 2)
    assert response.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


@pytest.mark.parametrize("version", VERSIONS)
async def test_list_fails_while_a_partition_is_loading(served: ServedTransactions, version: int) -> None:
    served.transactions.partitions.become_leader(0, 1)
    response = await served.ask(list_transactions, request(state_filters=["NoSuch"]), version)
    assert response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert response.unknown_state_filters == ["NoSuch"]
    assert response.transaction_states == []
