"""The coordination server's machine: what a request costs, whoever else is connected."""

from __future__ import annotations

import sys
from types import FrameType

import pytest

from controller.coordination.machine.access import CREDENTIALS_BYTES_MAX, IDENTITIES_MAX, OPEN
from controller.coordination.machine.coordinator import (
    Close,
    Coordinator,
    Limits,
    Notification,
    Now,
    Refused,
    Reply,
    new_tree,
    size_of,
)
from controller.coordination.machine.messages import (
    Acl,
    AuthRequest,
    Code,
    ConnectRequest,
    CreateRequest,
    EmptyRequest,
    Error,
    Flag,
    MultiRequest,
    Operation,
    PathRequest,
    ReadRequest,
    Request,
    Result,
    SetAclRequest,
)
from controller.coordination.machine.sessions import Sessions, Timeouts

NOW = Now(wall_ms=1_000_000, monotonic_ms=0)


def coordinator() -> Coordinator:
    sessions = Sessions([], 0, Timeouts(500, 1000, 60_000), NOW.monotonic_ms)
    return Coordinator(
        new_tree([]),
        sessions,
        0,
        Limits(sessions_max=1000, watches_max=10, watched_size_max=1000, response_bytes_max=1000),
    )


def connect(machine: Coordinator, number: int) -> None:
    machine.connect(number, ConnectRequest(0, 0, 6000, 0, None, None), bytes(16), NOW)


def ask(machine: Coordinator, number: int, code: int, request: Request) -> None:
    machine.request(number, 1, code, request, NOW)


def create(machine: Coordinator, number: int, path: str, flags: int = Flag.PERSISTENT) -> None:
    ask(machine, number, Code.CREATE, CreateRequest(path, b"", list(OPEN), flags))


def notified(machine: Coordinator) -> list[tuple[int, str]]:
    """Return the connections and paths of the watch events since the last call."""
    return [(it.connection, it.path) for it in machine.take_effects() if isinstance(it, Notification)]


def _calls_to_end_a_session(connections: int) -> int:
    """Return how many functions are called to end the session that owns 100 nodes."""
    machine = coordinator()
    for number in range(1, connections + 1):
        connect(machine, number)
        ask(machine, number, Code.EXISTS, ReadRequest("/elsewhere", True))
    for number in range(100):
        create(machine, 1, f"/{number}", Flag.EPHEMERAL)
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        ask(machine, 1, Code.CLOSE_SESSION, EmptyRequest())
    finally:
        sys.setprofile(before)
    return calls


@pytest.mark.usefixtures("collector_is_off")  # finalizers of what earlier tests have left are calls too
def test_change_costs_no_more_with_connections_that_do_not_watch_its_node() -> None:
    assert _calls_to_end_a_session(200) == _calls_to_end_a_session(1)


def test_watches_end_with_their_connection_and_those_of_others_stay() -> None:
    machine = coordinator()
    for number in (1, 2, 3):
        connect(machine, number)
    create(machine, 1, "/a")
    for number in (2, 3):
        ask(machine, number, Code.GET_CHILDREN, ReadRequest("/a", True))
        ask(machine, number, Code.GET_DATA, ReadRequest("/a", True))
    assert machine.watch_count == 4
    machine.disconnected(2)
    assert machine.watch_count == 2
    notified(machine)
    create(machine, 1, "/a/b")
    assert notified(machine) == [(3, "/a")]
    create(machine, 1, "/a/c")
    assert notified(machine) == []
    assert machine.watch_count == 1


