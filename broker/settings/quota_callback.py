"""Loads the plug-in of `client.quota.callback.class`.

Must not know quotas.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.settings.plug_ins import new_plug_in, plug_in_class
from config import broker_properties as rows
from config.broker import BrokerConfig

if TYPE_CHECKING:
    from broker.quotas.callback import QuotaCallback


def quota_callback(config: BrokerConfig) -> Callable[[Callable[[], None]], QuotaCallback] | None:
    """Return a function from `reset` to the plug-in; None without one. Raises InvalidPlugInError, also later."""
    row = rows.CLIENT_QUOTA_CALLBACK_CLASS
    name = config[row]
    if not name:
        return None
    plug_in_class(row, name)  # a wrong name stops the start here

    def new(reset: Callable[[], None]) -> QuotaCallback:
        created: QuotaCallback = new_plug_in(row, name, dict(config.static), reset)
        return created

    return new
