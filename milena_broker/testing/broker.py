"""A broker, or a cluster of them, as a process that ends with this one.

Owns the process: its start, its commands, its end, and its temporary folder. Must not know pytest.
"""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from milena_broker.testing.control import Control, NoResponseError
from milena_broker.testing.nursery import NurseryError, new_host
from milena_broker.testing.rows import batches_of, rows_of_file

START_TIMEOUT_S = 60.0
CALL_TIMEOUT_S = 60.0
POLL_S = 0.01
ROWS_AT_ONCE = 10_000
RESPONSE_DELAY_MAX_S = 1.0
"""How much longer than `timeout_s` a response may take, so that the broker reports itself what is missing."""
_LOG_LINES = 20


class BrokerError(Exception):
    """The broker did not start, does not respond, or refused a command. The text names the reason."""


class HostedProcess:
    """A process that hosts brokers, and its commands. Methods raise BrokerError."""

    def __init__(self, log: Path, *, with_cluster: bool = False) -> None:
        """Start it; `with_cluster` prepares it to be one of several processes of a cluster."""
        self._log = log
        try:
            self._host = new_host(log, with_cluster=with_cluster)
        except NurseryError as error:
            raise BrokerError(str(error)) from error
        self._control = Control(self._host.control)
        self._in_order = threading.Lock()
        self.has_ended = False
        """Whether it has not responded as a process that lives does; what is left to do is `kill`."""

    @property
    def pid(self) -> int:
        return self._host.pid

    def send_signal(self, number: signal.Signals) -> None:
        self._host.send_signal(number)

    def kill(self) -> None:
        """End the process with SIGKILL; return when it has ended."""
        self._host.kill()

    def exchange(self, message: Mapping[str, object], timeout_s: float) -> Any:
        """Send a command and return its result."""
        with self._in_order:
            try:
                response = self._control.exchange(message, timeout_s)
            except NoResponseError:
                raise BrokerError(f"no response within {timeout_s:.3g} s{self._log_tail()}") from None
            except TimeoutError as error:
                self.has_ended = True  # a part of the command was sent
                raise BrokerError(f"the broker reads no command within {timeout_s:g} s{self._log_tail()}") from error
            except OSError as error:
                self.has_ended = True
                raise BrokerError(f"the broker has ended{self._log_tail()}") from error
        if "error" in response:
            raise BrokerError(response["error"])
        return response["result"]

    def _log_tail(self) -> str:
        try:
            lines = self._log.read_text(errors="replace").splitlines()[-_LOG_LINES:]
        except OSError:
            return ""
        return "; its log ends:\n" + "\n".join(lines) if lines else ""


