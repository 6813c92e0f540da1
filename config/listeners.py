"""The addresses of a broker: the syntax of `listeners`, and the rules between the listener settings.

It resolves and opens nothing: an empty host and port 0 are kept for the caller that binds.

Owns the syntax and the rules. Must not know sockets.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from config import broker_properties as rows
from config.definition import ConfigError, Property, Settings

_LISTENER = r"(?P<name>[^:/]*)://\[?(?P<host>[0-9a-zA-Z\-%._:]*)\]?:(?P<port>-?[0-9]+)"
_IPV4_ADDRESS = r"[0-9]{1,3}(\.[0-9]{1,3}){3}"
_PORT_MAX = 65535
LISTENERS_MAX = 100
"""Each listener has a socket and a buffer, and clients may add listeners while the broker runs."""


LISTENER_KEYS = frozenset(
    row.name
    for row in (
        rows.LISTENERS,
        rows.ADVERTISED_LISTENERS,
        rows.LISTENER_SECURITY_PROTOCOL_MAP,
        rows.INTER_BROKER_LISTENER_NAME,
        rows.SECURITY_INTER_BROKER_PROTOCOL,
        rows.CONTROL_PLANE_LISTENER_NAME,
        rows.CONTROLLER_LISTENER_NAMES,
    )
)
"""The settings that are read together."""


class SecurityProtocol(Enum):
    """How a client authenticates, and whether its connection is encrypted."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"


class Listener(NamedTuple):
    """One address under its name. An empty host is every address; port 0 is any free one."""

    name: str
    host: str
    port: int
    security_protocol: SecurityProtocol

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


class BrokerListeners(NamedTuple):
    """What the listener settings say together. Those of `controller.listener.names` are in `of_controllers` alone."""

    bound: tuple[Listener, ...]
    advertised: tuple[Listener, ...]
    inter_broker: Listener
    control_plane: Listener | None
    of_controllers: tuple[str, ...]


def read_listeners(settings: Settings) -> BrokerListeners:
    """The listeners of a broker. Raises ConfigError for the first rule that is broken."""
    protocols = _parse_protocol_map(settings[rows.LISTENER_SECURITY_PROTOCOL_MAP])
    controllers = {name.upper() for name in _elements(settings[rows.CONTROLLER_LISTENER_NAMES] or "")}
    bound, of_controllers = _parse_listeners(rows.LISTENERS, settings[rows.LISTENERS], protocols, controllers)
    _refuse(rows.LISTENERS, settings, _bound_problem(bound, of_controllers))
    if "controller" in settings[rows.PROCESS_ROLES] and not controllers and len(bound) > 1:
        raise ConfigError(
            rows.CONTROLLER_LISTENER_NAMES.name,
            None,
            f"{rows.PROCESS_ROLES.name} has a controller, expected the names of its listeners among "
            f"{', '.join(listener.name for listener in bound)}: clients are not served there",
        )
    advertised_row: Property[str | None] = rows.ADVERTISED_LISTENERS
    advertised_text = settings[advertised_row]
    if advertised_text is None:
        advertised_row, advertised = rows.LISTENERS, bound
    else:
        advertised, _ = _parse_listeners(advertised_row, advertised_text, protocols, controllers)
    _refuse(advertised_row, settings, _advertised_problem(advertised, bound))
    inter_broker = _inter_broker_listener(settings, advertised)
    control_plane = _control_plane(settings, advertised, protocols, inter_broker)
    return BrokerListeners(bound, advertised, inter_broker, control_plane, of_controllers)


def _refuse(row: Property[object], settings: Settings, problem: str | None) -> None:
    if problem is not None:
        raise ConfigError(row.name, str(settings[row]), problem)


def _parse_protocol_map(text: str) -> dict[str, SecurityProtocol]:
    protocols: dict[str, SecurityProtocol] = {}
    for entry in _limited_elements(rows.LISTENER_SECURITY_PROTOCOL_MAP, text):
        name, _, protocol = (part.strip().upper() for part in entry.rpartition(":"))
        if not name or protocol not in SecurityProtocol.__members__:
            expected = f"Expected NAME:PROTOCOL with one of {', '.join(SecurityProtocol.__members__)}, found '{entry}'"
            raise ConfigError(rows.LISTENER_SECURITY_PROTOCOL_MAP.name, text, expected)
        protocols[name] = SecurityProtocol[protocol]
    return protocols


def _parse_listeners(
    row: Property[object], text: str, protocols: Mapping[str, SecurityProtocol], controllers: Collection[str]
) -> tuple[tuple[Listener, ...], tuple[str, ...]]:
    """Return the listeners of brokers and clients, and the entries of those whose names are in `controllers`."""
    listeners: list[Listener] = []
    of_controllers: list[str] = []
    for entry in _limited_elements(row, text):
        match = re.fullmatch(_LISTENER, entry, re.ASCII)
        if match is None:
            raise ConfigError(row.name, text, f"Expected NAME://host:port, found '{entry}'")
        name, port = match["name"].upper(), int(match["port"][:6])
        if not 0 <= port <= _PORT_MAX:
            raise ConfigError(row.name, text, f"Expected a port from 0 to {_PORT_MAX}, found {match['port']}")
        if name in controllers:
            of_controllers.append(entry)
        elif name not in protocols:
            raise ConfigError(row.name, text, f"No security protocol defined for listener {name}")
        else:
            listeners.append(Listener(name, match["host"], port, protocols[name]))
    return tuple(listeners), tuple(of_controllers)


