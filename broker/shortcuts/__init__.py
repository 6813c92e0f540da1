"""Shortcuts: what a connection's requests have in common is worked out once and remembered as bytes.

A producer or a consumer sends the same request over and over, with other records or another offset. Decoding it,
building a dozen objects, finding the same partition and encoding the same answer costs three times as much as the
append or read in the middle. So after a request was served in the general way, its module may learn a shortcut from
it: which bytes of the request have to stay, where the part that varies lies, and the bytes of the answer around what
varies there.

Rules: a shortcut answers only what the general way would answer with the same bytes, and otherwise says None and has
changed nothing: what it cannot tell itself, such as most errors and waits, a change of leader or of settings, is the
general way's. It holds no state of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Protocol

from broker.promise import Awaited, Promise

Buffer = bytes | bytearray | memoryview
Answer = Buffer | list[Buffer] | Awaited[list[Buffer] | None]
"""The framed answer in one piece or several, or a future or promise of it."""

KIND_SIZE = 4
"""API key and version, with which a request begins."""
CORRELATION_END = 8
"""Where the correlation id ends, in requests and, behind the length, in answers."""
CORRELATION_SIZE = CORRELATION_END - KIND_SIZE
OFFSET_SIZE = 8
ANSWER = Struct(">ihqqq")
"""How the answer about one partition begins: its number, no error, and three offsets or times."""
NUMBERS = Struct(">qqq")
NUMBERS_POSITION = 6

# Connections that write to or read from more partitions in turn than this forget the oldest.
SHORTCUTS_MAX = 8
# What is remembered of one request. Usual clients send some 200 bytes around what varies; tags, names and lists that
# nobody needs could be megabytes, of each connection.
REMEMBERED_SIZE_MAX = 4096
# A connection that repeats itself less often than this is not worth learning from.
LEARNED_IN_VAIN_MAX = 100


def parts_around_offset(frame: memoryview, offset_position: int) -> Struct:
    """The layout of requests like `frame`: kind, correlation id, what follows, an offset, and the rest."""
    rest_size = len(frame) - offset_position - OFFSET_SIZE
    return Struct(f">{KIND_SIZE}s{CORRELATION_SIZE}s{offset_position - CORRELATION_END}sq{rest_size}s")


class Parked(Promise[list[Buffer] | None]):
    """The answer to a request that has to wait. What a shortcut cannot tell in the end is asked again in full."""

    __slots__ = ("in_full", "is_for_others")

    def __init__(self) -> None:
        super().__init__()
        self.in_full: Callable[[], list[Buffer] | Awaited[list[Buffer] | None] | None] | None = None
        """Asks the general way; set by who called the shortcut."""
        self.is_for_others = False
        """Whether the shortcut gave up before there was anybody to ask."""

    def ask_in_full(self) -> None:
        """Be answered in the general way."""
        if self.in_full is None:
            self.is_for_others = True
            return
        try:
            answer = self.in_full()
        except Exception as error:
            self.set_exception(error)
            return
        if answer is None or isinstance(answer, list):
            self.set_result(answer)
        else:
            self.follow(answer)


class Shortcut(Protocol):
    """A remembered request."""

    def answer(self, frame: memoryview) -> Answer | None:
        """The framed answer if `frame` repeats the request, else None."""


def _nothing_learned(_frame: memoryview) -> None:
    """The latest where there is none."""


class Shortcuts:
    """Those of one connection, the last used first."""

    __slots__ = ("_known", "_latest", "_learned_in_vain")

    def __init__(self) -> None:
        self._known: list[Shortcut] = []
        self._latest: Callable[[memoryview], Answer | None] = _nothing_learned  # `answer` of the first
        self._learned_in_vain = 0

    def answer(self, frame: memoryview) -> Answer | None:
        answer = self._latest(frame)
        if answer is None:
            return self._answer_of_others(frame)
        self._learned_in_vain = 0
        return answer

    def _answer_of_others(self, frame: memoryview) -> Answer | None:
        for shortcut in self._known[1:]:
            answer = shortcut.answer(frame)
            if answer is not None:
                self._learned_in_vain = 0
                self._known.remove(shortcut)
                self._put_first(shortcut)
                return answer
        return None

    def learn(self, shortcut: Shortcut) -> None:
        """Remember one more, unless nothing that was learned of late was of use."""
        if self._learned_in_vain < LEARNED_IN_VAIN_MAX:
            self._learned_in_vain += 1
            self._put_first(shortcut)
            del self._known[SHORTCUTS_MAX:]

    def _put_first(self, shortcut: Shortcut) -> None:
        self._known.insert(0, shortcut)
        self._latest = shortcut.answer
