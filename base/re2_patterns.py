"""Regular expressions of clients: RE2, whose search takes linear time, whatever the expression.

Owns how they are compiled. Must not know: what they match, or who sent them.
"""

from __future__ import annotations

from collections.abc import Callable


def matcher(pattern: str) -> Callable[[str], bool]:
    """Return the test whether a whole text matches. Raises ValueError with the reason for an invalid expression."""
    import re2  # on demand: few requests have an expression

    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0].decode() if isinstance(error.args[0], bytes) else str(error)
        raise ValueError(reason) from error
    return lambda text: compiled.fullmatch(text) is not None
