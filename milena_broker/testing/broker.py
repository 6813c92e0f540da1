"""A broker, or a cluster of them, as a process that ends with this one.

Owns the process: its start, its commands, its end, and its temporary folder. Must not know pytest.
"""

from __future__ import annotations

import shutil
import signal
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from secrets import token_hex
from types import TracebackType
from typing import Any, Self

from milena_broker.testing import arguments
from milena_broker.testing.client_settings import Library, Mechanism, login_of, settings_for
from milena_broker.testing.controls import Controls
from milena_broker.testing.hosted_process import CALL_TIMEOUT_S, START_TIMEOUT_S, BrokerError, HostedProcess
from milena_broker.testing.nursery import Kind
from milena_broker.testing.operations import Operations
from milena_broker.testing.rows import batched, messages_of_file
from milena_broker.testing.steps import Change, Steps, blocking

__tracebackhide__ = True

BROKERS_MAX = 100


class Cluster(Operations, Controls):
    """Brokers in one process, with one client address for each. Use as a context manager.

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
        tls: bool = False,
        users: Mapping[str, str] | None = None,
        movable_clock: bool = False,
    ) -> None:
        """
        Args:
            brokers: how many.
            settings: properties of all brokers, as in server.properties.
            topics: topics to create at the start, with their number of partitions.
            seed: files of rows to produce at the start, by topic; see `messages_of_file`.
            folder: keeps the data; None for a temporary folder that is removed at the end.
            tls: whether clients connect with TLS; see `client_settings`.
            users: users with their passwords, as which clients have to log in; see `client_settings`.
            movable_clock: whether `advance` can move the clock of the brokers.
        """
        self._count = arguments.integer("brokers", brokers, 1, BROKERS_MAX)
        self._settings = arguments.settings("settings", settings)
        self._topics = {
            topic: arguments.integer(f"topics[{topic!r}]", partitions, 1)
            for topic, partitions in arguments.mapping("topics", topics, "topics to numbers of partitions").items()
        }
        self._seed = {
            topic: arguments.path(f"seed[{topic!r}]", path)
            for topic, path in arguments.mapping("seed", seed, "topics to files").items()
        }
        self._kept_folder = None if folder is None else arguments.path("folder", folder)
        self._has_tls = arguments.flag("tls", tls)
        self._users = arguments.users("users", users)
        self._own_password = token_hex(16)
        if "listeners" in self._settings and (self._has_tls or self._users):
            raise ValueError("settings has 'listeners': expected none beside tls and users, which define the listeners")
        self._has_movable_clock = arguments.flag("movable_clock", movable_clock)
        self._ahead_s = 0.0
        self._ports = [[0, 0] for _ in range(brokers)]
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
            self._folder = self._new_folder()
        try:
            self._spawn()
            if self._users:
                self._call("set_users", users=self._users)
            for topic, partitions in self._topics.items():
                self.create_topic(topic, partitions)
            for topic, path in self._seed.items():
                for batch in batched(messages_of_file(path)):
                    self._call("produce", topic=topic, records=batch)
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

    def pause(self) -> Change:
        """Halt the process until `resume`, or the end of a `with` block: connections stay open, nothing responds.

        Methods that need the broker raise BrokerError immediately during that time.
        """
        self._signal(signal.SIGSTOP)
        self._is_paused = True
        return Change(self.resume)

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

    # -- what tests do with it -----------------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers, for the setting `bootstrap.servers` of any client."""
        if not all(port for port, _ in self._ports):
            raise BrokerError("the broker was not started")
        return ",".join(f"127.0.0.1:{port}" for port, _ in self._ports)

    def client_settings(
        self, user: str | None = None, *, library: Library = "librdkafka", mechanism: Mechanism = "SCRAM-SHA-256"
    ) -> dict[str, Any]:
        """Return the settings with which a client connects, with the addresses in them.

        Args:
            user: as whom it logs in; None for the first of the brokers' users, if they have some.
            library: whose names the settings have: "librdkafka" (confluent-kafka), "kafka-python", "aiokafka" or
                "java" (for a file of properties).
            mechanism: how it logs in.
        """
        login = login_of(self._users, user, mechanism)
        return settings_for(library, self.bootstrap_servers, self.certificate_authority, login)

    @property
    def certificate_authority(self) -> Path | None:
        """The file with the certificate that clients have to trust; None without TLS."""
        return self.log.parent / "tls" / "ca.pem" if self._has_tls else None

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

    @blocking
    def advance(self, time: timedelta | float) -> Steps[None]:
        """Move the clock of the brokers forward; a number is one of seconds. What is due then happens once, as after
        a machine slept: sessions and transactions time out, and retention runs.

        Raises BrokerError if the brokers were started without `movable_clock=True`.
        """
        seconds = arguments.number(
            "time", time.total_seconds() if isinstance(time, timedelta) else time, "seconds, or a timedelta"
        )
        if not self._has_movable_clock:
            raise BrokerError("the broker has the clock of the machine: start it with movable_clock=True")
        yield partial(self._control, "advance", seconds=seconds)
        self._ahead_s += seconds

    def stop_broker(self, broker_id: int) -> None:
        """Stop one broker of the cluster cleanly: its leaderships move, and its clients get no connection."""
        self._call("stop_broker", broker_id=arguments.integer("broker_id", broker_id, 0))

    def start_broker(self, broker_id: int) -> None:
        """Start a stopped broker of the cluster again, with the same address."""
        self._call("start_broker", broker_id=arguments.integer("broker_id", broker_id, 0))

    @property
    def logs(self) -> Sequence[Path]:
        """The files with the logs of all processes."""
        return [self.log]

    # -- the process ---------------------------------------------------------------------------------------------------

    def _new_folder(self) -> Path:
        try:
            folder = self._kept_folder or Path(tempfile.mkdtemp(prefix="milena-"))
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BrokerError(f"folder {self._kept_folder or tempfile.gettempdir()} cannot be used: {error}") from error
        return folder

    def _spawn(self) -> None:
        assert self._folder is not None
        self._process = HostedProcess(self.log, Kind.MOVABLE_CLOCK if self._has_movable_clock else Kind.ALONE)
        self._ports = self._exchange(self._order(list(range(self._count)), self._ports, None), START_TIMEOUT_S)

    def _order(
        self, brokers: Sequence[int], ports: Sequence[Sequence[int]], coordination: str | None
    ) -> dict[str, object]:
        """Return what a process has to host; without `brokers` it is the coordination server."""
        return {
            "folder": str(self._folder),
            "is_temporary": self._kept_folder is None,
            "brokers": brokers,
            "ports": ports,
            "cluster_size": self._count,
            "coordination": coordination,
            "settings": self._settings,
            "tls": self._has_tls,
            "users": self._users,
            "own_password": self._own_password,
            "ahead_s": self._ahead_s,
        }

    def _call(self, command: str, *, response_timeout_s: float = CALL_TIMEOUT_S, **arguments: object) -> Any:
        return self._send(command, response_timeout_s, arguments)

    def _send(self, command: str, response_timeout_s: float, arguments: Mapping[str, object]) -> Any:
        with self._lock:
            if self._is_paused:
                raise BrokerError(f"the broker is paused: call resume() before {command}")
            return self._exchange({"command": command, "arguments": arguments}, response_timeout_s)

    def _control(self, command: str, **arguments: object) -> list[Any]:
        return [self._send(command, CALL_TIMEOUT_S, arguments)]

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
    """One broker of its own process. Use as a context manager."""

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        *,
        topics: Mapping[str, int] | None = None,
        seed: Mapping[str, str | Path] | None = None,
        as_version: str | None = None,
        folder: str | Path | None = None,
        tls: bool = False,
        users: Mapping[str, str] | None = None,
        movable_clock: bool = False,
    ) -> None:
        """
        Args:
            settings: properties of the broker, as in server.properties.
            topics: topics to create at the start, with their number of partitions.
            seed: files of rows to produce at the start, by topic; see `messages_of_file`.
            as_version: a release of Kafka from "0.8.2" to "3.9"; clients can use its API versions only.
            folder: keeps the data; None for a temporary folder that is removed at the end.
            tls: whether clients connect with TLS; see `client_settings`.
            users: users with their passwords, as which clients have to log in; see `client_settings`.
            movable_clock: whether `advance` can move the clock of the broker.
        """
        super().__init__(
            1,
            settings,
            topics=topics,
            seed=seed,
            folder=folder,
            tls=tls,
            users=users,
            movable_clock=movable_clock,
        )
        if as_version is not None:
            self._settings["advertised.kafka.version"] = arguments.text(
                "as_version", as_version, "a text, such as '2.8'"
            )
