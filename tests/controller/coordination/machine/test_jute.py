"""Jute: whatever the bytes, a request or Malformed comes out, and kazoo reads what is encoded."""

from __future__ import annotations

import struct
from contextlib import suppress
from random import Random

import pytest
from kazoo.protocol import serialization
from kazoo.protocol.states import ZnodeStat
from kazoo.security import OPEN_ACL_UNSAFE

from controller.coordination.machine import jute
from controller.coordination.machine.jute import Malformed
from controller.coordination.machine.messages import (
    Acl,
    Code,
    ConnectRequest,
    CreateRequest,
    DeleteRequest,
    ReadRequest,
    SetDataRequest,
    Stat,
)
from tests.controller.coordination.histories import History

OPEN = [Acl(31, "world", "anyone")]
REQUESTS = [
    (serialization.Create("/a", None, OPEN_ACL_UNSAFE, 1), CreateRequest("/a", None, OPEN, 1)),
    (serialization.Create2("/ä", b"x", OPEN_ACL_UNSAFE, 3), CreateRequest("/ä", b"x", OPEN, 3)),
    (serialization.Delete("/a", -1), DeleteRequest("/a", -1)),
    (serialization.GetData("/a", lambda event: None), ReadRequest("/a", True)),
    (serialization.Exists("/a", None), ReadRequest("/a", False)),
    (serialization.SetData("/a", b"", 7), SetDataRequest("/a", b"", 7)),
]


def framed(code: int, body: bytes) -> bytes:
    return struct.pack(">ii", 1, code) + body


@pytest.mark.parametrize(("sent", "expected"), REQUESTS, ids=lambda value: type(value).__name__)
def test_requests_of_kazoo_are_read(sent: object, expected: object) -> None:
    assert jute.decode_request(framed(sent.type, bytes(sent.serialize()))) == (1, sent.type, expected)  # type: ignore[attr-defined]


@pytest.mark.parametrize("read_only", [None, False, True])
def test_connect_request_has_its_last_field_or_not(read_only: bool | None) -> None:
    frame = bytes(serialization.Connect(0, 5, 6000, 7, b"p" * 16, bool(read_only)).serialize())
    frame = frame[:-1] if read_only is None else frame
    assert jute.decode_connect(frame) == ConnectRequest(0, 5, 6000, 7, b"p" * 16, read_only)


def test_stat_is_read_by_kazoo() -> None:
    stat = Stat(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)
    frame = jute.encode_response(1, 2, 0, Code.GET_DATA, (b"data", stat))
    assert frame[:20] == struct.pack(">iiqi", len(frame) - 4, 1, 2, 0)
    assert serialization.GetData.deserialize(frame, 20) == (b"data", ZnodeStat(*stat))


def test_every_frame_that_is_cut_or_changed_is_a_request_or_malformed() -> None:
    random = Random(1)
    frames = {code: framed(code, body) for _, code, body in History(2, 600).steps()}
    assert len(frames) > 15
    for frame in frames.values():
        for end in range(len(frame)):
            with suppress(Malformed):
                jute.decode_request(frame[:end])
        for _ in range(200):
            changed = bytearray(frame)
            changed[random.randrange(len(changed))] = random.randrange(256)
            with suppress(Malformed):
                jute.decode_request(bytes(changed))


def test_cut_connect_requests_are_malformed() -> None:
    frame = bytes(serialization.Connect(0, 5, 6000, 7, b"p" * 16, None).serialize())[:44]
    for end in range(44):
        with pytest.raises(Malformed):
            jute.decode_connect(frame[:end])


def test_access_lists_are_read_as_they_were_stored() -> None:
    acl = (Acl(31, "world", "anyone"), Acl(1, "digest", "ü:hash"))
    assert jute.decode_acl(jute.encode_acl(acl)) == acl
