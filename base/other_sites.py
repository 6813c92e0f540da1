"""Which requests the page of another web site has caused, as the browser says.

Browsers send `Sec-Fetch-Site` to addresses that they trust, and `Origin` with requests that may change something. Other
clients send neither. Owns the rule. Must not know who serves the request.
"""

from collections.abc import Mapping


def other_site(headers: Mapping[str, str], *, is_link_followed: bool = False) -> str | None:
    """Return what names another site as the source of a request, for a message; None if nothing does.

    Args:
        headers: those of the request; the mapping ignores the case of names.
        is_link_followed: whether the request is served if a user follows a link of another site.
    """
    site = headers.get("Sec-Fetch-Site", "none")
    is_navigation = is_link_followed and headers.get("Sec-Fetch-Mode") == "navigate"
    if site not in ("none", "same-origin") and not is_navigation:
        return f"another site ({site[:20]})"
    origin = headers.get("Origin")
    if origin is not None and origin.partition("://")[2] != headers.get("Host", ""):
        return f"the origin {origin[:100]!r}"
    return None