def test_names_and_identities_count_as_bytes_of_a_response() -> None:
    machine = coordinator()
    connect(machine, 1)
    create(machine, 1, "/a")
    for number in range(3):
        create(machine, 1, f"/a/{'x' * 300}{number}")
    machine.take_effects()
    children = ReadRequest("/a", False)
    ask(machine, 1, Code.GET_CHILDREN, children)
    (reply,) = machine.take_effects()
    assert isinstance(reply, Reply)
    assert 903 <= size_of(reply.values) <= 1000
    ask(machine, 1, Code.MULTI_READ, MultiRequest([(Code.GET_CHILDREN, children)] * 2))
    refused, reply = machine.take_effects()
    assert isinstance(refused, Refused)
    assert isinstance(reply, Reply)
    assert (reply.error, reply.values) == (Error.MARSHALLING_ERROR, ()), "more than 1000 bytes"
    connect(machine, 2)
    ask(machine, 2, Code.SET_ACL, SetAclRequest("/a", [Acl(31, "digest", f"{'u' * 300}:x"), *OPEN], -1))
    machine.take_effects()
    ask(machine, 2, Code.GET_ACL, PathRequest("/a"))
    (reply,) = machine.take_effects()
    assert isinstance(reply, Reply)
    assert size_of(reply.values) > 300


def test_access_control_lists_and_identities_are_limited() -> None:
    """Each identity multiplies the entries of the scheme auth."""
    machine = coordinator()
    connect(machine, 1)
    create(machine, 1, "/a")
    for number in range(IDENTITIES_MAX):
        ask(machine, 1, Code.AUTH, AuthRequest(0, "digest", b"%d:x" % number))
    machine.take_effects()
    entries = [Acl(permissions, "auth", "") for permissions in range(1, 12)]
    for count, error in ((10, Error.OK), (11, Error.INVALID_ACL)):
        ask(machine, 1, Code.SET_ACL, SetAclRequest("/a", entries[:count], -1))
        (reply,) = machine.take_effects()
        assert isinstance(reply, Reply)
        assert reply.error == error
    ask(machine, 1, Code.AUTH, AuthRequest(0, "digest", b"one more:x"))
    refused, reply, close = machine.take_effects()
    assert isinstance(refused, Refused)
    assert isinstance(reply, Reply)
    assert reply.error == Error.AUTH_FAILED
    assert isinstance(close, Close)


def test_entries_of_all_lists_of_a_transaction_are_limited() -> None:
    machine = coordinator()
    connect(machine, 1)
    for number in range(IDENTITIES_MAX):
        ask(machine, 1, Code.AUTH, AuthRequest(0, "digest", b"%d:x" % number))
    entries = [Acl(permissions, "auth", "") for permissions in range(1, 11)]
    creates: list[tuple[int, Operation]] = [
        (Code.CREATE, CreateRequest(f"/{number}", b"", entries, 0)) for number in range(11)
    ]
    machine.take_effects()
    ask(machine, 1, Code.MULTI, MultiRequest(creates))
    (reply,) = machine.take_effects()
    assert isinstance(reply, Reply)
    assert reply.values == [Result(-1, error, ()) for error in [Error.OK] * 10 + [Error.INVALID_ACL]]
    ask(machine, 1, Code.MULTI, MultiRequest(creates[:10]))
    (reply,) = machine.take_effects()
    assert isinstance(reply, Reply)
    assert reply.values == [Result(Code.CREATE, Error.OK, (f"/{number}",)) for number in range(10)]


def test_credentials_are_limited() -> None:
    """Lists with the scheme auth hold the user's name once for each entry, in memory and in the file."""
    machine = coordinator()
    connect(machine, 1)
    machine.take_effects()
    ask(machine, 1, Code.AUTH, AuthRequest(0, "digest", b"u" * CREDENTIALS_BYTES_MAX))
    (reply,) = machine.take_effects()
    assert isinstance(reply, Reply)
    assert reply.error == Error.OK
    ask(machine, 1, Code.AUTH, AuthRequest(0, "digest", b"u" * (CREDENTIALS_BYTES_MAX + 1)))
    refused, reply, close = machine.take_effects()
    assert refused == Refused(1, "a login with 1001 bytes of credentials, more than 1000")
    assert isinstance(reply, Reply)
    assert reply.error == Error.AUTH_FAILED
    assert isinstance(close, Close)
