"""Jute, ZooKeeper's encoding: big-endian integers, and strings, buffers and vectors with a length before them.

    frame     = length:int payload
    request   = xid:int code:int fields
    response  = xid:int zxid:long error:int fields          (no fields with an error)
    event     = -1:int zxid:long 0:int type:int 3:int path:string
    multi     = { code:int done:bool error:int fields } -1:int true -1:int

Owns the codec of each field and the tables of fields by code. Must not know what a request does. A length of -1 is a
null string, buffer or vector.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

from controller.coordination.machine.messages import (
    XID_NOTIFICATION,
    Acl,
    AuthRequest,
    CheckRequest,
    Code,
    ConnectRequest,
    ConnectResponse,
    CreateRequest,
    DeleteRequest,
    EmptyRequest,
    MultiRequest,
    Operation,
    PathRequest,
    ReadRequest,
    Request,
    Result,
    SetAclRequest,
    SetDataRequest,
    SetWatches2Request,
    SetWatchesRequest,
    Stat,
)

_INT: Final = struct.Struct(">i")
_LONG: Final = struct.Struct(">q")
_STAT: Final = struct.Struct(">qqqqiiiqiiq")
_REQUEST_HEADER: Final = struct.Struct(">ii")
_RESPONSE_HEADER: Final = struct.Struct(">iqi")
_RESULT_HEADER: Final = struct.Struct(">i?i")
_RESULTS_END: Final = _RESULT_HEADER.pack(-1, True, -1)
_EVENT: Final = struct.Struct(">iqiii")
_STATE_CONNECTED: Final = 3


OPERATIONS_MAX: Final = 2_000
"""Of one multi or multiRead, which is served without a pause: some 30 ms. Brokers send 500 at most."""
ELEMENTS_MAX: Final = 10_000
"""Of all lists in one request: the paths of a setWatches, the entries of access lists. As many entries in as many
operations as allowed are some 45 ms.

ZooKeeper's client sends 128 KiB of paths at a time, kazoo no setWatches at all, and a broker two entries an operation.
"""
ACL_ENTRIES_MAX: Final = 1_000
"""Of one access list."""


class Malformed(Exception):  # noqa: N818 - as in protocol
    """The peer's bytes are no request. The text says why."""


class Reader:
    """The rest of one frame. Every method raises Malformed, and nothing else."""

    def __init__(self, frame: bytes) -> None:
        self._frame = frame
        self._position = 0
        self._elements = 0
        """Of the lists so far."""

    @property
    def is_at_end(self) -> bool:
        return self._position == len(self._frame)

    def unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        end = self._position + layout.size
        if end > len(self._frame):
            raise Malformed(f"the frame ends at byte {len(self._frame)}, expected {end}")
        values = layout.unpack_from(self._frame, self._position)
        self._position = end
        return values

    def integer(self) -> int:
        return cast("int", self.unpack(_INT)[0])

    def long(self) -> int:
        return cast("int", self.unpack(_LONG)[0])

    def boolean(self) -> bool:
        return self.take(1) != b"\0"

    def take(self, length: int) -> bytes:
        end = self._position + length
        if end > len(self._frame):
            raise Malformed(f"a field of {length} bytes exceeds the frame by {end - len(self._frame)}")
        taken = self._frame[self._position : end]
        self._position = end
        return taken

    def length(self, unit: str) -> int | None:
        """Return a length or count, None for null."""
        length = self.integer()
        if length < -1:
            raise Malformed(f"a field has {length} {unit}")
        return None if length == -1 else length

    def buffer(self) -> bytes | None:
        length = self.length("bytes")
        return None if length is None else self.take(length)

    def string(self) -> str:
        found = self.buffer()
        if found is None:
            raise Malformed("a string is null")
        try:
            return found.decode()
        except UnicodeDecodeError as error:
            raise Malformed(f"a string is not UTF-8: {error.reason}") from None

    def strings(self) -> list[str] | None:
        count = self.length("elements")
        return None if count is None else [self.string() for _ in self._counted(count, 4, ELEMENTS_MAX)]

    def acl(self) -> list[Acl] | None:
        count = self.length("elements")
        if count is None:
            return None
        return [Acl(self.integer(), self.string(), self.string()) for _ in self._counted(count, 12, ACL_ENTRIES_MAX)]

    def _counted(self, count: int, size_min: int, count_max: int) -> range:
        if count * size_min > len(self._frame) - self._position:
            raise Malformed(f"{count} elements exceed the frame")
        if count > count_max:
            raise Malformed(f"a list has {count} elements, expected at most {count_max}")
        self._elements += count
        if self._elements > ELEMENTS_MAX:
            raise Malformed(f"the lists of a request have more than {ELEMENTS_MAX} elements")
        return range(count)


