"""A broker process under a known load: console, metrics, Jolokia and tools report the same records and bytes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from confluent_kafka import Producer

from tests.support.broker import BrokerProcess
from tests.support.waiting import wait_until
from tests.tools.conftest import run_module


def test_console_metrics_jolokia_and_tools_agree(tmp_path: Path) -> None:
    records, value_size, partitions = 1_000, 1_024, 2
    settings = {"metrics.http.listener": "127.0.0.1:0", "num.partitions": str(partitions)}
    with BrokerProcess(tmp_path, settings) as broker:
        site = f"http://127.0.0.1:{broker.metrics_port}"
        # Rates are differences of samples: what arrives before the first one is in none.
        wait_until(lambda: json_of(f"{site}/api/v1/rates")["end_ms"] > 0, "the first sample of the rates")
        producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 100})
        for number in range(records):
            producer.produce("load", b"x" * value_size, partition=number % partitions)
        assert producer.flush(20) == 0

        def in_rates(name: str) -> float:
            rates = json_of(f"{site}/api/v1/rates?topic=load")
            return float(sum(each or 0 for each in rates["series"].get(name, ())) * rates["step_ms"] / 1000)

        wait_until(lambda: in_rates("messages_in") >= 0.95 * records, "the load in the samples of the rates")
        (row,) = json_of(f"{site}/api/v1/topics?search=load")["topics"]
        shown = json_of(f"{site}/api/v1/topics/load")["partitions"]
        metrics = text_of(f"{site}/metrics")

        def in_metrics(name: str) -> float:
            found = re.findall(rf'^{name}{{topic="load".*}} (\S+)$', metrics, re.MULTILINE)
            return sum(map(float, found))

        def in_jolokia(bean: str, attribute: str) -> float:
            beans = json_of(f"{site}/jolokia/read/{bean},topic=load,*/{attribute}")["value"]
            return float(sum(each[attribute] for each in beans.values()))

        server = ("--bootstrap-server", broker.bootstrap)
        offsets = run_module("admin.get_offsets", *server, "--topic", "load")
        directories = run_module("admin.log_dirs", *server, "--describe", "--topic-list", "load")
        assert (offsets.status, directories.status) == (0, 0), (offsets, directories)
        logs = json.loads(directories.stdout.splitlines()[2])["brokers"][0]["logDirs"][0]["partitions"]
        figures = {
            "records": {
                "console, offsets of the topic": row["offsets"],
                "console, end offsets of the partitions": sum(int(each["end_offset"]) for each in shown),
                "console, history of rates": in_rates("messages_in"),
                "metrics, counter": in_metrics("kafka_server_brokertopicmetrics_messagesin_total"),
                "metrics, end offsets": in_metrics("kafka_log_log_logendoffset"),
                "Jolokia, counter": in_jolokia("kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec", "Count"),
                "Jolokia, end offsets": in_jolokia("kafka.log:type=Log,name=LogEndOffset", "Value"),
                "kafka-get-offsets": sum(int(line.rsplit(":", 1)[1]) for line in offsets.stdout.splitlines()),
            },
            "bytes": {
                "console, size of the topic": row["size_bytes"],
                "console, sizes of the logs": sum(log["size_bytes"] for each in shown for log in each["logs"]),
                "console, history of rates": in_rates("bytes_in"),
                "metrics, counter": in_metrics("kafka_server_brokertopicmetrics_bytesin_total"),
                "metrics, sizes of the logs": in_metrics("kafka_log_log_size"),
                "Jolokia, counter": in_jolokia("kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec", "Count"),
                "Jolokia, sizes of the logs": in_jolokia("kafka.log:type=Log,name=Size", "Value"),
                "kafka-log-dirs": sum(log["size"] for log in logs),
                "files": sum(path.stat().st_size for path in broker.log_dir.glob("load-*/*.log")),
            },
        }
    loads = {"records": records, "bytes": records * value_size}
    for unit, by_source in figures.items():
        assert by_source == dict.fromkeys(by_source, pytest.approx(loads[unit], rel=0.05)), unit


def text_of(address: str) -> str:
    with urlopen(address, timeout=10) as response:
        return str(response.read().decode())


def json_of(address: str) -> Any:
    return json.loads(text_of(address))
