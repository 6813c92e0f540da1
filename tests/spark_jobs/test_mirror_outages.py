"""A mirror waits for a target that is away, as a whole or in part, however long; SIGTERM stops it while it waits."""

import logging
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from milena_broker.testing import Cluster
from spark_jobs import mirror
from spark_jobs.mirror import JOB
from spark_jobs.mirroring import offset_syncs, outages, target_topics
from spark_jobs.skeleton import delivery
from tests.spark_jobs.conftest import JobRunner, Sent, Topics
from tests.support.broker import BrokerProcess
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark

COUNT = 50
SHORT_TIMEOUT_S = 1
ABORT_MAX_S = 5  # a broker that returns first aborts the open transaction
WAIT_MAX_S = 100
STOP_MAX_S = 20
LONG_OUTAGE_S = 310  # a producer gives a record up after 300 s, unless it has another delivery.timeout.ms
WAITS = "waits for the target, which does not respond: "
KINDS = {
    "pairs of offsets": ["--groups", "readers"],
    "exact offsets": ["--exact-offsets"],
    "transactions": ["--exactly-once"],
}

until = partial(wait_until, timeout_s=WAIT_MAX_S)


class OnReport(logging.Handler):
    """Calls `action` once, when the mirror reports that it waits."""

    def __init__(self, action: Callable[[], object], report: str = WAITS) -> None:
        super().__init__()
        self._action: Callable[[], object] | None = action
        self._report = report

    def emit(self, record: logging.LogRecord) -> None:
        if self._report in record.getMessage() and self._action is not None:
            action, self._action = self._action, None
            action()


@pytest.fixture
def target(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "target", {"log.retention.ms": "-1"}) as broker:
        yield broker


@pytest.fixture
def _short_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (offset_syncs, target_topics):
        monkeypatch.setattr(module, "_TIMEOUT_S", SHORT_TIMEOUT_S)
    monkeypatch.setattr(delivery, "_TIMEOUT_S", ABORT_MAX_S)
    monkeypatch.setattr(outages, "_PROBE_INTERVAL_S", 0.1)
    monkeypatch.setattr(outages, "_PROBE_TIMEOUT_S", float(SHORT_TIMEOUT_S))
    monkeypatch.setattr(mirror, "_SYNC_INTERVAL_S", 1.0)


def numbers(first: int) -> list[Sent]:
    return [Sent(b"%d" % number, partition=number % 2) for number in range(first, first + COUNT)]


@pytest.mark.usefixtures("_short_timeouts")
def test_each_record_reaches_a_target_that_was_away(
    topics: Topics, target: BrokerProcess, job_runner: JobRunner, caplog: pytest.LogCaptureFixture
) -> None:
    """Three mirrors at the same time, one of each kind."""

    def wait() -> None:
        until(lambda: caplog.text.count(WAITS) >= 5 * len(KINDS))

    mirror_over_an_outage(topics, target, job_runner, wait, KINDS)


@pytest.mark.soak
def test_a_target_is_waited_for_longer_than_producers_wait_by_default(
    topics: Topics, target: BrokerProcess, job_runner: JobRunner, caplog: pytest.LogCaptureFixture
) -> None:
    mirror_over_an_outage(topics, target, job_runner, lambda: time.sleep(LONG_OUTAGE_S), {"by default": []})
    assert caplog.text.count(WAITS) >= LONG_OUTAGE_S / (outages._PROBE_INTERVAL_S + outages._PROBE_TIMEOUT_S) - 2


def mirror_over_an_outage(
    topics: Topics,
    target: BrokerProcess,
    job_runner: JobRunner,
    wait: Callable[[], object],
    kinds: Mapping[str, Sequence[str]],
) -> None:
    """Send records while the target is away, which lasts until `wait` returns; each mirror sends its own once."""
    servers = ["--bootstrap-servers", topics.bootstrap, "--target-servers", target.bootstrap]
    own = ["--heartbeats", "", "--trigger", "100 milliseconds"]
    queries = []
    names = [topics.create("awaited", 2) for _ in kinds]
    for topic, flags in zip(names, kinds.values(), strict=True):
        topics.send(topic, numbers(0))
        identity = ["--topics", topic, "--app-id", topic, "--checkpoint", str(job_runner.folder / topic)]
        queries += job_runner.start(JOB, *servers, *own, *identity, *flags)
    try:
        for query in queries:
            query.processAllAvailable()
        target.kill()
        for topic in names:
            topics.send(topic, numbers(COUNT))
        wait()
        target.start()
        for query in queries:
            query.processAllAvailable()
    finally:
        for query in queries:
            query.stop()
    for topic in names:
        stored = Topics(target.bootstrap).read(topic)
        assert sorted(int(message.value()) for message in stored) == list(range(2 * COUNT))


