"""The folder of the user for what programs keep between runs (XDG Base Directory Specification).

Owns its place. Must not know what is kept there.
"""

import os
from pathlib import Path


def state_folder() -> Path:
    """Return the folder; it may not exist yet."""
    base = os.environ.get("XDG_STATE_HOME", "")
    return (Path(base) if base.startswith("/") else Path.home() / ".local" / "state") / "milena"
