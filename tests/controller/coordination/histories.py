"""Random histories of several sessions, performed on a server of ZooKeeper's protocol.

Owns the generator, and what a client sees of one server in a form that does not depend on when it ran: times are left
out, sessions are numbered, and zxids count from the start of the history. A request is bytes that this module makes,
and responses are decoded here: the server's own codec is not involved.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from typing import Any

from tests.support.coordination import EVENT_XID, Frame, RawClient, buffer, string

CREATE, DELETE, EXISTS, GET_DATA, SET_DATA, GET_ACL, SET_ACL, GET_CHILDREN = range(1, 9)
SYNC, PING, GET_CHILDREN2, CHECK, MULTI, CREATE2, MULTI_READ, AUTH = 9, 11, 12, 13, 14, 15, 22, 100
SET_WATCHES, SET_WATCHES2, CLOSE = 101, 105, -11
RECONNECT = 1000
"""Not a request: the client continues its session on another connection."""

SESSIONS = 3
NAMES = ("/a", "/b", "/a/c", "/a/d", "/b/c", "/a/c/e")
BAD_NAMES = ("", "/a/", "/a//b", "/a/./b", "/a/\0", "/a/\u007f")
ACLS = (
    [(31, "world", "anyone")],
    [(31, "world", "anyone")],
    [(31, "world", "anyone")],
    [(1, "world", "anyone")],
    [(3, "world", "anyone"), (31, "auth", "")],
    [(31, "auth", "")],
    [(31, "digest", "user-0:not+a+hash"), (5, "world", "anyone")],
    [(31, "digest", "no-hash")],
    [(31, "unknown", "x")],
    [],
    None,
)
Step = tuple[int, int, bytes]
"""Session, code, body."""


def _acl(entries: list[tuple[int, str, str]] | None) -> bytes:
    if entries is None:
        return struct.pack(">i", -1)
    encoded = (struct.pack(">i", permissions) + string(scheme) + string(name) for permissions, scheme, name in entries)
    return struct.pack(">i", len(entries)) + b"".join(encoded)


def _strings(values: list[str]) -> bytes:
    return struct.pack(">i", len(values)) + b"".join(map(string, values))


class History:
    """`count` random steps below the node `root`, which it creates."""

    def __init__(self, seed: int, count: int) -> None:
        self.root = f"/history-{seed}"
        self._random = random.Random(seed)
        self._count = count

    def steps(self) -> Iterator[Step]:
        yield 0, CREATE, string(self.root) + buffer(b"") + _acl(ACLS[0]) + struct.pack(">i", 0)
        for _ in range(self._count):
            session = self._random.randrange(SESSIONS)
            code = self._random.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
            yield session, code, self._body(code)

    def _path(self) -> str:
        if self._random.random() < 0.03:
            return self.root + self._random.choice(BAD_NAMES)
        return self.root + self._random.choice(NAMES)

    def _version(self) -> int:
        return self._random.choice([-1, -1, -1, 0, 1, 2])

    def _flag(self) -> bytes:
        return struct.pack("?", self._random.random() < 0.6)

    def _data(self) -> bytes:
        return buffer(self._random.choice([None, b"", self._random.randbytes(3)]))

    def _body(self, code: int, *, within_multi: bool = False) -> bytes:
        path = string(self._path())
        match code:
            case 1 | 15:
                # Flags 4 to 6 are containers and nodes with a time to live, which this server refuses.
                # In a multi ZooKeeper fails on wrong flags and on a null list with a marshalling error.
                flags = self._random.choices([0, 1, 2, 3, 7, -1], [10, 4, 3, 3, 0.3, 0.2])[0]
                acl = self._random.choice(ACLS)
                if within_multi:
                    flags, acl = flags & 3, acl or ACLS[0]
                return path + self._data() + _acl(acl) + struct.pack(">i", flags)
            case 2 | 13:
                return path + struct.pack(">i", self._version())
            case 5:
                return path + self._data() + struct.pack(">i", self._version())
            case 7:
                return path + _acl(self._random.choice(ACLS)) + struct.pack(">i", self._version())
            case 6 | 9:
                return path
            case 3 | 4 | 8 | 12:
                return path + self._flag()
            case 14:
                return self._several([CREATE, CREATE, DELETE, SET_DATA, SET_DATA, CHECK, CREATE2])
            case 22:
                return self._several([GET_DATA, GET_CHILDREN])
            case 100:
                return struct.pack(">i", 0) + string("digest") + buffer(b"user-%d:secret" % self._random.randrange(2))
            case 101 | 105:
                relative = struct.pack(">q", self._random.choice([0, 5, 1 << 60]))
                paths = b"".join(_strings([self._path() for _ in range(self._random.randrange(3))]) for _ in range(3))
                return relative + paths + (_strings([]) * 2 if code == SET_WATCHES2 else b"")
        return b""

    def _several(self, codes: list[int]) -> bytes:
        chosen = [self._random.choice(codes) for _ in range(self._random.randrange(5))]
        operations = (struct.pack(">i?i", code, False, -1) + self._body(code, within_multi=True) for code in chosen)
        return b"".join(operations) + struct.pack(">i?i", -1, True, -1)


_WEIGHTS = {
    CREATE: 14, CREATE2: 8, DELETE: 10, EXISTS: 6, GET_DATA: 6, SET_DATA: 8, GET_ACL: 2, SET_ACL: 2, GET_CHILDREN: 4,
    GET_CHILDREN2: 4, SYNC: 1, PING: 1, MULTI: 8, MULTI_READ: 3, AUTH: 1, SET_WATCHES: 1, SET_WATCHES2: 2, CLOSE: 1.5,
    RECONNECT: 1,
}  # fmt: skip


class Observer:
    """Several sessions with one server, and what they see."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._sessions: dict[int, int] = {}
        self._clients = [self._new_client() for _ in range(SESSIONS)]
        self._base = self._clients[-1].ask(PING, xid=-2)[-1].zxid

    def _new_client(self) -> RawClient:
        client = RawClient(self._port)
        self._sessions[client.session] = len(self._sessions) + 1
        return client

    def close(self) -> None:
        for client in self._clients:
            client.ask(CLOSE)
            client.close()

    def perform(self, step: Step) -> list[Any]:
        """Return what the steps' session sees, and then the events that each session has got."""
        session, code, body = step
        client = self._clients[session]
        if code == RECONNECT:
            client.close()
            self._clients[session] = RawClient(self._port, session=client.session, password=client.password)
            return [self._clients[session].session == client.session]
        xid = {PING: -2, AUTH: -4, SET_WATCHES: -8, SET_WATCHES2: -8}.get(code)
        seen: list[Any] = [self._normal(frame, code) for frame in client.ask(code, body, xid)]
        if code == CLOSE:
            assert client.read() is None
            client.close()
            seen = [*sorted(map(str, seen[:-1])), seen[-1]]  # the events of one transaction, in any order
            self._clients[session] = self._new_client()
        for other in self._clients:
            events = [self._normal(frame, PING) for frame in other.ask(PING, xid=-2)[:-1]]
            seen.append(sorted(map(str, events)) if code == CLOSE else events)
        return seen

    def _normal(self, frame: Frame, code: int) -> Any:
        zxid = self._zxid(frame.zxid)
        if frame.xid == EVENT_XID:
            kind, state, length = struct.unpack_from(">iii", frame.payload)
            return "event", zxid, kind, state, frame.payload[12 : 12 + length]
        if frame.error:
            return frame.xid, zxid, frame.error, frame.payload
        return frame.xid, zxid, _Values(frame.payload, self).of(code)

    def _zxid(self, zxid: int) -> int:
        return zxid if zxid <= 0 else zxid - self._base

    def stat(self, fields: tuple[int, ...]) -> tuple[int, ...]:
        """Return a stat without its times."""
        czxid, mzxid, ctime, mtime, version, cversion, aversion, owner, length, children, pzxid = fields
        assert ctime <= mtime
        own = self._sessions[owner] if owner else 0
        zxids = (self._zxid(czxid), self._zxid(mzxid), self._zxid(pzxid))
        return (*zxids, version, cversion, aversion, own, length, children)


