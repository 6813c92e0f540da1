"""Responses to requests about security features that are not configured, in Kafka's words.

Owns the wording and the code. Must not know the APIs, of which each has its handler.
"""

from __future__ import annotations

from typing import Final

NO_AUTHORIZER: Final = "No Authorizer is configured."

# On a listener without authentication every client counts as authenticated from its first request on.
LOGGED_IN_ALREADY: Final = "SaslAuthenticate request received after successful authentication"
