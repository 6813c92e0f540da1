"""kafka-monitor: produces and consumes continuously through every broker, and reports availability and latency.

It keeps a topic with one partition that each broker leads, sends a record to each partition every interval, and reads
all of them back. Figures are served to Prometheus.

Owns the command line, the threads and the settings of the clients.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from confluent_kafka import Consumer, Producer

from broker.metrics.prometheus import pieces
from broker.metrics.registry import Registry
from protocol.errors import KafkaError
from tools.base.command_line import CommandLine, StopRequest, UnreachableError, UsageError, run_tool, warn
from tools.client.admin_client import CallTimedOut
from tools.client.admin_options import add_admin_options, admin_client
from tools.client.client_settings import library_settings, load_settings
from tools.monitoring.metrics_server import PROMETHEUS, MetricsServer, Response
from tools.monitoring.monitor_probe import Probe
from tools.monitoring.monitor_topic import MonitorTopic
from tools.monitoring.monitor_traffic import Receiver, Sender

DEFAULT_TOPIC: Final = "milena-monitor"
DEFAULT_LISTEN: Final = "127.0.0.1:9309"
ENSURE_S: Final = 10.0
DELIVERY_TIMEOUT_MS: Final = 10_000
END_S: Final = 5.0
_QUIET: Final = {"log_level": 2}  # the library logs each connection that fails; the figures show what matters


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status."""
    return run_tool(_command_line(), _run, arguments)


def _command_line() -> CommandLine:
    line = CommandLine(
        "kafka-monitor", "Produce and consume continuously, and report availability and latency.", help_succeeds=True
    )
    add_admin_options(line)
    line.add_option(
        "--topic",
        value="topic",
        default=DEFAULT_TOPIC,
        help_text=f"The topic to use; it is created. (default: {DEFAULT_TOPIC})",
    )
    line.add_option(
        "--replication-factor",
        value="n",
        parse=int,
        default=1,
        help_text="Replicas of each partition when it is created. (default: 1)",
    )
    line.add_option(
        "--interval-ms",
        value="ms",
        parse=int,
        default=100,
        help_text="Milliseconds between two records of a partition. (default: 100)",
    )
    line.add_option(
        "--late-ms",
        value="ms",
        parse=int,
        default=20_000,
        help_text="A record that takes longer counts as lost. (default: 20000)",
    )
    line.add_option(
        "--listen",
        value="host:port",
        default=DEFAULT_LISTEN,
        help_text=f"The address of /metrics. (default: {DEFAULT_LISTEN})",
    )
    return line


def _run(line: CommandLine, options: argparse.Namespace) -> int:
    line.require(options, "--bootstrap-server")
    if options.interval_ms <= 0 or options.late_ms <= 0 or options.replication_factor <= 0:
        raise UsageError("Expected interval-ms, late-ms and replication-factor above 0")
    probe = Probe(options.late_ms / 1000)
    registry = Registry(probe.metrics(), time.monotonic)
    try:
        server = MetricsServer(options.listen, partial(_respond, registry))
    except OSError as error:
        print(f"Error: cannot listen on {options.listen}: {error.strerror}", file=sys.stderr)
        return 1
    stopped = threading.Event()
    with admin_client(options, timeout_ms=DELIVERY_TIMEOUT_MS) as admin, server, StopRequest(stopped.set) as stop:
        try:
            admin.metadata([])  # the library retries a dead address for ever
        except (KafkaError, CallTimedOut) as error:
            print(f"Error: {error}", file=sys.stderr)
            return 1
        print(f"kafka-monitor listens on {server.address}", flush=True)
        settings = {**load_settings(options.command_config, []), "bootstrap.servers": options.bootstrap_server}
        topic = MonitorTopic(admin, options.topic, options.replication_factor)
        sender = Sender(_producer(settings), options.topic, probe)
        receiver = Receiver(_consumer(settings), options.topic, probe)
        _run_threads(topic, sender, receiver, probe, stopped, options.interval_ms / 1000)
    return 0 if stop.is_made else 1


def _respond(registry: Registry, path: Sequence[str]) -> Response:
    if list(path) != ["metrics"]:
        return Response(404, "not found; expected /metrics\n", "text/plain")
    return Response(200, "".join(pieces(registry, with_partitions=True, is_open_metrics=False)), PROMETHEUS)


def _producer(settings: Mapping[str, str]) -> Producer:
    return Producer(
        {
            **library_settings(settings, is_consumer=False),
            **_QUIET,
            "acks": "all",
            "linger.ms": 0,
            "message.timeout.ms": DELIVERY_TIMEOUT_MS,
        }
    )


def _consumer(settings: Mapping[str, str]) -> Consumer:
    return Consumer(
        {
            **library_settings({**settings, "group.id": "kafka-monitor"}, is_consumer=True),
            **_QUIET,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "fetch.wait.max.ms": 100,
        }
    )


def _run_threads(
    topic: MonitorTopic,
    sender: Sender,
    receiver: Receiver,
    probe: Probe,
    stopped: threading.Event,
    interval_s: float,
) -> None:
    """Send in this thread until `stopped`; the topic and the consumer have threads, as their calls may block."""
    ensure = partial(_ensure_repeatedly, topic, sender, receiver, probe)
    threads = [
        threading.Thread(target=_run_until, args=(stopped, run), name=name, daemon=True)
        for name, run in (("topic", ensure), ("consumer", receiver.run))
    ]
    for thread in threads:
        thread.start()
    try:
        sender.run(stopped, interval_s)
    finally:
        stopped.set()
        for thread in threads:
            thread.join(END_S)


def _run_until(stopped: threading.Event, run: Callable[[threading.Event], None]) -> None:
    """Run in this thread; an unexpected error ends the tool, as figures without a thread would look alive."""
    try:
        run(stopped)
    finally:
        stopped.set()


def _ensure_repeatedly(
    topic: MonitorTopic, sender: Sender, receiver: Receiver, probe: Probe, stopped: threading.Event
) -> None:
    """Keep the topic as it should be, and pass on which partitions it has."""
    while not stopped.is_set():
        due_s = time.monotonic() + ENSURE_S
        ensure_once(topic, sender, receiver, probe)
        stopped.wait(max(due_s - time.monotonic(), 0))


def ensure_once(topic: MonitorTopic, sender: Sender, receiver: Receiver, probe: Probe) -> None:
    """Check the topic. If that fails, records are sent as before, and show what fails."""
    try:
        routes = topic.ensure()
    except (KafkaError, CallTimedOut, UnreachableError) as error:
        warn(f"the topic cannot be checked: {error}")
        return
    receiver.assign(routes)
    sender.assign(routes)
    probe.keep({route.owner for route in routes.values()})


if __name__ == "__main__":
    raise SystemExit(main())
