"""Which topics of the members of a group a client may learn from a description of the group (KIP-848, KIP-932).

Owns the rule, which is that of Kafka 4: a group is not described to a client that may not describe one of the topics.
Must not know the responses.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from broker.handlers.request_context import RequestContext
from broker.security.acls import Operation, ResourceType
from broker.security.authorizer import Authorizer

HIDDEN: Final = "Members of the group have topics that the client may not describe."
NOTE: Final = "and Describe on the topics of its members"


def hides_some(authorizer: Authorizer, context: RequestContext, names: Collection[str]) -> bool:
    """Return whether the client may not describe one of these topics."""
    return bool(authorizer.denied(context, Operation.DESCRIBE, ResourceType.TOPIC, names, is_logged_if_denied=False))
