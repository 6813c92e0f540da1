"""Users of the HTTP port: `name:password,name:password`.

Owns the syntax. Must not know which setting holds them.
"""


def parse_http_users(text: str) -> dict[str, str]:
    """Return the password of each user.

    Raises:
        ValueError: an entry has no name or no password, or a name occurs twice. The message has no password.
    """
    users: dict[str, str] = {}
    for number, entry in enumerate(text.split(","), start=1):
        name, _, password = entry.strip().partition(":")
        if not name or not password:
            raise ValueError(f"Expected name:password,..., found entry {number} without a name or a password")
        if name in users:
            raise ValueError(f"Each user may be named once, found {name} twice")
        users[name] = password
    return users
