"""Loads the plug-in of `principal.builder.class`.

Must not know how principals are used.
"""

from __future__ import annotations

from typing import cast

from broker.network.principals import PrincipalBuilder
from broker.settings.plug_ins import configured_plug_in
from config import broker_properties as rows
from config.broker import BrokerConfig


def principal_builder(config: BrokerConfig, listener: str) -> PrincipalBuilder | None:
    """Return a new plug-in for a listener; None if it is Kafka's own. Raises InvalidPlugInError."""
    row = rows.PRINCIPAL_BUILDER_CLASS
    name = config.for_listener(listener, row)
    if not name or name == rows.DEFAULT_PRINCIPAL_BUILDER:
        return None
    return cast(PrincipalBuilder, configured_plug_in(config, row, name, "build"))
