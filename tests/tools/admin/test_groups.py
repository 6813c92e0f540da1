"""kafka-groups: which groups are listed, as what."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, TopicPartition

from protocol.errors import ErrorCode, KafkaError
from protocol.messages.list_groups import ListedGroup
from tests.support.broker import BrokerProcess
from tests.tools.conftest import Outcome, RunTool
from tools.admin import groups, topics

GROUPS = [
    ListedGroup(group_id=name, protocol_type=protocol, group_state="Stable", group_type=kind)
    for name, protocol, kind in (
        ("new", "consumer", "consumer"),
        ("old", "consumer", "classic"),
        ("offsets", "", "classic"),
        ("queue", "share", "share"),
        ("workers", "connect", "classic"),
    )
]
NEW, OLD = "new    \tConsumer\tconsumer\t", "old    \tClassic \tconsumer\t"


@pytest.fixture
def listed(run: RunTool, monkeypatch: pytest.MonkeyPatch) -> RunTool:
    """Runs the tool against a broker that has `GROUPS`."""

    def all_groups(_admin: object, group_type: str | None) -> list[ListedGroup]:
        return [group for group in GROUPS if group_type in (None, group.group_type)]

    monkeypatch.setattr(groups, "all_groups", all_groups)
    return lambda *arguments: run(groups.main, "--bootstrap-server", "127.0.0.1:1", "--list", *arguments)


def test_groups_are_listed_by_name_with_their_types_and_protocols(listed: RunTool) -> None:
    assert listed().stdout.splitlines() == [
        "GROUP  \tTYPE    \tPROTOCOL\t",
        NEW,
        OLD,
        "offsets\tClassic \t        \t",
        "queue  \tShare   \tshare   \t",
        "workers\tClassic \tconnect \t",
    ]


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (("--consumer",), ["new", "old"]),
        (("--group-type", "CLASSIC"), ["old", "offsets", "workers"]),
        (("--group-type", "consumer", "--protocol", "consumer"), ["new"]),
        (("--protocol", "connect"), ["workers"]),
        (("--share",), ["queue"]),
        (("--group-type", "share"), ["queue"]),
        (("--group-type", "share", "--protocol", "consumer"), []),
        (("--streams",), []),
    ],
)
def test_groups_are_selected(listed: RunTool, arguments: tuple[str, ...], names: list[str]) -> None:
    outcome = listed(*arguments)
    assert outcome.status == 0
    assert [line.split("\t")[0].strip() for line in outcome.stdout.splitlines()[1:]] == names


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((), "Command must include exactly one action: --list."),
        (("--list", "--group-type", "odd"), "Invalid group type 'odd'. Valid types are: Classic, Consumer, Share, Str"),
        (("--list", "--consumer", "--share"), 'Option "[consumer]" can\'t be used with option "[share]"'),
        (("--list", "--streams", "--protocol", "p"), 'Option "[streams]" can\'t be used with option "[protocol]"'),
    ],
)
def test_a_wrong_command_line_is_refused(run: RunTool, arguments: tuple[str, ...], text: str) -> None:
    outcome = run(groups.main, "--bootstrap-server", "127.0.0.1:1", *arguments)
    assert (outcome.status, outcome.stdout) == (1, "")
    assert outcome.stderr.startswith(text)


def test_groups_of_a_broker_are_listed(broker: BrokerProcess, run: RunTool) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "of-groups"})
    topics.main(["--bootstrap-server", broker.bootstrap, "--create", "--topic", "of-groups"])
    consumer.commit(offsets=[TopicPartition("of-groups", 0, 1)], asynchronous=False)
    consumer.close()
    outcome = run(groups.main, "--bootstrap-server", broker.bootstrap, "--list", "--group-type", "classic")
    assert (outcome.status, outcome.stderr) == (0, "")
    assert ["of-groups", "Classic", ""] in [
        [cell.strip() for cell in line.split("\t")[:3]] for line in outcome.stdout.splitlines()
    ]


def test_an_error_of_the_broker_is_named(run: RunTool, monkeypatch: pytest.MonkeyPatch) -> None:
    def all_groups(_admin: object, _group_type: str | None) -> list[ListedGroup]:
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "not allowed")

    monkeypatch.setattr(groups, "all_groups", all_groups)
    outcome = run(groups.main, "--bootstrap-server", "127.0.0.1:1", "--list")
    assert outcome == Outcome(1, "", "Error while executing groups command : not allowed\n")
