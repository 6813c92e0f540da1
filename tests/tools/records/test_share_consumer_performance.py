"""kafka-share-consumer-perf-test: its figures and lines, and when it ends."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, Message

from tests.tools.conftest import Outcome, RunTool
from tests.tools.records.share_members import ShareMember, failure, record
from tools.client import client_library
from tools.records import share_consumer_performance
from tools.records.performance import MIB
from tools.records.share_consumer_performance import HEADING, Window

AT = ("--bootstrap-server", "127.0.0.1:1", "--topic", "orders")
DATE = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{3}"
TIMES = f"{DATE}, {DATE}"
NUMBER = r"\d+\.\d{4}"

Consume = Callable[..., Outcome]


@pytest.fixture
def consume(run: RunTool, monkeypatch: pytest.MonkeyPatch) -> Consume:
    """Runs the tool with members: `consume([member], "--messages", "3", ...)`."""
    monkeypatch.setattr(share_consumer_performance, "require_served", lambda settings, option: None)

    def run_with(members: list[ShareMember], *arguments: str) -> Outcome:
        new = iter(members)
        monkeypatch.setattr(
            client_library, "ShareConsumer", lambda settings, logger: next(new)(settings, logger=logger), raising=False
        )
        return run(share_consumer_performance.main, *AT, *arguments)

    return run_with


def batch(count: int) -> list[Message]:
    """Return records of 100 bytes."""
    return [record(offset, b"x" * 99) for offset in range(count)]


def test_figures_are_those_of_the_window_and_of_its_total() -> None:
    window = Window(100.0)
    window.count, window.size = 500, MIB
    assert window.figures(102.0) == "1.0000, 0.5000, 250.0000, 500, 2000"
    total = Window(0.0)
    total.count, total.size = 800, 3 * MIB
    assert window.figures(102.0, total=total) == "3.0000, 0.5000, 250.0000, 800, 2000"
    assert Window(5.0).figures(5.0) == "0.0000, 0.0000, 0.0000, 0, 1"


def test_members_consume_until_the_group_has_enough(consume: Consume) -> None:
    first, second = ShareMember(batch(2000)), ShareMember(batch(3000))
    outcome = consume([first, second], "--messages", "5000", "--threads", "2", "--show-consumer-stats")
    assert outcome.status == 0
    assert re.fullmatch(
        rf"{re.escape(HEADING)}\n"
        rf"Share consumer 1 consumption metrics- {TIMES}, 0\.1907, {NUMBER}, {NUMBER}, 2000, \d+\n"
        rf"Share consumer 2 consumption metrics- {TIMES}, 0\.2861, {NUMBER}, {NUMBER}, 3000, \d+\n"
        rf"{TIMES}, 0\.4768, {NUMBER}, {NUMBER}, 5000, \d+\n",
        outcome.stdout,
    )
    for member in (first, second):
        assert (member.topics, member.is_committed, member.is_closed) == (["orders"], True, True)
        assert member.settings["group.id"] == "perf-share-consumer"


def test_a_run_ends_when_no_record_arrives(consume: Consume) -> None:
    outcome = consume(
        [ShareMember(batch(1000))],
        *("--messages", "1001", "--timeout", "1", "--hide-header", "--show-detailed-stats"),
        *("--reporting-interval", "1", "--print-metrics"),
    )
    assert outcome.status == 0
    assert re.match(
        rf"(?:{TIMES}, 0\.0954, {NUMBER}, {NUMBER}, 1000, \d+ for share consumer 1\n)?"
        r"WARNING: Exiting before consuming the expected number of messages: timeout \(1 ms\) exceeded\. You can use "
        rf"the --timeout option to increase the timeout\.\n{TIMES}, 0\.0954, {NUMBER}, {NUMBER}, 1000, \d+\n"
        r"\nMetric Name   Value\n",
        outcome.stdout,
    )


def test_an_error_of_the_client_library_ends_the_run(consume: Consume) -> None:
    member = ShareMember([failure(KafkaError.GROUP_AUTHORIZATION_FAILED)])
    outcome = consume([member], "--messages", "1", "--hide-header")
    assert outcome == Outcome(1, "", "Error: Broker: Group authorization failed\n")
    assert member.is_closed


def test_a_run_needs_at_least_one_member(run: RunTool) -> None:
    outcome = run(share_consumer_performance.main, *AT, "--messages", "1", "--threads", "0")
    assert outcome.status == 1
    assert outcome.stderr.startswith("--threads should be greater than 0, found 0\n")