def _integer(value: int) -> bytes:
    return _INT.pack(value)


def _buffer(value: bytes | None) -> bytes:
    return b"\xff\xff\xff\xff" if value is None else _INT.pack(len(value)) + value


def _string(value: str) -> bytes:
    return _buffer(value.encode())


def _strings(values: Sequence[str]) -> bytes:
    return b"".join((_INT.pack(len(values)), *map(_string, values)))


def encode_acl(values: Sequence[Acl]) -> bytes:
    entries = (_INT.pack(entry.permissions) + _string(entry.scheme) + _string(entry.id) for entry in values)
    return b"".join((_INT.pack(len(values)), *entries))


def decode_acl(encoded: bytes) -> tuple[Acl, ...]:
    """Return what `encode_acl` has encoded."""
    return tuple(Reader(encoded).acl() or ())


def _stat(value: Stat) -> bytes:
    return _STAT.pack(*value)


Read = Callable[[Reader], Any]
Write = Callable[[Any], bytes]


class _Layout(NamedTuple):
    """A request: its class, and how each field is read."""

    request: Callable[..., Request]
    fields: tuple[Read, ...]


_PATHS: Final = (Reader.strings,) * 3
_READ: Final = _Layout(ReadRequest, (Reader.string, Reader.boolean))
_CREATE: Final = _Layout(CreateRequest, (Reader.string, Reader.buffer, Reader.acl, Reader.integer))
_PATH: Final = _Layout(PathRequest, (Reader.string,))
_CHECK: Final = _Layout(CheckRequest, (Reader.string, Reader.integer))
_EMPTY: Final = _Layout(EmptyRequest, ())

_REQUESTS: Final[Mapping[int, _Layout]] = {
    Code.CREATE: _CREATE,
    Code.DELETE: _Layout(DeleteRequest, (Reader.string, Reader.integer)),
    Code.EXISTS: _READ,
    Code.GET_DATA: _READ,
    Code.SET_DATA: _Layout(SetDataRequest, (Reader.string, Reader.buffer, Reader.integer)),
    Code.GET_ACL: _PATH,
    Code.SET_ACL: _Layout(SetAclRequest, (Reader.string, Reader.acl, Reader.integer)),
    Code.GET_CHILDREN: _READ,
    Code.SYNC: _PATH,
    Code.PING: _EMPTY,
    Code.GET_CHILDREN2: _READ,
    Code.CREATE2: _CREATE,
    Code.AUTH: _Layout(AuthRequest, (Reader.integer, Reader.string, Reader.buffer)),
    Code.SET_WATCHES: _Layout(SetWatchesRequest, (Reader.long, *_PATHS)),
    Code.SET_WATCHES2: _Layout(SetWatches2Request, (Reader.long, *_PATHS, Reader.strings, Reader.strings)),
    Code.CLOSE_SESSION: _EMPTY,
}

_OPERATIONS: Final = {
    Code.MULTI: frozenset({Code.CREATE, Code.CREATE2, Code.DELETE, Code.SET_DATA, Code.CHECK}),
    Code.MULTI_READ: frozenset({Code.GET_DATA, Code.GET_CHILDREN}),
}
"""Which operations a request of several may hold."""

