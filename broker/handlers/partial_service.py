"""Serves a part of a request, and adds the results of the other part to the response.

Owns how a part of a request is served by its handler, whatever the handler returns. Must not know why the other part is
not served.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from types import CoroutineType, ModuleType
from typing import Any, Protocol, TypeVar

from broker.handlers.request_context import RequestContext
from broker.loop.cpu_pool import CpuPool
from broker.loop.promise import Promise
from broker.loop.slices import SlicedWork
from protocol.api import Api
from protocol.codec import decode
from protocol.row_writer import RowResponse

T = TypeVar("T")

Handle = Callable[[Any, Any, RequestContext], Any]
"""Serves a request, given the services, the request and its context, as a handler module does."""


class Needs(Protocol):
    """The parts of the broker that every service of a part uses."""

    sliced_work: SlicedWork
    cpu_pool: CpuPool


class PartialService:
    """The handler of one API."""

    def __init__(self, module: ModuleType, api: Api, handle: Handle) -> None:
        """`handle` serves what this service lets through: that of `module`, or another service."""
        self.module = module
        self.api = api
        self.handle = handle

    def begun(self, services: Needs, request: Any, context: RequestContext) -> Any:
        """Begin to serve a request, which must happen before dispatch returns: it may point into its frame.

        Returns the response or a promise of it.
        """
        return self.start(services, self.handle(services, request, context))

    def start(self, services: Needs, outcome: Any) -> Any:
        """Return a response, or a promise of it if `outcome` is a coroutine that waits."""
        return services.sliced_work.start(outcome) if type(outcome) is CoroutineType else outcome

    async def served(self, services: Needs, request: Any, context: RequestContext) -> Any:
        """Serve a request and return its response as the handler does."""
        outcome = self.begun(services, request, context)
        return await outcome if isinstance(outcome, Promise) else outcome

    async def extended(
        self,
        services: Needs,
        outcome: object,
        context: RequestContext,
        results: str,
        refused: Callable[[], Sequence[Any]],
    ) -> object:
        """Return the response of the handler with the results of what was denied."""
        response = await self.settled(services, outcome, context)
        further = await self.computed(services, context, refused)
        if response is not None:
            setattr(response, results, [*getattr(response, results), *further])
        return response

    async def settled(self, services: Needs, outcome: object, context: RequestContext) -> Any:
        """Return the response that `begun` returned or promised, as an object of its class."""
        response = await outcome if isinstance(outcome, Promise) else outcome
        return await self.computed(services, context, lambda: self.as_message(response, context))

    async def computed(self, services: Needs, context: RequestContext, work: Callable[[], T]) -> T:
        """Return the result of `work`, whose time depends on the number of elements: in a thread if they are many."""
        return await services.cpu_pool.run(work) if context.is_frame_kept else work()

    def as_message(self, response: object, context: RequestContext) -> Any:
        """Return a response as an object of its class, also if its handler returned rows."""
        if type(response) is not RowResponse:
            return response
        return decode(self.api.response, context.api_version, b"".join(response.write()))


def with_field(request: Any, field: str, value: object) -> Any:
    """Return a copy of a request with another value of a field."""
    if isinstance(request, tuple):
        return request._replace(**{field: value})  # type: ignore[attr-defined]
    changed = copy.copy(request)
    setattr(changed, field, value)
    return changed
