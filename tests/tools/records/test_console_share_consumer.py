"""kafka-console-share-consumer: what it prints, acknowledges and passes to the client library."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import AcknowledgeType, IllegalStateException, KafkaError, KafkaException, Message

from tests.tools.conftest import Outcome, RunTool
from tests.tools.records.share_members import ShareMember, failure, record
from tools.client import client_library
from tools.records import console_share_consumer

AT = ("--bootstrap-server", "127.0.0.1:1", "--topic", "orders")
ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT
TIMED_OUT = "org.apache.kafka.common.errors.TimeoutException\nProcessed a total of {} messages\n"

Consume = Callable[..., tuple[Outcome, ShareMember]]


@pytest.fixture
def consume(run: RunTool, monkeypatch: pytest.MonkeyPatch) -> Consume:
    """Runs the tool with a member that gets batches: `consume(batches, "--reject", ...)`."""
    monkeypatch.setattr(console_share_consumer, "require_served", lambda settings, option: None)

    def run_with(batches: list[list[Message]], *arguments: str, timeout_ms: int = 0) -> tuple[Outcome, ShareMember]:
        member = ShareMember(*batches)
        monkeypatch.setattr(client_library, "ShareConsumer", member, raising=False)
        return run(console_share_consumer.main, *AT, "--timeout-ms", str(timeout_ms), *arguments), member

    return run_with


@pytest.mark.parametrize(
    ("arguments", "acknowledgement"), [((), ACCEPT), (("--release",), RELEASE), (("--reject",), REJECT)]
)
def test_printed_records_are_acknowledged(
    consume: Consume, arguments: tuple[str, ...], acknowledgement: AcknowledgeType
) -> None:
    outcome, member = consume([[record(3, b"a"), record(4, b"b")], [record(5, b"c")]], *arguments)
    assert (outcome.status, outcome.stdout) == (0, "a\nb\nc\n")
    assert outcome.stderr.endswith(TIMED_OUT.format(3))
    assert member.topics == ["orders"]
    assert member.acknowledged == [(offset, acknowledgement) for offset in (3, 4, 5)]
    assert member.is_closed


def test_only_so_many_records_are_printed_and_acknowledged(consume: Consume) -> None:
    batches = [[record(3, b"a")], [record(4, b"b"), record(5, b"c")]]
    outcome, member = consume(batches, "--max-messages", "2", "--enable-systest-events")
    assert outcome == Outcome(0, "a\nb\nshutdown_complete\n", "Processed a total of 2 messages\n")
    assert [offset for offset, _ in member.acknowledged] == [3, 4]
    assert consume(batches, "--max-messages", "0")[0].stdout == ""


def test_the_formatter_prints_the_delivery_count(consume: Consume) -> None:
    outcome, _ = consume(
        [[record(3, b"a")]],
        *("--property", "print.offset=true", "--formatter-property", "print.delivery=true", "--property"),
        *("print.epoch=true", "--property", "print.key=true"),
    )
    assert outcome.stdout == "Offset:3\tDelivery:1\tEpoch:NOT_PRESENT\tk\ta\n"


INTEGERS = ("--value-deserializer", "org.apache.kafka.common.serialization.IntegerDeserializer")


def test_a_record_that_cannot_be_printed_ends_the_tool_and_is_not_acknowledged(consume: Consume) -> None:
    outcome, member = consume([[record(3, b"\0\0\0\7"), record(4, b"odd"), record(5, b"\0\0\0\1")]], *INTEGERS)
    assert (outcome.status, outcome.stdout) == (1, "7\n")
    assert outcome.stderr.endswith("Processed a total of 2 messages\n")
    assert member.acknowledged == [(3, ACCEPT)]
    assert member.is_closed


def test_a_record_that_cannot_be_printed_is_rejected_on_request(consume: Consume) -> None:
    batch = [record(3, b"odd"), record(4, b"\0\0\0\7")]
    outcome, member = consume([batch], *INTEGERS, "--reject-message-on-error", "--max-messages", "2")
    assert (outcome.status, outcome.stdout) == (0, "7\n")
    assert member.acknowledged == [(3, REJECT), (4, ACCEPT)]


def test_an_error_that_does_not_pass_ends_the_tool(consume: Consume, caplog: pytest.LogCaptureFixture) -> None:
    outcome, member = consume(
        [
            [failure(KafkaError.UNKNOWN_TOPIC_OR_PART), failure(KafkaError._TRANSPORT)],
            [failure(KafkaError.GROUP_AUTHORIZATION_FAILED)],
        ],
        timeout_ms=60_000,
    )
    assert outcome == Outcome(1, "", "Processed a total of 0 messages\n")
    assert "terminating consumer process: Broker: Group authorization failed" in caplog.text
    assert member.is_closed


def test_a_record_that_cannot_be_acknowledged_ends_the_tool(
    consume: Consume, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def acknowledge(member: ShareMember, message: Message, ack_type: AcknowledgeType) -> None:
        raise IllegalStateException("not in flight")

    monkeypatch.setattr(ShareMember, "acknowledge", acknowledge)
    outcome, member = consume([[record(3, b"a")]])
    assert outcome == Outcome(1, "a\n", "Processed a total of 1 messages\n")
    assert "terminating consumer process: not in flight" in caplog.text
    assert member.is_closed


def test_only_the_first_failed_login_is_raised(consume: Consume) -> None:
    _, member = consume([])
    report = member.settings["error_cb"]
    report(KafkaError(KafkaError._TRANSPORT))
    with pytest.raises(KafkaException, match="_AUTHENTICATION"):
        report(KafkaError(KafkaError._AUTHENTICATION))
    report(KafkaError(KafkaError._AUTHENTICATION))


def test_settings_reach_the_client_library(consume: Consume, tmp_path: Path) -> None:
    config = tmp_path / "consumer.properties"
    config.write_text("client.id=mine\nmax.poll.records=7\nshare.acknowledgement.mode=implicit\n")
    _, member = consume([], "--consumer-config", str(config), "--consumer-property", "fetch.max.wait.ms=9")
    assert {name: value for name, value in member.settings.items() if name != "error_cb"} == {
        "bootstrap.servers": "127.0.0.1:1",
        "client.id": "mine",
        "fetch.wait.max.ms": "9",
        "group.id": "console-share-consumer",
        "max.poll.records": "7",
        "share.acknowledgement.mode": "explicit",
    }
    _, member = consume([], "--consumer-property", "group.id=workers")
    assert (member.settings["group.id"], member.settings["client.id"]) == ("workers", "console-share-consumer")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (AT[:2], "--topic is a required argument"),
        (AT[2:], 'Missing required argument "[bootstrap-server]"'),
        ((*AT, "--reject", "--release"), "At most one of --reject and --release may be specified."),
        (
            (*AT, "--group", "b", "--consumer-property", "group.id=a"),
            "The group ids provided in different places (directly using '--group', via '--consumer-property', or",
        ),
    ],
)
def test_a_wrong_command_line_is_rejected(run: RunTool, arguments: tuple[str, ...], error: str) -> None:
    outcome = run(console_share_consumer.main, *arguments)
    assert (outcome.status, outcome.stdout) == (1, "")
    assert outcome.stderr.startswith(error)


def test_a_setting_that_share_groups_do_not_have_is_rejected(run: RunTool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console_share_consumer, "require_served", lambda settings, option: None)
    outcome = run(console_share_consumer.main, *AT, "--consumer-property", "auto.offset.reset=earliest")
    assert outcome.status == 1
    assert "`auto.offset.reset` is not applicable for share consumer" in outcome.stderr.splitlines()[0]
