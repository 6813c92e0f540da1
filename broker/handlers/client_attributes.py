"""What a request shows of the client that pushes metrics."""

from broker.handlers.request_context import RequestContext
from broker.telemetry.client_instances import ClientAttributes


def attributes_of(context: RequestContext) -> ClientAttributes:
    """Return the attributes by which subscriptions match clients."""
    channel = context.channel
    return ClientAttributes(context.client_id, *channel.software, channel.client_host, channel.client_port)