@pytest.mark.usefixtures("_short_timeouts")
@pytest.mark.parametrize("kind", [pytest.param("pairs of offsets", marks=pytest.mark.soak), "transactions"])
def test_sigterm_ends_a_mirror_that_waits_with_0_and_it_continues_later(
    kind: str,
    target: BrokerProcess,
    topics: Topics,
    job_runner: JobRunner,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = topics.create("stopped", 2)
    servers = ["--bootstrap-servers", topics.bootstrap, "--target-servers", target.bootstrap]
    flags = [*servers, "--topics", topic, "--heartbeats", "", *KINDS[kind]]
    topics.send(topic, numbers(0))
    job_runner.run(JOB, *flags)
    topics.send(topic, numbers(COUNT))
    stopped_s: list[float] = []

    def terminate() -> None:
        stopped_s.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGTERM)

    handler = OnReport(terminate)
    logging.getLogger("spark_jobs").addHandler(handler)
    # A mirror starts only if the target responds.
    start = mirror.start_batch_query
    monkeypatch.setattr(mirror, "start_batch_query", lambda *arguments: (target.kill(), start(*arguments))[1])
    try:
        assert job_runner.supervise(JOB, *flags, "--trigger", "100 milliseconds") == 0
    finally:
        logging.getLogger("spark_jobs").removeHandler(handler)
    monkeypatch.setattr(mirror, "start_batch_query", start)
    assert time.monotonic() - stopped_s[0] < STOP_MAX_S
    target.start()
    monkeypatch.setattr(delivery, "_TIMEOUT_S", WAIT_MAX_S)  # the broker first aborts the transaction of before
    job_runner.run(JOB, *flags)
    stored = [int(message.value()) for message in Topics(target.bootstrap).read(topic)]
    assert set(stored) == set(range(2 * COUNT))
    if kind == "transactions":
        assert len(stored) == 2 * COUNT


@pytest.mark.usefixtures("_short_timeouts")
@pytest.mark.parametrize("kind", ["pairs of offsets", pytest.param("transactions", marks=pytest.mark.soak)])
def test_a_partition_without_a_leader_is_named_and_sigterm_ends_the_mirror_that_waits(
    kind: str, topics: Topics, job_runner: JobRunner, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    topic = topics.create("leaderless", 2)
    stopped_s: list[float] = []

    def terminate() -> None:
        stopped_s.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGTERM)

    handler = OnReport(terminate, "waits for the target, where ")
    with Cluster(2, {"log.retention.ms": "-1"}) as target:
        goes = create_on_two_brokers(target.bootstrap_servers, topic)
        servers = ["--bootstrap-servers", topics.bootstrap, "--target-servers", target.bootstrap_servers]
        flags = [*servers, "--topics", topic, "--heartbeats", "", *KINDS[kind]]
        topics.send(topic, numbers(0))
        job_runner.run(JOB, *flags)
        topics.send(topic, numbers(COUNT))
        logging.getLogger("spark_jobs").addHandler(handler)
        # A mirror starts only if a coordinator for its transactions responds.
        start = mirror.start_batch_query
        monkeypatch.setattr(mirror, "start_batch_query", lambda *each: (target.stop_broker(goes), start(*each))[1])
        try:
            assert job_runner.supervise(JOB, *flags, "--trigger", "100 milliseconds") == 0
        finally:
            logging.getLogger("spark_jobs").removeHandler(handler)
        assert time.monotonic() - stopped_s[0] < STOP_MAX_S
        assert f"where {topic}-1 has no leader since 2" in caplog.text
        monkeypatch.setattr(mirror, "start_batch_query", start)
        target.start_broker(goes)
        monkeypatch.setattr(delivery, "_TIMEOUT_S", WAIT_MAX_S)
        job_runner.run(JOB, *flags)
        stored = [int(message.value()) for message in Topics(target.bootstrap_servers).read(topic)]
    assert set(stored) == set(range(2 * COUNT))
    if kind == "transactions":
        assert len(stored) == 2 * COUNT


def create_on_two_brokers(bootstrap: str, topic: str) -> int:
    """Create what a mirror writes to: its own topics and partition 0 on one broker, partition 1 on the other.

    Return the other broker, which has no states of transactions either.
    """
    Producer({"bootstrap.servers": bootstrap, "transactional.id": "first"}).init_transactions(WAIT_MAX_S)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    metadata = admin.list_topics()
    stays = metadata.topics["__transaction_state"].partitions[0].leader
    (goes,) = metadata.brokers.keys() - {stays}
    assignments = {topic: [[stays], [goes]], "mirror-offset-syncs": [[stays]], "mirror-batches": [[stays]]}
    requests = [NewTopic(name, len(each), replica_assignment=each) for name, each in assignments.items()]
    for future in admin.create_topics(requests, operation_timeout=WAIT_MAX_S).values():
        future.result()
    return int(goes)
