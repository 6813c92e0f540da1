"""Stores the SCRAM credentials of users that a container's environment names, once its broker serves.

Owns the request. Must not know where the users come from. The log never contains a password.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from broker.requests.local_client import LocalClient
from broker.server import Server
from config.broker import BrokerConfig
from config.broker_properties import SASL_ENABLED_MECHANISMS, SUPER_USERS
from protocol.errors import ErrorCode
from protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from tools.client.scram_credentials import new_credential
from tools.launch.container_users import SCRAM

logger = logging.getLogger("kafka.server.KafkaServer")


async def create(server: Server, config: BrokerConfig, users: Mapping[str, str]) -> None:
    """Set the password of each user for SCRAM, if it is enabled; log each with the reason if it could not be set."""
    mechanisms = [mechanism for mechanism in SCRAM if mechanism in config[SASL_ENABLED_MECHANISMS]]
    if not mechanisms:
        return
    client = LocalClient(server.dispatcher, server.clock, config.listeners[0].name)
    if super_users := config[SUPER_USERS].split(";"):
        client.channel.principal = super_users[0].strip() or client.channel.principal
    upsertions = [
        new_credential(user, mechanism, password) for user, password in users.items() for mechanism in mechanisms
    ]
    response = await client.ask(AlterUserScramCredentialsRequest(deletions=[], upsertions=upsertions))
    for result in response.results:
        code = ErrorCode(result.error_code)
        if code is ErrorCode.NONE:
            logger.info("set the password of user %s for %s", result.user, ", ".join(mechanisms))
        elif code is ErrorCode.NOT_CONTROLLER:
            logger.info("the broker that is the controller sets the password of user %s", result.user)
        else:
            logger.error("cannot set the password of user %s: %s", result.user, result.error_message or code.name)