class Record(NamedTuple):
    """One record of a topic."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    def json(self) -> Any:
        """Return the value, read as JSON. Raises ValueError."""
        return None if self.value is None else json.loads(self.value)


class Restore:
    """What a call has changed; as a context manager it changes it back at the end of the block."""

    def __init__(self, undo: Callable[[], object]) -> None:
        self._undo = undo

    def __enter__(self) -> None: ...

    def __exit__(self, *exception: object) -> None:
        self._undo()


class Cluster:
    """Brokers in one process, with one client address for each. Use as a context manager, also with `async with`.

    Their process ends with this one, however this one ends. Methods raise BrokerError.
    """

    def __init__(
        self,
        brokers: int = 3,
        settings: Mapping[str, object] | None = None,
        *,
        topics: Mapping[str, int] | None = None,
        seed: Mapping[str, str | Path] | None = None,
        folder: str | Path | None = None,
    ) -> None:
        """
        Args:
            brokers: how many.
            settings: properties of all brokers, as in server.properties.
            topics: topics to create at the start, with their number of partitions.
            seed: files of rows to produce at the start, by topic; see `rows_of_file`.
            folder: keeps the data; None for a temporary folder that is removed at the end.
        """
        if brokers < 1:
            raise ValueError(f"{brokers} brokers: expected at least 1")
        self._count = brokers
        self._settings = {name: _text(value) for name, value in (settings or {}).items()}
        self._topics = dict(topics or {})
        self._seed = dict(seed or {})
        self._kept_folder = None if folder is None else Path(folder)
        self._ports = [0] * brokers
        self._folder: Path | None = None
        self._process: HostedProcess | None = None
        self._lock = threading.Lock()
        self._is_paused = False

    # -- life ----------------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start the brokers; return when they serve clients."""
        if self._process is not None:
            raise BrokerError("the broker is running")
        if self._folder is None:
            self._folder = self._kept_folder or Path(tempfile.mkdtemp(prefix="milena-"))
            self._folder.mkdir(parents=True, exist_ok=True)
        try:
            self._spawn()
            for topic, partitions in self._topics.items():
                self.create_topic(topic, partitions)
            for topic, path in self._seed.items():
                self.produce(topic, rows_of_file(path))
        except BaseException:
            self.stop()
            raise
        self._topics, self._seed = {}, {}
        return self

    def stop(self) -> None:
        """End the brokers. Data in a given folder is closed cleanly, temporary data is removed."""
        if self._kept_folder is not None and self._process is not None and not self._is_paused:
            with suppress(BrokerError):
                self._call("stop")
        self.kill()
        if self._folder is not None and self._kept_folder is None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._folder = None

    def kill(self) -> None:
        """End the process with SIGKILL, as a crash would. The data stays until `stop`, for `restart`."""
        process, self._process, self._is_paused = self._process, None, False
        if process is not None:
            process.kill()

    def restart(self) -> None:
        """Stop the brokers cleanly if they run, and start them again over their data, with the same addresses."""
        if self._folder is None:
            raise BrokerError("the broker was not started")
        if self._process is not None:
            self.resume()
            self._call("stop")
            self.kill()
        self._spawn()

    def pause(self) -> Restore:
        """Halt the process until `resume`, or the end of a `with` block: connections stay open, nothing responds.

        Methods that need the broker raise BrokerError immediately during that time.
        """
        self._signal(signal.SIGSTOP)
        self._is_paused = True
        return Restore(self.resume)

    def resume(self) -> None:
        """Continue after `pause`. Has no effect if the process is not halted."""
        if self._is_paused:
            self._signal(signal.SIGCONT)
            self._is_paused = False

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.start)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.stop)

    # -- what tests do with it -----------------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers, for the setting `bootstrap.servers` of any client."""
        if not all(self._ports):
            raise BrokerError("the broker was not started")
        return ",".join(f"127.0.0.1:{port}" for port in self._ports)

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._host_process().pid

    @property
    def log(self) -> Path:
        """The file with the log of the brokers."""
        if self._folder is None:
            raise BrokerError("the broker was not started")
        return self._folder / "broker.log"

    def create_topic(
        self,
        topic: str,
        partitions: int = 1,
        *,
        replication_factor: int | None = None,
        configs: Mapping[str, object] | None = None,
    ) -> None:
        """Create a topic; it has a leader for each partition when this returns."""
        self._call(
            "create_topic",
            name=topic,
            partitions=partitions,
            replication_factor=-1 if replication_factor is None else replication_factor,
            configs={name: _text(value) for name, value in (configs or {}).items()},
        )

    def produce(self, topic: str, rows: Iterable[object]) -> int:
        """Append rows to a topic, which is created if it does not exist; return how many.

        A row is a value, a tuple of key and value, or a mapping with `value` and any of `key`, `headers`, `partition`
        and `timestamp_ms`. Keys and values are bytes, text, or what JSON can express. Without a partition, rows with
        equal keys go to the same one.
        """
        count = 0
        for batch in batches_of(rows, ROWS_AT_ONCE):
            self._call("produce", topic=topic, records=batch)
            count += len(batch)
        return count

    def consume(self, topic: str, count: int | None = None, *, timeout_s: float = 10.0) -> list[Record]:
        """Return the committed records of a topic from the earliest on, partition by partition.

        With `count`, waits until the topic has that many; raises BrokerError if it has fewer after `timeout_s`. Without
        a response of the broker, raises BrokerError at most 1 second later.
        """
        deadline_s = time.monotonic() + timeout_s
        positions: Mapping[str, int] = {}
        found: list[Record] = []
        while True:
            left_s = max(deadline_s - time.monotonic(), 0)
            response = self._call(
                "consume",
                response_timeout_s=left_s + RESPONSE_DELAY_MAX_S,
                topic=topic,
                positions=positions,
                timeout_s=left_s,
            )
            positions = response["positions"]
            found += [_record(topic, fields) for fields in response["records"]]
            if count is None or len(found) >= count:
                found.sort(key=lambda record: (record.partition, record.offset))
                return found
            if time.monotonic() > deadline_s:
                raise BrokerError(f"topic {topic!r} has {len(found)} records after {timeout_s} s, expected {count}")
            time.sleep(POLL_S)

    def reset(self) -> None:
        """Delete all topics and groups. ACLs, quotas, users and changed settings stay."""
        self._call("reset")

    def slow_disk(self, delay_ms: float = 20.0) -> Restore:
        """Let each write and sync take longer, until it is called with 0, or the end of a `with` block."""
        self._call("slow_disk", delay_ms=delay_ms)
        return Restore(lambda: self._call("slow_disk", delay_ms=0))

    def stop_broker(self, broker_id: int) -> None:
        """Stop one broker of the cluster cleanly: its leaderships move, and its clients get no connection."""
        self._call("stop_broker", broker_id=broker_id)

    def start_broker(self, broker_id: int) -> None:
        """Start a stopped broker of the cluster again, with the same address."""
        self._call("start_broker", broker_id=broker_id)

    # -- the process ---------------------------------------------------------------------------------------------------

    def _spawn(self) -> None:
        assert self._folder is not None
        self._process = HostedProcess(self.log)
        self._ports = self._exchange(
            {
                "folder": str(self._folder),
                "is_temporary": self._kept_folder is None,
                "brokers": list(range(self._count)),
                "ports": self._ports,
                "cluster_size": self._count,
                "coordination": None,
                "settings": self._settings,
            },
            START_TIMEOUT_S,
        )

    def _call(self, command: str, *, response_timeout_s: float = CALL_TIMEOUT_S, **arguments: object) -> Any:
        with self._lock:
            if self._is_paused:
                raise BrokerError(f"the broker is paused: call resume() before {command}")
            return self._exchange({"command": command, "arguments": arguments}, response_timeout_s)

    def _exchange(self, message: Mapping[str, object], timeout_s: float) -> Any:
        process = self._host_process()
        try:
            return process.exchange(message, timeout_s)
        except BrokerError:
            if process.has_ended:
                self.kill()
            raise

    def _host_process(self) -> HostedProcess:
        if self._process is None:
            raise BrokerError("the broker is not running")
        return self._process

    def _signal(self, number: signal.Signals) -> None:
        self._host_process().send_signal(number)


class Broker(Cluster):
    """One broker of its own process. Use as a context manager, also with `async with`."""

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        *,
        topics: Mapping[str, int] | None = None,
        seed: Mapping[str, str | Path] | None = None,
        as_version: str | None = None,
        folder: str | Path | None = None,
    ) -> None:
        """
        Args:
            settings: properties of the broker, as in server.properties.
            topics: topics to create at the start, with their number of partitions.
            seed: files of rows to produce at the start, by topic; see `rows_of_file`.
            as_version: a release of Kafka from "0.8.2" to "3.9"; clients can use its API versions only.
            folder: keeps the data; None for a temporary folder that is removed at the end.
        """
        limited = {} if as_version is None else {"advertised.kafka.version": as_version}
        super().__init__(1, {**(settings or {}), **limited}, topics=topics, seed=seed, folder=folder)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _record(topic: str, fields: Mapping[str, Any]) -> Record:
    return Record(
        topic,
        fields["partition"],
        fields["offset"],
        fields["timestamp_ms"],
        _decoded(fields["key"]),
        _decoded(fields["value"]),
        tuple((name, _decoded(value)) for name, value in fields["headers"]),
    )


def _decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
