"""Loads the plug-ins of `metric.reporters` and `kafka.metrics.reporters`.

Must not know when they are called, or what they are given.
"""

from __future__ import annotations

from typing import Any

from broker.settings.plug_ins import LISTS, configured_plug_in, plug_in_names
from config.broker import BrokerConfig
from config.definition import Property


def reporter_names(config: BrokerConfig) -> dict[str, Property[tuple[str, ...]]]:
    """Return the names of all reporters, each once, with a setting that names it."""
    return {name: row for row in LISTS for name in plug_in_names(config, row)}


def new_reporters(config: BrokerConfig) -> dict[str, Any]:
    """Return new reporters by name. Raises InvalidPlugInError."""
    return {name: configured_plug_in(config, row, name, "report") for name, row in reporter_names(config).items()}
