"""The port of a plug-in that decides client quotas (KIP-257), named by `client.quota.callback.class`.

Owns what the broker asks and reports. A plug-in is a Python class, `package.module:Class`, on the broker's path. The
broker calls it on its event loop, once for each new client and key, and remembers what it returns until a stored quota
changes or the plug-in calls `reset`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol


class CallbackQuota(NamedTuple):
    """A limit, and which clients share it: those for which the plug-in returns the same `shared_by`."""

    limit: float
    shared_by: tuple[str, str]
    """User and client id as metrics show them; an empty one means all."""


class QuotaCallback(Protocol):
    """What a plug-in has."""

    def quota(self, key: str, user: str, client_id: str) -> CallbackQuota | None:
        """Return the quota of a client for a key such as `producer_byte_rate`; None for no limit."""
        ...

    def quotas_stored(self, quotas: Mapping[tuple[tuple[str, str | None], ...], Mapping[str, float]]) -> None:
        """Note all quotas that kafka-configs has stored, at the start and after each change.

        They are keyed by entity, such as `(("users", "alice"), ("clients", None))`; None is the default entity.
        """
        ...
