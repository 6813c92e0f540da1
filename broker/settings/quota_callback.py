"""Loads the plug-in of `client.quota.callback.class`.

Owns which errors stop the start. Must not know quotas.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable

from broker.quotas.callback import NewQuotaCallback, QuotaCallback
from config import broker_properties as rows
from config.broker import BrokerConfig


class InvalidPlugInError(Exception):
    """A plug-in cannot be used. The message names the setting and what was expected."""


def quota_callback(config: BrokerConfig) -> Callable[[Callable[[], None]], QuotaCallback] | None:
    """Return a function from `reset` to the plug-in; None without one. Raises InvalidPlugInError, also later."""
    row = rows.CLIENT_QUOTA_CALLBACK_CLASS
    name = config[row]
    if not name:
        return None
    module, _, class_name = name.rpartition(".")
    try:
        plug_in: NewQuotaCallback = getattr(importlib.import_module(module), class_name)
    except Exception as error:
        raise InvalidPlugInError(
            f"Invalid value {name} for configuration {row.name}: {error!r}; expected package.module.Class of a Python "
            "class on the broker's PYTHONPATH"
        ) from error

    def new(reset: Callable[[], None]) -> QuotaCallback:
        try:
            return plug_in(dict(config.static), reset)
        except Exception as error:
            raise InvalidPlugInError(f"{row.name}: {name} cannot be created: {error!r}") from error

    return new
