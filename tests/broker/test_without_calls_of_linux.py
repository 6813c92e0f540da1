"""A whole broker on a system that has only the calls that macOS has too."""

from __future__ import annotations

import http.client
import socket
import ssl
import sys
from pathlib import Path

from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records.builder import RecordData, build_batch
from tests.base.test_system_calls import CALLS_OF_LINUX
from tests.support.broker import BrokerProcess
from tests.support.certificates import Stores
from tests.support.processes import listening_ports
from tests.support.wire_client import WireClient

TOPIC = "t"
BATCHES = 16
VALUE_SIZE = 500_000
WITHOUT_CALLS = f"""
import ctypes, fcntl, os, runpy, select, signal, socket, sys

def hide(event, arguments):
    if event == "open" and isinstance(arguments[0], str) and arguments[0].startswith(("/proc/", "/sys/")):
        raise FileNotFoundError(2, "hidden", arguments[0])
    if event == "ctypes.dlsym" and arguments[1] in ("sync_file_range", "mallopt", "prctl"):
        raise AttributeError(arguments[1])

for module, name in {[(module.__name__, name) for module, name in CALLS_OF_LINUX]}:
    delattr(sys.modules[module], name)
for name in ("sched_getaffinity", "sched_setaffinity", "pidfd_open"):
    delattr(os, name)
is_directory = os.path.isdir
os.path.isdir = lambda path: path != "/proc/self/fd" and is_directory(path)
sys.addaudithook(hide)
runpy.run_module("tools.launch.server_start", run_name="__main__", alter_sys=True)
"""


def command(settings: Path) -> list[str]:
    return [sys.executable, "-P", "-c", WITHOUT_CALLS, str(settings)]


def produce(client: WireClient) -> bytes:
    topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1, assignments=[], configs=[])
    assert not client.ask(CreateTopicsRequest(topics=[topic]), 5).topics[0].error_code
    batch = build_batch([RecordData(1, None, bytes(VALUE_SIZE))], base_offset=0)
    data = TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=0, records=batch)])
    for _ in range(BATCHES):
        produced = client.ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[data]), 8)
        assert not produced.responses[0].partition_responses[0].error_code
    return batch


def fetched_size(client: WireClient) -> int:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 30)
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 30,
        session_epoch=-1,
        topics=[FetchTopic(topic=TOPIC, partitions=[partition])],
    )
    return len(client.ask(request, 11).responses[0].partitions[0].records)


def test_broker_works_without_the_calls_that_macos_lacks(tmp_path: Path) -> None:
    stores = Stores(tmp_path / "stores")
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,TLS://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,TLS:SSL",
        "log.flush.interval.messages": "1",
        "metrics.http.listener": "127.0.0.1:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(stores.issue("server", "server")),
    }
    with BrokerProcess(tmp_path / "broker", settings, command=command) as broker:
        with WireClient(broker.port) as client:
            batch = produce(client)
            assert fetched_size(client) == BATCHES * len(batch)
        second = BrokerProcess(tmp_path / "second", {**settings, "log.dirs": str(broker.log_dir)}, command=command)
        second.spawn()
        assert second.wait_for_exit() == 1
        assert "lock" in second.log.read_text()
        tls_port = next(port for port in listening_ports(broker.pid) if port not in (broker.port, broker.metrics_port))
        trusted = ssl.create_default_context(cafile=str(stores.ca))
        with (
            socket.create_connection(("127.0.0.1", tls_port)) as plain,
            trusted.wrap_socket(plain, server_hostname="localhost") as encrypted,
        ):
            assert encrypted.version() == "TLSv1.3"
        metrics = http.client.HTTPConnection("127.0.0.1", broker.metrics_port)
        metrics.request("GET", "/metrics")
        assert b"kafka_server" in metrics.getresponse().read()
        metrics.close()
    assert "Traceback" not in broker.log.read_text()
