"""Topic names on a command line: one name, several separated by commas, or a regular expression.

Owns the syntax and its regular expression. Must not know which topics exist.
"""

import re

from tools.base.command_line import UsageError


def topic_expression(text: str) -> str:
    """Return the regular expression of a list: a comma is an "or"; blanks and quotes around it are ignored."""
    return text.strip("\"' ").replace(",", "|").replace(" ", "")


def topic_pattern(text: str) -> re.Pattern[str]:
    """Return the pattern that whole topic names match. Raises UsageError."""
    try:
        return re.compile(topic_expression(text))
    except re.error as error:
        raise UsageError(f"{text} is an invalid regex: {error}") from None
