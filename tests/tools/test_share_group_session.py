"""A session with the tools of share groups and a broker: consume, release, describe, reset, delete."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from confluent_kafka import Producer

from tests.support.broker import BrokerProcess
from tests.tools.conftest import Outcome, RunTool
from tools.admin import configs, groups, share_groups, topics
from tools.records import console_share_consumer

HEADING = "\nGROUP           TOPIC           PARTITION  START-OFFSET\n"

Main = Callable[[Sequence[str]], int]


@pytest.fixture
def tool(broker: BrokerProcess, run: RunTool) -> Callable[..., Outcome]:
    """Runs a tool that has to succeed."""

    def run_tool(main: Main, *arguments: str) -> Outcome:
        outcome = run(main, "--bootstrap-server", broker.bootstrap, *arguments)
        assert outcome.status == 0, outcome.stderr
        return outcome

    return run_tool


def test_a_share_group_from_its_first_record_to_its_deletion(
    broker: BrokerProcess, tool: Callable[..., Outcome]
) -> None:
    tool(topics.main, "--create", "--topic", "parcels", "--partitions", "1")
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(4):
        producer.produce("parcels", b"%d" % number)
    assert producer.flush(30) == 0
    tool(configs.main, "--alter", "--group", "porters", "--add-config", "share.auto.offset.reset=earliest")

    def consume(count: int, *arguments: str) -> list[str]:
        fixed = ("--topic", "parcels", "--group", "porters", "--timeout-ms", "30000", "--max-messages", str(count))
        delivery = ("--property", "print.offset=true", "--property", "print.delivery=true")
        return tool(console_share_consumer.main, *fixed, *delivery, *arguments).stdout.splitlines()

    def described(*arguments: str) -> str:
        return tool(share_groups.main, "--describe", "--group", "porters", *arguments).stdout

    assert consume(2, "--release") == ["Offset:0\tDelivery:1\t0", "Offset:1\tDelivery:1\t1"]
    assert described() == f"{HEADING}porters         parcels         0          0\n"
    assert tool(groups.main, "--list", "--share").stdout.splitlines()[1].split() == ["porters", "Share", "share"]
    # The records that the first consumer got and did not acknowledge were released as it left.
    assert [line.rpartition("\t")[2] for line in consume(4)] == ["0", "1", "2", "3"]
    assert described() == f"{HEADING}porters         parcels         0          4\n"
    assert described("--state", "--verbose").splitlines()[2].split()[:4] == [
        "porters",
        broker.bootstrap,
        "(0)",
        "Empty",
    ]
    reset = ("--reset-offsets", "--group", "porters", "--topic", "parcels", "--to-earliest", "--execute")
    assert tool(share_groups.main, *reset).stdout.splitlines()[2].split() == ["porters", "parcels", "0", "0"]
    assert consume(1, "--reject") == ["Offset:0\tDelivery:1\t0"]
    assert described() == f"{HEADING}porters         parcels         0          1\n"
    assert tool(share_groups.main, "--delete-offsets", "--group", "porters", "--topic", "parcels").stdout == (
        "\nTOPIC           STATUS\nparcels         Successful\n"
    )
    assert tool(share_groups.main, "--delete", "--group", "porters", "--strict-exit").stdout == (
        "Deletion of requested share groups ('porters') was successful.\n"
    )
    assert "porters" not in tool(share_groups.main, "--list").stdout
