"""Checks that the broker of a container responds: the HEALTHCHECK of the image.

The broker names its addresses in its run file when it serves clients, so the check follows its settings. The metrics'
port reports the health itself; otherwise a listener must respond. Only one address is checked: the one that says most
of those that accept connections.

Owns the choice of the address, and the check. Must not know how the broker was configured.
"""

from __future__ import annotations

import socket
import ssl
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from protocol.errors import KafkaError
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tools.base.command_line import UnreachableError
from tools.client.admin_client import AdminClient, CallTimedOut
from tools.client.bootstrap import Endpoint
from tools.launch.running_servers import RunningBroker, running_brokers
from tools.launch.served_addresses import Address

TIMEOUT_S: Final = 4.0
"""A second less than the limit of the HEALTHCHECK."""


def main() -> int:
    """Return the exit status: 0 if each running broker of this installation responds, and one runs."""
    problem = problem_of(running_brokers())
    if problem is not None:
        print(problem, file=sys.stderr)
    return 0 if problem is None else 1


def problem_of(brokers: Sequence[RunningBroker]) -> str | None:
    """Return why the brokers are not healthy, None if they are."""
    if not brokers:
        return "no broker runs"
    for broker in brokers:
        listening = [each for each in map(Address.parse, broker.addresses) if _accepts(each)]
        chosen = choose(listening)
        if chosen is None:
            state = "accepts no connections" if broker.addresses else "does not serve clients yet"
            return f"broker {broker.broker_id} {state}"
        if (problem := _CHECKS[chosen.kind](Endpoint(chosen.host, chosen.port))) is not None:
            return f"broker {broker.broker_id} at {chosen}: {problem}"
    return None


def choose(addresses: Sequence[Address]) -> Address | None:
    """Return the address whose response says most, None if there is none that can be checked."""
    return min((each for each in addresses if each.kind in _RANKS), key=lambda each: _RANKS[each.kind], default=None)


def _accepts(address: Address) -> bool:
    """Return whether an address is in use. A listener may have been removed since the start."""
    try:
        socket.create_connection((address.host, address.port), TIMEOUT_S).close()
    except ConnectionRefusedError:
        return False
    except OSError:
        return True  # its check reports the reason
    return True


def _health_problem(scheme: str, endpoint: Endpoint) -> str | None:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # it is this machine
    try:
        with urllib.request.urlopen(f"{scheme}://{endpoint}/health/live", timeout=TIMEOUT_S, context=context):
            return None
    except urllib.error.HTTPError as error:
        # Users may be required: then the broker responds, and that is all that can be known.
        return None if error.code == 401 else f"{error.code} {error.read().decode(errors='replace')}"
    except OSError as error:
        return str(error)


def _listener_problem(endpoint: Endpoint) -> str | None:
    """ApiVersions is served before a login."""
    try:
        with AdminClient([endpoint], timeout_ms=int(TIMEOUT_S * 1000)) as admin:
            admin.call(ApiVersionsRequest(), ApiVersionsResponse)
    except (CallTimedOut, UnreachableError, KafkaError) as error:
        return str(error)
    return None


def _tls_problem(endpoint: Endpoint) -> str | None:
    """A handshake shows that the broker responds, even one that it ends because it expects a certificate."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with (
            socket.create_connection(endpoint, TIMEOUT_S) as plain,
            context.wrap_socket(plain, server_hostname=endpoint.host),
        ):
            return None
    except ssl.SSLError:
        return None
    except OSError as error:
        return str(error)


_CHECKS: Final[Mapping[str, Callable[[Endpoint], str | None]]] = {
    "http": partial(_health_problem, "http"),
    "https": partial(_health_problem, "https"),
    "PLAINTEXT": _listener_problem,
    "SASL_PLAINTEXT": _listener_problem,
    "SSL": _tls_problem,
    "SASL_SSL": _tls_problem,
}
"""The checks by kind, the one that says most first."""
_RANKS: Final[Mapping[str, int]] = {kind: rank for rank, kind in enumerate(_CHECKS)}


if __name__ == "__main__":
    raise SystemExit(main())
