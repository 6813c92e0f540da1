"""Requests that only clients of Kafka 4.x send: Java 4.1 describes topics in pages, and its clients push metrics."""

from __future__ import annotations

import re
import urllib.request
from pathlib import Path

from tests.interop.conftest import RunJava
from tests.support.broker import BrokerProcess


def test_java_clients_use_newer_requests(run_java: RunJava, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, {"metrics.http.listener": "127.0.0.1:0"}) as broker:
        shown = f"http://127.0.0.1:{broker.metrics_port}/metrics"
        lines = run_java("NewerRequests", broker.bootstrap, "newest", shown, version="4.1.0")
        with urllib.request.urlopen(shown) as response:
            metrics = response.read().decode()
    found = dict(line.split(": ", 1) for line in lines)
    instances = {client: found.pop(done) for client, done in (("producer", "produced"), ("consumer", "consumed"))}
    assert found == {
        "pages": "5 partitions, eligible []",
        "subscription": "{interval.ms=100 SOURCE, match=client_id=newest-.* SOURCE, metrics=* SOURCE}".replace(
            "SOURCE", "DYNAMIC_CLIENT_METRICS_CONFIG"
        ),
        "subscriptions": "[everything]",
        "brokers": "[0]",
        "topics": "true",
        "earliest local": "0",
        "latest": "10",
        "latest tiered": "-1",
    }
    pushed = {
        (labels["client_id"], labels["client_instance_id"], labels["metric"], labels["attributes"]): float(value)
        for text, value in re.findall(r"^kafka_client_metric\{(.*)\} (\S+)$", metrics, re.MULTILINE)
        for labels in [dict(re.findall(r'(\w+)="([^"]*)"', text))]
    }
    for client, metric, attributes in (
        ("producer", "org.apache.kafka.producer.record.send.total", ""),
        ("producer", "org.apache.kafka.producer.topic.record.send.total", "topic=newest"),
        ("consumer", "org.apache.kafka.consumer.fetch.manager.records.consumed.total", ""),
    ):
        assert pushed[f"newest-{client}", instances[client], metric, attributes] == 10, metric
