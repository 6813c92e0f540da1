"""The parts that serve share groups, made when they are first needed: few brokers have share groups."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from broker.coordination.background import Unfinished

if TYPE_CHECKING:
    from broker.share.parts import ShareParts


class ShareOnDemand:
    """Returns the parts when it is called."""

    def __init__(self, make: Callable[[], ShareParts]) -> None:
        self._make = make
        self._parts: ShareParts | None = None

    def __call__(self) -> ShareParts:
        if self._parts is None:
            self._parts = self._make()
        return self._parts

    def brokers_changed(self, live: Collection[int]) -> None:
        """Forget brokers that are not alive."""
        if self._parts is not None:
            self._parts.links.brokers_changed(live)

    async def stop(self) -> Unfinished:
        """Cancel what is unfinished, and return it: cancelled work still has to end."""
        return [] if self._parts is None else await self._parts.stop()
