"""The listeners of one broker, from their addresses to their protection, while settings change.

Owns the sockets, their TLS contexts, and what logins need. Must not know requests, or when clients are admitted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from broker.environment import Environment
from broker.loop.in_order import InOrder
from broker.network.descriptors import DescriptorBudget
from broker.network.network import ListenError
from broker.network.socket_server import SocketServer
from broker.settings.component_settings import connection_limits, limits_by_address, listener_settings
from broker.settings.listener_security import HTTP_LISTENER, encrypted_listeners, sasl_listeners
from broker.settings.plug_ins import InvalidPlugInError
from broker.settings.principal_builder import principal_builder
from broker.settings.security_sources import TLS_PROTOCOLS, InvalidSecurityError, Sources
from config.broker import BrokerConfig
from config.broker_properties import MAX_CONNECTIONS_PER_IP_OVERRIDES
from config.listeners import Listener
from controller.machine.model import Broker, Endpoint
from protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from broker.network.tls import ClientContext, ServerContext
    from broker.settings.listener_tls import ListenerTls

logger = logging.getLogger("kafka.server.KafkaServer")


class BrokerListeners:
    """The listeners of one broker."""

    def __init__(
        self,
        config: BrokerConfig,
        environment: Environment,
        sources: Sources,
        address_rate: Callable[[str], float | None],
        undo: AsyncExitStack,
    ) -> None:
        """Bind the addresses of all listeners; `undo` closes them. Raises ListenError, InvalidSecurityError.

        `address_rate(host)` returns how many connections a second an address may open; None: any number.
        """
        self._config = config
        self._tls: ListenerTls | None = None
        self.sources = sources
        self._limiting = InOrder()
        """Keeps changes of the limits in one order: each waits until names are resolved."""
        control_plane = config.control_plane_listener
        self.sockets = SocketServer(
            environment.network,
            listener_settings(config),
            connection_limits(config, {}),
            environment.clock,
            None if control_plane is None else control_plane.name,
            descriptors=DescriptorBudget(environment.descriptors_max, environment.open_descriptors),
            address_rate=address_rate,
            new_principal_builder=partial(principal_builder, config),
        )
        sasl = sasl_listeners(config, sources)
        if encrypted_listeners(config):
            self._tls = _new_tls(config)
        undo.callback(self.close)
        self.sockets.bind(config.listeners)
        tls = {} if self._tls is None else self._tls.listeners
        self.sockets.secure({name: one for name, one in tls.items() if name != HTTP_LISTENER}, sasl)

    def close(self) -> None:
        self.sockets.stop_accepting()
        self.sockets.close_connections()

    async def limit_connections(self) -> None:
        """Apply the limits of connections. Before, there are none of single addresses.

        The limit of a host without an address is logged and left out.
        """
        async with self._limiting:
            overrides, errors = await limits_by_address(self._config[MAX_CONNECTIONS_PER_IP_OVERRIDES])
            self.sockets.quotas.reconfigure(connection_limits(self._config, overrides))
        for error in errors:
            logger.error("the limit of a host is not in effect: %s", error)

    def http_tls(self) -> Callable[[], ServerContext | None]:
        """Return a function that returns the TLS context of the HTTP listener; None without TLS."""
        one = None if self._tls is None else self._tls.listeners.get(HTTP_LISTENER)
        return lambda: None if one is None else one.context

    def broker_tls(self) -> Callable[[], ClientContext] | None:
        """Return a function that returns the TLS context of connections to other brokers; None without TLS."""
        tls, listener = self._tls, self._config.inter_broker_listener
        if tls is None or listener.security_protocol not in TLS_PROTOCOLS:
            return None
        return lambda: tls.broker_context(listener.name)

    def apply_stored(self) -> None:
        """Put the stored listener settings into effect before clients are served, those of SASL included."""
        for listener in self._config.listeners:
            if self.sockets.addresses.get(listener.name, listener) != listener:
                self._remove(listener.name)
        self.apply()
        if not self._config.dynamic_broker:
            return
        for listener in self.sockets.addresses.values():
            try:
                self.sockets.secure({}, sasl_listeners(self._config, self.sources, [listener]))
            except InvalidSecurityError as error:
                logger.error("listener %s keeps the logins of the file: %s", listener, error)

    def apply(self) -> None:
        """Bind the addresses of new listeners, close those of removed ones, and read changed key stores."""
        config, sockets = self._config, self.sockets
        wanted = {listener.name: listener for listener in config.listeners}
        for name in sockets.addresses.keys() - wanted.keys():
            self._remove(name)
        if self._tls is not None:
            self._tls.reload(config)
        for name, listener in wanted.items():
            if (bound := sockets.addresses.get(name)) is None:
                self._add(listener)
            elif bound != listener:
                logger.warning("listener %s is bound to %s until a restart", listener, bound)

    def _remove(self, name: str) -> None:
        logger.info("closing listener %s", self.sockets.addresses[name])
        self.sockets.remove(name)
        if self._tls is not None:
            self._tls.forget(name)

    def _add(self, listener: Listener) -> None:
        """Serve one more listener. One that cannot be served is logged, and stays closed."""
        try:
            tls = None
            if listener.security_protocol in TLS_PROTOCOLS:
                if self._tls is None:
                    self._tls = _new_tls(self._config)
                if (tls := self._tls.listeners.get(listener.name)) is None:
                    raise InvalidSecurityError("its key store or trust store cannot be used")
            sasl = sasl_listeners(self._config, self.sources, [listener]).get(listener.name)
            self.sockets.add(listener, tls, sasl)
        except (InvalidPlugInError, InvalidSecurityError, ListenError) as error:
            logger.error("listener %s is not served: %s", listener, error)
        else:
            logger.info("listening on %s, port %d", listener, self.sockets.ports[listener.name])

    def advertised(self, host_name: Callable[[], str]) -> tuple[Endpoint, ...]:
        """Return the addresses that clients use, with the real ports. `host_name` returns the host of those without."""
        ports = self.sockets.ports
        return tuple(
            Endpoint(one.name, one.host or host_name(), one.port or ports[one.name], one.security_protocol.name)
            for one in self._config.advertised_listeners
            if one.name in ports  # one that was added, and could not be bound, is missing
        )

    def log_addresses(self, advertised: Broker) -> None:
        """Log where clients find the broker."""
        for listener in self.sockets.addresses.values():
            bound = f"{listener.name}://{listener.host or '0.0.0.0'}:{self.sockets.ports[listener.name]}"
            endpoint = advertised.endpoint(listener.name)
            clients_use = f", clients connect to {endpoint.host}:{endpoint.port}" if endpoint is not None else ""
            logger.info("listening on %s%s", bound, clients_use)

    def check(self, config: BrokerConfig) -> None:
        """Raise KafkaError if the listeners of a changed configuration cannot be served."""
        added = [listener for listener in config.listeners if listener.name not in self.sockets.addresses]
        sources = replace(self.sources, remote_keys=dict(self.sources.remote_keys))
        try:
            if self._tls is not None:
                self._tls.check(config)
            elif encrypted_listeners(config):
                _new_tls(config)
            sasl_listeners(config, sources, added)
            if sources.remote_keys != self.sources.remote_keys:
                raise InvalidSecurityError("a new listener with keys of another address needs a restart of the broker")
        except InvalidSecurityError as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error

    def stores_reload(self) -> Callable[[], None] | None:
        """Return a function that reads the stores again whose files have changed, and blocks; None without TLS."""
        return None if self._tls is None else partial(self._tls.reload, self._config)


def _new_tls(config: BrokerConfig) -> ListenerTls:
    from broker.settings.listener_tls import ListenerTls  # its library takes time and memory to load

    return ListenerTls(config)
