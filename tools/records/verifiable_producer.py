"""kafka-verifiable-producer: produces consecutive numbers, and prints which of them were acknowledged.

`VerifiableProducer` does the same inside another program.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tools.base.command_line import BOOTSTRAP_SERVER, CommandLine, StopRequest, WithoutArguments, run_tool
from tools.client import client_library as library
from tools.client.bootstrap import parse_bootstrap
from tools.client.client_settings import library_settings, load_settings
from tools.client.first_connection import require_right_listener
from tools.records.verifiable_events import Emit, printing

ENDLESS: Final = -1
POLL_S: Final = 0.1
FLUSH_TIMEOUT_S: Final = 120.0


class VerifiableProducer:
    """Sends the numbers 0, 1, 2, ... as text and reports each result to `emit`, in the thread of `run`.

    Args:
        settings: of the client library.
        messages_max: how many; -1 for no limit.
        throughput: how many a second, approximately; -1 for no limit.
        value_prefix: comes before each number, with a dot between.
        repeating_keys: keys run from 0 to this number, exclusive, and begin again; None for no keys.
        create_time_ms: the time of the first record; -1 for the present time.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        topic: str,
        emit: Emit,
        *,
        messages_max: int = ENDLESS,
        throughput: int = ENDLESS,
        value_prefix: int | None = None,
        repeating_keys: int | None = None,
        create_time_ms: int = ENDLESS,
    ) -> None:
        self.sent = 0
        self.acknowledged = 0
        self._producer = library.Producer(dict(settings))
        self._topic = topic
        self._emit = emit
        self._messages_max = messages_max
        self._throughput = throughput
        self._prefix = "" if value_prefix is None else f"{value_prefix}."
        self._repeating_keys = repeating_keys
        self._create_time_ms = create_time_ms
        self._is_stopped = threading.Event()
        self._started_s = 0.0

    def stop(self) -> None:
        """Let `run` end after the results of what was sent. Callable from any thread and from a signal handler."""
        self._is_stopped.set()

    def run(self) -> None:
        """Send until the limit or a stop, then wait for the results."""
        self._emit("startup_complete", {})
        self._started_s = time.monotonic()
        while not self._is_stopped.is_set() and self.sent != self._messages_max:
            self._send(self.sent)
            self.sent += 1
            self._keep_pace()
        self._producer.flush(FLUSH_TIMEOUT_S)
        self._emit("shutdown_complete", {})
        seconds = time.monotonic() - self._started_s
        self._emit(
            "tool_data",
            {
                "sent": self.sent,
                "acked": self.acknowledged,
                "target_throughput": self._throughput,
                "avg_throughput": self.acknowledged / seconds if seconds else 0.0,
            },
        )

    def _send(self, number: int) -> None:
        key = None if self._repeating_keys is None else str(number % self._repeating_keys)
        value = f"{self._prefix}{number}"
        timestamp_ms = 0  # the present time
        if self._create_time_ms != ENDLESS:
            timestamp_ms = self._create_time_ms + int(1000 * (time.monotonic() - self._started_s))
        while True:
            try:
                self._producer.produce(self._topic, value, key, timestamp=timestamp_ms, on_delivery=self._report)
            except BufferError:
                self._producer.poll(POLL_S)
            except library.KafkaException as error:
                self._report_error(key, value, error.args[0])
                return
            else:
                self._producer.poll(0)
                return

    def _keep_pace(self) -> None:
        """Serve results until the next message is due."""
        if self._throughput < 0:
            return
        due_s = self._started_s + self.sent / max(self._throughput, 1)
        while not self._is_stopped.is_set() and (left_s := due_s - time.monotonic()) > 0:
            self._producer.poll(min(left_s, POLL_S))

    def _report(self, error: library.KafkaError | None, message: library.Message) -> None:
        key, value = message.key(), message.value()
        key_text = None if key is None else _text(key)
        if error is not None:
            self._report_error(key_text, _text(value), error)
            return
        self.acknowledged += 1
        self._emit(
            "producer_send_success",
            {
                "key": key_text,
                "value": _text(value),
                "offset": message.offset(),
                "topic": message.topic(),
                "partition": message.partition(),
            },
        )

    def _report_error(self, key: str | None, value: str, error: library.KafkaError) -> None:
        self._emit(
            "producer_send_error",
            {"key": key, "value": value, "topic": self._topic, "exception": error.name(), "message": error.str()},
        )


def _text(data: bytes | str | None) -> str:
    return data.decode() if isinstance(data, bytes) else data or ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status."""
    return run_tool(_command_line(), _run, arguments)


def _command_line() -> CommandLine:
    line = CommandLine(
        "kafka-verifiable-producer",
        "This tool produces increasing integers to the specified topic and prints JSON metadata to stdout on each "
        '"send" request, making externally visible which messages have been acked and which have not.',
        without_arguments=WithoutArguments.HELP,
    )
    line.add_option("--topic", value="TOPIC", help_text="REQUIRED: The topic to produce to.")
    line.add_option(*BOOTSTRAP_SERVER, value="HOST1:PORT1[,HOST2:PORT2]", help_text="REQUIRED: The brokers.")
    line.add_option(
        "--max-messages",
        value="MAX-MESSAGES",
        parse=int,
        default=ENDLESS,
        help_text="How many messages to produce; -1 until the tool is stopped (default: -1).",
    )
    line.add_option(
        "--throughput",
        value="THROUGHPUT",
        parse=int,
        default=ENDLESS,
        help_text="The approximate limit of messages per second; -1 for none (default: -1).",
    )
    line.add_option(
        "--acks",
        value="ACKS",
        default="-1",
        help_text="The acknowledgements of each message: 0, 1, or -1 for all in-sync replicas (default: -1).",
    )
    line.add_option("--producer.config", value="CONFIG_FILE", help_text="A properties file of the producer.")
    line.add_option(
        "--message-create-time",
        value="CREATETIME",
        parse=int,
        default=ENDLESS,
        help_text="The creation time of the first message in milliseconds since 1970; -1 for the present time.",
    )
    line.add_option(
        "--value-prefix", value="VALUE-PREFIX", parse=int, help_text="Put this number and a dot before each value."
    )
    line.add_option(
        "--repeating-keys",
        value="REPEATING-KEYS",
        parse=int,
        help_text="Give messages keys from 0 up to this number (exclusive), which then begin with 0 again.",
    )
    return line


def _run(line: CommandLine, options: argparse.Namespace) -> int:
    line.require(options, "--topic", "--bootstrap-server")
    line.require_one_of(options, "--acks", ("0", "1", "-1"))
    settings = {
        # A repeated request would hide which attempts failed.
        "retries": "0",
        "enable.idempotence": "false",
        **load_settings(options.producer_config, ()),
        "bootstrap.servers": ",".join(map(str, parse_bootstrap(options.bootstrap_server))),
        "acks": options.acks,
    }
    require_right_listener(settings, "--producer.config")
    try:
        producer = VerifiableProducer(
            # The partitioner that selects the same partition for a key as Java's producer.
            {**library_settings(settings, is_consumer=False), "partitioner": "murmur2_random"},
            options.topic,
            printing(),
            messages_max=options.max_messages,
            throughput=options.throughput,
            value_prefix=options.value_prefix,
            repeating_keys=options.repeating_keys,
            create_time_ms=options.message_create_time,
        )
    except library.KafkaException as error:
        print(f"Failed to construct kafka producer: {error.args[0].str()}", file=sys.stderr)
        return 1
    with StopRequest(producer.stop):
        producer.run()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
