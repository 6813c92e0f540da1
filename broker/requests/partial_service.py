"""Serves a part of a request, and adds the results of the other part to the response.

Owns how a part of a request is served by its handler, whatever the handler returns. Must not know why the other part is
not served.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, TypeVar

from broker.handlers.request_context import RequestContext
from broker.loop.slices import is_sliced
from broker.requests.services import Services
from protocol.api import Api
from protocol.codec import decode
from protocol.row_writer import RowResponse

T = TypeVar("T")

Handle = Callable[[Services, Any, RequestContext], Any]


class PartialService:
    """The handler of one API."""

    def __init__(self, module: ModuleType, api: Api, handle: Handle) -> None:
        """`handle` serves what this service lets through: that of `module`, or another service."""
        self._module = module
        self._api = api
        self._handle = handle

    def _begun(self, services: Services, request: Any, context: RequestContext) -> Any:
        """Begin to serve a request, which must happen before dispatch returns: it may point into its frame."""
        outcome = self._handle(services, request, context)
        return services.sliced_work.run(outcome) if is_sliced(outcome) else outcome

    async def _extended(
        self,
        services: Services,
        outcome: object,
        context: RequestContext,
        results: str,
        refused: Callable[[], Sequence[Any]],
    ) -> object:
        """Return the response of the handler with the results of what was denied."""
        response = await self._settled(services, outcome, context)
        further = await self._computed(services, context, refused)
        if response is not None:
            setattr(response, results, [*getattr(response, results), *further])
        return response

    async def _settled(self, services: Services, outcome: object, context: RequestContext) -> Any:
        response = await services.sliced_work.settled(outcome)
        return await self._computed(services, context, lambda: self._as_message(response, context))

    async def _computed(self, services: Services, context: RequestContext, work: Callable[[], T]) -> T:
        """Return the result of `work`, whose time depends on the number of elements: in a thread if they are many."""
        return await services.cpu_pool.run(work) if context.is_frame_kept else work()

    def _as_message(self, response: object, context: RequestContext) -> Any:
        """Return a response as an object of its class, also if its handler returned rows."""
        if type(response) is not RowResponse:
            return response
        return decode(self._api.response, context.api_version, b"".join(response.write()))


def with_field(request: Any, field: str, value: object) -> Any:
    """Return a copy of a request with another value of a field."""
    if isinstance(request, tuple):
        return request._replace(**{field: value})  # type: ignore[attr-defined]
    changed = copy.copy(request)
    setattr(changed, field, value)
    return changed
