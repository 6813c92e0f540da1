"""Shell completion, run by the shell where it is installed."""

import re
import subprocess
from collections.abc import Sequence

import confluent_kafka
import pytest

from tests.support.broker import BrokerProcess
from tests.support.processes import closed_port
from tests.tools.conftest import SCRIPTS, RunTool
from tools.launch import completion
from tools.launch.completion_words import Word, completions, tool_names


def texts(line: str) -> list[str]:
    return [word.text for word in completions(line)]


def test_every_tool_is_completed() -> None:
    assert tool_names() == sorted(SCRIPTS)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("kafka-topics --replicat", ["--replication-factor"]),
        ("/opt/bin/kafka-topics.sh --bootstrap-server localhost:9092 --replicat", ["--replication-factor"]),
        ("kafka-server-start --se", ["--settings"]),
        ("kafka-transactions describe --transactional", ["--transactional-id"]),
        ("milena up --se", ["--seed"]),
        ("milena do", ["down"]),
        ("milena down ", []),
        ("kafka-topics --nosuch", []),
        ("kafka-topics pl", []),
        ("kafka-topics 'unclosed", []),
        ("kafka-topics --topic ", []),
        ("nosuch --", []),
        ("kafka-topics", []),
        ("", []),
    ],
)
def test_options_and_sub_commands_come_from_the_tables_of_the_tools(line: str, expected: Sequence[str]) -> None:
    assert texts(line) == expected


def test_an_option_has_its_purpose() -> None:
    assert completions("kafka-topics --vers") == [Word("--version", "Display Kafka version")]


def test_names_of_topics_and_groups_come_from_the_broker(broker: BrokerProcess) -> None:
    client: dict[str, str | int | float | bool | None] = {"bootstrap.servers": broker.bootstrap}
    producer = confluent_kafka.Producer(client)
    producer.produce("completed-topic", b"x")
    assert producer.flush(30) == 0
    consumer = confluent_kafka.Consumer({**client, "group.id": "completed-group"})
    consumer.commit(offsets=[confluent_kafka.TopicPartition("completed-topic", 0, 0)], asynchronous=False)
    consumer.close()
    at = f"--bootstrap-server {broker.bootstrap}"
    assert texts(f"kafka-topics {at} --describe --topic completed-") == ["completed-topic"]
    assert texts(f"kafka-configs {at} --entity-type topics --entity-name completed-") == ["completed-topic"]
    assert texts(f"kafka-consumer-groups {at} --describe --group completed-") == ["completed-group"]


def test_a_broker_that_does_not_respond_completes_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with closed_port() as port:
        assert texts(f"kafka-topics --bootstrap-server 127.0.0.1:{port} --topic ") == []
    assert texts("kafka-topics --bootstrap-server nonsense --topic ") == []
    assert capfd.readouterr() == ("", "")


def test_bash_completes_an_option(run: RunTool) -> None:
    script = run(completion.main, "bash").stdout
    line = "/opt/bin/kafka-topics --replicat --list"
    asked = f"COMP_LINE='{line}'; COMP_POINT=32; _milena; echo ${{COMPREPLY[@]}}"
    found = subprocess.run(["bash", "-c", f"{script}\n{asked}"], capture_output=True, text=True, check=True).stdout
    assert found == "--replication-factor\n"


def test_zsh_loads_the_completion_of_bash(run: RunTool) -> None:
    bash, zsh = run(completion.main, "bash").stdout, run(completion.main, "zsh").stdout
    assert zsh == "autoload -U +X bashcompinit && bashcompinit\n" + bash


def test_fish_has_one_line_a_launcher_and_purposes(run: RunTool) -> None:
    lines = run(completion.main, "fish").stdout.splitlines()
    assert len(lines) == 2 * len(SCRIPTS)
    assert all(re.fullmatch(r"complete -c \S+ -a '\(.*\)'", line) for line in lines)
    printed = run(completion.main, "fish", "--line", "kafka-topics --vers").stdout
    assert printed == "--version\tDisplay Kafka version\n"
