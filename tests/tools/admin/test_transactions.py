"""kafka-transactions with a real broker: open and hanging transactions, and their ends."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records.builder import RecordData, build_batch
from tests.support.broker import BrokerProcess
from tests.support.wire_client import WireClient
from tests.tools.conftest import Outcome, RunTool
from tools.admin import transactions

TIMEOUT_S = 20
OLD_MS = 1_600_000_000_000
NOT_DESCRIBED = (
    "Failed to describe transaction state of transactional-id `nosuch`: DescribeTransactions request for "
    "transactionalId `nosuch` failed because the ID could not be found. Enable debug logging for additional detail.\n"
)
NO_PRODUCERS = (
    "Failed to describe producers for partition nosuch-0 on the leader: This server does not host this "
    "topic-partition.\n"
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A separate broker without verification of transactional batches, which allows hanging transactions."""
    settings = {
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "2",
        "transaction.partition.verification.enable": "false",
    }
    with BrokerProcess(tmp_path_factory.mktemp("transactions"), settings) as process:
        yield process


@pytest.fixture
def topic(broker: BrokerProcess, request: pytest.FixtureRequest) -> str:
    name = re.sub(r"[^a-z]", "-", request.node.name)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, 2, 1)])[name].result()
    return name


@pytest.fixture
def producer(broker: BrokerProcess, topic: str) -> Producer:
    """A producer with an open transaction of one record in partition 0 of the topic. Its id is `id-TOPIC`."""
    settings = {"bootstrap.servers": broker.bootstrap, "transactional.id": f"id-{topic}", "retry.backoff.ms": 20}
    opened = Producer(settings)
    opened.init_transactions(TIMEOUT_S)
    opened.begin_transaction()
    opened.produce(topic, b"v", partition=0)
    assert opened.flush(TIMEOUT_S) == 0
    return opened


def cells(outcome: Outcome) -> list[list[str]]:
    """Return the cells of the table without its heading."""
    assert (outcome.status, outcome.stderr) == (0, "")
    return [[cell.strip() for cell in line.split("\t")[:-1]] for line in outcome.stdout.splitlines()[1:]]


def hang(broker: BrokerProcess, topic: str) -> tuple[int, int]:
    """Append an old transactional batch without a transaction to partition 1; return its producer id and epoch."""
    with WireClient(broker.port) as client:
        given = client.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 2)
        batch = build_batch(
            [RecordData(OLD_MS, None, b"v")],
            producer_id=given.producer_id,
            producer_epoch=given.producer_epoch,
            base_sequence=0,
            is_transactional=True,
        )
        data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=1, records=batch)])
        request = ProduceRequest(transactional_id="nobody", acks=-1, timeout_ms=1000, topic_data=[data])
        assert client.ask(request, 9).responses[0].partition_responses[0].error_code == 0
    return given.producer_id, given.producer_epoch


def test_an_open_transaction_is_listed_and_described(
    broker: BrokerProcess, run: RunTool, topic: str, producer: Producer
) -> None:
    where, name = ("--bootstrap-server", broker.bootstrap), f"id-{topic}"
    listed = run(transactions.main, *where, "list")
    assert re.match(r"TransactionalId +\tCoordinator\tProducerId\tTransactionState\t\n", listed.stdout)
    (row,) = [row for row in cells(listed) if row[0] == name]
    assert (row[1], row[3]) == ("0", "Ongoing")
    assert cells(run(transactions.main, *where, "list", "--duration-filter", "600000")) == []
    before_ms = time.time() * 1000
    (state,) = cells(run(transactions.main, *where, "describe", "--transactional-id", name))
    assert state[:6] == ["0", name, row[2], "0", "Ongoing", "60000"]
    assert 0 <= float(state[7]) <= before_ms + 10_000 - float(state[6])
    assert state[8] == f"{topic}-0"
    place = ("--topic", topic, "--partition", "0")
    for extra in ((), ("--broker-id", "0")):
        (known,) = cells(run(transactions.main, *where, "describe-producers", *place, *extra))
        assert [*known[:4], known[5]] == [row[2], "0", "-1", "0", "0"]
    assert cells(run(transactions.main, *where, "find-hanging", "--topic", topic)) == []
    producer.commit_transaction(TIMEOUT_S)
    (known,) = cells(run(transactions.main, *where, "describe-producers", *place))
    assert known[5] == "None"


