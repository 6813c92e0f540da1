"""How a broker connects to the other brokers of its cluster: encryption and login.

Owns the thread in which logins wait for servers. Must not know which connections there are.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from broker.environment import Environment
from broker.listeners import BrokerListeners
from broker.network.outgoing import LinkSecurity
from broker.stores import surroundings
from config.broker import BrokerConfig


def link_security(
    config: BrokerConfig, environment: Environment, listeners: BrokerListeners, undo: AsyncExitStack
) -> LinkSecurity:
    """Return how connections to other brokers are secured; `undo` ends the thread of their logins."""
    from broker.settings.sasl_settings import broker_login  # a broker that runs alone starts without it

    thread = environment.new_threads(1, "logins")  # one login after another
    undo.callback(thread.shutdown, wait=False)
    loop = asyncio.get_running_loop()
    return LinkSecurity(
        listeners.broker_tls(),
        broker_login(config, surroundings(environment), lambda work: loop.run_in_executor(thread, work)),
    )
