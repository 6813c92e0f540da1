"""librdkafka pushes metrics of its own to a broker with a subscription (KIP-714)."""

from __future__ import annotations

import urllib.request
from pathlib import Path

from confluent_kafka import Producer

from tests.support.broker import BrokerProcess
from tests.support.waiting import wait_until
from tools.admin import client_metrics

PATIENCE_S = 30.0


def test_a_producer_pushes_what_a_subscription_names(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, {"metrics.http.listener": "127.0.0.1:0"}) as broker:
        subscription = ["--name", "latencies", "--metrics", "org.apache.kafka.producer.request.", "--interval", "100"]
        assert client_metrics.main(["--bootstrap-server", broker.bootstrap, "--alter", *subscription]) == 0
        producer = Producer({"bootstrap.servers": broker.bootstrap, "client.id": "pushing"})
        producer.produce("pushed", b"value")
        assert producer.flush(PATIENCE_S) == 0

        def shown() -> set[str]:
            producer.poll(0)
            with urllib.request.urlopen(f"http://127.0.0.1:{broker.metrics_port}/metrics") as response:
                lines = response.read().decode().splitlines()
            pushed = [line for line in lines if line.startswith('kafka_client_metric{client_id="pushing"')]
            return {line.partition('metric="')[2].partition('"')[0] for line in pushed}

        wait_until(shown, timeout_s=PATIENCE_S)
        assert shown() == {
            "org.apache.kafka.producer.request.latency.avg",
            "org.apache.kafka.producer.request.latency.max",
        }
