"""kafka-get-offsets with a real broker: partitions, times and errors."""

from collections.abc import Sequence

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.broker import BrokerProcess
from tests.tools.conftest import Outcome, RunTool
from tools.admin import get_offsets
from tools.admin.get_offsets import parse_rule, parse_time
from tools.base.command_line import UsageError

TIMEOUT_S = 20
FIRST_MS = 1_700_000_000_000
MALFORMED = (
    "Error occurred: Malformed time argument {}. Please use -1 or latest / -2 or earliest / -3 or max-timestamp / "
    "-4 or earliest-local / -5 or latest-tiered, or a specified long format timestamp\n"
)
NO_MATCH = "Error occurred: Could not match any topic-partitions with the specified filters\n"


@pytest.fixture(scope="module")
def filled(broker: BrokerProcess) -> BrokerProcess:
    """Ten records, one second apart, in partition 1 of `go-wire`; `go-wirekp` and `go.other` are empty."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    topics = [NewTopic("go-wire", 3, 1), NewTopic("go-wirekp", 2, 1), NewTopic("go.other", 1, 1)]
    for created in admin.create_topics(topics).values():
        created.result()
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(10):
        producer.produce("go-wire", b"x", partition=1, timestamp=FIRST_MS + number * 1000)
    assert producer.flush(TIMEOUT_S) == 0
    return broker


@pytest.fixture
def offsets(filled: BrokerProcess, run: RunTool) -> RunTool:
    return lambda *arguments: run(get_offsets.main, "--bootstrap-server", filled.bootstrap, *arguments)


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        (("--topic", "go-wire"), "go-wire:0:0 go-wire:1:10 go-wire:2:0"),
        (("--topic", "go-wire.*", "--exclude-internal-topics", "--partitions", "1"), "go-wire:1:10 go-wirekp:1:0"),
        (("--topic", "go-wirekp, go.other"), "go-wirekp:0:0 go-wirekp:1:0 go.other:0:0"),
        (
            ("--topic-partitions", "go-wire:0-2,go-wirekp:1-,go[.]other"),
            "go-wire:0:0 go-wire:1:10 go-wirekp:1:0 go.other:0:0",
        ),
        (("--topic-partitions", "go-wire:-1"), "go-wire:0:0"),
        (("--topic-partitions", "go-.*:2"), "go-wire:2:0"),
        (("--topic", "go-wire", "--time", "-1"), "go-wire:0:0 go-wire:1:10 go-wire:2:0"),
        (("--topic", "go-wire", "--time", "earliest"), "go-wire:0:0 go-wire:1:0 go-wire:2:0"),
        (("--topic", "go-wire", "--time", "-3"), "go-wire:1:9"),
        (("--topic", "go-wire", "--time", "max-timestamp"), "go-wire:1:9"),
        (("--topic", "go-wire", "--time", "earliest-local"), "go-wire:0:0 go-wire:1:0 go-wire:2:0"),
        (("--topic", "go-wire", "--time", "latest-tiered"), ""),
        (("--topic", "go-wire", "--time", str(FIRST_MS + 4500)), "go-wire:1:5"),
        (("--topic", "go-wire", "--time", str(FIRST_MS + 99_000)), ""),
    ],
)
def test_offsets_are_printed(offsets: RunTool, arguments: Sequence[str], lines: str) -> None:
    assert offsets(*arguments) == Outcome(0, "".join(f"{line}\n" for line in lines.split()), "")


def test_broker_list_is_accepted(filled: BrokerProcess, run: RunTool) -> None:
    brokers = ("--broker-list", filled.bootstrap)
    wanted = Outcome(0, "go.other:0:0\n", "")
    assert run(get_offsets.main, *brokers, "--topic", "go[.]other") == wanted
    both = ("--bootstrap-server", filled.bootstrap, "--broker-list", "127.0.0.1:1")
    assert run(get_offsets.main, *both, "--topic", "go[.]other") == wanted, "the new name wins"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--topic", "nope"), NO_MATCH),
        (("--topic", "go-wire", "--partitions", "9"), NO_MATCH),
        (("--topic", "go-wire", "--time", "abc"), MALFORMED.format("abc")),
        (("--topic", "go-wire", "--nosuch"), "Error occurred: nosuch is not a recognized option\n"),
        (
            ("--topic-partitions", "a", "--topic", "b"),
            "Error occurred: --topic-partitions cannot be used with --topic or --partitions\n",
        ),
        (("--topic-partitions", "a:b"), "Error occurred: Invalid rule specification: a:b\n"),
        (
            ("--partitions", "1,x"),
            "Error occurred: --partitions expects a comma separated list of numeric partition ids, but received: 1,x\n",
        ),
        (
            ("--topic", "a(b"),
            "Error occurred: a(b is an invalid regex: missing ), unterminated subpattern at position 1\n",
        ),
    ],
)
def test_errors_are_reported(offsets: RunTool, arguments: Sequence[str], message: str) -> None:
    assert offsets(*arguments) == Outcome(1, "", message)


def test_invalid_options_are_usage_errors(run: RunTool) -> None:
    outcome = run(get_offsets.main)
    assert (outcome.status, outcome.stdout) == (1, "")
    assert outcome.stderr.startswith("An interactive shell for getting topic-partition offsets.\nOption ")
    missing = run(get_offsets.main, "--topic", "a")
    assert missing == Outcome(1, "", 'Error occurred: Missing required argument "[bootstrap-server]"\n')


@pytest.mark.parametrize(
    ("text", "taken", "refused"),
    [
        ("t", [("t", 0), ("t", 9)], [("tt", 0)]),
        ("t:", [("t", 0), ("t", 9)], [("u", 0)]),
        ("", [("t", 0)], []),
        (":3", [("t", 3), ("u", 3)], [("t", 2), ("t", 4)]),
        ("t:1-3", [("t", 1), ("t", 2)], [("t", 0), ("t", 3)]),
        ("t:1-", [("t", 1), ("t", 99)], [("t", 0)]),
        ("t:-1", [("t", 0)], [("t", 1)]),
        ("t:-", [("t", 0), ("t", 99)], []),
    ],
)
def test_rules_select_partitions(text: str, taken: list[tuple[str, int]], refused: list[tuple[str, int]]) -> None:
    rule = parse_rule(text)
    assert all(rule.takes(partition) for partition in taken)
    assert not any(rule.takes(partition) for partition in refused)


@pytest.mark.parametrize(
    ("text", "timestamp"), [("latest", -1), ("-2", -2), ("+5", 5), ("9223372036854775807", (1 << 63) - 1), ("-77", -77)]
)
def test_times_are_parsed(text: str, timestamp: int) -> None:
    assert parse_time(text) == timestamp


@pytest.mark.parametrize("text", ["", "Latest", "1.5", "9223372036854775808", "1e3", "1_0"])
def test_invalid_time_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match="Malformed time argument"):
        parse_time(text)
