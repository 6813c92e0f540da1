"""Topic ids as text: 22 characters of URL-safe base64 without padding, as Kafka prints them.

Owns the text form, nothing else.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from uuid import UUID

_BYTE_COUNT = 16


def topic_id_text(topic_id: UUID) -> str:
    """Return the text of an id."""
    return urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode()


def parse_topic_id(text: str) -> UUID | None:
    """Return the id of a text; None if it is not one."""
    try:
        data = urlsafe_b64decode(text + "==")
    except ValueError:
        return None
    return UUID(bytes=data) if len(data) == _BYTE_COUNT else None