def test_a_hanging_transaction_is_found_and_aborted(broker: BrokerProcess, run: RunTool, topic: str) -> None:
    where = ("--bootstrap-server", broker.bootstrap)
    producer_id, epoch = hang(broker, topic)
    for scope in (("--broker-id", "0"), ("--topic", topic), ("--topic", topic, "--partition", "1")):
        (found,) = cells(run(transactions.main, *where, "find-hanging", *scope))
        assert found[:7] == [topic, "1", str(producer_id), str(epoch), "-1", "0", str(OLD_MS)]
    assert cells(run(transactions.main, *where, "find-hanging", "--topic", topic, "--partition", "0")) == []
    place = ("--topic", topic, "--partition", "1")
    assert run(transactions.main, *where, "abort", *place, "--start-offset", "0") == Outcome(0, "", "")
    assert cells(run(transactions.main, *where, "find-hanging", "--broker-id", "0")) == []
    again = run(transactions.main, *where, "abort", *place, "--start-offset", "0")
    reason = f"Could not find any open transactions starting at offset 0 on partition {topic}-1\n"
    assert again == Outcome(1, "", reason)


def test_a_hanging_transaction_is_aborted_by_its_producer(broker: BrokerProcess, run: RunTool, topic: str) -> None:
    where, place = ("--bootstrap-server", broker.bootstrap), ("--topic", topic, "--partition", "1")
    producer_id, epoch = hang(broker, topic)
    identity = ("--producer-id", str(producer_id), "--producer-epoch", str(epoch), "--coordinator-epoch", "0")
    assert run(transactions.main, *where, "abort", *place, *identity).status == 0
    (known,) = cells(run(transactions.main, *where, "describe-producers", *place))
    assert [known[2], known[5]] == ["0", "None"]


def test_a_transaction_is_terminated_by_force(
    broker: BrokerProcess, run: RunTool, topic: str, producer: Producer
) -> None:
    where, name = ("--bootstrap-server", broker.bootstrap), f"id-{topic}"
    assert run(transactions.main, *where, "force-terminate", "--transactional-id", name) == Outcome(0, "", "")
    (state,) = cells(run(transactions.main, *where, "describe", "--transactional-id", name))
    assert [*state[3:5], *state[6:]] == ["2", "Empty", "None", "None", ""]
    with pytest.raises(KafkaException) as caught:
        producer.commit_transaction(TIMEOUT_S)
    assert caught.value.args[0].fatal()
    unknown = run(transactions.main, *where, "force-terminate", "--transactional-id", "nosuch")
    assert (unknown.status, unknown.stdout) == (1, "")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (
            ("describe", "--transactional-id", "nosuch"),
            NOT_DESCRIBED,
        ),
        (
            ("describe-producers", "--topic", "nosuch", "--partition", "0"),
            NO_PRODUCERS,
        ),
        (("find-hanging",), "The `find-hanging` command requires either --topic or --broker-id to limit"),
        (("find-hanging", "--broker-id", "0", "--partition", "1"), "The --partition argument requires --topic"),
        (("abort", "--topic", "t", "--partition", "0"), "The transaction to abort must be identified either"),
        ((), "kafka-transactions.sh: error: too few arguments\n"),
        (("list", "--nosuch"), "nosuch is not a recognized option\n"),
        (("describe",), "kafka-transactions.sh: error: the following arguments are required: --transactional-id\n"),
    ],
)
def test_rejected_commands_are_reported(
    broker: BrokerProcess, run: RunTool, arguments: tuple[str, ...], reason: str
) -> None:
    outcome = run(transactions.main, "--bootstrap-server", broker.bootstrap, *arguments)
    assert (outcome.status, outcome.stdout) == (1, "")
    assert outcome.stderr.startswith(reason)
