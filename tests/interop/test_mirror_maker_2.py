"""Kafka's own MirrorMaker 2 and Milena's take a flow over from each other, and Kafka's clients read what both write."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.conftest import JAVA_PROGRAMS, JAVA_TIMEOUT_S, RunKafkaTool
from tests.spark_jobs.connect.mirror import dedicated
from tests.spark_jobs.connect.mirror.dedicated import two_clusters, write
from tests.spark_jobs.connect.mirror.flows import commit, committed, create_topic, produce, stored, until
from tests.support.apache_kafka import mirror_client_command, mirror_maker_command, mirror_maker_jars
from tests.support.broker import BrokerProcess
from tests.support.parts import skip_when_unavailable
from tests.support.processes import Process

pytestmark = [pytest.mark.soak, pytest.mark.timeout(300)]

GROUP, TOPIC, COPY = "readers", "orders", "A.orders"
CONNECTORS = ("MirrorSourceConnector", "MirrorHeartbeatConnector", "MirrorCheckpointConnector")


class KafkasMirrorMaker(dedicated.MirrorMakerProcess):
    def _started(self, log: int) -> Process:
        return subprocess.Popen(mirror_maker_command(*self._arguments), stdout=log, stderr=log, process_group=0)


class Flow:
    """The flow A->B with 100 records of each MirrorMaker that has run, one after the other."""

    def __init__(self, folder: Path, source: str, target: str) -> None:
        self.source, self.target = source, target
        self.written = 0
        self._folder = folder
        settings = two_clusters(source, target, sync_group_offsets_enabled="true", offset_lag_max=0)
        self._file = write(folder / "mm2.properties", {**settings, "A->B.topics": TOPIC, "A->B.groups": GROUP})

    def mirror(self, kind: type[dedicated.MirrorMakerProcess]) -> str:
        """Write 100 records, mirror them and the group's position, and end; return the log."""
        process = kind(self._file, self._folder / f"{kind.__name__}-{self.written}.log")
        with process:
            produce(self.source, TOPIC, [b"%d" % number for number in range(self.written, self.written + 100)])
            self.written += 100
            until(lambda: len(stored(self.target, COPY)) >= self.written, "the records are copied")
            commit(self.source, GROUP, {(TOPIC, 0): self.written})
            until(lambda: committed(self.target, GROUP, COPY) == self.written, "the position is committed")
            assert process.stop() in (0, 143)  # of a JVM that SIGTERM has ended
        return process.log.read_text(errors="replace")

    def copies(self) -> list[int]:
        return [int(copy.value() or b"") for copy in stored(self.target, COPY)]


@pytest.fixture(scope="module")
def flow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flow]:
    folder = tmp_path_factory.mktemp("mirror-maker-2")
    settings = {"offsets.topic.num.partitions": "1"}
    with skip_when_unavailable():
        mirror_maker_jars()
    with BrokerProcess(folder / "a", settings) as source, BrokerProcess(folder / "b", settings) as target:
        create_topic(source.bootstrap, TOPIC)
        yield Flow(folder, source.bootstrap, target.bootstrap)


def configs(flow: Flow) -> dict[str, object]:
    found = dedicated.latest(flow.target, "mm2-configs.A.internal")
    return {name: found[f"connector-{name}"]["properties"] for name in CONNECTORS}


def test_each_continues_where_the_other_has_stopped(flow: Flow) -> None:
    flow.mirror(KafkasMirrorMaker)
    of_kafka = configs(flow)
    log = flow.mirror(dedicated.MirrorMakerProcess)
    for name in CONNECTORS:
        assert f"{name} of A->B is up to date" in log
    flow.mirror(KafkasMirrorMaker)
    assert configs(flow) == of_kafka
    flow.mirror(dedicated.MirrorMakerProcess)
    assert flow.copies() == list(range(400)), "nothing is copied twice"


def test_kafkas_clients_read_where_a_group_continues(flow: Flow, run_kafka_tool: RunKafkaTool) -> None:
    if not flow.written:
        flow.mirror(dedicated.MirrorMakerProcess)
    command = mirror_client_command(JAVA_PROGRAMS / "TranslateOffsets.java", flow.target, "A", GROUP)
    done = subprocess.run(command, capture_output=True, text=True, timeout=JAVA_TIMEOUT_S, check=False)
    assert done.stdout.splitlines() == [f"{COPY}-0 {flow.written}", "upstream [A]", "hops 1"], done.stderr
    tool = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    lines = run_kafka_tool(tool, "--bootstrap-server", flow.target, "--describe", "--group", GROUP)
    rows = [line.split()[:6] for line in lines]
    assert [GROUP, COPY, "0", str(flow.written), str(flow.written), "0"] in rows
