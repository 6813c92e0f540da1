"""Limits on the memory and time that one request may use.

Owns the limits. Dispatch applies them; must not know requests.

A few bytes can announce many objects: an element of a list takes one or two bytes and becomes an object of about a
hundred. So the elements of a request are counted while it is decoded. A request with more than `ELEMENTS_ON_LOOP_MAX`
is decoded, and its response encoded, in a thread, so that the other connections are served at the same time. A request
with more than `elements_max` closes its connection.
"""

from __future__ import annotations

from broker.handlers.declaration import Elements

ELEMENTS_AT_ONCE_MAX = 50
"""The most lists, list elements and tagged fields of a request that is served as soon as it has arrived. A request with
more shares one slice per turn of the event loop with such requests of all connections. If it arrives after that slice
is over, it waits in the queue of `SlicedWork`."""

ELEMENTS_ON_LOOP_MAX = 4_000
"""The most lists, list elements and tagged fields decoded, or encoded, in one step on the event loop: about 2 ms."""

# An element of a request takes about 75 bytes of memory, and its part of the response up to 300. The largest realistic
# requests are within these limits: offsets of 100,000 partitions, 18 bytes each; descriptions of 60,000 groups.
_BULK_ELEMENTS_BASE = 64_000
_FRAME_SIZE_PER_BULK_ELEMENT = 32
_ELEMENTS_MAX = 10_000

# A partition in a request of the controller takes about 60 bytes and has about 14 elements.
_FRAME_SIZE_PER_CONTROL_ELEMENT = 3

LARGE_REQUESTS_MAX = 2
"""How many requests of more than `ELEMENTS_ON_LOOP_MAX` elements are decoded and served at a time, of all clients.
Further ones wait. A request that waits for data, replicas or the like does not count."""

REQUESTS_IN_TURN_MAX = 16
"""How many requests from the queue of `SlicedWork` are decoded and served at a time, of all clients. A decoded one
takes about a megabyte."""

RESPONSE_SIZE_MAX = 100 << 20
"""The most bytes of a response: the default of socket.request.max.bytes. Clients reject larger responses."""


SIZE_IN_STEPS_MAX = 16 << 20
"""The most bytes of a request that is decoded on the event loop if it has few elements, or takes only one of the places
of `LARGE_REQUESTS_MAX`. A longer one is decoded in a thread while it has all of them: its strings take up to four times
their encoded size. One at a time is served, until it has its response. Only some APIs have such requests: their
handlers work in steps of one element, which takes the same time whatever its strings are. Others have steps of many
elements, which would take too long if each had 32 KB, or store groups and commits as a whole. Fetch and DeleteRecords
may wait with their request as long as their client likes."""


def elements_max(elements: Elements, frame_size: int) -> int:
    """Return how many lists, list elements and tagged fields a request of `frame_size` bytes may have.

    The number no longer grows beyond `SIZE_IN_STEPS_MAX`, so that a long request takes no more memory for its elements.
    """
    frame_size = min(frame_size, SIZE_IN_STEPS_MAX)
    match elements:
        case Elements.FEW:
            return _ELEMENTS_MAX
        case Elements.BULK:
            return _BULK_ELEMENTS_BASE + frame_size // _FRAME_SIZE_PER_BULK_ELEMENT
        case Elements.CONTROL:
            return _ELEMENTS_MAX + frame_size // _FRAME_SIZE_PER_CONTROL_ELEMENT
