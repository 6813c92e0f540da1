"""The examples in examples/consumers do what they describe, also when they are started again."""

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.at_once import Outcomes, at_once
from tests.support.broker import BrokerProcess

EXAMPLES = Path(__file__).parents[2] / "examples" / "consumers"
TIMEOUT_S = 60


def run(name: str, *arguments: str) -> list[str]:
    """Run an example until it has been idle for two seconds; return the lines that it printed."""
    command = [sys.executable, str(EXAMPLES / name), *arguments, "--idle-exit-s", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def create(broker: BrokerProcess, *topics: str, partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for created in admin.create_topics([NewTopic(topic, partitions, 1) for topic in topics]).values():
        created.result(TIMEOUT_S)


def send(broker: BrokerProcess, topic: str, *values: bytes, partitions: int = 1) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % partitions, headers=[("trace", b"1")])
    assert producer.flush(TIMEOUT_S) == 0


def read(broker: BrokerProcess, topic: str, count: int) -> list[Message]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "unused"})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    try:
        return list(consumer.consume(count, TIMEOUT_S))
    finally:
        consumer.close()


def try_again(broker: BrokerProcess, folder: Path) -> None:
    topic, group = "tried", "tried-group"
    create(broker, topic, f"{topic}-retry", f"{topic}-dead-letters")
    send(broker, topic, b'{"amount": 1}', b"not JSON", b'{"amount": 2}')
    arguments = ("retry_topics.py", broker.bootstrap, group, topic, "--delay-s", "0.2")
    assert run(*arguments) == ["processed 1", "processed 2"]
    retries = read(broker, f"{topic}-retry", 2)
    (dead,) = read(broker, f"{topic}-dead-letters", 1)
    assert [dict(message.headers())["retry.attempts"] for message in [*retries, dead]] == [b"1", b"2", b"3"]
    assert dead.value() == b"not JSON"
    headers = dict(dead.headers())
    assert (headers["trace"], headers["retry.place"]) == (b"1", f"{topic}/0/1".encode())
    assert b"Expecting value" in headers["retry.error"]
    assert run(*arguments) == []


def store_once(broker: BrokerProcess, folder: Path) -> None:
    topic, group = "stored", "stored-group"
    create(broker, topic, partitions=2)
    send(broker, topic, *(b"%d" % number for number in range(20)), partitions=2)
    file = str(folder / "records.db")
    run("exactly_once_by_place.py", broker.bootstrap, group, topic, file)
    send(broker, topic, b"20", b"21", partitions=2)
    run("exactly_once_by_place.py", broker.bootstrap, f"{group}-from-the-start", topic, file)
    database = sqlite3.connect(file)
    stored = [int(value) for (value,) in database.execute("SELECT value FROM records")]
    database.close()
    assert sorted(stored) == list(range(22))


def continue_without_a_group(broker: BrokerProcess, folder: Path) -> None:
    topic = "ungrouped"
    create(broker, topic, partitions=2)
    send(broker, topic, b"a", b"b", b"c", partitions=2)
    positions = folder / "positions.json"
    arguments = ("without_a_group.py", broker.bootstrap, topic, str(positions))
    assert sorted(run(*arguments)) == ["a", "b", "c"]
    assert json.loads(positions.read_text()) == {"0": 2, "1": 1}
    send(broker, topic, b"d")
    assert run(*arguments) == ["d"]


def live(story: Callable[[BrokerProcess, Path], None], broker: BrokerProcess, folder: Path) -> None:
    story(broker, folder)


@pytest.fixture(scope="module")
def outcomes(broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outcomes]:
    """The stories wait most of the time, until an example has been idle."""
    folder = tmp_path_factory.mktemp("examples")
    stories = (try_again, store_once, continue_without_a_group)
    with at_once(live, {story.__name__: (story, broker, folder) for story in stories}) as ends:
        yield ends


def test_records_that_fail_are_tried_again_and_become_dead_letters(outcomes: Outcomes) -> None:
    outcomes["try_again"].result()


def test_records_that_are_read_again_are_stored_once(outcomes: Outcomes) -> None:
    outcomes["store_once"].result()


def test_a_reader_without_a_group_continues_at_its_positions(outcomes: Outcomes) -> None:
    outcomes["continue_without_a_group"].result()
