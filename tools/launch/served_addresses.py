"""The addresses at which this machine reaches a broker that runs on it.

Owns their text in the run file of a broker. Must not know who reads it. A broker imports this, so it imports little.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from config.addresses import HostAndPort
from config.broker import BrokerConfig
from config.broker_properties import METRICS_HTTP_LISTENER, METRICS_HTTP_SSL_ENABLE

_EVERY_ADDRESS: Final[Mapping[str, str]] = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}


class Address(NamedTuple):
    """One address of a running broker, and what it speaks: http, https or a security protocol."""

    kind: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.kind}://{host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> Address:
        """Return the address that `str` has written. Raises ValueError."""
        kind, _, address = text.partition("://")
        return cls(kind, *HostAndPort.parse(address))


def addresses_of(config: BrokerConfig, ports: Mapping[str, int], metrics_port: int | None) -> list[Address]:
    """Return the addresses of a broker with their real ports, as this machine reaches them."""
    found = [
        Address(listener.security_protocol.name, _reachable(listener.host), ports[listener.name])
        for listener in config.listeners
        if listener.name in ports
    ]
    if metrics_port is not None and (of_metrics := config[METRICS_HTTP_LISTENER]) is not None:
        kind = "https" if config[METRICS_HTTP_SSL_ENABLE] else "http"
        found.append(Address(kind, _reachable(HostAndPort.parse(of_metrics).host), metrics_port))
    return found


def _reachable(host: str) -> str:
    return _EVERY_ADDRESS.get(host, host)