_RESPONSES: Final[Mapping[int, tuple[Write, ...]]] = {
    Code.CREATE: (_string,),
    Code.DELETE: (),
    Code.EXISTS: (_stat,),
    Code.GET_DATA: (_buffer, _stat),
    Code.SET_DATA: (_stat,),
    Code.GET_ACL: (encode_acl, _stat),
    Code.SET_ACL: (_stat,),
    Code.GET_CHILDREN: (_strings,),
    Code.SYNC: (_string,),
    Code.PING: (),
    Code.GET_CHILDREN2: (_strings, _stat),
    Code.CHECK: (),
    Code.CREATE2: (_string, _stat),
    Code.AUTH: (),
    Code.SET_WATCHES: (),
    Code.SET_WATCHES2: (),
    Code.CLOSE_SESSION: (),
}


def decode_connect(frame: bytes) -> ConnectRequest:
    """Decode the first frame of a connection. Raises Malformed."""
    reader = Reader(frame)
    protocol_version, last_zxid_seen = reader.integer(), reader.long()
    timeout_ms, session_id, password = reader.integer(), reader.long(), reader.buffer()
    read_only = None if reader.is_at_end else reader.boolean()
    _require_end(reader)
    return ConnectRequest(protocol_version, last_zxid_seen, timeout_ms, session_id, password, read_only)


def decode_request(frame: bytes) -> tuple[int, int, Request | None]:
    """Return xid, code and request of a later frame, None for a code that is not served. Raises Malformed."""
    reader = Reader(frame)
    xid, code = reader.unpack(_REQUEST_HEADER)
    if code in _OPERATIONS:
        request: Request = _read_operations(reader, _OPERATIONS[code])
    elif code in _REQUESTS:
        request = _read(reader, _REQUESTS[code])
    else:
        return xid, code, None
    _require_end(reader)
    return xid, code, request


def _read(reader: Reader, layout: _Layout) -> Request:
    return layout.request(*(read(reader) for read in layout.fields))


def _read_operations(reader: Reader, allowed: frozenset[Code]) -> MultiRequest:
    operations: list[tuple[int, Operation]] = []
    while True:
        code, is_done, _ = reader.unpack(_RESULT_HEADER)
        if is_done:
            return MultiRequest(operations)
        if len(operations) == OPERATIONS_MAX:
            raise Malformed(f"a multi has more than {OPERATIONS_MAX} operations")
        if code not in allowed:
            raise Malformed(f"an operation of type {code}, expected one of {sorted(allowed)}")
        layout = _CHECK if code == Code.CHECK else _REQUESTS[code]
        operations.append((code, cast("Operation", _read(reader, layout))))


def _require_end(reader: Reader) -> None:
    if not reader.is_at_end:
        raise Malformed("bytes follow the last field")


def encode_connected(response: ConnectResponse) -> bytes:
    fields = _integer(0) + _integer(response.timeout_ms) + _LONG.pack(response.session_id) + _buffer(response.password)
    return _framed(fields if response.read_only is None else fields + b"\0")


def encode_response(xid: int, zxid: int, error: int, code: int, values: Sequence[object]) -> bytes:
    header = _RESPONSE_HEADER.pack(xid, zxid, error)
    if error:
        return _framed(header)
    if code in _OPERATIONS:
        results = cast("Sequence[Result]", values)
        return _framed(b"".join((header, *map(_result, results), _RESULTS_END)))
    return _framed(header + _write(code, values))


def _write(code: int, values: Sequence[object]) -> bytes:
    return b"".join(write(value) for write, value in zip(_RESPONSES[code], values, strict=True))


def _result(result: Result) -> bytes:
    if result.code == -1:
        return _RESULT_HEADER.pack(-1, False, result.error) + _integer(result.error)
    return _RESULT_HEADER.pack(result.code, False, 0) + _write(result.code, result.values)


def encode_event(event: int, path: str, zxid: int) -> bytes:
    return _framed(_EVENT.pack(XID_NOTIFICATION, zxid, 0, event, _STATE_CONNECTED) + _string(path))


def _framed(payload: bytes) -> bytes:
    return _INT.pack(len(payload)) + payload