class _Values:
    """Decodes the fields of a response."""

    def __init__(self, payload: bytes, observer: Observer) -> None:
        self._payload = payload
        self._position = 0
        self._observer = observer

    def of(self, code: int) -> Any:
        values = self._several() if code in (MULTI, MULTI_READ) else self._fields(code)
        assert self._position == len(self._payload), (code, self._payload)
        return values

    def _fields(self, code: int) -> tuple[Any, ...]:
        return tuple(read(self) for read in _FIELDS[code])

    def _several(self) -> list[Any]:
        results: list[Any] = []
        while True:
            code, done, error = self._unpack(">i?i")
            if done:
                return [*results, (code, error)]
            results.append((code, error, self._unpack(">i") if code == -1 else self._fields(code)))

    def _unpack(self, layout: str) -> tuple[Any, ...]:
        values = struct.unpack_from(layout, self._payload, self._position)
        self._position += struct.calcsize(layout)
        return values

    def _buffer(self) -> bytes | None:
        (length,) = self._unpack(">i")
        if length < 0:
            return None
        self._position += length
        return self._payload[self._position - length : self._position]

    def _names(self) -> list[bytes | None]:
        (count,) = self._unpack(">i")
        return sorted((self._buffer() for _ in range(count)), key=lambda name: name or b"")

    def _acl(self) -> list[Any]:
        (count,) = self._unpack(">i")
        # ZooKeeper has the identities of a connection in a set without an order.
        return sorted((self._unpack(">i"), self._buffer(), self._buffer()) for _ in range(count))

    def _stat(self) -> tuple[int, ...]:
        return self._observer.stat(self._unpack(">qqqqiiiqiiq"))


_FIELDS: dict[int, tuple[Callable[[_Values], Any], ...]] = {
    CREATE: (_Values._buffer,),
    DELETE: (),
    EXISTS: (_Values._stat,),
    GET_DATA: (_Values._buffer, _Values._stat),
    SET_DATA: (_Values._stat,),
    GET_ACL: (_Values._acl, _Values._stat),
    SET_ACL: (_Values._stat,),
    GET_CHILDREN: (_Values._names,),
    SYNC: (_Values._buffer,),
    PING: (),
    GET_CHILDREN2: (_Values._names, _Values._stat),
    CHECK: (),
    CREATE2: (_Values._buffer, _Values._stat),
    AUTH: (),
    SET_WATCHES: (),
    SET_WATCHES2: (),
    CLOSE: (),
}
