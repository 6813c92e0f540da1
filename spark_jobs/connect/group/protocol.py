"""The bytes that workers exchange in JoinGroup and SyncGroup (`IncrementalCooperativeConnectProtocol`).

    metadata   version INT16, url STRING, config offset INT64; from version 1 on: assignment NULLABLE_BYTES
    assignment version INT16, error INT16, leader STRING, leader url STRING, config offset INT64,
               assigned ARRAY of (connector STRING, tasks ARRAY of INT32);
               from version 1 on: revoked ARRAY of the same, scheduled delay in ms INT32

The task -1 is the connector itself. Protocol 'default' is version 0, 'compatible' 1 and 'sessioned' 2, whose bytes are
those of version 1; its workers sign requests to each other (KIP-507).

Owns the formats. Must not know who decides.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from spark_jobs.connect.base.errors import DataError
from spark_jobs.connect.base.states import TaskId

PROTOCOL_TYPE: Final = "connect"
CONNECTOR_TASK: Final = -1

VERSIONS: Final = {"default": 0, "compatible": 1, "sessioned": 2}
"""By the name of a protocol, from the oldest to the newest."""

_INT16, _INT32, _INT64 = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">q")


class Work(NamedTuple):
    """Connectors and tasks."""

    connectors: frozenset[str] = frozenset()
    tasks: frozenset[TaskId] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.connectors or self.tasks)

    def __or__(self, other: Work) -> Work:
        return Work(self.connectors | other.connectors, self.tasks | other.tasks)

    def __sub__(self, other: Work) -> Work:
        return Work(self.connectors - other.connectors, self.tasks - other.tasks)

    def __and__(self, other: Work) -> Work:
        return Work(self.connectors & other.connectors, self.tasks & other.tasks)


NO_WORK: Final = Work()


class Assignment(NamedTuple):
    """What the leader gives to a member: new work, and work to stop. With an error the member has to read the topic of
    configurations up to `config_offset` and join again."""

    error: int
    leader: str
    leader_url: str
    config_offset: int
    assigned: Work
    revoked: Work = NO_WORK
    delay_ms: int = 0


NO_ERROR, CONFIG_MISMATCH = 0, 1


class MemberState(NamedTuple):
    """What a member says of itself: how far it has read the topic of configurations, and its present work."""

    url: str
    config_offset: int
    current: Assignment | None = None


def encode_state(state: MemberState, version: int) -> bytes:
    parts = [_INT16.pack(version), _string(state.url), _INT64.pack(state.config_offset)]
    if version > 0:
        current = None if state.current is None else encode_assignment(state.current, version)
        parts += [_INT32.pack(-1)] if current is None else [_INT32.pack(len(current)), current]
    return b"".join(parts)


def encode_assignment(assignment: Assignment, version: int) -> bytes:
    parts = [
        _INT16.pack(version),
        _INT16.pack(assignment.error),
        _string(assignment.leader),
        _string(assignment.leader_url),
        _INT64.pack(assignment.config_offset),
        _work(assignment.assigned),
    ]
    if version > 0:
        parts += [_work(assignment.revoked), _INT32.pack(assignment.delay_ms)]
    return b"".join(parts)


def decode_state(content: bytes) -> MemberState:
    """Raises DataError."""
    reader = _Reader(content)
    version = reader.number(_INT16)
    url, offset = reader.string(), reader.number(_INT64)
    current = reader.nullable_bytes() if version > 0 else None
    return MemberState(url, offset, decode_assignment(current) if current else None)


def decode_assignment(content: bytes) -> Assignment:
    """Raises DataError."""
    reader = _Reader(content)
    version = reader.number(_INT16)
    error, leader, leader_url = reader.number(_INT16), reader.string(), reader.string()
    offset, assigned = reader.number(_INT64), reader.work()
    if version == 0:
        return Assignment(error, leader, leader_url, offset, assigned)
    return Assignment(error, leader, leader_url, offset, assigned, reader.work(), reader.number(_INT32))


def _string(text: str) -> bytes:
    content = text.encode()
    return _INT16.pack(len(content)) + content


def _work(work: Work) -> bytes:
    tasks: dict[str, list[int]] = {name: [CONNECTOR_TASK] for name in sorted(work.connectors)}
    for connector, number in sorted(work.tasks):
        tasks.setdefault(connector, []).append(number)
    parts = [_INT32.pack(len(tasks))]
    for name, numbers in tasks.items():
        parts += [_string(name), _INT32.pack(len(numbers)), *map(_INT32.pack, numbers)]
    return b"".join(parts)


class _Reader:
    """Reads fields one after the other. All methods raise DataError at the end of the bytes."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._position = 0

    def number(self, kind: struct.Struct) -> int:
        return int(kind.unpack(self._take(kind.size))[0])

    def string(self) -> str:
        try:
            return self._take(self.number(_INT16)).decode()
        except UnicodeDecodeError as error:
            raise DataError(f"a name in the bytes of a worker is not UTF-8: {error}") from error

    def nullable_bytes(self) -> bytes | None:
        length = self.number(_INT32)
        return None if length < 0 else self._take(length)

    def work(self) -> Work:
        """A null array is an empty one."""
        connectors: set[str] = set()
        tasks: set[TaskId] = set()
        for _ in self._count():
            name = self.string()
            for _ in self._count():
                number = self.number(_INT32)
                if number == CONNECTOR_TASK:
                    connectors.add(name)
                else:
                    tasks.add(TaskId(name, number))
        return Work(frozenset(connectors), frozenset(tasks))

    def _count(self) -> Iterable[int]:
        return range(max(0, self.number(_INT32)))

    def _take(self, length: int) -> bytes:
        end = self._position + length
        if length < 0 or end > len(self._content):
            raise DataError(f"the bytes of a worker end early: {length} expected at {self._position}")
        found = self._content[self._position : end]
        self._position = end
        return found
