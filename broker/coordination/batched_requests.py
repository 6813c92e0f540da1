"""Requests to one broker that each carry many questions of one kind.

Owns: what waits while a request is in flight, and what goes into the next one. Must not know: what is asked, or what
follows from a failure.

While a request is in flight, further questions wait and share the next one. So the number of requests depends on the
round trip, not on the number of transactions or states.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Final, Generic, Protocol, TypeVar

logger = logging.getLogger("kafka.coordinator")

ITEMS_MAX: Final = 1000
"""How many questions share a request."""
SIZE_MAX: Final = 2000
"""The size of all questions of a request together, so that it stays within the limits of the receiver."""


class Question(Protocol):
    @property
    def size(self) -> int:
        """How many list elements it takes in the request."""
        ...

    @property
    def key(self) -> Hashable:
        """What its response is found by: a request has no two questions with the same key."""
        ...


Q = TypeVar("Q", bound=Question)
A = TypeVar("A")


class BatchedRequests(Generic[Q, A]):
    """The questions to one broker."""

    def __init__(
        self, name: str, send: Callable[[Sequence[Q]], Awaitable[Sequence[A]]], failed: Callable[[Q], A]
    ) -> None:
        """`send(questions)` returns the responses in order and never raises; if it does, `failed(question)` is used.

        `name` is for the log.
        """
        self._name = name
        self._send = send
        self._failed = failed
        self._waiting: deque[tuple[Q, asyncio.Future[A]]] = deque()
        self._sending: asyncio.Task[None] | None = None

    def put(self, question: Q) -> asyncio.Future[A]:
        """Return a future of the response. Questions of one turn of the loop share a request, sent in a later turn.

        A question whose future is cancelled before is not asked.
        """
        future: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self._waiting.append((question, future))
        if self._sending is None:
            self._sending = asyncio.create_task(self._send_all(), name=self._name)
        return future

    async def _send_all(self) -> None:
        try:
            while batch := self._next_batch():
                try:
                    responses = await self._send([question for question, _ in batch])
                except Exception:
                    logger.exception("%s failed unexpectedly", self._name)
                    responses = [self._failed(question) for question, _ in batch]
                for (_, future), response in zip(batch, responses, strict=True):
                    if not future.done():
                        future.set_result(response)
        finally:
            self._sending = None

    def _next_batch(self) -> list[tuple[Q, asyncio.Future[A]]]:
        """Take the questions of the next request from those that wait, in their order, until it is full.

        A few questions about what the request has already are passed over, and stay first in line.
        """
        batch: dict[Hashable, tuple[Q, asyncio.Future[A]]] = {}
        passed: list[tuple[Q, asyncio.Future[A]]] = []
        size = 0
        while self._waiting and len(batch) < ITEMS_MAX and len(passed) < ITEMS_MAX:
            question, future = self._waiting[0]
            is_open = not future.done()
            is_asked = is_open and question.key in batch
            if is_open and batch and not is_asked and size + question.size > SIZE_MAX:
                break
            self._waiting.popleft()
            if is_asked:
                passed.append((question, future))
            elif is_open:
                batch[question.key] = question, future
                size += question.size
        self._waiting.extendleft(reversed(passed))
        return list(batch.values())
