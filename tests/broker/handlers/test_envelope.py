"""Envelope: a broker that sends it loses its connection, as with Kafka in ZooKeeper mode."""

from __future__ import annotations

import pytest

from protocol.errors import Malformed
from protocol.messages.envelope import EnvelopeRequest
from tests.support.in_process import InProcessBroker


async def test_the_connection_is_closed(served: InProcessBroker) -> None:
    request = EnvelopeRequest(request_data=b"", request_principal=None, client_host_address=b"")
    with pytest.raises(Malformed, match="forward no requests"):
        await served.ask(request, 0)
