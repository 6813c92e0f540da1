"""How much of the broker one request may use.

Owns the limits. Dispatch applies them; must not know requests.

A peer announces many things in few bytes: an element of a list takes one or two bytes and becomes an object of about a
hundred. So the elements of a request are counted while it is decoded. A request with more than `ELEMENTS_ON_LOOP_MAX`
is decoded, and its response encoded, in a thread, so that the other connections are served at the same time. A request
with more than `elements_max` closes its connection.
"""

from __future__ import annotations

ELEMENTS_ON_LOOP_MAX = 4_000
"""Lists, list elements and tagged fields that are decoded, or encoded, in one step on the event loop: about 2 ms."""

# An element takes about 75 bytes of memory, so decoding takes at most 8 MiB and five times the frame. The largest
# requests of use are within this limit: offsets of a hundred thousand partitions, 18 bytes each.
_ELEMENTS_BASE = 100_000
_FRAME_SIZE_PER_ELEMENT = 16
_ELEMENTS_MAX = 1_000_000

RESPONSE_SIZE_MAX = 100 << 20
"""Bytes of a response, as many as socket.request.max.bytes lets a request have; clients refuse longer ones."""


def elements_max(frame_size: int) -> int:
    """Lists, list elements and tagged fields that a request of `frame_size` bytes may have."""
    return min(_ELEMENTS_BASE + frame_size // _FRAME_SIZE_PER_ELEMENT, _ELEMENTS_MAX)
