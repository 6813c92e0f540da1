"""A response belongs to its command, also after one that came too late."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from milena_broker.testing.control import Control, NoResponseError

LENGTH = struct.Struct(">I")


@pytest.fixture
def pair() -> Iterator[tuple[Control, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Control(ours), theirs


def receive(link: socket.socket) -> dict[str, object]:
    (size,) = LENGTH.unpack(link.recv(LENGTH.size, socket.MSG_WAITALL))
    found: dict[str, object] = json.loads(link.recv(size, socket.MSG_WAITALL))
    return found


def frame(**response: object) -> bytes:
    data = json.dumps(response).encode()
    return LENGTH.pack(len(data)) + data


def test_a_late_response_is_not_taken_for_that_of_the_next_command(pair: tuple[Control, socket.socket]) -> None:
    control, process = pair
    with pytest.raises(NoResponseError):
        control.exchange({"command": "first"}, 0.001)
    late = frame(number=1, result="first")
    process.sendall(late[:7])
    with pytest.raises(NoResponseError):
        control.exchange({"command": "second"}, 0.001)
    process.sendall(late[7:] + frame(number=2, result="second") + frame(number=3, result="third"))
    assert control.exchange({"command": "third"}, 30)["result"] == "third"
    assert [receive(process) for _ in range(3)] == [
        {"command": name, "number": number} for number, name in enumerate(("first", "second", "third"), 1)
    ]


def test_the_end_of_the_process_is_an_error(pair: tuple[Control, socket.socket]) -> None:
    control, process = pair
    process.close()
    with pytest.raises(OSError, match=r"the process has ended|Broken pipe"):
        control.exchange({"command": "first"}, 30)


def test_a_process_that_reads_no_commands_is_an_error(pair: tuple[Control, socket.socket]) -> None:
    control, _process = pair
    with pytest.raises(TimeoutError):
        control.exchange({"command": "x" * (8 << 20)}, 0.05)


def test_a_large_response_comes_in_pieces(pair: tuple[Control, socket.socket]) -> None:
    control, process = pair
    text = "x" * (3 << 20)
    thread = threading.Thread(target=process.sendall, args=(frame(number=1, result=text),))
    thread.start()
    assert control.exchange({"command": "first"}, 30)["result"] == text
    thread.join()