def _bound_problem(listeners: Sequence[Listener], of_controllers: Sequence[str]) -> str | None:
    if not listeners:
        others = f" besides those of {rows.CONTROLLER_LISTENER_NAMES.name}" if of_controllers else ""
        return f"At least one listener is needed{others}"
    if names := _duplicates(listener.name for listener in listeners):
        return f"Each listener must have a different name, found {', '.join(names)} more than once"
    for port in {listener.port for listener in listeners if listener.port}:
        hosts = [listener.host for listener in listeners if listener.port == port]
        # An IPv4 and an IPv6 address may share a port: they are different sockets.
        if len(hosts) > 1 and sorted(map(_address_family, hosts)) != [4, 6]:
            return f"Each listener must have a different port, found {port} more than once"
    return None


def _address_family(host: str) -> int:
    """4 or 6 for a literal address, 0 for a name or every address."""
    return 6 if ":" in host else 4 if re.fullmatch(_IPV4_ADDRESS, host, re.ASCII) else 0


def _advertised_problem(advertised: Sequence[Listener], bound: Sequence[Listener]) -> str | None:
    bound_names = [listener.name for listener in bound]
    if not advertised:
        return "At least one listener is needed"
    if unknown := [listener.name for listener in advertised if listener.name not in bound_names]:
        return f"Only names of listeners ({', '.join(bound_names)}) can be advertised, found {', '.join(unknown)}"
    if names := _duplicates(listener.name for listener in advertised):
        return f"Each listener must have a different name, found {', '.join(names)} more than once"
    if any(listener.host == "0.0.0.0" for listener in advertised):
        return "Clients cannot reach the address 0.0.0.0; set advertised.listeners to a routable one"
    return None


def _control_plane(
    settings: Settings,
    advertised: Sequence[Listener],
    protocols: Mapping[str, SecurityProtocol],
    inter_broker: Listener,
) -> Listener | None:
    """The listener that the controller connects to, under the rules and in the words of Kafka."""
    row = rows.CONTROL_PLANE_LISTENER_NAME
    given = settings[row]
    if given is None:
        return None
    name = given.upper()
    if name not in protocols:
        raise ConfigError(
            row.name,
            given,
            f"Listener with {name} defined in {row.name} not found in {rows.LISTENER_SECURITY_PROTOCOL_MAP.name}.",
        )
    if name == inter_broker.name:
        raise ConfigError(
            row.name,
            given,
            f"{row.name}, when defined, should have a different value from the inter broker listener name. "
            f"Currently they both have the value {name}",
        )
    for listener in advertised:
        if listener.name == name:
            return listener
    names = ",".join(listener.name for listener in advertised)
    raise ConfigError(
        row.name,
        given,
        f"{row.name} must be a listener name defined in {rows.ADVERTISED_LISTENERS.name}. "
        f"The valid options based on currently configured listeners are {names}",
    )


def _inter_broker_listener(settings: Settings, advertised: Sequence[Listener]) -> Listener:
    row: Property[str | None] = rows.INTER_BROKER_LISTENER_NAME
    protocol_is_set = settings.is_set(rows.SECURITY_INTER_BROKER_PROTOCOL)
    if settings[row] is not None and protocol_is_set:
        raise ConfigError(
            row.name, settings[row], f"Only one of it and {rows.SECURITY_INTER_BROKER_PROTOCOL.name} may be set"
        )
    if settings[row] is None:
        row = rows.SECURITY_INTER_BROKER_PROTOCOL
    name = settings[row]
    for listener in advertised:
        if name is not None and listener.name == name.upper():
            return listener
    names = ", ".join(listener.name for listener in advertised)
    raise ConfigError(
        row.name,
        name,
        f"Brokers need an advertised listener of that name to reach each other, found {names}; "
        f"set {rows.INTER_BROKER_LISTENER_NAME.name} to one of them",
    )


def _limited_elements(row: Property[object], text: str) -> list[str]:
    """Return the elements. Raises ConfigError for too many; the message does not repeat them."""
    if text.count(",") >= LISTENERS_MAX:
        raise ConfigError(row.name, f"{text[:100]}...", f"Expected at most {LISTENERS_MAX} elements")
    return _elements(text)


def _elements(text: str) -> list[str]:
    return [element for element in (part.strip() for part in text.split(",")) if element]


def _duplicates(names: Iterable[str]) -> list[str]:
    counted = list(names)
    return sorted({name for name in counted if counted.count(name) > 1})
