"""Messages arrive over UDP and TCP in any frames, and none of them stops the task."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from spark_jobs.connect.base.data import validate
from spark_jobs.connect.base.errors import ConfigError
from spark_jobs.connect.connectors.syslog import Framer, SyslogSourceConnector, SyslogSourceTask
from tests.spark_jobs.connect.contexts import poll_until, start_connector, start_source

MESSAGE = b"<34>Oct 11 22:14:15 host app: text"


@contextmanager
def started(**others: str) -> Iterator[SyslogSourceTask]:
    settings = {name.replace("_", "."): each for name, each in others.items()}
    task = start_source(SyslogSourceTask, {"topic": "log", "udp.port": "0", "tcp.port": "0"} | settings)
    assert isinstance(task, SyslogSourceTask)
    try:
        yield task
    finally:
        task.stop()


def connect(task: SyslogSourceTask) -> socket.socket:
    assert task.tcp_port is not None
    return socket.create_connection(("127.0.0.1", task.tcp_port))


def send(task: SyslogSourceTask, *datagrams: bytes) -> None:
    assert task.udp_port is not None
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        for each in datagrams:
            udp.sendto(each, ("127.0.0.1", task.udp_port))


def test_a_datagram_is_a_record_with_the_host_as_key() -> None:
    with started() as task:
        send(task, MESSAGE + b"\n", b"", b"garbage")
        first, second = poll_until(task, 2)
    validate(first.value_schema, first.value)
    assert (first.topic, first.key, first.value["message"]) == ("log", "host", "text")
    assert (second.key, second.value["message"]) == ("127.0.0.1", "garbage")
    assert second.value["malformed"]


def test_tcp_senders_use_both_frames() -> None:
    with started() as task, connect(task) as counted, connect(task) as lines:
        counted.sendall(b"%d %s%d %s" % (len(MESSAGE), MESSAGE, len(MESSAGE), MESSAGE[:10]))
        lines.sendall(MESSAGE + b"\r\n\n" + MESSAGE[:10])
        records = poll_until(task, 2)
        counted.sendall(MESSAGE[10:])
        lines.sendall(MESSAGE[10:])
        lines.shutdown(socket.SHUT_WR)  # without an end of the line
        records += poll_until(task, 2)
    assert [record.value["message"] for record in records] == ["text"] * 4
    assert not any(record.value["truncated"] for record in records)


def test_a_long_message_is_cut_and_marked() -> None:
    with started(message_max_bytes="480", tcp_port="0") as task, connect(task) as sender:
        send(task, MESSAGE + b"x" * 1000)
        sender.sendall(MESSAGE + b"x" * 1000 + b"\n" + MESSAGE + b"\n")
        records = poll_until(task, 3)
    cut = [record.value for record in records if record.value["truncated"]]
    assert [len(value["message"]) for value in cut] == [len("text") + 480 - len(MESSAGE)] * 2


FRAMES = [
    (b"a\nbc\r\nd", [(b"a", False), (b"bc", False), (b"d", False)]),
    (b"1 a2 bc3 def", [(b"a", False), (b"bc", False), (b"def", False)]),
    (b"3 a\nb2 cd<x\n", [(b"a\nb", False), (b"cd", False), (b"<x", False)]),
    (b"<123456789>\n<y\n", [(b"<1234567", True), (b"<y", False)]),
    (b"12 <1234567890>2 cd", [(b"<1234567", True), (b"cd", False)]),
    (b"2024-10-11\n", [(b"2024-10-", True)]),
    (b"0 a\n", [(b"0 a", False)]),
    (b"9 <123", [(b"<123", True)]),
    (b"9", [(b"9", True)]),
]


@pytest.mark.parametrize("step", [1, 3, 100])
@pytest.mark.parametrize(("stream", "frames"), FRAMES)
def test_frames_are_the_same_however_a_stream_is_cut(
    stream: bytes, frames: list[tuple[bytes, bool]], step: int
) -> None:
    framer = Framer(8)
    found = [each for start in range(0, len(stream), step) for each in framer.add(stream[start : start + step])]
    assert [*found, *framer.end()] == frames


def test_a_sender_beyond_the_limit_is_refused() -> None:
    with started(connections_max="1") as task, connect(task) as first, connect(task) as second:
        first.sendall(MESSAGE + b"\n")
        poll_until(task, 1)
        while not _is_closed(second):
            task.poll()


def _is_closed(sender: socket.socket) -> bool:
    sender.setblocking(False)
    try:
        return not sender.recv(1)
    except BlockingIOError:
        return False


def test_stop_ends_a_poll_that_waits() -> None:
    with started() as task:
        poll = threading.Thread(target=task.poll)
        poll.start()
        task.stop()
        poll.join()
        assert task.poll() == []


def test_a_port_in_use_is_an_error_that_names_the_setting() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        task = SyslogSourceTask()
        with pytest.raises(ConfigError, match=rf"127\.0\.0\.1:{port} of listen\.host and tcp\.port: Address already"):
            task.start({"topic": "log", "udp.port": "0", "tcp.port": str(port)})
        task.stop()


@pytest.mark.parametrize(
    ("config", "setting"),
    [
        ({"udp.port": "1"}, "topic"),
        ({"topic": "log"}, "udp.port and tcp.port"),
        ({"topic": "log", "udp.port": "-1"}, "udp.port"),
        ({"topic": "log", "tcp.port": "1", "rfc3164.timezone": "Mars/Olympus"}, "rfc3164.timezone"),
    ],
)
def test_a_wrong_setting_is_named(config: dict[str, str], setting: str) -> None:
    with pytest.raises(ConfigError, match=setting):
        start_connector(SyslogSourceConnector, config)


def test_a_missing_port_is_an_error_of_validation() -> None:
    assert list(SyslogSourceConnector().validate({"topic": "log"})) == ["udp.port"]
