"""Envelope: a broker forwards a client's request to the controller (KIP-590).

ApiVersions lists it, as that of Kafka in ZooKeeper mode does. There as here, brokers forward nothing unless the cluster
migrates to KRaft, and a peer that sends it all the same loses its connection.
"""

from __future__ import annotations

from typing import NoReturn

from broker.handlers.declaration import Declaration
from broker.handlers.request_context import RequestContext
from protocol.api_key import ApiKey
from protocol.errors import Malformed
from protocol.messages.envelope import EnvelopeRequest

API = Declaration(ApiKey.ENVELOPE)


def handle(services: object, request: EnvelopeRequest, context: RequestContext) -> NoReturn:
    raise Malformed("brokers with their metadata in ZooKeeper forward no requests")
