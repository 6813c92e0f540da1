"""The table of APIs that this broker serves: API key -> handler module.

Owns which APIs are served, not what they do. ApiVersions advertises exactly these; docs/not-yet.md lists the others. A
handler module has the name of the module of its messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from types import MappingProxyType, ModuleType

from protocol.api import APIS

NOT_SERVED = frozenset({58})
"""Envelope: brokers send it to each other while they migrate to KRaft (docs/not-yet.md)."""


_HANDLERS: Mapping[int, str] = MappingProxyType({key: api.module for key, api in APIS.items() if key not in NOT_SERVED})


class _Handlers(Mapping[int, ModuleType]):
    """The handler modules by API key, each imported at its first use: most brokers never serve half of the APIs."""

    def __getitem__(self, key: int) -> ModuleType:
        return import_module(f"broker.handlers.{_HANDLERS[key]}")

    def __iter__(self) -> Iterator[int]:
        return iter(_HANDLERS)

    def __len__(self) -> int:
        return len(_HANDLERS)

    def __contains__(self, key: object) -> bool:
        return key in _HANDLERS


TABLE: Mapping[int, ModuleType] = _Handlers()

_CONTROLLER, _STORE, _COORDINATOR_LOG = "controller", "metadata store", "coordinator log"

WAITS_FOR: Mapping[int, str] = MappingProxyType(
    {
        3: _CONTROLLER,  # creates missing topics
        7: _CONTROLLER,
        8: _COORDINATOR_LOG,
        10: _CONTROLLER,  # creates the coordinators' topics
        11: "members",
        12: "members",
        13: "members",
        14: "members",
        19: _CONTROLLER,
        20: _CONTROLLER,
        21: "replicas",
        22: _COORDINATOR_LOG,
        24: _COORDINATOR_LOG,
        25: _COORDINATOR_LOG,
        26: _COORDINATOR_LOG,
        27: "replicas",
        28: _COORDINATOR_LOG,
        33: _STORE,
        37: _CONTROLLER,
        42: _COORDINATOR_LOG,
        43: _CONTROLLER,
        44: _STORE,
        45: _CONTROLLER,
        46: _CONTROLLER,
        47: _COORDINATOR_LOG,
        48: _STORE,
        49: _STORE,
        50: _STORE,
        51: _STORE,
        56: _CONTROLLER,
        67: _CONTROLLER,
    }
)
"""What an awaited response of each API waits for; this counts as remote time. The handlers of Produce and Fetch name
their waits themselves. Responses of other APIs wait only for disks and threads of this broker, which is local time."""
