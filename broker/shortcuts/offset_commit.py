"""The shortcut of OffsetCommit: one partition, kept as long as the broker likes.

The request varies in its correlation id and the committed offset; the answer in its error code. That code may be any:
a member that is told to rebalance repeats itself too.

Owns which commits are alike. Must not know sockets, or the general way's answer beyond its bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from struct import Struct
from typing import NamedTuple

from broker.groups.coordinator import CommitAnswer, Committer, GroupCoordinator, RepeatedCommit
from broker.handlers.offset_commit import DEFAULT
from broker.metadata_cache import MetadataCache
from broker.request_context import RequestContext
from broker.services import Services
from broker.shortcuts import (
    CORRELATION_END,
    CORRELATION_SIZE,
    KIND_SIZE,
    REMEMBERED_SIZE_MAX,
    Answer,
    Buffer,
    parts_around_offset,
)
from protocol.codec import encode
from protocol.errors import KafkaError
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse

FIRST_VERSION = 2  # before it each partition has a time of its own
ERROR_SIZE = 2


class OffsetCommitShortcut:
    """One consumer's commits of one partition."""

    __slots__ = (
        "_answer_head",
        "_answer_middle",
        "_answer_tail",
        "_commit",
        "_groups",
        "_kind",
        "_metadata_cache",
        "_pack_answer",
        "_partition",
        "_prefix",
        "_size",
        "_suffix",
        "_unpack",
    )

    def __init__(
        self,
        groups: GroupCoordinator,
        metadata_cache: MetadataCache,
        commit: RepeatedCommit,
        *,
        frame: memoryview,
        offset_position: int,
        answer: bytes,
        error_position: int,
    ) -> None:
        """`frame` and `answer` are a request and its answer; the error code stands at `error_position` of that."""
        self._groups = groups
        self._metadata_cache = metadata_cache
        self._commit = commit
        self._partition = commit.partition
        self._size = len(frame)
        parts = parts_around_offset(frame, offset_position)
        self._unpack = parts.unpack_from
        self._kind, _, self._prefix, _, self._suffix = parts.unpack(frame)
        self._answer_head = answer[:KIND_SIZE]
        self._answer_middle = answer[CORRELATION_END:error_position]
        self._answer_tail = answer[error_position + ERROR_SIZE :]
        self._pack_answer = Struct(
            f">{KIND_SIZE}s{CORRELATION_SIZE}s{len(self._answer_middle)}sh{len(self._answer_tail)}s"
        ).pack

    def answer(self, frame: memoryview) -> Answer | None:
        if len(frame) != self._size:
            return None
        kind, correlation_id, prefix, offset, suffix = self._unpack(frame)
        if prefix != self._prefix or suffix != self._suffix or kind != self._kind:
            return None
        if not self._metadata_cache.contains(*self._partition):
            return None
        try:
            answer = self._groups.commit_again(self._commit, offset)
        except KafkaError:
            return None  # the group is not served here now, and nothing has changed
        if isinstance(answer, CommitAnswer):
            return self._framed(correlation_id, answer)
        return asyncio.ensure_future(self._later(correlation_id, answer))

    async def _later(self, correlation_id: bytes, awaited: Awaitable[CommitAnswer]) -> list[Buffer]:
        return [self._framed(correlation_id, await awaited)]

    def _framed(self, correlation_id: bytes, answer: CommitAnswer) -> bytes:
        return self._pack_answer(
            self._answer_head, correlation_id, self._answer_middle, answer.error, self._answer_tail
        )


class _Place(NamedTuple):
    """Where a field stands in an encoded message."""

    encoded: bytes
    at: int


def _place(message: object, owner: object, field: str, version: int) -> _Place:
    """Two encodings that differ in nothing else differ there; `owner` is the part of `message` that has the field."""
    encoded = b"".join(encode(message, version))
    value = getattr(owner, field)
    setattr(owner, field, ~value)
    other = b"".join(encode(message, version))
    setattr(owner, field, value)
    return _Place(encoded, next(at for at, (one, two) in enumerate(zip(encoded, other, strict=True)) if one != two))


def learn(
    services: Services,
    frame: memoryview,
    request: OffsetCommitRequest,
    context: RequestContext,
    response: OffsetCommitResponse,
    buffers: list[Buffer],
) -> OffsetCommitShortcut | None:
    """What `request`, just answered with `buffers`, has in common with the next one; None when that is too little."""
    if (
        context.api_version < FIRST_VERSION
        or len(frame) > REMEMBERED_SIZE_MAX
        or request.retention_time_ms != DEFAULT
        or len(request.topics) != 1
        or len(request.topics[0].partitions) != 1
    ):
        return None
    committed, told = request.topics[0].partitions[0], response.topics[0].partitions[0]
    offset = _place(request, committed, "committed_offset", context.api_version)
    start = len(frame) - len(offset.encoded)
    if told.error_code or start < CORRELATION_END or frame[start:] != offset.encoded:
        return None  # a refusal, or tags or trailing bytes that are not known here
    commit = services.groups.repeated_commit(
        request.group_id,
        Committer(request.member_id, request.group_instance_id, request.generation_id_or_member_epoch),
        (request.topics[0].name, committed.partition_index),
        committed.committed_leader_epoch,
        committed.committed_metadata or "",
    )
    if commit is None:
        return None
    answer = b"".join(buffers)
    error = _place(response, told, "error_code", context.api_version)
    return OffsetCommitShortcut(
        services.groups,
        services.metadata_cache,
        commit,
        frame=frame,
        offset_position=start + offset.at,
        answer=answer,
        error_position=len(answer) - len(error.encoded) + error.at,
    )
